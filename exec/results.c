/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of a finished run: medians, so that a disturbed step does not count.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/stats.h"
#include "exec/place.h"
#include "exec/report.h"

enum step_choice { PLAIN, TRACED, ANY };

static bool chosen(const struct pp_session *s, const struct pp_record *record, enum step_choice choice)
{
    if (record->kind != PP_RECORD_STEP) return false;
    if (record->traced) return choice != PLAIN;
    return choice != TRACED && record->step >= s->agenda->first + s->agenda->warmup;
}

/* NAN if there is no such step. */
static pp_status median_ms(const struct pp_session *s, enum step_choice choice, double *ms)
{
    struct pp_times times = {0};
    pp_status status = PP_OK;
    for (int64_t i = 0; i < s->journal.written && status == PP_OK; i++)
        if (chosen(s, &s->journal.records[i], choice)) status = pp_times_add(&times, s->journal.records[i].ns);
    *ms = times.n ? (double)pp_times_quantiles(&times).median_ns / 1e6 : NAN;
    pp_times_free(&times);
    return status;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    if (n == 0) return NAN;
    qsort(values, (size_t)n, sizeof *values, compare);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* The median figures of the first replica over the traced steps. */
static pp_status trace_figures(const struct pp_session *s, struct pp_run_result *out)
{
    enum { MAKESPAN, SPAN, BUBBLE, BUBBLE_SPAN, FIGURES };
    const int first = s->agenda->first_traced, n = s->agenda->steps - first;
    double *values, *figures[] = {&out->makespan_ms, &out->span_ms, &out->bubble, &out->bubble_span};
    struct pp_metrics *metrics = NULL;
    PP_TRY(PP_NEW(&values, FIGURES * n));
    pp_status status = PP_NEW(&metrics, n);
    if (status == PP_OK) status = pp_trace_metrics(s->job->train, &s->trace, 0, first, n, metrics, NULL);
    for (int i = 0; i < n && status == PP_OK; i++) {
        values[MAKESPAN * n + i] = (double)metrics[i].makespan_ns / 1e6;
        values[SPAN * n + i] = (double)metrics[i].span_ns / 1e6;
        values[BUBBLE * n + i] = metrics[i].bubble;
        values[BUBBLE_SPAN * n + i] = metrics[i].bubble_span;
    }
    for (int f = 0; f < FIGURES && status == PP_OK; f++) *figures[f] = median(values + f * n, n);
    free(metrics);
    free(values);
    return status;
}

static pp_status run_figures(const struct pp_session *s, struct pp_run_result *out)
{
    double traced;
    *out = pp_result_none;
    if (s->untimed) return PP_OK;
    PP_TRY(median_ms(s, PLAIN, &out->ms_per_batch));
    PP_TRY(median_ms(s, TRACED, &traced));
    out->trace_overhead = traced / out->ms_per_batch - 1;
    if (isnan(out->ms_per_batch)) PP_TRY(median_ms(s, ANY, &out->ms_per_batch));
    out->reference_ns = (double)(s->reference_ns[0] + s->reference_ns[1]) / 2;
    return trace_figures(s, out);
}

/* Workers that share cores take them from each other: then nothing is known of other programs. */
static double taken(const struct pp_session *s)
{
    double all = 0, had = 0;
    for (int i = 0; i < s->world->workers; i++) {
        all += (double)s->summaries[i].traced.ns;
        had += (double)s->summaries[i].traced.cpu_ns;
    }
    const int64_t threads = (int64_t)s->world->workers * s->config->threads;
    if (all == 0 || threads > (int64_t)pp_processes_cores(&s->world->processes) * s->world->processes.hosts) return NAN;
    return had < all ? 1 - had / all : 0;
}

static void take_losses(const struct pp_session *s, struct pp_result *out)
{
    for (int64_t i = 0; i < s->journal.written; i++) {
        const struct pp_record *record = &s->journal.records[i];
        if (record->kind == PP_RECORD_STEP) out->losses[out->nlosses++] = record->loss;
        if (record->kind == PP_RECORD_EPOCH && s->agenda->evaluates) out->valid_losses[out->nvalid++] = record->loss;
        if (record->kind == PP_RECORD_TEST) out->stored.test_loss = record->loss;
    }
}

pp_status pp_result_make(const struct pp_session *s, struct pp_result *out)
{
    const struct pp_plan *plan = s->job->train;
    *out = (struct pp_result){.configuration = pp_job_row(json_object(), s->job),
                              .ranks = plan->ranks,
                              .workers = s->world->workers,
                              .vocabulary = s->job->model->shape.vocab,
                              .first_step = s->agenda->first,
                              .first_epoch = s->agenda->epoch,
                              .parameters = s->job->model->parameters,
                              .plan = plan->hash};
    if (!out->configuration) return pp_fail(PP_NOMEM, "cannot allocate the results of a configuration");
    PP_TRY(PP_NEW(&out->peak_bytes, plan->ranks));
    PP_TRY(PP_NEW(&out->process_bytes, out->workers));
    PP_TRY(PP_NEW(&out->losses, s->journal.written));
    PP_TRY(PP_NEW(&out->valid_losses, s->journal.written));
    for (int r = 0; r < plan->ranks; r++) out->peak_bytes[r] = s->job->layout->arena_bytes[r];
    for (int i = 0; i < out->workers; i++) out->process_bytes[i] = s->summaries[i].resident_bytes;
    PP_TRY(run_figures(s, &out->stored));
    out->taken = taken(s);
    take_losses(s, out);
    out->complete = true;
    return PP_OK;
}

void pp_result_free(struct pp_result *result)
{
    json_decref(result->configuration);
    free(result->peak_bytes);
    free(result->process_bytes);
    free(result->losses);
    free(result->valid_losses);
}
