/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/plan_checking.h"

/* Are stage and microbatch in range? NORM_ALL may have no stage (-1); all kinds but computations and transfers may have
 * no microbatch (-1). */
static bool has_place(const struct pp_plan *plan, const struct pp_task *t)
{
    const int stage_from = t->kind == PP_NORM_ALL ? -1 : 0, microbatch_from = t->kind > PP_XFER_B ? -1 : 0;
    return t->stage >= stage_from && t->stage < plan->stages && t->microbatch >= microbatch_from &&
           t->microbatch < plan->microbatches;
}

/* Are there as many microbatches as the task says? (Of F, B, I and W plan_check.c asks, which knows their parts.) */
static bool has_count(const struct pp_plan *plan, const struct pp_task *t)
{
    if (t->kind <= PP_W) return true;
    if (t->microbatch < 0) return t->count == 0;
    return t->count >= 1 && t->count <= plan->microbatches - t->microbatch;
}

/* NORM_ALL alone may wait for a range of tasks, which is not empty. */
static pp_status check_waiting(const struct pp_plan *plan, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    const bool range = t->flags & PP_TASK_DEP_RANGE;
    if (range && (t->kind != PP_NORM_ALL || t->dep[0] < 0 || t->dep[1] < t->dep[0]))
        return pp_plan_bad(plan, id, "it waits for a range of tasks that is none");
    return PP_OK;
}

/* All indices are in range, and dependencies are on earlier tasks only. */
static pp_status check_fields(const struct pp_plan *plan, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    if (t->lane < 0 || t->lane >= plan->nlanes) return pp_fail(PP_INPUT, "the plan is wrong: task %d has no lane", id);
    if (t->kind >= PP_KINDS)
        return pp_fail(PP_INPUT, "the plan is wrong: task %d is of the unknown kind %d", id, t->kind);
    if (t->cls < 0 || t->cls >= plan->nclasses) return pp_plan_bad(plan, id, "no cost class");
    if (!has_place(plan, t)) return pp_plan_bad(plan, id, "stage or microbatch out of range");
    if (!has_count(plan, t)) return pp_plan_bad(plan, id, "it has a wrong number of microbatches");
    for (int i = 0; i < 3; i++)
        if (t->dep[i] >= id) return pp_plan_bad(plan, id, "it waits for a task that comes later (a cycle)");
    PP_TRY(check_waiting(plan, id));
    const int32_t slots[] = {t->ckpt, t->in, t->out};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (slots[i] < -1 || slots[i] >= plan->nslots) return pp_plan_bad(plan, id, "slot out of range");
    if (t->act < -1 || t->act >= plan->nacts) return pp_plan_bad(plan, id, "activation slot out of range");
    return PP_OK;
}

/* The kind of lane on which tasks of this kind run. */
static int lane_kind(int kind)
{
    if (pp_kinds[kind].computes) return PP_LANE_COMPUTE;
    if (pp_is_transfer(kind)) return PP_LANE_CHANNEL;
    if (kind == PP_NORM_ALL) return PP_LANE_NORM;
    return kind == PP_REDUCE_TIED ? PP_LANE_TIED : PP_LANE_REDUCE;
}

/* A channel joins the ranks of the two stages, the lane of REDUCE_TIED those of the first and the last; all other lanes
 * but that of NORM_ALL are of the stage's rank. */
static pp_status check_ends(const struct pp_plan *plan, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    const struct pp_lane *lane = &plan->lanes[t->lane];
    const int *rank = plan->stage_rank;
    if (t->kind == PP_NORM_ALL) return PP_OK;
    if (t->kind == PP_REDUCE_TIED) {
        if (lane->src == rank[0] && lane->dst == rank[plan->stages - 1]) return PP_OK;
        return pp_plan_bad(plan, id, "its lane does not join the first and the last stage");
    }
    if (!pp_is_transfer(t->kind))
        return lane->src == rank[t->stage] ? PP_OK : pp_plan_bad(plan, id, "its stage lives on another rank");
    const int next = pp_transfer_target(t->kind, t->stage);
    if (next < 0 || next >= plan->stages || lane->src != rank[t->stage] || lane->dst != rank[next])
        return pp_plan_bad(plan, id, "it is a transfer without a partner: its channel does not join the two stages");
    return PP_OK;
}

static pp_status check_lane(const struct pp_plan *plan, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    const struct pp_lane *lane = &plan->lanes[t->lane];
    if (lane->kind != lane_kind(t->kind) || (lane->kind == PP_LANE_TIED && !plan->tied) ||
        (lane->kind == PP_LANE_CHANNEL && lane->transfer != t->kind))
        return pp_plan_bad(plan, id, "it runs on a lane of another kind");
    PP_TRY(check_ends(plan, id));
    if (plan->classes[t->cls].kind != t->kind || plan->classes[t->cls].stage != t->stage)
        return pp_plan_bad(plan, id, "a cost class of another kind or stage");
    return PP_OK;
}

pp_status pp_tasks_check(const struct pp_plan *plan, int64_t *entries)
{
    *entries = 0;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        PP_TRY(check_fields(plan, id));
        PP_TRY(check_lane(plan, id));
        *entries += pp_lane_ranks(plan, &plan->lanes[plan->tasks[id].lane]);
    }
    return PP_OK;
}
