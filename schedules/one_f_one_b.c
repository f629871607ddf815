/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B (PipeDream-Flush, Narayanan et al. 2021; DAPPLE; torch.distributed.pipelining Schedule1F1B): rank r runs P-1-r
 * forwards ahead, then one forward and one backward in turn, then the remaining backwards. It holds at most P-r
 * microbatches. Unlike in PyTorch, there may be fewer microbatches than stages.
 *
 *   rank 0  F0 F1          B0 F2 B1 F3 B2    B3
 *   rank 1     F0 B0 F1 B1    F2 B2    F3 B3
 */
#include "schedules/one_f_one_b.h"

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    return pp_order_one_f_one_b(shape, rank, shape->ranks - 1 - rank, out);
}

const struct pp_schedule pp_schedule_one_f_one_b = {
    .name = "1f1b", .summary = "one forward, one backward in turn; holds at most P microbatches", .order = order};
