/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of pp_plan_check(), between the files core/plan_*.c. Nothing else includes this. All return PP_INPUT, with
 * a message of pp_plan_bad() or one like it.
 */
#ifndef PP_CORE_PLAN_CHECKING_H
#define PP_CORE_PLAN_CHECKING_H

#include "core/plan.h"

/* "the plan is wrong: rank R, task N (F s0 m0): what". The rank is that of its lane; of a collective of all
 * "all ranks". */
pp_status pp_plan_bad(const struct pp_plan *plan, int32_t task, const char *what);

/* plan_ranks.c: before all else. Ranks, stages and lanes are there, each rank has a stage and its lane, and all name
 * ranks that there are. */
pp_status pp_ranks_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_sums.c: of a plan with replicas and without shards: gradients are summed when they are made, part by part, where
 * replicas share in groups then over these, and before what needs them. */
pp_status pp_sums_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_tied.c: the sum of tied gradients is there once, behind what makes them, and before what needs it. */
pp_status pp_tied_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_shards.c: parameters are gathered before they are read, and all gradients summed and taken. Slots and classes
 * are in range. */
pp_status pp_shards_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_norm.c: for tasks in the order of their ids. NORM_ALL comes once, behind all NORMs, which are in its range, and
 * STEP waits for it where gradients are clipped. */
struct pp_norm_check {
    int32_t first, last, all; /* NORMs so far, NORM_ALL; -1: none yet */
};
pp_status pp_norm_check_task(struct pp_norm_check *c, const struct pp_plan *plan, int32_t id) PP_MUST_CHECK;

/* --- plan_issue.c: are the issue lists complete, and free of deadlock even if nothing is buffered? ---
 *
 * Where every list has its ends in ascending order of ids, as the builder makes them, it is enough to see that: the
 * task with the least id that is not done stands at the head of all its lists, so it can go, and so can every next one.
 * The pass over the tasks sees it by the way. Other lists may be free of deadlock too; they are walked as one
 * in-order queue per rank, which also finds what to blame. */

/* The head of a rank's list. It is read a cache line at a time: the lists of many ranks lie at distances that make them
 * share few sets of the caches. */
struct pp_issue_head {
    int64_t next; /* of the list, to be read */
    int32_t n, at, entries[16];
};

struct pp_issue_check {
    const struct pp_plan *plan;
    struct pp_issue_head *heads; /* [ranks] */
    bool ascending;              /* so far every end stood where its id says */
};

pp_status pp_issue_check_begin(struct pp_issue_check *c, const struct pp_plan *plan) PP_MUST_CHECK;
void pp_issue_check_release(struct pp_issue_check *c);

/* After all tasks. */
pp_status pp_issue_check_end(const struct pp_issue_check *c) PP_MUST_CHECK;

/* Reads on; false at the end of the list. */
bool pp_issue_read(const struct pp_plan *plan, int rank, struct pp_issue_head *head);

/* Is `entry` the next one of the rank's list? */
static inline bool pp_issue_check_next(struct pp_issue_check *c, int rank, int32_t entry)
{
    if (rank < 0 || rank >= c->plan->ranks) return false;
    struct pp_issue_head *head = &c->heads[rank];
    if (head->at == head->n && !pp_issue_read(c->plan, rank, head)) return false;
    return head->entries[head->at++] == entry;
}

/* The ends of a task on a known lane; for ids 0, 1, ... */
static inline void pp_issue_check_task(struct pp_issue_check *c, int32_t id)
{
    const struct pp_lane *lane = &c->plan->lanes[c->plan->tasks[id].lane];
    const int ranks = pp_lane_ranks(c->plan, lane);
    if (!c->ascending) return;
    c->ascending = lane->kind != PP_LANE_CHANNEL || ranks == 2;
    for (int i = 0; i < ranks; i++)
        c->ascending &= pp_issue_check_next(c, pp_lane_rank(lane, i), pp_issue_entry(lane, id, i));
}

#endif
