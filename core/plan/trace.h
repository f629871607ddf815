/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace: when tasks ran, or are predicted to run. The simulator and the executor write the same records.
 */
#ifndef PP_CORE_PLAN_TRACE_H
#define PP_CORE_PLAN_TRACE_H

#include <stdint.h>

#include "core/plan/plan.h"

/* Which end of a task an event describes. Computations and collectives have one event per worker (RUN), transfers one
 * of the sender and one of the receiver. */
enum pp_side { PP_SIDE_RUN, PP_SIDE_SEND, PP_SIDE_RECV };

/* All times are ns on one clock: that of the run's first process, or of the simulation; 0 = start of the first traced
 * step.
 *   computation, collective:
 *     posted   the worker reached the task; it then waited for data until `start`
 *     start    its work (the kernels of a computation) began
 *     end      its work ended
 *   transfer:
 *     posted   this end was posted
 *     start    both ends were ready (data there, slot free): the later of the two posts. One end alone does not know
 *              it; pp_db_add_events() sets it
 *     end      this end saw the transfer done */
struct pp_event {
    int32_t step;   /* number of the step in the run */
    int32_t worker; /* see core/plan/workers.h */
    int32_t task;   /* id in the plan */
    int32_t side;   /* enum pp_side */
    int64_t posted_ns, start_ns, end_ns;
};

struct pp_trace {
    int64_t nevents, capacity;
    struct pp_event *events;
};

/* Appends an event; the array grows by doubling (PP_NOMEM). Where nothing may be allocated, call pp_trace_reserve()
 * before. */
pp_status pp_trace_add(struct pp_trace *trace, const struct pp_event *event) PP_MUST_CHECK;
pp_status pp_trace_reserve(struct pp_trace *trace, int64_t nevents) PP_MUST_CHECK;
void pp_trace_clear(struct pp_trace *trace); /* releases the memory */

/* Figures of one replica in one step, from its compute events. docs/METRICS.md has the formulas. */
struct pp_metrics {
    int64_t makespan_ns; /* last end - first start over all ranks */
    int64_t span_ns;     /* max over ranks of (own last end - own first start) */
    int64_t busy_ns;     /* sum of compute over ranks */
    double bubble;       /* 1 - busy / (ranks * makespan) */
    double bubble_span;  /* 1 - busy / (ranks * span) */
};

/* Computes these figures: pp_metrics_begin(), then pp_metrics_add() for each compute task of a step, in any order, then
 * pp_metrics_finish(), which also frees the sums. */
struct pp_metrics_sums {
    int ranks;
    int64_t *first_ns, *last_ns, *busy_ns; /* [ranks] first start, last end, total time; last < first: no task yet */
};
pp_status pp_metrics_begin(struct pp_metrics_sums *sums, int ranks) PP_MUST_CHECK;
void pp_metrics_add(struct pp_metrics_sums *sums, int rank, int64_t start_ns, int64_t end_ns);
/* rank_bubble: NULL, or [ranks] to fill with 1 - busy time of the rank / makespan. */
void pp_metrics_finish(struct pp_metrics_sums *sums, struct pp_metrics *out, double *rank_bubble);

/* The figures of one replica in each of n steps of a trace, the first of which has the number `first`, from the events
 * of the first member of each rank. The trace, which is long where n is large, is read once. out: [n]; rank_bubble:
 * NULL, or [n][ranks]. */
pp_status pp_trace_metrics(const struct pp_plan *plan, const struct pp_trace *trace, int replica, int first, int n,
                           struct pp_metrics *out, double *rank_bubble) PP_MUST_CHECK;

#endif
