/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/trace.h"

#include <stdlib.h>

#include "core/plan/workers.h"

pp_status pp_trace_reserve(struct pp_trace *trace, int64_t nevents)
{
    return PP_GROW(&trace->events, nevents, &trace->capacity);
}

pp_status pp_trace_add(struct pp_trace *trace, const struct pp_event *event)
{
    PP_TRY(pp_trace_reserve(trace, trace->nevents + 1));
    trace->events[trace->nevents++] = *event;
    return PP_OK;
}

void pp_trace_clear(struct pp_trace *trace)
{
    free(trace->events);
    *trace = (struct pp_trace){0};
}

static void release(struct pp_metrics_sums *sums)
{
    free(sums->first_ns);
    free(sums->last_ns);
    free(sums->busy_ns);
    *sums = (struct pp_metrics_sums){0};
}

pp_status pp_metrics_begin(struct pp_metrics_sums *sums, int ranks)
{
    *sums = (struct pp_metrics_sums){.ranks = ranks};
    pp_status status;
    PP_TRY_DONE(PP_NEW(&sums->first_ns, ranks));
    PP_TRY_DONE(PP_NEW(&sums->last_ns, ranks));
    PP_TRY_DONE(PP_NEW(&sums->busy_ns, ranks));
    for (int r = 0; r < ranks; r++) {
        sums->first_ns[r] = INT64_MAX;
        sums->last_ns[r] = INT64_MIN;
    }
done:
    if (status != PP_OK) release(sums);
    return status;
}

void pp_metrics_add(struct pp_metrics_sums *sums, int rank, int64_t start_ns, int64_t end_ns)
{
    if (start_ns < sums->first_ns[rank]) sums->first_ns[rank] = start_ns;
    if (end_ns > sums->last_ns[rank]) sums->last_ns[rank] = end_ns;
    sums->busy_ns[rank] += end_ns - start_ns;
}

/* The part of whole_ns that is not busy; 0 if whole_ns is 0. */
static double idle(int64_t busy_ns, double whole_ns) { return whole_ns > 0 ? 1.0 - (double)busy_ns / whole_ns : 0.0; }

void pp_metrics_finish(struct pp_metrics_sums *sums, struct pp_metrics *out, double *rank_bubble)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    *out = (struct pp_metrics){0};
    for (int r = 0; r < sums->ranks; r++) {
        if (sums->last_ns[r] < sums->first_ns[r]) continue; /* the rank computed nothing */
        int64_t span = sums->last_ns[r] - sums->first_ns[r];
        if (sums->first_ns[r] < first) first = sums->first_ns[r];
        if (sums->last_ns[r] > last) last = sums->last_ns[r];
        if (span > out->span_ns) out->span_ns = span;
        out->busy_ns += sums->busy_ns[r];
    }
    if (last >= first) out->makespan_ns = last - first;
    out->bubble = idle(out->busy_ns, (double)sums->ranks * (double)out->makespan_ns);
    out->bubble_span = idle(out->busy_ns, (double)sums->ranks * (double)out->span_ns);
    for (int r = 0; rank_bubble && r < sums->ranks; r++) {
        rank_bubble[r] = idle(sums->busy_ns[r], (double)out->makespan_ns);
    }
    release(sums);
}

pp_status pp_trace_metrics(const struct pp_plan *plan, const struct pp_trace *trace, int replica, int first, int n,
                           struct pp_metrics *out, double *rank_bubble)
{
    struct pp_metrics_sums *sums;
    pp_status status = PP_OK;
    PP_TRY(PP_NEW(&sums, n));
    for (int k = 0; k < n && status == PP_OK; k++) status = pp_metrics_begin(&sums[k], plan->ranks);
    for (int64_t i = 0; i < trace->nevents && status == PP_OK; i++) {
        const struct pp_event *e = &trace->events[i];
        const int rank = pp_worker_rank(plan, e->worker);
        const bool computes = pp_kinds[plan->tasks[e->task].kind].computes;
        if (e->step >= first && e->step < first + n && e->worker == pp_worker_at(plan, replica, rank, 0) && computes)
            pp_metrics_add(&sums[e->step - first], rank, e->start_ns, e->end_ns);
    }
    for (int k = 0; k < n && status == PP_OK; k++)
        pp_metrics_finish(&sums[k], &out[k], rank_bubble ? rank_bubble + (int64_t)k * plan->ranks : NULL);
    for (int k = 0; k < n; k++) release(&sums[k]); /* after a failure */
    free(sums);
    return status;
}
