/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator: plan and cost in, trace and figures out. Deterministic, in integer nanoseconds.
 *
 * Rules. A lane runs its tasks in the order of their ids. A task starts when its lane is free and all that it waits
 * for is done (core/plan.h). One step follows the other: the lanes go on where they stopped, and wrap edges hold.
 * Steps are simulated until two successive ones are exact copies of each other, shifted in time; then every later one
 * is too.
 *   - A compute task keeps its lane for its duration, and the host for launch_ns more.
 *   - A transfer keeps its channel for its bytes; latency is time under way, so several messages may be in flight.
 *     Its send slot is free when the channel is. Where the receiver copies, the bytes come after the latency, on the
 *     receiver's core, and so do reductions.
 *   - What runs on one core at the same time (a task, copies, overheads, a reduction) shares it equally.
 *   - Cores of a sharing domain slow each other down as core/cost.h says.
 *   - Where hosts issue (queue devices), a task also waits for its host, and its host for others, as core/cost.h says.
 *   - Replicas do the same at the same time, and one is simulated, unless jitter makes them differ: then all are. The
 *     sum of a stage's gradients starts when the last of them has come to it. What is told is the first replica's.
 *
 * Two ways lead to the same figures. Where rates are constant, one sweep over the tasks per step computes all times
 * (sweep.c; sweep_host.c where hosts issue, sweep_replicas.c with jitter). Where rates change, time goes from event to
 * event (events.c).
 */
#ifndef PP_SIM_ENGINE_H
#define PP_SIM_ENGINE_H

#include "core/cost.h"
#include "core/plan.h"
#include "core/trace.h"

struct pp_sim_options {
    bool trace;  /* fill in result->trace */
    bool events; /* go from event to event even where a sweep would do */
};

/* The chain of tasks that decides when the step ends, first task first: each starts the moment its predecessor lets
 * it. */
struct pp_sim_path {
    int64_t n;
    int32_t *tasks;
    int64_t length_ns; /* from the start of the first, or of the makespan where its host was late, to the end of the
                        * last: no longer than the makespan, but for what gathering takes before it */
    int64_t kind_ns[PP_KINDS]; /* of that, time in tasks of each kind */
    int64_t host_ns;           /* time in which the device waited for a host to issue */
    int64_t waiting_ns;        /* the rest: host time between tasks */
};

struct pp_sim_result {
    int64_t batch_ns; /* distance of successive steps: ms per batch */
    int steps;        /* steps simulated */
    bool steady;      /* the distance became constant; else batch_ns is the mean over the second half of the steps */
    struct pp_metrics metrics; /* of the last step simulated, as are all that follow */
    double *rank_bubble;       /* [ranks] */
    int64_t lower_bound_ns;    /* no order of the same tasks on the same ranks can have a smaller makespan (bound.h) */
    struct pp_sim_path path;
    struct pp_trace trace; /* step 0, workers 0 .. ranks-1; empty unless asked for */
};

/* Linear in the number of tasks, with jitter also in that of replicas. PP_INPUT if a duration is negative; PP_USAGE if
 * all add up to more than 64 bits can hold; PP_NOMEM. On failure there is nothing to free. */
pp_status pp_sim_run(const struct pp_plan *plan, const struct pp_cost *cost, const struct pp_sim_options *options,
                     struct pp_sim_result *out) PP_MUST_CHECK;
void pp_sim_result_free(struct pp_sim_result *result);

#endif
