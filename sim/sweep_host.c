/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulation with constant durations and hosts that issue tasks: one pass over the tasks, in which hosts advance
 * together with lanes. Times of hosts are those at which the device sees it: the host's own time plus issue_latency_ns.
 */
#include <stdlib.h>
#include <string.h>

#include "sim/simulating.h"

struct sweep {
    struct pp_sim *sim;
    int64_t *free_at;      /* [nlanes] when the lane is free */
    int64_t *host_at;      /* [ranks] when the host has issued the last task that it began */
    int64_t *wrap_release; /* [nwraps] when task `from` of the step before lets task `to` start */
};

static void issue(struct sweep *w, int32_t id)
{
    const struct pp_sim *s = w->sim;
    const struct pp_sim_times *times = &s->at;
    const struct pp_task *t = &s->plan->tasks[id];
    int64_t host_ns = s->cost->classes[t->cls].host_ns, until;
    times->issued[id] = INT64_MIN;
    for (int i = 0; i < pp_sim_hosts(s->plan, t); i++) {
        int64_t *at = &w->host_at[pp_sim_host(s->plan, t, i)];
        if (t->lane < s->plan->ranks && pp_sim_host_cause(s, times, id, &until) >= 0) *at = pp_sim_later(*at, until);
        times->begun[id] = *at;
        *at += host_ns;
        times->issued[id] = pp_sim_later(times->issued[id], *at);
    }
}

static void sweep_step(struct sweep *w)
{
    const struct pp_sim *s = w->sim;
    const struct pp_plan *plan = s->plan;
    const struct pp_sim_times *times = &s->at;
    int wrap = 0;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        pp_progress_tasks("simulating a step", id, plan->ntasks);
        bool computes = t->lane < plan->ranks;
        issue(w, id);
        int64_t start = pp_sim_later(w->free_at[t->lane], computes ? times->begun[id] : times->issued[id]);
        start = pp_sim_wait_for_deps(s, t, start);
        for (; wrap < plan->nwraps && s->wraps[wrap].to == id; wrap++)
            start = pp_sim_later(start, w->wrap_release[wrap]);
        times->start[id] = start;
        times->end[id] = start + s->duration[t->cls];
        if (computes) times->end[id] = pp_sim_later(times->end[id], times->issued[id]);
        w->free_at[t->lane] = computes ? times->end[id] + s->cost->launch_ns : start + s->hold[t->cls];
        times->sent[id] = plan->lanes[t->lane].kind == PP_LANE_CHANNEL ? w->free_at[t->lane] : times->end[id];
    }
}

static void begin_step(struct sweep *w)
{
    const struct pp_sim *s = w->sim;
    for (int r = 0; r < s->plan->ranks; r++) {
        if (s->steps > 0) w->free_at[r] += s->cost->step_overhead_ns;
        if (s->steps == 0 || s->last_task[r] >= 0)
            w->host_at[r] = pp_sim_later(w->host_at[r], w->free_at[r] + s->cost->issue_latency_ns);
    }
    memcpy(s->at.lane_ready, w->free_at, (size_t)s->plan->nlanes * sizeof *w->free_at);
    memcpy(s->at.host_ready, w->host_at, (size_t)s->plan->ranks * sizeof *w->host_at);
}

static void carry_over(struct sweep *w)
{
    const struct pp_sim *s = w->sim;
    for (int i = 0; i < s->plan->nwraps; i++) w->wrap_release[i] = pp_sim_wrap_released(s, &s->wraps[i]);
}

pp_status pp_sim_sweep_host(struct pp_sim *s)
{
    struct sweep w = {.sim = s};
    pp_status status;
    PP_TRY_DONE(PP_NEW(&w.free_at, s->plan->nlanes));
    PP_TRY_DONE(PP_NEW(&w.host_at, s->plan->ranks));
    PP_TRY_DONE(PP_NEW(&w.wrap_release, s->plan->nwraps));
    PP_TRY_DONE(pp_sim_make_times(&s->at, s));
    while (!s->steady && s->steps < PP_SIM_STEPS) {
        begin_step(&w);
        sweep_step(&w);
        memcpy(s->at.host_done, w.host_at, (size_t)s->plan->ranks * sizeof *s->at.host_done);
        pp_sim_step_finished(s);
        carry_over(&w);
    }
done:
    free(w.free_at);
    free(w.host_at);
    free(w.wrap_release);
    return status;
}
