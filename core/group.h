/* SPDX-License-Identifier: Apache-2.0
 *
 * Which workers of a plan meet: to sum, to gather, to exchange. Of each kind there are several groups, and every worker
 * is in one of them, if in any.
 */
#ifndef PP_CORE_GROUP_H
#define PP_CORE_GROUP_H

#include "core/workers.h"

/* n workers: first, first + stride, ...; where there are runs, so many of them, and then as many from first + jump on,
 * and so on. run 0: all are one. */
struct pp_group {
    int first, stride, n;
    int run, jump;
};

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

/* Inside tasks. */
struct pp_group pp_join_members(const struct pp_plan *plan, int worker, enum pp_join_group group);
/* How many: of any worker's. */
int pp_join_size(const struct pp_plan *plan, enum pp_join_group group);

/* Gradients of a set: a worker's replicas, in their order, or those of its group that shares; of what is no expert's
 * the expert ranks of each, too. */
struct pp_group pp_replica_group(const struct pp_plan *plan, int worker, enum pp_param_set set);
/* Shares of them: of each group the worker that has the same share. */
struct pp_group pp_share_group(const struct pp_plan *plan, int worker);
/* The norm: a worker's replica (rank by rank), or the group that shares. */
struct pp_group pp_norm_group(const struct pp_plan *plan, int worker);
/* Gradients of the embedding's copies: of a replica the workers of the first and of the last stage that have the same
 * part; one, where it has both. */
struct pp_group pp_tied_group(const struct pp_plan *plan, int replica, int member);

#endif
