/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved 1F1B with a split backward (order of torch.distributed.pipelining ScheduleInterleavedZeroBubble, after Qi
 * et al. 2024): I, which other ranks wait for, takes the place of B. Rank r runs the W of an I after r further Is, so
 * that its last r Ws fill its bubble at the end.
 *
 *   P = 2, V = 2, M = 4 (stage, kind, microbatch):
 *   rank 0  0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3
 *   rank 1  1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3
 */
#include "schedules/interleaved.h"

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    return pp_interleaved_order(shape, rank, true, out);
}

const struct pp_schedule pp_schedule_interleaved_zb = {.name = "interleaved-zb",
                                                       .torch_name = "InterleavedZeroBubble",
                                                       .summary =
                                                           "interleaved 1F1B whose weight gradients fill bubbles",
                                                       .number = PP_NUMBER_IN_TURN,
                                                       .virtual_stages = PP_ANY_STAGES,
                                                       .check = pp_interleaved_check,
                                                       .order = order};
