/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace: what happened, or what was predicted to happen. The simulator and the executor write the same records.
 */
#ifndef PP_CORE_TRACE_H
#define PP_CORE_TRACE_H

#include <stdint.h>

#include "core/plan.h"

/* Which end of a task an event describes. Compute and collectives have one event per worker. */
enum pp_side { PP_SIDE_RUN, PP_SIDE_SEND, PP_SIDE_RECV };

/* All times are ns on one clock: of the run's first process, or of the simulation; 0 = start of the first traced step.
 *   compute:  start..end = the kernels ran. posted = when the worker reached the task (start - posted = waited for
 *             data).
 *   transfer: posted = this end was posted; start = both ends are ready (data there, slot free): the later of the two
 *             posts, which one end does not know: pp_db_add_events() sets it; end = this end saw it done. */
struct pp_event {
    int32_t step;   /* number of the step in the run */
    int32_t worker; /* its number, see core/workers.h */
    int32_t task;
    int32_t side;   /* enum pp_side */
    int64_t posted_ns, start_ns, end_ns;
};

struct pp_trace {
    int64_t nevents, capacity;
    struct pp_event *events;
};

/* Appends; grows by doubling (PP_NOMEM). Reserve first where no allocation may happen. */
pp_status pp_trace_add(struct pp_trace *trace, const struct pp_event *event) PP_MUST_CHECK;
pp_status pp_trace_reserve(struct pp_trace *trace, int64_t nevents) PP_MUST_CHECK;
void pp_trace_clear(struct pp_trace *trace); /* releases the memory */

/* Figures of one replica over one step, from its compute events. Formulas: docs/METRICS.md. */
struct pp_metrics {
    int64_t makespan_ns; /* last end - first start over all ranks */
    int64_t span_ns;     /* max over ranks of (own last end - own first start) */
    int64_t busy_ns;     /* sum of compute over ranks */
    double bubble;       /* 1 - busy / (ranks * makespan) */
    double bubble_span;  /* 1 - busy / (ranks * span) */
};

/* Adds up compute tasks of one step, in any order, until pp_metrics_finish() makes figures of them and releases the
 * sums. */
struct pp_metrics_sums {
    int ranks;
    int64_t *first_ns, *last_ns, *busy_ns; /* [ranks] first start, last end, total length; last < first: nothing yet */
};
pp_status pp_metrics_begin(struct pp_metrics_sums *sums, int ranks) PP_MUST_CHECK;
void pp_metrics_add(struct pp_metrics_sums *sums, int rank, int64_t start_ns, int64_t end_ns);
/* rank_bubble: NULL or [ranks], 1 - busy of the rank / makespan. */
void pp_metrics_finish(struct pp_metrics_sums *sums, struct pp_metrics *out, double *rank_bubble);

/* The same from a trace: events of the first worker of each rank of the replica, and of `step`, are looked at. */
pp_status pp_trace_metrics(const struct pp_plan *plan, const struct pp_trace *trace, int replica, int step,
                           struct pp_metrics *out, double *rank_bubble) PP_MUST_CHECK;

#endif
