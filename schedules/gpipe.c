/* SPDX-License-Identifier: Apache-2.0
 *
 * GPipe (Huang et al., 2019; torch.distributed.pipelining ScheduleGPipe): all forwards, then all backwards, both in the
 * order of the microbatches. Backwards begin with microbatch 0, as in torch.distributed.pipelining; the older torch
 * Pipe began with the last one.
 *
 *   rank 0  F0 F1 F2 F3          B0 B1 B2 B3
 *   rank 1     F0 F1 F2 F3 B0 B1 B2 B3
 */
#include "schedules/schedule.h"

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    const int stage = rank; /* each rank has one */
    for (int m = 0; m < shape->microbatches; m++) PP_TRY(pp_order_add(out, PP_F, stage, m));
    for (int m = 0; m < shape->microbatches; m++) PP_TRY(pp_order_add(out, PP_B, stage, m));
    return PP_OK;
}

const struct pp_schedule pp_schedule_gpipe = {
    .name = "gpipe",
    .summary = "all forwards, then all backwards; simple, holds all microbatches",
    .leaner = "1f1b",
    .order = order};
