/* SPDX-License-Identifier: Apache-2.0
 *
 * The groups of workers that take part in a collective together (what MPI and NCCL call a communicator). For each kind
 * of collective the workers of a plan are divided into groups, and a worker is in at most one group of each kind. The
 * numbers of workers: core/plan/workers.h.
 */
#ifndef PP_CORE_PLAN_GROUP_H
#define PP_CORE_PLAN_GROUP_H

#include "core/plan/workers.h"

/* n workers. Without runs (run = 0) they are first, first + stride, first + 2 stride, ...
 * With runs, the first `run` workers are these, the next `run` workers begin at first + jump, the next at
 * first + 2 jump, and so on. */
struct pp_group {
    int first, stride, n;
    int run, jump;
};

/* The worker that is number `member` of the group, 0 <= member < n, and the reverse. */

static inline int pp_group_worker(const struct pp_group *group, int member)
{
    if (!group->run) return group->first + member * group->stride;
    return group->first + member / group->run * group->jump + member % group->run * group->stride;
}
static inline int pp_group_member(const struct pp_group *group, int worker)
{
    const int offset = worker - group->first;
    if (!group->run) return offset / group->stride;
    return offset / group->jump * group->run + offset % group->jump / group->stride;
}

/* The worker's tensor-parallel, expert-parallel or context-parallel group, for collectives inside a task. */
struct pp_group pp_join_members(const struct pp_plan *plan, int worker, enum pp_join_group group);
/* The size of such a group. It is the same for all workers. */
int pp_join_size(const struct pp_plan *plan, enum pp_join_group group);

/* The data-parallel group of a set of parameters, for REDUCE_GRAD and GATHER_PARAM: the workers that hold the same
 * parameters of the set, in the order of their replicas; with several shard groups (pp_plan.shard_group) those of the
 * worker's own. For PP_DENSE it includes the expert ranks of each replica. */
struct pp_group pp_replica_group(const struct pp_plan *plan, int worker, enum pp_param_set set);
/* For REDUCE_SHARE: the workers that own the same share, one of each shard group. */
struct pp_group pp_share_group(const struct pp_plan *plan, int worker);
/* For NORM_ALL: all workers of the worker's replica, rank by rank; with ZeRO those of its shard group. */
struct pp_group pp_norm_group(const struct pp_plan *plan, int worker);
/* For REDUCE_TIED: the two workers of a replica that are this member of the ranks of the first and of the last stage;
 * one worker if both stages are on one rank. */
struct pp_group pp_tied_group(const struct pp_plan *plan, int replica, int member);

#endif
