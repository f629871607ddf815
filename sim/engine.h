/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator: from a plan and a cost it makes a trace and figures. It is deterministic and counts integer
 * nanoseconds.
 *
 * Rules. A lane runs its tasks in the order of their ids. A task starts when its lane is free and everything it waits
 * for is done (core/plan/plan.h). In the next step lanes go on where they stopped, and edges into the next step
 * (wraps[]) hold. Steps are simulated until two successive ones are exact copies, shifted in time; all later ones would
 * be copies, too.
 *   - A compute task occupies its lane for its duration and for launch_ns after it.
 *   - A transfer occupies its channel while its bytes are sent, but not for the latency, so several messages may be
 *     under way. Its send slot is free when the channel is. If the receiver copies, the bytes are copied after the
 *     latency, on the receiver's core; then sums of gradients occupy the core of their rank, too.
 *   - Whatever runs on a core at the same time (a task, copies, overheads, a collective) shares it equally.
 *   - Cores of a sharing domain slow each other down, see core/plan/cost.h.
 *   - If hosts issue tasks (queue devices), a task also waits for its host, and the host for others, see
 *     core/plan/cost.h.
 *   - Replicas do the same at the same time, so one is simulated. With jitter they differ, and all are simulated: a
 *     collective of several replicas starts when the last of them has reached it. The results are those of the first
 *     replica.
 *
 * There are two methods, with equal results. If rates are constant, one sweep over the tasks of a step computes all
 * times (sweep.c; sweep_host.c if hosts issue tasks; sweep_replicas.c with jitter). If rates change, time advances from
 * event to event (events.c).
 */
#ifndef PP_SIM_ENGINE_H
#define PP_SIM_ENGINE_H

#include "core/plan/cost.h"
#include "core/plan/plan.h"
#include "core/plan/trace.h"

struct pp_sim_options {
    bool trace;  /* fill in result->trace */
    bool events; /* go from event to event, even if a sweep would do */
};

/* The critical path: the chain of tasks that decides when the step ends. Each starts at the moment at which the one
 * before it lets it. */
struct pp_sim_path {
    int64_t n;
    int32_t *tasks; /* [n] ids, the first task first */
    /* From the start of the first task (or, if its host was late, from the start of the makespan) to the end of the
     * last one. At most the makespan, plus the time of a GATHER_PARAM before it. */
    int64_t length_ns;
    int64_t kind_ns[PP_KINDS]; /* the part of length_ns in tasks of each kind */
    int64_t host_ns;           /* the part in which the device waited for a host to issue a task */
    int64_t waiting_ns;        /* the rest: host time between tasks */
};

struct pp_sim_result {
    int64_t batch_ns; /* time from one step to the next, in steady state */
    int steps;        /* number of steps that were simulated */
    bool steady;      /* a steady state was reached; else batch_ns is the mean over the second half of the steps */
    /* These and all below: of the last step that was simulated. */
    struct pp_metrics metrics;
    double *rank_bubble;    /* [ranks] */
    int64_t lower_bound_ns; /* no order of the same tasks on the same ranks can have a smaller makespan (bound.h) */
    struct pp_sim_path path;
    struct pp_trace trace; /* as step 0: the first member of each rank of the first replica; empty unless asked for */
};

/* A lower bound on batch_ns (bound.h), without a simulation. Fails as pp_sim_run() does. */
pp_status pp_sim_least(const struct pp_plan *plan, const struct pp_cost *cost, int64_t *batch_ns) PP_MUST_CHECK;

/* Simulates. Time is linear in the number of tasks, with jitter also in the number of replicas. PP_INPUT if a duration
 * is negative; PP_USAGE if the times of a step add up to more than 64 bits can hold; PP_NOMEM. After a failure there is
 * nothing to free. */
pp_status pp_sim_run(const struct pp_plan *plan, const struct pp_cost *cost, const struct pp_sim_options *options,
                     struct pp_sim_result *out) PP_MUST_CHECK;
void pp_sim_result_free(struct pp_sim_result *result);

#endif
