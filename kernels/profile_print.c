/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/profile_print.h"

#include <math.h>
#include <string.h>

/* One record. Figures that it does not have are NAN. */
struct record {
    const char *what, *name, *context;
    double load, bytes, count, median_ns, mean_ns, p5_ns, p95_ns, min_ns, gflops, residual_ns, host_ns, value;
};

static const struct record nothing = {"", "", "", NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};

typedef void (*record_fn)(FILE *out, const struct record *record, bool first);

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

static void each_record(FILE *out, struct pp_profile *profile, const struct pp_profile_links *links, record_fn fn)
{
    bool first = true;
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++) {
            struct record r = of_cell(&profile->shapes[i], &profile->shapes[i].cell[load]);
            if (!(r.count > 0)) continue;
            fn(out, &r, first);
            first = false;
        }
    for (int i = 0; i < links->nsamples; i++, first = false) {
        struct record r = of_sample(&links->samples[i]);
        fn(out, &r, first);
    }
    for (int i = 0; i < links->nparameters; i++, first = false) {
        struct record r = nothing;
        r.what = "parameter";
        r.name = links->parameters[i].of;
        r.context = links->parameters[i].name;
        r.value = links->parameters[i].value;
        fn(out, &r, first);
    }
    for (int i = 0; i < 3; i++, first = false) {
        struct pp_quantiles ns = pp_times_quantiles(&profile->reference[i]);
        struct record r = of_quantiles("reference", when[i], &ns);
        fn(out, &r, first);
    }
}

/* The figures of a record in the order in which they are printed. */
static const char *const figure_names[] = {"load",   "bytes",  "count",  "median_ns",   "mean_ns", "p5_ns",
                                           "p95_ns", "min_ns", "gflops", "residual_ns", "host_ns", "value"};
enum { FIGURES = sizeof figure_names / sizeof *figure_names };

static void list_figures(const struct record *r, double figures[FIGURES])
{
    double all[] = {r->load,   r->bytes,  r->count,  r->median_ns,   r->mean_ns, r->p5_ns,
                    r->p95_ns, r->min_ns, r->gflops, r->residual_ns, r->host_ns, r->value};
    memcpy(figures, all, sizeof all);
}

/* Names are made of printable ASCII without quotes: signatures, kernels, links. */
static void print_json(FILE *out, const struct record *r, bool first)
{
    double figures[FIGURES];
    list_figures(r, figures);
    fprintf(out, "%s\n  {\"what\": \"%s\", \"name\": \"%s\", \"context\": \"%s\"", first ? "" : ",", r->what, r->name,
            r->context);
    for (int i = 0; i < FIGURES; i++) {
        if (isnan(figures[i]))
            fprintf(out, ", \"%s\": null", figure_names[i]);
        else
            fprintf(out, ", \"%s\": %.10g", figure_names[i], figures[i]);
    }
    fputs("}", out);
}

static void print_tsv(FILE *out, const struct record *r, bool first)
{
    double figures[FIGURES];
    list_figures(r, figures);
    if (first) {
        fputs("what\tname\tcontext", out);
        for (int i = 0; i < FIGURES; i++) fprintf(out, "\t%s", figure_names[i]);
        fputs("\n", out);
    }
    fprintf(out, "%s\t%s\t%s", r->what, r->name, r->context);
    for (int i = 0; i < FIGURES; i++) {
        if (isnan(figures[i]))
            fputs("\t", out);
        else
            fprintf(out, "\t%.10g", figures[i]);
    }
    fputs("\n", out);
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

void pp_profile_print(FILE *out, int format, struct pp_profile *profile, const struct pp_profile_links *links)
{
    if (format == PP_FORMAT_TABLE) return print_table(out, profile, links);
    if (format == PP_FORMAT_TSV) return each_record(out, profile, links, print_tsv);
    fputs("[", out);
    each_record(out, profile, links, print_json);
    fputs("\n]\n", out);
}
