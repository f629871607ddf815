/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/group.h"

int pp_join_size(const struct pp_plan *plan, enum pp_join_group group)
{
    const int sizes[PP_JOIN_GROUPS] = {[PP_JOIN_TENSOR_RANKS] = pp_plan_tensor(plan),
                                       [PP_JOIN_EXPERT_RANKS] = plan->expert_parallel,
                                       [PP_JOIN_CONTEXT_RANKS] = plan->context};
    return sizes[group];
}

struct pp_group pp_join_members(const struct pp_plan *plan, int worker, enum pp_join_group group)
{
    const int strides[PP_JOIN_GROUPS] = {[PP_JOIN_TENSOR_RANKS] = 1,
                                         [PP_JOIN_EXPERT_RANKS] = pp_plan_tensor(plan),
                                         [PP_JOIN_CONTEXT_RANKS] = plan->members};
    const int stride = strides[group], n = pp_join_size(plan, group);
    return (struct pp_group){worker - worker / stride % n * stride, stride, n};
}

struct pp_group pp_replica_group(const struct pp_plan *plan, int worker, enum pp_param_set set)
{
    const int tensor = pp_plan_tensor(plan), replica = pp_worker_replica(plan, worker);
    const int member = set == PP_EXPERTS ? pp_worker_member(plan, worker) : pp_worker_tensor_rank(plan, worker);
    const int stride = set == PP_EXPERTS ? plan->members : tensor;
    return (struct pp_group){
        .first = pp_worker_at(plan, replica - replica % plan->shard_group, pp_worker_rank(plan, worker), member),
        .stride = stride,
        .n = pp_plan_sharers(plan, set),
        .run = pp_plan_neighbours(plan) / stride,
        .jump = pp_worker_at(plan, plan->context, 0, 0)};
}

struct pp_group pp_share_group(const struct pp_plan *plan, int worker)
{
    const int stride = pp_worker_at(plan, plan->shard_group, 0, 0);
    return (struct pp_group){worker % stride, stride, pp_plan_shard_groups(plan)};
}

struct pp_group pp_norm_group(const struct pp_plan *plan, int worker)
{
    const int all = pp_norm_workers(plan);
    if (plan->zero) return (struct pp_group){worker - worker % all, 1, all};
    return (struct pp_group){.first = pp_worker_at(plan, pp_worker_replica(plan, worker), 0, 0),
                             .stride = 1,
                             .n = plan->ranks * plan->members,
                             .run = plan->members,
                             .jump = plan->context * plan->members};
}

struct pp_group pp_tied_group(const struct pp_plan *plan, int replica, int member)
{
    const int first = plan->stage_rank[0], last = plan->stage_rank[plan->stages - 1];
    const int low = first < last ? first : last, apart = first + last - 2 * low;
    if (!apart) return (struct pp_group){pp_worker_at(plan, replica, low, member), 1, 1};
    return (struct pp_group){pp_worker_at(plan, replica, low, member), pp_worker_at(plan, 0, apart, 0), 2};
}
