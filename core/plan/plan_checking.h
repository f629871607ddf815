/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of pp_plan_check(), shared between the files core/plan/plan_*.c. Nothing else includes this. All return
 * PP_INPUT for a wrong plan, with a message of pp_plan_bad() or one like it.
 */
#ifndef PP_CORE_PLAN_PLAN_CHECKING_H
#define PP_CORE_PLAN_PLAN_CHECKING_H

#include "core/base/log.h"
#include "core/plan/plan.h"

/* Fails with PP_INPUT and the message "the plan is wrong: rank R, task N (F s0 m0): what". R is the (first) rank of the
 * task's lane; for NORM_ALL the message has "all ranks" instead of "rank R". */
pp_status pp_plan_bad(const struct pp_plan *plan, int32_t task, const char *what);

/* plan_ranks.c, called first: numbers of workers are such that groups of them are equal; rows follow each other; each
 * rank has a stage and a compute lane; stages, lanes and classes name only ranks and stages that exist. */
pp_status pp_ranks_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_pools.c, called next: pools have ranks that exist and slots in range, and stages name pools of their rank. */
pp_status pp_pools_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_acts.c, called when pools are right: an activation slot has a part for layers, and its parts are different
 * slots of pools for activations, all of one rank. */
pp_status pp_acts_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_tasks.c, called before all checks that follow what tasks refer to: indices in tasks are in range, and lanes
 * and classes are those of the task's kind and stage. *entries: so many the issue lists of all ranks must have. */
pp_status pp_tasks_check(const struct pp_plan *plan, int64_t *entries) PP_MUST_CHECK;

/* plan_sums.c, for plans whose parameters several workers hold, without ZeRO 2 and 3: the gradients of each stage are
 * summed part by part after they were computed (REDUCE_GRAD, then, with several shard groups, REDUCE_SHARE) and before
 * NORM or STEP reads them. */
pp_status pp_sums_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_tied.c, for plans with tied embedding and decoder: there is one REDUCE_TIED, after all tasks that compute or sum
 * the gradients of the first and the last stage, and before NORM or STEP of these stages. */
pp_status pp_tied_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_shards.c, for plans with ZeRO 2 or 3: parameters are gathered before they are read, and the gradients of every
 * microbatch are summed and added to the own share (ADD_GRAD) before they are overwritten and before NORM or STEP. */
pp_status pp_shards_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* plan_norm.c, called for all tasks in the order of their ids: there is one NORM_ALL, which waits for all NORMs, and,
 * if gradients are clipped, every STEP waits for it. */
struct pp_norm_check {
    int32_t first, last; /* the first and the last NORM so far; -1: none */
    int32_t all;         /* NORM_ALL; -1: not yet */
};
pp_status pp_norm_check_task(struct pp_norm_check *c, const struct pp_plan *plan, int32_t id) PP_MUST_CHECK;

/* --- plan_issue.c: are the issue lists complete, and free of deadlock even if nothing is buffered? ---
 *
 * The builder makes lists that are in ascending order of ids. That is enough: of the tasks that are not done, the one
 * with the smallest id stands at the head of all its lists, so it can run, and then the next one, and so on. This is
 * checked on the way, while pp_plan_check() passes over the tasks. Lists in another order may be free of deadlock, too:
 * they are then walked as one in-order queue per rank, which also finds the task to name in the message. */

/* The entries at the head of a rank's list. They are copied a cache line at a time: the lists of many ranks lie at
 * such distances that reading them in turn would use only a few sets of the caches. */
struct pp_issue_head {
    int64_t next;               /* index into plan->issue of the first entry that was not copied yet */
    int32_t n, at, entries[16]; /* n copied entries, of which entries[at] is the next */
};

struct pp_issue_check {
    const struct pp_plan *plan;
    int64_t entries;             /* in the lists of all ranks, if they are right: no more are read */
    struct pp_issue_head *heads; /* [ranks] */
    bool ascending;              /* so far all lists are in ascending order and complete */
};

/* entries: from pp_tasks_check(). */
pp_status pp_issue_check_begin(struct pp_issue_check *c, const struct pp_plan *plan, int64_t entries) PP_MUST_CHECK;
void pp_issue_check_release(struct pp_issue_check *c);

/* Called after pp_issue_check_task() for all tasks. Walks the lists if they are not in ascending order. */
pp_status pp_issue_check_end(const struct pp_issue_check *c) PP_MUST_CHECK;

/* Copies the next entries of the rank's list into its head; false at the end of the list. */
bool pp_issue_read(struct pp_issue_check *c, int rank);

/* Takes the next entry of the rank's list: is it `entry`? */
static inline bool pp_issue_check_next(struct pp_issue_check *c, int rank, int32_t entry)
{
    if (rank < 0 || rank >= c->plan->ranks) return false;
    struct pp_issue_head *head = &c->heads[rank];
    if (head->at == head->n && !pp_issue_read(c, rank)) return false;
    return head->entries[head->at++] == entry;
}

/* Notes task `id`, whose lane has been checked. Call it for ids 0, 1, 2, ... */
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
