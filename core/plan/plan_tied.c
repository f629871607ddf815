/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/plan_checking.h"

/* State of the check, while it passes over the tasks of the first and the last stage. */
struct tied {
    const struct pp_plan *plan;
    int32_t final[2]; /* first and last stage: the last task so far that made or summed gradients; -1: none */
    int32_t sum;      /* REDUCE_TIED; -1: not yet */
};

static pp_status check_sum(struct tied *c, int32_t id)
{
    const struct pp_plan *plan = c->plan;
    const struct pp_task *t = &plan->tasks[id];
    if (c->sum >= 0) return pp_plan_bad(plan, id, "done twice");
    c->sum = id;
    bool made = t->stage == 0;
    for (int end = 0; end < 2; end++) {
        made = made && t->dep[end] >= 0 && t->dep[end] == c->final[end];
        if (made && pp_plan_shard_groups(plan) > 1) made = plan->tasks[t->dep[end]].kind == PP_REDUCE_SHARE;
    }
    return made ? PP_OK : pp_plan_bad(plan, id, "it sums gradients before they are made");
}

/* Does the kind make gradients of parameters, or sum them over replicas? */
static bool changes_gradients(int kind)
{
    static const bool changes[PP_KINDS] = {
        [PP_B] = true, [PP_W] = true, [PP_REDUCE_GRAD] = true, [PP_ADD_GRAD] = true, [PP_REDUCE_SHARE] = true};
    return kind < PP_KINDS && changes[kind];
}

static pp_status check_task(struct tied *c, int32_t id)
{
    const struct pp_plan *plan = c->plan;
    const struct pp_task *t = &plan->tasks[id];
    const bool made = changes_gradients(t->kind);
    if (t->kind == PP_REDUCE_TIED) return check_sum(c, id);
    if (made && c->sum >= 0) return pp_plan_bad(plan, id, "it makes gradients that are summed already");
    if (made && t->stage == 0) c->final[0] = id;
    if (made && t->stage == plan->stages - 1) c->final[1] = id;
    if (t->kind != (plan->clip ? PP_NORM : PP_STEP) || (t->dep[0] >= 0 && t->dep[0] == c->sum)) return PP_OK;
    return pp_plan_bad(plan, id, "it does not wait for the gradient that its stage shares");
}

pp_status pp_tied_check(const struct pp_plan *plan)
{
    struct tied c = {.plan = plan, .final = {-1, -1}, .sum = -1};
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        const bool ends = t->stage == 0 || t->stage == plan->stages - 1;
        if (ends || t->kind == PP_REDUCE_TIED) PP_TRY(check_task(&c, id));
    }
    return c.sum >= 0 ? PP_OK : pp_fail(PP_INPUT, "the plan is wrong: the sum of tied gradients is missing");
}
