/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/profile_print.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text_table.h"
#include "core/base/wrap.h"
#include "core/job/rows.h"
#include "core/options/config.h"
#include "kernels/short_names.h"

/* One record. Figures that it does not have are NAN. */
struct record {
    const char *what, *name, *context;
    double load, bytes, count, median_ns, mean_ns, p5_ns, p95_ns, min_ns, gflops, residual_ns, host_ns, value;
};

static const struct record nothing = {"", "", "", NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};

/* The figures in the order in which they are printed. */
#define FIGURE(name)                                                                                                   \
    {                                                                                                                  \
#name, offsetof(struct record, name)                                                                           \
    }
static const struct {
    const char *name;
    size_t offset;
} figures[] = {FIGURE(load),   FIGURE(bytes),  FIGURE(count),  FIGURE(median_ns),   FIGURE(mean_ns), FIGURE(p5_ns),
               FIGURE(p95_ns), FIGURE(min_ns), FIGURE(gflops), FIGURE(residual_ns), FIGURE(host_ns), FIGURE(value)};
enum { FIGURES = sizeof figures / sizeof *figures, DIGITS = 10 };

static double ratio(double a, double b) { return b > 0 ? a / b : NAN; }

static struct record of_quantiles(const char *what, const char *name, const struct pp_quantiles *ns)
{
    struct record r = nothing;
    r.what = what;
    r.name = name;
    r.count = (double)ns->count;
    r.median_ns = (double)ns->median_ns;
    r.mean_ns = (double)ns->mean_ns;
    r.p5_ns = (double)ns->p5_ns;
    r.p95_ns = (double)ns->p95_ns;
    r.min_ns = (double)ns->min_ns;
    return r;
}

static struct record of_cell(const struct pp_profile_shape *shape, const struct pp_profile_cell *cell)
{
    struct record r = of_quantiles("task", shape->signature, &cell->ns);
    r.context = shape->context;
    r.load = cell->load;
    r.gflops = ratio(shape->flops, r.median_ns);
    if (cell->host_ns.count > 0) r.host_ns = (double)cell->host_ns.median_ns;
    if (cell->nkernels > 0) r.residual_ns = (double)(cell->ns.median_ns - cell->kernels_ns);
    return r;
}

static struct record of_sample(const struct pp_sample *s)
{
    struct pp_quantiles ns = {s->count, s->median_ns, s->p5_ns, s->p95_ns, s->min_ns, s->mean_ns};
    struct record r = of_quantiles("link", s->name, &ns);
    r.context = s->context;
    r.load = s->load;
    r.bytes = (double)s->bytes;
    return r;
}

static struct record of_parameter(const struct pp_figure *p)
{
    struct record r = nothing;
    r.what = "parameter";
    r.name = p->of;
    r.context = p->name;
    r.value = p->value;
    return r;
}

static json_t *append(json_t *rows, const struct record *r)
{
    json_t *row = json_object();
    row = pp_json_set(row, "what", json_string(r->what));
    row = pp_json_set(row, "name", json_string(r->name));
    row = pp_json_set(row, "context", json_string(r->context));
    for (int i = 0; i < FIGURES; i++) {
        double value;
        memcpy(&value, (const char *)r + figures[i].offset, sizeof value);
        row = pp_json_set(row, figures[i].name, pp_json_number(value));
    }
    return pp_json_append(rows, row);
}

/* NULL: no memory. */
static json_t *make_rows(struct pp_profile *profile, const struct pp_link_profile *links)
{
    json_t *rows = json_array();
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++) {
            struct record r = of_cell(&profile->shapes[i], &profile->shapes[i].cell[load]);
            if (r.count > 0) rows = append(rows, &r);
        }
    for (int i = 0; i < links->nsamples; i++) {
        struct record r = of_sample(&links->samples[i]);
        rows = append(rows, &r);
    }
    for (int i = 0; i < links->nfigures; i++) {
        struct record r = of_parameter(&links->figures[i]);
        rows = append(rows, &r);
    }
    for (int i = 0; i < PP_PROFILE_WHENS; i++) {
        struct pp_quantiles ns = pp_times_quantiles(&profile->reference[i]);
        struct record r = of_quantiles("reference", pp_profile_whens[i], &ns);
        rows = append(rows, &r);
    }
    return rows;
}

/* A column of a table for people: a text of the record, or a figure times `scale`, divided by the median if `of_median`
 * is set, less `minus`. */
struct column {
    struct pp_text_column text;
    size_t offset;      /* of the text or figure in struct record */
    const char *format; /* of the figure; NULL: it is a text */
    double scale, minus;
    bool of_median;
};

