/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders from a building block (Qi, Wan, Amar, Lin 2024, "Pipeline Parallelism with Controllable Memory"): where on a V
 * of two stages per rank the passes of one microbatch lie, in slots as long as one pass of one stage. Rank r has the
 * passes F0 and I0 of stage r and F1 and I1 of stage 2P-1-r. Microbatch m is the block six slots times m later, for a
 * rank has six passes of a microbatch; the other two are W0 and W1, in slots that are free. The longer from F to I, the
 * more microbatches a rank holds at a time: the block decides the memory.
 *
 * Such an order begins and ends with idle ranks. The paper moves passes there to earlier slots, one by one, where the
 * peak of memory allows it. Here each pass has a slot by rule:
 *
 *   steady   the block's slot, the whole order so much earlier that the first microbatch's I0 on rank 0 is one slot
 *            after the soonest
 *   soonest  the first microbatch goes down the V and back without waiting, each other one is two slots after the one
 *            before it
 *   hurry    of I1 and I0: the last microbatch goes on without waiting when its F1 is done on rank 0, each one before
 *            it is four slots earlier (room for I1, I0 and both W), the last few closer
 *
 * The slot is hurry where that is at most one slot after steady, else steady; and never before soonest. Each of the
 * three grows along every data dependency and with the microbatch. So does what is taken of them, for hurry minus
 * steady does not grow along a microbatch's way, nor from one microbatch to the next. Hence all ranks' orders are
 * parts of one order, and can be done together, even where two passes of a rank have the same slot. The order of a
 * rank takes time and memory in proportion to M, whatever P is.
 *
 * Where F = I = W and M >= P, the spans are the closed forms in v_half.c and v_min.c, as those of the authors' search;
 * V-Half from P = 21 on takes a slot more for about each 28 ranks. For other times and M >= P (tried to P = 10) the
 * span is at most 1.7 per cent longer than the search's, and shorter on the average; with fewer microbatches it is
 * mostly shorter, and V-Min's with 2 of them up to 6 per cent longer.
 */
#ifndef PP_SCHEDULES_V_BLOCK_H
#define PP_SCHEDULES_V_BLOCK_H

#include "schedules/schedule.h"

enum pp_v_pass { PP_V_F0, PP_V_F1, PP_V_I1, PP_V_I0, PP_V_PASSES }; /* as a microbatch goes through them */

/* The slots of microbatch 0 on `rank`. Modulo six, the four differ. */
typedef void (*pp_v_block)(int ranks, int rank, int64_t slots[PP_V_PASSES]);

/* Appends F, I and W of `rank`. `most`: stages of microbatches that a rank holds between F and W; where another F would
 * be one more, a W goes first. */
pp_status pp_order_v_block(const struct pp_schedule_shape *shape, int rank, pp_v_block block, int most,
                           struct pp_order *out) PP_MUST_CHECK;

#endif
