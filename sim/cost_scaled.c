/* SPDX-License-Identifier: Apache-2.0
 *
 * Times of tasks for which a profile has relatives only: a time by the data sheet, times how much longer than by the
 * data sheet a relative takes. So a data sheet has to be right about proportions only, and measured and computed times
 * can stand in one list. From the nearest relative on:
 *   1. the same task alone, where it was not measured beside other workers;
 *   2. the same task on the nearest measured number of rows, where there are none on one side to interpolate;
 *   3. GPUs: the same task in another share of the GPU.
 */
#include <math.h>

#include "core/plan/longest.h"
#include "sim/cost_search.h"

/* What is looked for, and under which load. */
struct sought {
    const struct pp_search *s;
    const struct pp_wanted *wanted;
    int load;
    int64_t *ns; /* 0: not found yet */
};

/* The relative's measured time, scaled. by: as sought->s, or in another share of the GPU. */
static void take(const struct sought *sought, const struct pp_search *by, const struct pp_wanted *relative, int load,
                 int64_t measured)
{
    const double sheet = pp_search_sheet_ns(by, relative->program, load);
    const double ns = (double)measured * pp_search_sheet_ns(sought->s, sought->wanted->program, sought->load) / sheet;
    if (sheet > 0 && ns >= 1 && ns <= PP_LONGEST_MEASURED_NS) *sought->ns = llround(ns);
}

/* In the search's own share there is nothing to interpolate: pp_search_measured() has tried that. */
static pp_status try_program(const struct sought *sought, const struct pp_search *by, const struct pp_wanted *relative,
                             int load)
{
    int64_t measured;
    int source;
    PP_TRY((by == sought->s ? pp_search_exact : pp_search_measured)(by, relative, load, &measured, &source));
    if (measured > 0) take(sought, by, relative, load, measured);
    return PP_OK;
}

static pp_status try_class(const struct sought *sought, const struct pp_search *by, const struct pp_class *class,
                           int load)
{
    struct pp_program program;
    if (*sought->ns > 0) return PP_OK;
    PP_TRY(pp_search_program(by, class, &program));
    pp_status status = try_program(sought, by, &(struct pp_wanted){class, &program}, load);
    pp_program_free(&program);
    return status;
}

/* How far a number of rows is from another; as a factor, for so do times grow. */
static double distance(int a, int b) { return fabs(log((double)a / b)); }

/* The number of rows that comes next after `last`, from the nearest on; 0: there is none. */
static int next_rows(const struct pp_row_counts *counts, int rows, int last)
{
    const double passed = last > 0 ? distance(last, rows) : 0;
    int next = 0;
    for (int i = 0; i < counts->n; i++) {
        const int v = counts->v[i];
        const bool later = distance(v, rows) > passed || (distance(v, rows) == passed && v > last);
        if (v != rows && later && (next == 0 || distance(v, rows) < distance(next, rows))) next = v;
    }
    return next;
}

static pp_status try_other_rows(const struct sought *sought, struct pp_class class, int load)
{
    const int rows = class.rows;
    const struct pp_row_counts *counts;
    if (rows == 0 || *sought->ns > 0) return PP_OK;
    PP_TRY(pp_search_rows(sought->s, &counts));
    for (int next = next_rows(counts, rows, 0); next > 0 && *sought->ns == 0; next = next_rows(counts, rows, next)) {
        class.rows = next;
        PP_TRY(try_class(sought, sought->s, &class, load));
    }
    return PP_OK;
}

static pp_status try_share(const struct sought *sought, const struct pp_class *class, int sharers)
{
    const struct pp_row_counts *counts;
    struct pp_search other = *sought->s;
    if (sharers < 1 || sharers > PP_SEARCH_SHARERS || *sought->ns > 0) return PP_OK;
    other.sharers = sharers;
    pp_job_context(other.job, sharers, other.context, sizeof other.context);
    PP_TRY(pp_search_rows(&other, &counts));
    if (counts->n == 0) return PP_OK; /* nothing was measured in it */
    PP_TRY(pp_search_begin_sheet(&other));
    const int load = sought->load > 1 ? sharers : 1;
    return try_class(sought, &other, class, load);
}

/* GPUs: shares a power of two smaller or larger, the nearest first, and of two as near the smaller one: where workers
 * share, too. Each under its own load. */
static pp_status try_other_shares(const struct sought *sought, const struct pp_class *class)
{
    const int sharers = sought->s->sharers;
    for (int factor = 2; factor <= PP_SEARCH_SHARERS && sought->s->gpu; factor *= 2) {
        PP_TRY(try_share(sought, class, sharers * factor));
        PP_TRY(try_share(sought, class, sharers / factor));
    }
    return PP_OK;
}

pp_status pp_search_scaled(const struct pp_search *s, const struct pp_wanted *wanted, int load, int64_t *ns)
{
    const struct sought sought = {s, wanted, load, ns};
    *ns = 0;
    if (load > 1) PP_TRY(try_program(&sought, s, wanted, 1));
    PP_TRY(try_other_rows(&sought, *wanted->class, load));
    return try_other_shares(&sought, wanted->class);
}