#define AT(name) offsetof(struct record, name)
#define PERCENT_BEYOND_MEDIAN "%+.1f", .scale = 100, .minus = 100, .of_median = true
static const struct column task_columns[] = {
    {{"task", .left = true, .stays = true}, AT(name)},
    {{"in steps of", .left = true}, AT(context)},
    {{"load"}, AT(load), "%.0f", .scale = 1},
    {{"samples", .spare = 2}, AT(count), "%.0f", .scale = 1},
    {{"median", "ms", .stays = true}, AT(median_ns), "%.3f", .scale = 1e-6},
    {{"p5", "%"}, AT(p5_ns), PERCENT_BEYOND_MEDIAN},
    {{"p95", "%"}, AT(p95_ns), PERCENT_BEYOND_MEDIAN},
    {{"GF/s"}, AT(gflops), "%.1f", .scale = 1},
    {{"residual", "%", .spare = 1}, AT(residual_ns), "%+.1f", .scale = 100, .of_median = true},
    {{"issue", "us"}, AT(host_ns), "%.1f", .scale = 1e-3},
};
static const struct column sample_columns[] = {
    {{"link", .left = true, .stays = true}, AT(name)},
    {{"buffers", .left = true}, AT(context)},
    {{"bytes", .stays = true}, AT(bytes), "%.0f", .scale = 1},
    {{"median", "us", .stays = true}, AT(median_ns), "%.2f", .scale = 1e-3},
    {{"p5", "%"}, AT(p5_ns), PERCENT_BEYOND_MEDIAN},
    {{"p95", "%"}, AT(p95_ns), PERCENT_BEYOND_MEDIAN},
    {{"GB/s"}, AT(bytes), "%.2f", .scale = 1, .of_median = true},
};
static const struct column parameter_columns[] = {
    {{"link", .left = true, .stays = true}, AT(name)},
    {{"parameter", .left = true, .stays = true}, AT(context)},
    {{"value", .stays = true}, AT(value), "%.4g", .scale = 1},
};
#define COUNT_OF(array) ((int)(sizeof(array) / sizeof *(array)))

struct table {
    const struct column *columns;
    const struct record *records;
};

static const char *cell(const void *of, int64_t row, int i, char buf[PP_CELL_BYTES])
{
    const struct table *table = of;
    const struct column *column = &table->columns[i];
    const struct record *record = &table->records[row];
    const char *at = (const char *)record + column->offset;
    if (!column->format) return **(const char *const *)at ? *(const char *const *)at : "-";
    const double value = *(const double *)at * column->scale / (column->of_median ? record->median_ns : 1);
    if (isnan(value)) return "-";
    snprintf(buf, PP_CELL_BYTES, column->format, value - column->minus);
    return buf;
}

static void print_records(const struct column *columns, int ncolumns, const struct record *records, int64_t n,
                          FILE *out)
{
    const struct table table = {columns, records};
    struct pp_text_column texts[PP_TEXT_COLUMNS];
    for (int c = 0; c < ncolumns; c++) texts[c] = columns[c].text;
    pp_text_table_print(&(struct pp_text_table){texts, ncolumns, n, .cell = cell, .of = &table}, out);
}

static int64_t task_records(const struct pp_profile *profile, struct record *records)
{
    int64_t n = 0;
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++) {
            records[n] = of_cell(&profile->shapes[i], &profile->shapes[i].cell[load]);
            n += records[n].count > 0;
        }
    return n;
}

/* Names of tasks say all about the model: what they share is told once, below the table, if they are long. */
static pp_status print_tasks(struct record *records, int64_t n, FILE *out)
{
    enum { ROOM = 48 }; /* with it the table has room for the other columns */
    struct pp_short_names names = {0};
    const char **long_names;
    PP_TRY(PP_NEW(&long_names, n));
    for (int64_t i = 0; i < n; i++) long_names[i] = records[i].name;
    const pp_status status = pp_short_names_make(long_names, n, ROOM, &names);
    for (int64_t i = 0; i < n && status == PP_OK; i++) records[i].name = names.names[i];
    if (status == PP_OK) print_records(task_columns, COUNT_OF(task_columns), records, n, out);
    if (*names.left_out) {
        char text[PP_SIGNATURE_BYTES + 80];
        snprintf(text, sizeof text, "Left out of names, for lack of room: %s; --format tsv has all.", names.left_out);
        pp_wrap(out, text, 0, 2);
    }
    pp_short_names_free(&names);
    free(long_names);
    return status;
}

static pp_status print_table(FILE *out, struct pp_profile *profile, const struct pp_link_profile *links)
{
    const int64_t tasks = (int64_t)profile->nshapes * profile->nloads;
    struct record *records;
    PP_TRY(PP_NEW(&records, tasks + links->nsamples + links->nfigures));
    const pp_status status = print_tasks(records, task_records(profile, records), out);
    if (status != PP_OK) {
        free(records);
        return status;
    }
    for (int i = 0; i < links->nsamples; i++) records[i] = of_sample(&links->samples[i]);
    if (links->nsamples > 0) fputc('\n', out);
    print_records(sample_columns, COUNT_OF(sample_columns), records, links->nsamples, out);
    for (int i = 0; i < links->nfigures; i++) records[i] = of_parameter(&links->figures[i]);
    if (links->nfigures > 0) fputc('\n', out);
    print_records(parameter_columns, COUNT_OF(parameter_columns), records, links->nfigures, out);
    free(records);
    fputs("\nreference kernel, us:", out);
    for (int i = 0; i < PP_PROFILE_WHENS; i++) {
        struct pp_quantiles ns = pp_times_quantiles(&profile->reference[i]);
        fprintf(out, "  %s %.1f", pp_profile_whens[i], (double)ns.median_ns / 1e3);
    }
    fprintf(out, "  (largest change %+.1f%%)\n", 100 * pp_profile_drift(profile));
    return PP_OK;
}

pp_status pp_profile_print(FILE *out, int format, struct pp_profile *profile, const struct pp_link_profile *links)
{
    if (format == PP_FORMAT_TABLE) return print_table(out, profile, links);
    json_t *rows = make_rows(profile, links);
    if (!rows) return pp_fail(PP_NOMEM, "there is not enough memory for the results");
    pp_status status = pp_rows_write_lines(rows, format, DIGITS, out);
    json_decref(rows);
    return status;
}
