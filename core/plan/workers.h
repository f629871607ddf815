/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers of a plan: how they are numbered, and what each of them has. core/plan/plan.h explains the letters D, T,
 * N and C, and what replicas and members are.
 *
 *   worker = ((replica / C * P + rank) * C + replica % C) * members + member
 *   member = expert rank * T + tensor rank
 *   replica % C = context rank
 *
 * So workers that exchange data inside a task (tensor, expert and context ranks) have adjacent numbers.
 */
#ifndef PP_CORE_PLAN_WORKERS_H
#define PP_CORE_PLAN_WORKERS_H

#include "core/plan/plan.h"
#include "core/shape/shape.h"

static inline int pp_plan_workers(const struct pp_plan *plan) { return plan->replicas * plan->ranks * plan->members; }
/* Workers of a rank that have adjacent numbers: C T N. */
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

/* T; and the tensor rank and expert rank of a worker. */
static inline int pp_plan_tensor(const struct pp_plan *plan) { return plan->members / plan->expert_parallel; }
static inline int pp_worker_tensor_rank(const struct pp_plan *plan, int worker)
{
    return worker % pp_plan_tensor(plan);
}
static inline int pp_worker_expert_rank(const struct pp_plan *plan, int worker)
{
    return pp_worker_member(plan, worker) / pp_plan_tensor(plan);
}

/* Groups of workers that have collectives inside tasks (core/plan/group.h, core/plan/join.h). */
enum pp_join_group {
    PP_JOIN_TENSOR_RANKS,  /* tensor-parallel group: T workers with different parts of the stage's tensors */
    PP_JOIN_EXPERT_RANKS,  /* expert-parallel group: N workers of one tensor rank with different experts */
    PP_JOIN_CONTEXT_RANKS, /* context-parallel group: C workers of one member with different tokens of the same rows */
    PP_JOIN_GROUPS
};

/* D, the number of shares into which the rows of a batch are dealt out; and the number, 0 to D-1, of the share that a
 * worker has (its data-parallel rank). */
static inline int pp_plan_data_parallel(const struct pp_plan *plan)
{
    return plan->replicas / plan->context * plan->expert_parallel;
}
static inline int pp_worker_data_rank(const struct pp_plan *plan, int worker)
{
    return pp_worker_replica(plan, worker) / plan->context * plan->expert_parallel +
           pp_worker_expert_rank(plan, worker);
}

/* D C, the number of shares into which the tokens of a batch are dealt out; the number of the share that a worker has;
 * and the first worker of a rank that has share `part`. */
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

/* The size of a data-parallel group (pp_replica_group()): the workers that hold the same parameters of a set, and sum
 * their gradients or shard them; with several shard groups those of one. PP_DENSE includes expert ranks. */
static inline int pp_plan_sharers(const struct pp_plan *plan, enum pp_param_set set)
{
    return set == PP_EXPERTS ? plan->shard_group : plan->shard_group * plan->expert_parallel;
}
/* The number of a worker in that group, which with ZeRO is the number of its share. */
static inline int pp_worker_share(const struct pp_plan *plan, int worker, enum pp_param_set set)
{
    const int replica = pp_worker_replica(plan, worker) % plan->shard_group;
    return set == PP_EXPERTS ? replica : replica * plan->expert_parallel + pp_worker_expert_rank(plan, worker);
}
/* The reverse, in the first shard group: the worker of a rank with this share, and with the same part of the rank's
 * tensors as `member`. */
static inline int pp_share_worker(const struct pp_plan *plan, int share, enum pp_param_set set, int rank, int member)
{
    const int tensor = pp_plan_tensor(plan), n = plan->expert_parallel;
    if (set == PP_EXPERTS) return pp_worker_at(plan, share, rank, member);
    return pp_worker_at(plan, share / n, rank, share % n * tensor + member % tensor);
}

/* Does a collective task (pp_combines()) of this kind have a collective for parameters of this set, if its stage has
 * any? */
static inline bool pp_combines_set(const struct pp_plan *plan, int kind, enum pp_param_set set)
{
    const bool of_replicas = kind == PP_REDUCE_GRAD || kind == PP_GATHER_PARAM;
    return set == PP_DENSE || (of_replicas && plan->expert_parallel > 1 && pp_plan_sharers(plan, set) > 1);
}

/* Is a task of this kind a collective of several replicas? */
static inline bool pp_joins_replicas(const struct pp_plan *plan, int kind)
{
    return kind == PP_REDUCE_GRAD || kind == PP_REDUCE_SHARE || kind == PP_GATHER_PARAM ||
           (plan->zero && kind == PP_NORM_ALL);
}
/* The first replica that takes part in this replica's task of this kind; if no others do, the replica itself. */
static inline int pp_first_met(const struct pp_plan *plan, int kind, int replica)
{
    if (!pp_joins_replicas(plan, kind)) return replica;
    return kind == PP_REDUCE_SHARE ? replica % plan->shard_group : replica - replica % plan->shard_group;
}

/* The first member of the worker's rank that takes part in its task of this kind; if no others do, its own member
 * number. */
static inline int pp_first_member_met(const struct pp_plan *plan, int kind, int worker)
{
    if (kind == PP_NORM_ALL) return 0;
    const bool expert_ranks = kind == PP_REDUCE_GRAD || kind == PP_GATHER_PARAM;
    return expert_ranks ? pp_worker_tensor_rank(plan, worker) : pp_worker_member(plan, worker);
}

/* Does the worker take part in evaluations? Those of the first replica do, and of the replicas that share its rows
 * (context parallelism); with ZeRO 3 those of the whole first shard group, since they hold the parameters together. */
static inline bool pp_worker_evaluates(const struct pp_plan *plan, int worker)
{
    return pp_worker_replica(plan, worker) < (plan->shard_params ? plan->shard_group : plan->context);
}

/* Number of workers that take part in a NORM_ALL: those of a replica; with ZeRO those of a shard group. */
static inline int pp_norm_workers(const struct pp_plan *plan)
{
    return (plan->zero ? plan->ranks * plan->shard_group : plan->ranks) * plan->members;
}

#endif
