/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulation with jitter: durations do not depend on what else runs, but differ between steps and between replicas. All
 * replicas are simulated, each from one collective of several replicas to the next one. Such a collective starts when
 * the last replica of its group has reached it; nothing else makes replicas wait for each other. (NORM_ALL is a
 * collective of several replicas only with ZeRO.)
 */
#include <stdlib.h>
#include <string.h>

#include "core/job/given_times.h"
#include "core/plan/workers.h"
#include "sim/simulating.h"

struct replica {
    struct pp_sim sim; /* the simulation, with this replica's times; only the first has `start` */
    int number;
    int64_t *free_at;      /* [nlanes] when the lane is free */
    int64_t *wrap_release; /* [nwraps] when task `from` of the step before lets task `to` start */
    int wrap;              /* index of the first wrap that no task of this step was asked for yet */
    int64_t meeting_ns;    /* in the first replica of a group: when the whole group has reached a collective */
};

/* The time from which on nothing in this replica keeps the task from starting. To be called once for each task, in the
 * order of ids. */
static int64_t ready_at(struct replica *r, int32_t id)
{
    const struct pp_sim *s = &r->sim;
    const struct pp_task *t = &s->plan->tasks[id];
    int64_t start = pp_sim_wait_for_deps(s, t, r->free_at[t->lane]);
    for (; r->wrap < s->plan->nwraps && s->wraps[r->wrap].to == id; r->wrap++)
        start = pp_sim_later(start, r->wrap_release[r->wrap]);
    if (s->at.start) s->at.start[id] = start;
    return start;
}

/* Runs the task, which takes more_ns longer than its class. */
static void run_from(struct replica *r, int32_t id, int64_t start, int64_t more_ns)
{
    const struct pp_task *t = &r->sim.plan->tasks[id];
    r->sim.at.end[id] = start + r->sim.duration[t->cls] + more_ns;
    r->free_at[t->lane] = start + r->sim.hold[t->cls] + more_ns;
}

static void run_alone(struct replica *r, int32_t id, int step)
{
    const struct pp_sim *s = &r->sim;
    const struct pp_task *t = &s->plan->tasks[id];
    int64_t ns = s->duration[t->cls], drawn = ns;
    if (t->lane < s->plan->ranks) {
        const int worker = pp_worker_at(s->plan, r->number, t->lane, 0); /* with jitter a rank has one worker */
        drawn = pp_jitter_ns(ns, s->cost->jitter, s->cost->seed, step, id, worker);
    }
    run_from(r, id, ready_at(r, id), drawn - ns);
}

static void run_together(struct replica *replicas, int n, int32_t id)
{
    const struct pp_plan *plan = replicas->sim.plan;
    const int kind = plan->tasks[id].kind;
    for (int i = 0; i < n; i++) replicas[i].meeting_ns = INT64_MIN;
    for (int i = 0; i < n; i++) {
        int64_t *meeting_ns = &replicas[pp_first_met(plan, kind, i)].meeting_ns;
        *meeting_ns = pp_sim_later(*meeting_ns, ready_at(&replicas[i], id));
    }
    for (int i = 0; i < n; i++) run_from(&replicas[i], id, replicas[pp_first_met(plan, kind, i)].meeting_ns, 0);
}

static int32_t next_meeting(const struct pp_plan *plan, int32_t id)
{
    while (id < plan->ntasks && !pp_joins_replicas(plan, plan->tasks[id].kind)) id++;
    return id;
}

static void sweep_step(struct replica *replicas, int n, int step)
{
    const struct pp_plan *plan = replicas->sim.plan;
    for (int i = 0; i < n; i++) replicas[i].wrap = 0;
    for (int32_t from = 0; from < plan->ntasks;) {
        int32_t to = next_meeting(plan, from);
        for (int i = 0; i < n; i++)
            for (int32_t id = from; id < to; id++) {
                pp_progress_tasks("simulating a step", id, plan->ntasks);
                run_alone(&replicas[i], id, step);
            }
        if (to < plan->ntasks) run_together(replicas, n, to);
        from = to + 1;
    }
}

/* Prepares the next step. */
static void carry_over(struct replica *r)
{
    const struct pp_sim *s = &r->sim;
    for (int rank = 0; rank < s->plan->ranks; rank++) r->free_at[rank] += s->cost->step_overhead_ns;
    for (int i = 0; i < s->plan->nwraps; i++) r->wrap_release[i] = pp_sim_wrap_released(s, &s->wraps[i]);
}

/* The first replica writes its times into the arrays of s->at. */
static pp_status make_replica(struct replica *r, struct pp_sim *s, int number)
{
    r->sim = *s;
    r->number = number;
    PP_TRY(PP_NEW(&r->free_at, s->plan->nlanes));
    PP_TRY(PP_NEW(&r->wrap_release, s->plan->nwraps));
    if (number == 0) return PP_OK;
    r->sim.at.start = r->sim.at.end = NULL;
    return PP_NEW_LARGE(&r->sim.at.end, s->plan->ntasks);
}

static void free_replica(struct replica *r, const struct pp_sim *s)
{
    free(r->free_at);
    free(r->wrap_release);
    if (r->sim.at.end != s->at.end) free(r->sim.at.end);
}

pp_status pp_sim_sweep_replicas(struct pp_sim *s)
{
    struct replica *replicas = NULL;
    int n = s->plan->replicas;
    pp_status status;
    PP_TRY_DONE(PP_NEW(&s->at.lane_ready, s->plan->nlanes));
    PP_TRY_DONE(PP_NEW_LARGE(&s->at.start, s->plan->ntasks));
    PP_TRY_DONE(PP_NEW_LARGE(&s->at.end, s->plan->ntasks));
    PP_TRY_DONE(PP_NEW(&replicas, n));
    for (int i = 0; i < n; i++) PP_TRY_DONE(make_replica(&replicas[i], s, i));
    while (s->steps < PP_SIM_STEPS) {
        memcpy(s->at.lane_ready, replicas->free_at, (size_t)s->plan->nlanes * sizeof *s->at.lane_ready);
        sweep_step(replicas, n, s->steps);
        pp_sim_step_finished(s);
        for (int i = 0; i < n; i++) carry_over(&replicas[i]);
    }
done:
    for (int i = 0; replicas && i < n; i++) free_replica(&replicas[i], s);
    free(replicas);
    return status;
}
