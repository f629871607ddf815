/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a simulation between the files of the engine. Nothing else includes this.
 */
#ifndef PP_SIM_SIMULATING_H
#define PP_SIM_SIMULATING_H

#include "sim/engine.h"

enum { PP_SIM_STEPS = 50 }; /* most steps that are simulated */

/* Times of one step. */
struct pp_sim_times {
    /* [ntasks]. start and sent are NULL where they follow from end and the tasks' durations. */
    int64_t *start, *end;
    int64_t *sent; /* a transfer's send slot is free again */
    /* Where hosts issue (pp_cost.host_issues), else NULL; as the device sees it, issue_latency_ns later: when the host
     * began to issue the task (the last of its hosts), and when all had. */
    int64_t *begun, *issued; /* [ntasks] */
    int64_t *lane_ready;     /* [nlanes] when the lane was free for its first task */
    int64_t *host_ready;     /* [ranks] when the host began the step */
    int64_t *host_done;      /* [ranks] ... and had issued all of it */
};

struct sim {
    const struct pp_plan *plan;
    const struct pp_cost *cost;
    bool constant;         /* rates are: a sweep will do */
    int64_t *duration;     /* [nclasses] start to end of a task that nothing slows down */
    int64_t *hold;         /* [nclasses] start of a task until its lane is free for the next */
    struct pp_wrap *wraps; /* [plan->nwraps] in ascending order of `to` */
    int32_t *last_task;    /* [nlanes] -1: the lane has no task */

    struct pp_sim_times at; /* of the reported step, the last */

    /* Finished steps. */
    int steps;
    int64_t step_end[PP_SIM_STEPS]; /* last end of a compute task */
    int nmarks;                     /* lanes, wrap edges, hosts */
    int64_t *mark, *last_mark;      /* [nmarks] all that the next step depends on, of this step and of the last */
    bool steady;
};

static inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t pp_sim_start(const struct sim *s, int32_t task)
{
    return s->at.start ? s->at.start[task] : s->at.end[task] - s->duration[s->plan->tasks[task].cls];
}

/* When what the task read may be written again. */
static inline int64_t pp_sim_sent(const struct sim *s, int32_t task)
{
    const struct pp_task *t = &s->plan->tasks[task];
    if (s->at.sent) return s->at.sent[task];
    return s->plan->lanes[t->lane].kind == PP_LANE_CHANNEL ? pp_sim_start(s, task) + s->hold[t->cls] : s->at.end[task];
}

/* Does `waiting` only wait until `other`, a transfer, has emptied its send slot? It does where it does not read what
 * was sent. */
static inline bool pp_sim_waits_for_slot(const struct pp_plan *plan, const struct pp_task *waiting, int32_t other)
{
    return waiting->lane < plan->ranks && plan->lanes[plan->tasks[other].lane].kind == PP_LANE_CHANNEL;
}

/* Dependencies of a task in the order dep[0], dep[1], dep[2] that hold on this kind of link; a range is not looked
 * at. */
static inline bool pp_sim_dep_holds(const struct sim *s, const struct pp_task *t, int i)
{
    return t->dep[i] >= 0 && (i < 2 || t->lane < s->plan->ranks || s->cost->link.posts_in_order);
}

/* The sweeps': when all that the task waits for in this step has happened, and no earlier than `start`. */
static inline int64_t pp_sim_wait_for_deps(const struct sim *s, const struct pp_task *t, int64_t start)
{
    if (t->flags & PP_TASK_DEP_RANGE) {
        for (int32_t d = t->dep[0]; d <= t->dep[1]; d++) start = later(start, s->at.end[d]);
        return start;
    }
    if (t->dep[0] >= 0) start = later(start, s->at.end[t->dep[0]]);
    if (t->dep[1] >= 0) {
        bool slot = pp_sim_waits_for_slot(s->plan, t, t->dep[1]);
        start = later(start, slot ? pp_sim_sent(s, t->dep[1]) : s->at.end[t->dep[1]]);
    }
    if (pp_sim_dep_holds(s, t, 2)) start = later(start, s->at.end[t->dep[2]]);
    return start;
}

/* When the source of a wrap edge let go of what the next step waits for. */
static inline int64_t pp_sim_wrap_released(const struct sim *s, const struct pp_wrap *wrap)
{
    bool slot = pp_sim_waits_for_slot(s->plan, &s->plan->tasks[wrap->to], wrap->from);
    return slot ? pp_sim_sent(s, wrap->from) : s->at.end[wrap->from];
}

/* A task's work is done on the core of its rank, though its lane is not the rank's: reductions where the host moves
 * the bytes. */
static inline bool pp_sim_reduces_on_core(const struct sim *s, const struct pp_lane *lane)
{
    return (lane->kind == PP_LANE_REDUCE || lane->kind == PP_LANE_TIED) && s->cost->link.receiver_copies;
}

/* Do the lane's collectives take from what its ranks compute? */
static inline bool pp_sim_takes(const struct sim *s, int lane)
{
    const int kind = s->plan->lanes[lane].kind;
    return s->cost->taken > 0 && (kind == PP_LANE_REDUCE || kind == PP_LANE_TIED);
}

/* Ranks whose hosts issue the task. */
static inline int pp_sim_hosts(const struct pp_plan *plan, const struct pp_task *t)
{
    return pp_lane_ranks(plan, &plan->lanes[t->lane]);
}

static inline int pp_sim_host(const struct pp_plan *plan, const struct pp_task *t, int i)
{
    return pp_lane_rank(&plan->lanes[t->lane], i);
}

/* host.c. The transfer or collective that keeps a computation's host from issuing it: the one that does so until last
 * (*until_ns), or -1. Only those that have happened in the step may be waited for. */
int32_t pp_sim_host_cause(const struct sim *s, const struct pp_sim_times *times, int32_t task, int64_t *until_ns);

/* engine.c. Every array of a step, if they are not there; those of hosts only where hosts issue. free: also what a
 * failure left. */
pp_status pp_sim_make_times(struct pp_sim_times *at, const struct sim *s) PP_MUST_CHECK;
void pp_sim_free_times(struct pp_sim_times *at);

/* Notes that a step has finished: s->at holds its times. Sets s->steady if the next one would be a copy. */
void pp_sim_step_finished(struct sim *s);

/* sweep.c, sweep_host.c (where hosts issue), sweep_replicas.c (jitter), events.c: simulate steps until
 * pp_sim_step_finished() says steady or PP_SIM_STEPS are done; leave the times of the last. Of several replicas those
 * of the first: without jitter all are alike, and only sweep_replicas.c looks at others. */
pp_status pp_sim_sweep(struct sim *s) PP_MUST_CHECK;
pp_status pp_sim_sweep_host(struct sim *s) PP_MUST_CHECK;
pp_status pp_sim_sweep_replicas(struct sim *s) PP_MUST_CHECK;
pp_status pp_sim_events(struct sim *s) PP_MUST_CHECK;

/* path.c, record.c */
pp_status pp_sim_find_path(const struct sim *s, int64_t makespan_ns, struct pp_sim_path *path) PP_MUST_CHECK;
pp_status pp_sim_record(const struct sim *s, struct pp_trace *trace) PP_MUST_CHECK;

#endif
