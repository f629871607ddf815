/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers of a plan: how they are numbered, and what each of them is.
 */
#ifndef PP_CORE_WORKERS_H
#define PP_CORE_WORKERS_H

#include "core/plan.h"
#include "core/shape.h"

/* Workers are numbered ((replica / C * ranks + rank) * C + context rank) * members + member: those that meet inside a
 * task are next to each other. */
static inline int pp_plan_workers(const struct pp_plan *plan) { return plan->replicas * plan->ranks * plan->members; }
static inline int pp_plan_neighbours(const struct pp_plan *plan) { return plan->context * plan->members; }
static inline int pp_worker_at(const struct pp_plan *plan, int replica, int rank, int member)
{
    const int group = replica / plan->context, context_rank = replica % plan->context;
    return ((group * plan->ranks + rank) * plan->context + context_rank) * plan->members + member;
}
static inline int pp_worker_context_rank(const struct pp_plan *plan, int worker)
{
    return worker / plan->members % plan->context;
}
static inline int pp_worker_replica(const struct pp_plan *plan, int worker)
{
    const int group = worker / (plan->ranks * plan->context * plan->members);
    return group * plan->context + pp_worker_context_rank(plan, worker);
}
static inline int pp_worker_rank(const struct pp_plan *plan, int worker)
{
    return worker / (plan->context * plan->members) % plan->ranks;
}
static inline int pp_worker_member(const struct pp_plan *plan, int worker) { return worker % plan->members; }

/* T; which of the T, and which of the N, a worker is. */
static inline int pp_plan_tensor(const struct pp_plan *plan) { return plan->members / plan->expert_parallel; }
static inline int pp_worker_tensor_rank(const struct pp_plan *plan, int worker)
{
    return worker % pp_plan_tensor(plan);
}
static inline int pp_worker_expert_rank(const struct pp_plan *plan, int worker)
{
    return pp_worker_member(plan, worker) / pp_plan_tensor(plan);
}

/* Which workers meet inside a task (core/group.h). */
enum pp_join_group {
    PP_JOIN_TENSOR_RANKS,  /* the T that have parts of the tensors */
    PP_JOIN_EXPERT_RANKS,  /* the N with the same parts who share the experts */
    PP_JOIN_CONTEXT_RANKS, /* the C with the same parts who share the tokens of rows */
    PP_JOIN_GROUPS
};

/* Rows of a batch are dealt out to so many, D: to the replicas, but one of each C, or to each of a replica's expert
 * ranks. Which of them has a worker's rows, in 0 .. D-1. */
static inline int pp_plan_data_parallel(const struct pp_plan *plan)
{
    return plan->replicas / plan->context * plan->expert_parallel;
}
static inline int pp_worker_data_rank(const struct pp_plan *plan, int worker)
{
    return pp_worker_replica(plan, worker) / plan->context * plan->expert_parallel +
           pp_worker_expert_rank(plan, worker);
}

/* Its tokens to so many: as many, times C. Which of them has a worker's tokens; the first worker of a rank that has
 * these. */
static inline int pp_plan_token_parts(const struct pp_plan *plan) { return plan->replicas * plan->expert_parallel; }
static inline int pp_worker_token_part(const struct pp_plan *plan, int worker)
{
    return pp_worker_replica(plan, worker) * plan->expert_parallel + pp_worker_expert_rank(plan, worker);
}
static inline int pp_token_part_worker(const struct pp_plan *plan, int part, int rank)
{
    const int expert_rank = part % plan->expert_parallel;
    return pp_worker_at(plan, part / plan->expert_parallel, rank, expert_rank * pp_plan_tensor(plan));
}

/* So many have the same parameters of a set, and share them, or sum their gradients; which of these a worker is, in
 * 0 .. n-1: its share's number, where there are any. Of what is no expert's, expert ranks are as replicas. */
static inline int pp_plan_sharers(const struct pp_plan *plan, enum pp_param_set set)
{
    return set == PP_EXPERTS ? plan->shard_group : plan->shard_group * plan->expert_parallel;
}
static inline int pp_worker_share(const struct pp_plan *plan, int worker, enum pp_param_set set)
{
    const int replica = pp_worker_replica(plan, worker) % plan->shard_group;
    return set == PP_EXPERTS ? replica : replica * plan->expert_parallel + pp_worker_expert_rank(plan, worker);
}
/* Of the first group, the worker of a rank that has this share, and the same part of the rank's tensors as `member`. */
static inline int pp_share_worker(const struct pp_plan *plan, int share, enum pp_param_set set, int rank, int member)
{
    const int tensor = pp_plan_tensor(plan), n = plan->expert_parallel;
    if (set == PP_EXPERTS) return pp_worker_at(plan, share, rank, member);
    return pp_worker_at(plan, share / n, rank, share % n * tensor + member % tensor);
}

/* Has a task of this kind, which combines, a collective for a set, where there is something of it? */
static inline bool pp_combines_set(const struct pp_plan *plan, int kind, enum pp_param_set set)
{
    const bool of_replicas = kind == PP_REDUCE_GRAD || kind == PP_GATHER_PARAM;
    return set == PP_DENSE || (of_replicas && plan->expert_parallel > 1 && pp_plan_sharers(plan, set) > 1);
}

/* Do replicas meet in this task? And the first of those that a replica meets; where it meets none, itself. */
static inline bool pp_joins_replicas(const struct pp_plan *plan, int kind)
{
    return kind == PP_REDUCE_GRAD || kind == PP_REDUCE_SHARE || kind == PP_GATHER_PARAM ||
           (plan->zero && kind == PP_NORM_ALL);
}
static inline int pp_first_met(const struct pp_plan *plan, int kind, int replica)
{
    if (!pp_joins_replicas(plan, kind)) return replica;
    return kind == PP_REDUCE_SHARE ? replica % plan->shard_group : replica - replica % plan->shard_group;
}

/* Of the members of a rank that a worker meets in this task, the first; where it meets none, itself. */
static inline int pp_first_member_met(const struct pp_plan *plan, int kind, int worker)
{
    if (kind == PP_NORM_ALL) return 0;
    const bool expert_ranks = kind == PP_REDUCE_GRAD || kind == PP_GATHER_PARAM;
    return expert_ranks ? pp_worker_tensor_rank(plan, worker) : pp_worker_member(plan, worker);
}

/* Those of the first rows evaluate: the first replica, and others that have parts of its tokens; with shards of
 * parameters all of its group, who have them. */
static inline bool pp_worker_evaluates(const struct pp_plan *plan, int worker)
{
    return pp_worker_replica(plan, worker) < (plan->shard_params ? plan->shard_group : plan->context);
}

/* Workers between which the norm is made: those of a replica, or of a group that shares. */
static inline int pp_norm_workers(const struct pp_plan *plan)
{
    return (plan->zero ? plan->ranks * plan->shard_group : plan->ranks) * plan->members;
}

#endif
