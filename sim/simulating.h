/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a simulation, shared by the files of the engine. Nothing else includes this.
 */
#ifndef PP_SIM_SIMULATING_H
#define PP_SIM_SIMULATING_H

#include "core/base/log.h"
#include "sim/engine.h"

enum { PP_SIM_STEPS = 50 }; /* most steps that are simulated */

/* Times of one step, in ns. */
struct pp_sim_times {
    int64_t *start; /* [ntasks] start; NULL: end minus the duration of the class (see pp_sim_start()) */
    int64_t *end;   /* [ntasks] */
    int64_t *sent;  /* [ntasks] a transfer's send slot is free again; NULL: see pp_sim_sent() */
    /* If hosts issue tasks (pp_cost.host_issues), else NULL. Times are those at which the device sees it, which is
     * issue_latency_ns later. */
    int64_t *begun;      /* [ntasks] the host (of several, the last one) began to issue the task */
    int64_t *issued;     /* [ntasks] all hosts had issued the task */
    int64_t *lane_ready; /* [nlanes] the lane was free for its first task (also if no hosts issue) */
    int64_t *host_ready; /* [ranks] the host began the step */
    int64_t *host_done;  /* [ranks] the host had issued the whole step */
};

struct pp_sim {
    const struct pp_plan *plan;
    const struct pp_cost *cost;
    bool constant;         /* rates are constant, so a sweep will do */
    int64_t *duration;     /* [nclasses] from start to end of a task that nothing slows down */
    int64_t *hold;         /* [nclasses] from the start of such a task until its lane is free for the next */
    struct pp_wrap *wraps; /* [plan->nwraps] those of the plan, in ascending order of `to` */
    int32_t *last_task;    /* [nlanes] id; -1: the lane has no task */

    struct pp_sim_times at; /* of the current step; at the end those of the last step, which is reported */

    int steps;                      /* number of finished steps */
    int64_t step_end[PP_SIM_STEPS]; /* when the last compute task of each ended */
    int nmarks;                     /* number of lanes, wraps and (if they issue) hosts */
    int64_t *mark, *last_mark; /* [nmarks] all times on which the next step depends: of this step, of the one before */
    bool steady;               /* the next step would be a copy of the last one */
};

static inline int64_t pp_sim_later(int64_t a, int64_t b) { return a > b ? a : b; }

/* When the task started. */
static inline int64_t pp_sim_start(const struct pp_sim *s, int32_t task)
{
    return s->at.start ? s->at.start[task] : s->at.end[task] - s->duration[s->plan->tasks[task].cls];
}

/* When the slot that the task reads may be written again: of a transfer, its send slot. */
static inline int64_t pp_sim_sent(const struct pp_sim *s, int32_t task)
{
    const struct pp_task *t = &s->plan->tasks[task];
    if (s->at.sent) return s->at.sent[task];
    return s->plan->lanes[t->lane].kind == PP_LANE_CHANNEL ? pp_sim_start(s, task) + s->hold[t->cls] : s->at.end[task];
}

/* `waiting` waits for `other`. Is it enough that `other`, a transfer, has emptied its send slot? It is if `waiting` is
 * a computation that writes this slot, and not the reader of the data. (Callers ask it of dep[1] and of wraps only.) */
static inline bool pp_sim_waits_for_slot(const struct pp_plan *plan, const struct pp_task *waiting, int32_t other)
{
    return waiting->lane < plan->ranks && plan->lanes[plan->tasks[other].lane].kind == PP_LANE_CHANNEL;
}

/* Does dep[i] of the task exist, and hold on this kind of link? (See dep[2] of transfers in core/plan/plan.h.) Not for
 * tasks with PP_TASK_DEP_RANGE. */
static inline bool pp_sim_dep_holds(const struct pp_sim *s, const struct pp_task *t, int i)
{
    return t->dep[i] >= 0 && (i < 2 || t->lane < s->plan->ranks || s->cost->link.posts_in_order);
}

