/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "core/plan/plan_checking.h"

/* The last task of each kind that a stage has had; -1: none yet. */
struct summed {
    int32_t made;  /* B or W, or part of one */
    int32_t sum;   /* REDUCE_GRAD */
    int32_t share; /* REDUCE_SHARE */
};

static const struct pp_class *class_of(const struct pp_plan *plan, int32_t id)
{
    return &plan->classes[plan->tasks[id].cls];
}

/* REDUCE_GRAD waits for the last B or W of its stage so far, which is the same part of it. Parts come in their order.
 */
static pp_status check_sum(const struct pp_plan *plan, struct summed *stage, int32_t id)
{
    const struct pp_class *sum = class_of(plan, id);
    if (sum->part != (stage->sum < 0 ? 0 : class_of(plan, stage->sum)->part + 1))
        return pp_plan_bad(plan, id, "it is another part than the one that is due");
    stage->sum = id;
    const bool waits = stage->made >= 0 && plan->tasks[id].dep[0] == stage->made;
    const struct pp_class *made = waits ? class_of(plan, stage->made) : NULL;
    if (waits && made->part == sum->part && made->parts == sum->parts) return PP_OK;
    return pp_plan_bad(plan, id, "it sums gradients before they are made");
}

/* REDUCE_SHARE comes directly after the REDUCE_GRAD of the same part, and waits for it; there are several shard groups.
 */
static pp_status check_share(const struct pp_plan *plan, struct summed *stage, int32_t id)
{
    if (stage->sum < 0 || plan->tasks[id].dep[0] != stage->sum || pp_plan_shard_groups(plan) == 1)
        return pp_plan_bad(plan, id, "it sums shares of gradients that are not summed");
    const struct pp_class *share = class_of(plan, id), *sum = class_of(plan, stage->sum);
    if (share->part != sum->part || share->parts != sum->parts)
        return pp_plan_bad(plan, id, "it is another part than the one that is due");
    if (stage->sum != id - 1) return pp_plan_bad(plan, id, "it does not stand directly behind the sum of its part");
    stage->share = id;
    return PP_OK;
}

/* NORM or STEP waits for the last sum of its stage's gradients, and that sum is the one of the last B or W.
 * (plan_tied.c checks stages with a tied weight.) */
static pp_status check_summed(const struct pp_plan *plan, const struct summed *stage, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    const bool tied = plan->tied && (t->stage == 0 || t->stage == plan->stages - 1);
    const int32_t last = pp_plan_shard_groups(plan) > 1 ? stage->share : stage->sum;
    if (tied) return PP_OK;
    if (last >= 0 && t->dep[0] == last && plan->tasks[stage->sum].dep[0] == stage->made &&
        (last == stage->sum || plan->tasks[last].dep[0] == stage->sum))
        return PP_OK;
    return pp_plan_bad(plan, id, "it does not wait for the sum of its stage's gradients");
}

static pp_status check_task(const struct pp_plan *plan, struct summed *stages, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    if (t->stage < 0) return PP_OK;
    struct summed *stage = &stages[t->stage];
    if (t->kind == PP_B || t->kind == PP_W) stage->made = id;
    if (t->kind == PP_REDUCE_GRAD) return check_sum(plan, stage, id);
    if (t->kind == PP_REDUCE_SHARE) return check_share(plan, stage, id);
    return t->kind == (plan->clip ? PP_NORM : PP_STEP) ? check_summed(plan, stage, id) : PP_OK;
}

pp_status pp_sums_check(const struct pp_plan *plan)
{
    struct summed *stages;
    pp_status status = PP_OK;
    PP_TRY(PP_NEW(&stages, plan->stages));
    memset(stages, 0xff, (size_t)plan->stages * sizeof *stages);
    for (int32_t id = 0; id < plan->ntasks && status == PP_OK; id++) status = check_task(plan, stages, id);
    free(stages);
    return status;
}
