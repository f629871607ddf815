/* SPDX-License-Identifier: Apache-2.0
 *
 * Automatic zero-bubble scheduling under a memory limit (Qi, Wan, Huang, Lin 2024, "Zero Bubble Pipeline Parallelism",
 * section 3): orders of F, I and W for one stage per rank, from the times of each.
 *
 * It makes many orders, and keeps the one that takes least time (of equal ones the first, so that equal input gives
 * equal orders on every machine). It need not be the best one possible. These orders are tried:
 *   - In rounds, made by a list scheduler that knows the time on every rank. The warm-up runs as many forwards as fit
 *     before the first gradient comes back. Then each round runs one forward (or none) on every rank, from the first to
 *     the last, and one I on every rank, from the last to the first. A W is run where the rank would otherwise wait, if
 *     it fits into the gap, or if the wait would raise the cost of the worst rank (costs never fall); and where memory
 *     is short. What this leaves open is tried out: 8 ways (see zb_walk.h), each with several leads of a rank over the
 *     next one. Leads are not in the paper; with a single lead, long hops are used badly.
 *   - Without rounds: no rank waits while it can do something. They are better if there is memory for fewer than P
 *     microbatches. They are left out where they would take long (many ranks and microbatches).
 *   - The handcrafted orders of zero_bubble.h.
 * To save time, an order is given up as soon as its worst rank costs more than the best order so far, and is not made
 * if it would equal an earlier one. Neither changes the result.
 *
 * Memory: from the start of F to the end of I a microbatch counts as the larger of `held` and `held_weight`, then to
 * the end of W as `held_weight`. So an I never has to wait for memory, and every limit that has room for one microbatch
 * works.
 */
#ifndef PP_SCHEDULES_ZB_SEARCH_H
#define PP_SCHEDULES_ZB_SEARCH_H

#include <stdint.h>

#include "core/base/status.h"
#include "core/plan/plan_spec.h"
#include "core/plan/task.h"

struct pp_zb_problem {
    int ranks, microbatches;
    const struct pp_stage_costs *costs;
    /* [ranks], in any one unit. held: memory of a microbatch from the start of F to the end of I; held_weight: from
     * there to the end of W; cap: memory of the rank */
    const int64_t *held, *held_weight, *cap;
    bool span; /* true: seek the least span, and of equal ones the least makespan; false: the other way round */
};

/* Fills kinds[ranks][3 * microbatches] with the order of each rank: PP_F, PP_I or PP_W. The microbatches of each kind
 * are in ascending order. Time grows with ranks * microbatches; on a terminal a long search shows its progress. It uses
 * 19 bytes of memory for each pair of rank and microbatch, besides `kinds`. PP_USAGE if a rank has no memory for one
 * microbatch. */
pp_status pp_zb_search(const struct pp_zb_problem *problem, uint8_t *kinds) PP_MUST_CHECK;

#endif
