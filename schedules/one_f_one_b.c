/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B (PipeDream-Flush, Narayanan et al. 2021; DAPPLE; torch.distributed.pipelining Schedule1F1B): rank r runs P-1-r
 * forwards ahead, then one forward and one backward in turn, then the remaining backwards. At most P-r microbatches are
 * held. Unlike PyTorch, fewer microbatches than stages are accepted.
 *
 *   rank 0  F0 F1          B0 F2 B1 F3 B2    B3
 *   rank 1     F0 B0 F1 B1    F2 B2    F3 B3
 */
#include "schedules/schedule.h"

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    int m = shape->microbatches, ahead = shape->ranks - 1 - rank;
    if (ahead > m) ahead = m;
    for (int f = 0; f < ahead; f++) PP_TRY(pp_order_add(out, PP_F, rank, f));
    for (int b = 0; b < m; b++) {
        if (ahead + b < m) PP_TRY(pp_order_add(out, PP_F, rank, ahead + b));
        PP_TRY(pp_order_add(out, PP_B, rank, b));
    }
    return PP_OK;
}

const struct pp_schedule pp_schedule_one_f_one_b = {
    .name = "1f1b", .summary = "one forward, one backward in turn; holds at most P microbatches", .order = order};
