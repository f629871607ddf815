/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "core/plan/plan_checking.h"

static bool is_rank(const struct pp_plan *plan, int rank) { return rank >= 0 && rank < plan->ranks; }

/* Each stage is on a rank that exists, and each rank has a stage. */
static pp_status check_stages(const struct pp_plan *plan)
{
    bool *used;
    PP_TRY(PP_NEW(&used, plan->ranks));
    pp_status status = PP_OK;
    for (int s = 0; s < plan->stages && status == PP_OK; s++) {
        const int rank = plan->stage_rank[s];
        if (is_rank(plan, rank))
            used[rank] = true;
        else
            status = pp_fail(PP_INPUT, "the plan is wrong: stage %d lives on rank %d of %d", s, rank, plan->ranks);
    }
    for (int r = 0; r < plan->ranks && status == PP_OK; r++)
        if (!used[r]) status = pp_fail(PP_INPUT, "the plan is wrong: rank %d has no stage", r);
    free(used);
    return status;
}

/* Does the lane, which is not one of the compute lanes, have the ranks of its kind? */
static bool joins(const struct pp_plan *plan, const struct pp_lane *lane)
{
    const bool ranks = is_rank(plan, lane->src) && is_rank(plan, lane->dst);
    switch (lane->kind) {
    case PP_LANE_CHANNEL:
        return ranks && lane->src != lane->dst && pp_is_transfer(lane->transfer);
    case PP_LANE_REDUCE:
        return ranks && lane->src == lane->dst;
    case PP_LANE_TIED:
        return ranks;
    case PP_LANE_NORM:
        return lane->src == -1 && lane->dst == -1;
    default:
        return false;
    }
}

/* Compute lanes come first, one for each rank; all other lanes have ranks that exist. */
static pp_status check_lanes(const struct pp_plan *plan)
{
    for (int i = 0; i < plan->nlanes; i++) {
        const struct pp_lane *lane = &plan->lanes[i];
        const bool computes = lane->kind == PP_LANE_COMPUTE && lane->src == i && lane->dst == i;
        const bool carries = lane->kind == PP_LANE_CHANNEL || lane->transfer == -1;
        if (!carries || (i < plan->ranks ? !computes : !joins(plan, lane)))
            return pp_fail(PP_INPUT, "the plan is wrong: lane %d, from rank %d to rank %d, is not at its place", i,
                           lane->src, lane->dst);
    }
    return PP_OK;
}

/* Lengths of arrays, and numbers by which others are divided. */
static pp_status check_numbers(const struct pp_plan *plan)
{
    if (plan->ranks < 1 || plan->virtual_stages < 1 || plan->stages < 1 || plan->microbatches < 1 ||
        plan->nlanes < plan->ranks || plan->stages != (int64_t)plan->ranks * plan->virtual_stages)
        return pp_fail(PP_INPUT, "the plan is wrong: %d ranks, %d stages, %d on each, %d microbatches, %d lanes",
                       plan->ranks, plan->stages, plan->virtual_stages, plan->microbatches, plan->nlanes);
    const int64_t lengths[] = {plan->ntasks, plan->nclasses, plan->npools, plan->nslots, plan->nacts, plan->nwraps};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (lengths[i] < 0 || lengths[i] > INT32_MAX / 2) /* an entry of an issue list is twice the id of a task */
            return pp_fail(PP_INPUT, "the plan is wrong: one of its arrays has %lld elements", (long long)lengths[i]);
    if (plan->slot_microbatches < 1 || plan->slot_microbatches > plan->microbatches || plan->recv_buffers < 0 ||
        plan->checkpoint < 0)
        return pp_fail(PP_INPUT, "the plan is wrong: %d microbatches in a slot, %d receive slots, checkpoint %d",
                       plan->slot_microbatches, plan->recv_buffers, plan->checkpoint);
    return PP_OK;
}

/* Replicas and members, which are dealt out in equal groups. */
static pp_status check_workers(const struct pp_plan *plan)
{
    const int replicas = plan->replicas, members = plan->members, experts = plan->expert_parallel,
              context = plan->context, group = plan->shard_group;
    if (replicas < 1 || members < 1 || experts < 1 || context < 1 || group < 1 || replicas % group || group % context ||
        members % experts)
        return pp_fail(PP_INPUT,
                       "the plan is wrong: %d replicas, %d in a group that shards, context %d, %d members, %d experts",
                       replicas, group, context, members, experts);
    int64_t workers;
    if (__builtin_mul_overflow((int64_t)replicas * members, plan->ranks, &workers) || workers > INT32_MAX)
        return pp_fail(PP_INPUT, "the plan is wrong: %d replicas of %d ranks of %d members are too many", replicas,
                       plan->ranks, members);
    return PP_OK;
}

static pp_status check_rows(const struct pp_plan *plan)
{
    int64_t rows = 0;
    for (int m = 0; m < plan->microbatches; m++) {
        if (plan->rows[m] < 1 || plan->first_row[m] != rows)
            return pp_fail(PP_INPUT, "the plan is wrong: microbatch %d has %d rows from %d on", m, plan->rows[m],
                           plan->first_row[m]);
        rows += plan->rows[m];
    }
    return rows <= INT32_MAX ? PP_OK : pp_fail(PP_INPUT, "the plan is wrong: %lld rows are too many", (long long)rows);
}

/* Stage and part are in range. Each part of a stage has a class. */
static pp_status check_class(const struct pp_plan *plan, int i)
{
    const struct pp_class *cls = &plan->classes[i];
    const int parts = cls->parts > 1 ? cls->parts : 1;
    if (cls->kind < 0 || cls->kind >= PP_KINDS || cls->stage >= plan->stages ||
        cls->stage < (cls->kind == PP_NORM_ALL ? -1 : 0))
        return pp_fail(PP_INPUT, "the plan is wrong: cost class %d is of kind %d, stage %d of %d", i, cls->kind,
                       cls->stage, plan->stages);
    if (cls->parts < 0 || cls->parts > plan->nclasses || cls->part < 0 || cls->part >= parts)
        return pp_fail(PP_INPUT, "the plan is wrong: cost class %d is of part %d of %d", i, cls->part, cls->parts);
    return PP_OK;
}

pp_status pp_ranks_check(const struct pp_plan *plan)
{
    PP_TRY(check_numbers(plan));
    PP_TRY(check_workers(plan));
    PP_TRY(check_rows(plan));
    PP_TRY(check_stages(plan));
    PP_TRY(check_lanes(plan));
    for (int i = 0; i < plan->nclasses; i++) PP_TRY(check_class(plan, i));
    for (int r = 0; r < plan->ranks; r++)
        if (plan->issue_start[0] != 0 || plan->issue_start[r] > plan->issue_start[r + 1])
            return pp_fail(PP_INPUT, "the plan is wrong: the issue list of rank %d begins behind its end", r);
    return PP_OK;
}
