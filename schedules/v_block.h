/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders that repeat a building block (Qi, Wan, Amar, Lin 2024, "Pipeline Parallelism with Controllable Memory"). Each
 * rank has two stages, which lie on a V (v_shape.h). Time is counted in slots, each as long as one pass (F, I or W) of
 * one stage. The block says in which slots rank r runs the passes of one microbatch: F0 and I0 of stage r, F1 and I1 of
 * stage 2P-1-r. Microbatch m has the same slots, 6 m later, since a rank has six passes of a microbatch: the other two,
 * W0 and W1, get slots that are free. The longer the time from F to I, the more microbatches a rank holds at a time: so
 * the block decides the memory.
 *
 * An order of blocks alone has idle ranks at its beginning and its end. The paper's search moves passes there to
 * earlier slots, one by one, as the memory allows. Here a pass gets its slot by rule, from three candidates:
 *
 *   steady   the block's slot, with the whole order moved so that I0 of the first microbatch on rank 0 is one slot
 *            after `soonest`
 *   soonest  the first microbatch goes down the V and back without waiting, and every other one follows two slots
 *            after the one before it
 *   hurry    (I1 and I0 only) the last microbatch goes back without waiting as soon as its F1 on rank 0 is done; each
 *            microbatch before it is four slots earlier (which leaves room for I1, I0 and both Ws), the last few are
 *            closer together
 *
 * The slot is `hurry` if that is at most one slot after `steady`, else `steady`; but at least `soonest`.
 *
 * Why no deadlock is possible: each of the three grows along every data dependency, and with the microbatch. So does
 * the chosen slot, because `hurry` minus `steady` does not grow along a microbatch's way, nor from one microbatch to
 * the next. Hence the orders of all ranks are parts of one order, even where two passes of a rank have the same slot.
 * Making the order of a rank takes time and memory in proportion to M, and independent of P.
 *
 * How good it is: if F = I = W and M >= P, the spans are the closed forms in v_half.c and v_min.c, equal to those of
 * the authors' search, except that V-Half from P = 21 on takes one slot more for about every 28 ranks. For other times
 * and M >= P (tried up to P = 10) the span is at most 1.7 per cent longer than the search's, and shorter on average.
 * With fewer microbatches it is mostly shorter; V-Min's with 2 microbatches is up to 6 per cent longer.
 */
#ifndef PP_SCHEDULES_V_BLOCK_H
#define PP_SCHEDULES_V_BLOCK_H

#include "schedules/schedule.h"

enum pp_v_pass { PP_V_F0, PP_V_F1, PP_V_I1, PP_V_I0, PP_V_PASSES }; /* in the order in which a microbatch has them */

/* A building block: writes the slots of microbatch 0 on `rank`. No two of the four are equal modulo 6. */
typedef void (*pp_v_block)(int ranks, int rank, int64_t slots[PP_V_PASSES]);

/* Appends F, I and W of `rank`. most: the most pairs of stage and microbatch that a rank may hold between F and W;
 * before an F that would exceed it, Ws are run. */
pp_status pp_order_v_block(const struct pp_schedule_shape *shape, int rank, pp_v_block block, int most,
                           struct pp_order *out) PP_MUST_CHECK;

#endif
