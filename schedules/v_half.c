/* SPDX-License-Identifier: Apache-2.0
 *
 * V-Half (see v_block.h): half the activations of 1F1B. Every rank holds at most floor((P+2)/2) microbatches from F to
 * W. F0 and I1, which go from rank 0 towards rank P-1, advance one rank in two slots, F1 and I0 one rank in one slot,
 * so that all ranks hold equally much. If F = I = W = 2 slots and M >= P, the span is 6M + 3P-7 slots for even P (6M +
 * 1 for P = 2) and 6M + 3P-4 for odd P (6M for P = 1).
 */
#include "schedules/v_block.h"
#include "schedules/v_shape.h"

static void block(int ranks, int rank, int64_t slots[PP_V_PASSES])
{
    const int64_t p = ranks, r = rank, wait = p % 2 ? 0 : 3; /* without it two passes would have the same slot */
    slots[PP_V_F0] = 2 * r;
    slots[PP_V_F1] = 3 * p - 2 - r;
    slots[PP_V_I1] = 3 * p - 1 + wait + 2 * r;
    slots[PP_V_I0] = 6 * p - 2 + wait - r;
}

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    return pp_order_v_block(shape, rank, block, 2 * ((shape->ranks + 2) / 2), out);
}

const struct pp_schedule pp_schedule_v_half = {.name = "v-half",
                                               .summary = "zero bubble on a V, half the memory: for (P+2)/2",
                                               .virtual_stages = PP_TWO_STAGES,
                                               .order = order,
                                               .stage_rank = pp_v_stage_rank};
