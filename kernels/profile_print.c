/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/profile_print.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/config.h"
#include "core/rows.h"

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

static const char *const when[] = {"before", "during", "after"};

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
static json_t *make_rows(struct pp_profile *profile, const struct pp_profile_links *links)
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
    for (int i = 0; i < links->nparameters; i++) {
        struct record r = nothing;
        r.what = "parameter";
        r.name = links->parameters[i].of;
        r.context = links->parameters[i].name;
        r.value = links->parameters[i].value;
        rows = append(rows, &r);
    }
    for (int i = 0; i < 3; i++) {
        struct pp_quantiles ns = pp_times_quantiles(&profile->reference[i]);
        struct record r = of_quantiles("reference", when[i], &ns);
        rows = append(rows, &r);
    }
    return rows;
}

/* Widths of the first two columns. */
static void measure_names(const struct pp_profile *profile, int *signature, int *context)
{
    *signature = (int)strlen("task");
    *context = (int)strlen("in steps of");
    for (int i = 0; i < profile->nshapes; i++) {
        int n = (int)strlen(profile->shapes[i].signature), m = (int)strlen(profile->shapes[i].context);
        *signature = n > *signature ? n : *signature;
        *context = m > *context ? m : *context;
    }
}

static void print_task(FILE *out, const struct record *r, int wide, int narrow, bool queues)
{
    fprintf(out, "%-*s  %-*s  %4.0f  %7.0f  %9.3f  %+5.1f%%  %+5.1f%%  %5.1f", wide, r->name, narrow, r->context,
            r->load, r->count, r->median_ns / 1e6, 100 * (r->p5_ns / r->median_ns - 1),
            100 * (r->p95_ns / r->median_ns - 1), r->gflops);
    if (isnan(r->residual_ns))
        fputs("         -", out);
    else
        fprintf(out, "  %+7.1f%%", 100 * r->residual_ns / r->median_ns);
    if (queues) fprintf(out, "  %8.1f", r->host_ns / 1e3);
    fputs("\n", out);
}

static void print_tasks(FILE *out, const struct pp_profile *profile)
{
    int wide, narrow;
    bool queues = profile->setup.backend->queue != NULL;
    measure_names(profile, &wide, &narrow);
    fprintf(out, "%-*s  %-*s  load  samples  median ms      p5     p95   GF/s  residual%s\n", wide, "task", narrow,
            "in steps of", queues ? "  issue us" : "");
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++) {
            struct record r = of_cell(&profile->shapes[i], &profile->shapes[i].cell[load]);
            if (r.count > 0) print_task(out, &r, wide, narrow, queues);
        }
}

static void print_links(FILE *out, const struct pp_profile_links *links)
{
    if (links->nsamples > 0)
        fprintf(out, "\n%-18s  %-12s  %10s  %9s      p5     p95    GB/s\n", "link", "buffers", "bytes", "median us");
    for (int i = 0; i < links->nsamples; i++) {
        struct record r = of_sample(&links->samples[i]);
        fprintf(out, "%-18s  %-12s  %10.0f  %9.2f  %+5.1f%%  %+5.1f%%  %6.2f\n", r.name, r.context, r.bytes,
                r.median_ns / 1e3, 100 * (r.p5_ns / r.median_ns - 1), 100 * (r.p95_ns / r.median_ns - 1),
                r.bytes / r.median_ns);
    }
    if (links->nparameters > 0) fprintf(out, "\n%-18s  %-18s  %12s\n", "link", "parameter", "value");
    for (int i = 0; i < links->nparameters; i++)
        fprintf(out, "%-18s  %-18s  %12.4g\n", links->parameters[i].of, links->parameters[i].name,
                links->parameters[i].value);
}

static void print_table(FILE *out, struct pp_profile *profile, const struct pp_profile_links *links)
{
    print_tasks(out, profile);
    print_links(out, links);
    fputs("\nreference kernel, us:", out);
    for (int i = 0; i < 3; i++) {
        struct pp_quantiles ns = pp_times_quantiles(&profile->reference[i]);
        fprintf(out, "  %s %.1f", when[i], (double)ns.median_ns / 1e3);
    }
    fprintf(out, "  (largest change %+.1f%%)\n", 100 * pp_profile_drift(profile));
}

pp_status pp_profile_print(FILE *out, int format, struct pp_profile *profile, const struct pp_profile_links *links)
{
    if (format == PP_FORMAT_TABLE) {
        print_table(out, profile, links);
        return PP_OK;
    }
    json_t *rows = make_rows(profile, links);
    if (!rows) return pp_fail(PP_NOMEM, "there is not enough memory for the results");
    pp_status status = pp_rows_write_lines(rows, format, DIGITS, out);
    json_decref(rows);
    return status;
}
