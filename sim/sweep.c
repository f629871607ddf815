/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulation with constant durations. Ids are a topological order, so one pass over the tasks has all times when it
 * needs them.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/simulating.h"

struct sweep {
    struct pp_sim *sim;
    int64_t *free_at;      /* [nlanes] when the lane is free */
    int64_t *wrap_release; /* [nwraps] when task `from` of the step before lets task `to` start */
};

static void sweep_step(struct sweep *w)
{
    const struct pp_sim *s = w->sim;
    const struct pp_plan *plan = s->plan;
    int wrap = 0;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        pp_progress_tasks("simulating a step", id, plan->ntasks);
        int64_t start = pp_sim_wait_for_deps(s, t, w->free_at[t->lane]);
        for (; wrap < plan->nwraps && s->wraps[wrap].to == id; wrap++)
            start = pp_sim_later(start, w->wrap_release[wrap]);
        s->at.end[id] = start + s->duration[t->cls];
        w->free_at[t->lane] = start + s->hold[t->cls];
    }
}

/* Prepares the next step. */
static void carry_over(struct sweep *w)
{
    const struct pp_sim *s = w->sim;
    const struct pp_plan *plan = s->plan;
    for (int r = 0; r < plan->ranks; r++) w->free_at[r] += s->cost->step_overhead_ns;
    for (int i = 0; i < plan->nwraps; i++) w->wrap_release[i] = pp_sim_wrap_released(s, &s->wraps[i]);
}

pp_status pp_sim_sweep(struct pp_sim *s)
{
    struct sweep w = {.sim = s};
    pp_status status;
    PP_TRY_DONE(PP_NEW(&w.free_at, s->plan->nlanes));
    PP_TRY_DONE(PP_NEW(&w.wrap_release, s->plan->nwraps));
    PP_TRY_DONE(PP_NEW(&s->at.lane_ready, s->plan->nlanes));
    PP_TRY_DONE(PP_NEW_LARGE(&s->at.end, s->plan->ntasks));
    while (!s->steady && s->steps < PP_SIM_STEPS) {
        memcpy(s->at.lane_ready, w.free_at, (size_t)s->plan->nlanes * sizeof *w.free_at);
        sweep_step(&w);
        pp_sim_step_finished(s);
        carry_over(&w);
    }
done:
    free(w.free_at);
    free(w.wrap_release);
    return status;
}
