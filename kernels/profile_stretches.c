/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/profile_stretches.h"

/* The stretch of a task, if forwards come first. */
static int stretch_of(const struct pp_task *task) { return task->kind == PP_STEP ? 2 : task->kind == PP_F ? 0 : 1; }

static bool is_of(const struct pp_task *task, int rank)
{
    return pp_kinds[task->kind].computes && pp_task_rank(task) == rank;
}

/* Do the stretches of a rank follow one another? Forwards and backwards must both be there. */
static bool in_order(const struct pp_plan *plan, int rank)
{
    int stretch = 0, n[PP_STRETCHES] = {0};
    for (int64_t i = 0; i < plan->ntasks; i++) {
        if (!is_of(&plan->tasks[i], rank)) continue;
        if (stretch_of(&plan->tasks[i]) < stretch) return false;
        stretch = stretch_of(&plan->tasks[i]);
        n[stretch]++;
    }
    return n[0] > 0 && n[1] > 0;
}

static bool all_in_order(const struct pp_plan *plan)
{
    for (int rank = 0; rank < plan->ranks; rank++)
        if (!in_order(plan, rank)) return false;
    return true;
}

pp_status pp_stretches_of(const struct pp_plan *plan, int rank, bool split, struct pp_stretches *out)
{
    const bool forwards = split && all_in_order(plan);
    int last = -1, ntasks = 0;
    *out = (struct pp_stretches){0};
    PP_TRY(PP_NEW(&out->tasks, plan->ntasks));
    for (int64_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *task = &plan->tasks[i];
        if (!is_of(task, rank)) continue;
        const int stretch = forwards || task->kind == PP_STEP ? stretch_of(task) : 0;
        if (stretch > last) {
            out->begin[out->n++] = ntasks;
            last = stretch;
        }
        out->tasks[ntasks++] = task;
    }
    out->begin[out->n] = ntasks;
    return PP_OK;
}