/* For the sweeps: the time from which on nothing in this step keeps the task from starting, but not before `start`. */
static inline int64_t pp_sim_wait_for_deps(const struct pp_sim *s, const struct pp_task *t, int64_t start)
{
    if (t->flags & PP_TASK_DEP_RANGE) {
        for (int32_t d = t->dep[0]; d <= t->dep[1]; d++) start = pp_sim_later(start, s->at.end[d]);
        return start;
    }
    if (t->dep[0] >= 0) start = pp_sim_later(start, s->at.end[t->dep[0]]);
    if (t->dep[1] >= 0) {
        bool slot = pp_sim_waits_for_slot(s->plan, t, t->dep[1]);
        start = pp_sim_later(start, slot ? pp_sim_sent(s, t->dep[1]) : s->at.end[t->dep[1]]);
    }
    if (pp_sim_dep_holds(s, t, 2)) start = pp_sim_later(start, s->at.end[t->dep[2]]);
    return start;
}

/* When wrap->from lets wrap->to of the next step start. */
static inline int64_t pp_sim_wrap_released(const struct pp_sim *s, const struct pp_wrap *wrap)
{
    bool slot = pp_sim_waits_for_slot(s->plan, &s->plan->tasks[wrap->to], wrap->from);
    return slot ? pp_sim_sent(s, wrap->from) : s->at.end[wrap->from];
}

/* Is the work of the lane's collectives done on the core of its rank? It is if the host moves the bytes. */
static inline bool pp_sim_reduces_on_core(const struct pp_sim *s, const struct pp_lane *lane)
{
    return (lane->kind == PP_LANE_REDUCE || lane->kind == PP_LANE_TIED) && s->cost->link.receiver_copies;
}

/* Do collectives of the lane slow down what its ranks compute (pp_cost.taken)? */
static inline bool pp_sim_takes(const struct pp_sim *s, int lane)
{
    const int kind = s->plan->lanes[lane].kind;
    return s->cost->taken > 0 && (kind == PP_LANE_REDUCE || kind == PP_LANE_TIED);
}

/* The number of ranks whose hosts issue the task, and the i-th of them. */
static inline int pp_sim_hosts(const struct pp_plan *plan, const struct pp_task *t)
{
    return pp_lane_ranks(plan, &plan->lanes[t->lane]);
}

static inline int pp_sim_host(const struct pp_plan *plan, const struct pp_task *t, int i)
{
    return pp_lane_rank(&plan->lanes[t->lane], i);
}

/* host.c. The transfer or collective that last keeps the host from issuing `task`, until *until_ns; -1: there is none.
 * Its dependencies must have happened already. */
int32_t pp_sim_host_cause(const struct pp_sim *s, const struct pp_sim_times *times, int32_t task, int64_t *until_ns);

/* engine.c. Allocates all arrays of a step, unless they exist; those of hosts only if hosts issue. pp_sim_free_times()
 * is to be called also after a failure. */
pp_status pp_sim_make_times(struct pp_sim_times *at, const struct pp_sim *s) PP_MUST_CHECK;
void pp_sim_free_times(struct pp_sim_times *at);

/* Notes that a step has finished, whose times are in s->at. Sets s->steady if the next one would be a copy of it. */
void pp_sim_step_finished(struct pp_sim *s);

/* sweep.c, sweep_host.c (if hosts issue), sweep_replicas.c (with jitter), events.c: simulate steps until s->steady, or
 * until PP_SIM_STEPS are done. s->at then has the times of the last step, of the first replica; only sweep_replicas.c
 * simulates others, since without jitter all are alike. */
pp_status pp_sim_sweep(struct pp_sim *s) PP_MUST_CHECK;
pp_status pp_sim_sweep_host(struct pp_sim *s) PP_MUST_CHECK;
pp_status pp_sim_sweep_replicas(struct pp_sim *s) PP_MUST_CHECK;
pp_status pp_sim_events(struct pp_sim *s) PP_MUST_CHECK;

/* path.c: finds the critical path. record.c: writes the trace. */
pp_status pp_sim_find_path(const struct pp_sim *s, int64_t makespan_ns, struct pp_sim_path *path) PP_MUST_CHECK;
pp_status pp_sim_record(const struct pp_sim *s, struct pp_trace *trace) PP_MUST_CHECK;

#endif
