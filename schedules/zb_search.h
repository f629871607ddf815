/* SPDX-License-Identifier: Apache-2.0
 *
 * Automatic zero-bubble scheduling under a memory limit (Qi, Wan, Huang, Lin 2024, "Zero Bubble Pipeline Parallelism",
 * section 3): orders of F, I and W for one stage per rank, from the times of each.
 *
 * A list scheduler that knows what time it is on every rank. After a warm-up of as many forwards as fit before the
 * first gradient comes back, each round runs one forward (or none) on every rank from the first to the last, and one I
 * from the last to the first. W go where a rank would wait: always if they fit into the gap; if they do not, where the
 * wait would raise the worst rank's cost (costs never fall); and where memory is short. What is left to choose is tried
 * out, 8 ways with each of several leads of a rank over the next, which the paper does not have: with one alone, long
 * hops are used badly. Orders without rounds, in which no rank waits while it can do something, are tried too (they are
 * better with memory for less than P microbatches; not where there are so many that this would take long), and the
 * handcrafted ones of zero_bubble.h. The best is kept, the first of equals: equal input gives equal orders on every
 * machine. It need not be the best there is. An order is given up as soon as its worst rank costs more than the best
 * order takes, and not made where it would be one that was made before; that changes no result.
 *
 * A rank counts a microbatch's memory from the start of F to the end of W, until the end of I as the larger of
 * `held` and `held_weight`: so an I never has to wait for memory, and every limit that one microbatch fits in works.
 */
#ifndef PP_SCHEDULES_ZB_SEARCH_H
#define PP_SCHEDULES_ZB_SEARCH_H

#include <stdint.h>

#include "core/plan.h"

struct pp_zb_problem {
    int ranks, microbatches;
    const struct pp_stage_costs *costs;
    /* [ranks] in any one unit: memory of a microbatch from the start of F to the end of I, and from there to the end of
     * W; memory that there is */
    const int64_t *held, *held_weight, *cap;
    bool span; /* least span, then least makespan; else the other way round */
};

/* kinds: [ranks][3 * microbatches] PP_F, PP_I and PP_W in order; of each kind the microbatches are in order. Time grows
 * with ranks * microbatches; on a terminal a long search says how far it is. Memory is 19 bytes for each of them beside
 * `kinds`. PP_USAGE where a rank has no memory for one microbatch. */
pp_status pp_zb_search(const struct pp_zb_problem *problem, uint8_t *kinds) PP_MUST_CHECK;

#endif
