/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/plan_checking.h"

static pp_status check_all(struct pp_norm_check *c, const struct pp_plan *plan, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    if (c->all >= 0) return pp_plan_bad(plan, id, "done twice");
    c->all = id;
    if (c->first < 0 || ((t->flags & PP_TASK_DEP_RANGE) && t->dep[0] <= c->first && t->dep[1] >= c->last)) return PP_OK;
    return pp_plan_bad(plan, id, "it does not wait for all norms");
}

pp_status pp_norm_check_task(struct pp_norm_check *c, const struct pp_plan *plan, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    if (t->kind == PP_NORM_ALL) return check_all(c, plan, id);
    if (t->kind == PP_STEP && plan->clip && (c->all < 0 || t->dep[0] != c->all))
        return pp_plan_bad(plan, id, "it does not wait for the norm of all");
    if (t->kind != PP_NORM) return PP_OK;
    if (c->all >= 0) return pp_plan_bad(plan, id, "it comes behind the norm of all");
    if (c->first < 0) c->first = id;
    c->last = id;
    return PP_OK;
}
