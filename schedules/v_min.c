/* SPDX-License-Identifier: Apache-2.0
 *
 * V-Min (see v_block.h): the least activations that are possible on a V, a third of 1F1B's. Every rank holds at most
 * floor((P+4)/3) microbatches from F to W; a microbatch goes down the V and back without waiting. If F = I = W = 2
 * slots and M >= P, the span is 6M + 4P-5 slots, or 6M + 4P-7 if 3 divides P (6M for P = 1). If F, I and W take
 * different times, there is no slack between passes that could even them out, and the bubble grows with M.
 */
#include "schedules/v_block.h"
#include "schedules/v_shape.h"

static void block(int ranks, int rank, int64_t slots[PP_V_PASSES])
{
    const int64_t p = ranks, r = rank, wait = p % 3 ? 0 : 2; /* without it two passes would have the same slot */
    slots[PP_V_F0] = r;
    slots[PP_V_F1] = 2 * p - 1 - r;
    slots[PP_V_I1] = 2 * p + wait + r;
    slots[PP_V_I0] = 4 * p - 1 + wait - r;
}

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    return pp_order_v_block(shape, rank, block, 2 * ((shape->ranks + 4) / 3), out);
}

const struct pp_schedule pp_schedule_v_min = {.name = "v-min",
                                              .summary = "zero bubble on a V, least memory: for (P+4)/3",
                                              .virtual_stages = PP_TWO_STAGES,
                                              .order = order,
                                              .stage_rank = pp_v_stage_rank};
