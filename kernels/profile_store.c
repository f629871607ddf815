/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile as rows of the database. Kernel rows name the task that they ran in; four of them are no kernels: "all
 * kernels" (the sum over the calls of their medians), "residual" (what the whole task took beyond that), PP_SAMPLE_GAP
 * (the same for each call, of means), and for queue devices PP_SAMPLE_ISSUE (what issuing the task takes the host).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/profile.h"

static struct pp_sample sample_of(const char *name, const char *context, int load, const struct pp_quantiles *ns)
{
    return (struct pp_sample){
        .name = name,
        .context = context,
        .load = load,
        .count = ns->count,
        .median_ns = ns->median_ns,
        .p5_ns = ns->p5_ns,
        .p95_ns = ns->p95_ns,
        .min_ns = ns->min_ns,
        .mean_ns = ns->mean_ns,
        .flops = NAN,
        .moved_bytes = NAN,
    };
}

/* A figure without spread. */
static struct pp_sample figure_of(const char *name, const char *context, int load, int64_t ns)
{
    struct pp_quantiles same = {.count = 1, .median_ns = ns, .p5_ns = ns, .p95_ns = ns, .min_ns = ns, .mean_ns = ns};
    return sample_of(name, context, load, &same);
}

static pp_status store_kernels(const struct pp_profile_shape *shape, const struct pp_profile_cell *cell,
                               const char *context, struct pp_db *db, int64_t run_id)
{
    for (int k = 0; k < cell->nkernels; k++) {
        struct pp_sample s = sample_of(cell->kernels[k].name, context, cell->load, &cell->kernels[k].ns);
        PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_KERNEL, &s));
    }
    if (cell->nkernels == 0) return PP_OK;
    struct pp_sample figures[] = {
        figure_of("all kernels", context, cell->load, cell->kernels_ns),
        figure_of("residual", context, cell->load, cell->ns.median_ns - cell->kernels_ns),
        figure_of(PP_SAMPLE_GAP, context, cell->load, cell->gap_ns),
    };
    figures[2].count = shape->ncalls;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_KERNEL, &figures[i]));
    return PP_OK;
}

/* The task of kernels, and its share of a GPU. */
static void kernel_context(const struct pp_profile_shape *shape, char *buf, size_t size)
{
    const char *share = strstr(shape->context, " share ");
    snprintf(buf, size, "%s%s", shape->signature, share ? share : "");
}

static pp_status store_cell(const struct pp_profile_shape *shape, const struct pp_profile_cell *cell, struct pp_db *db,
                            int64_t run_id)
{
    char context[sizeof shape->signature + sizeof shape->context];
    if (cell->ns.count == 0) return PP_OK;
    kernel_context(shape, context, sizeof context);
    struct pp_sample s = sample_of(shape->signature, shape->context, cell->load, &cell->ns);
    s.flops = shape->flops;
    s.moved_bytes = shape->bytes;
    PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_TASK, &s));
    struct pp_sample issue = sample_of(PP_SAMPLE_ISSUE, context, cell->load, &cell->host_ns);
    if (issue.count > 0) PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_KERNEL, &issue));
    return store_kernels(shape, cell, context, db, run_id);
}

pp_status pp_profile_store(struct pp_profile *profile, struct pp_db *db, int64_t run_id)
{
    static const char *const when[] = {"before", "during", "after"};
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++)
            PP_TRY(store_cell(&profile->shapes[i], &profile->shapes[i].cell[load], db, run_id));
    for (int i = 0; i < 3; i++) {
        struct pp_quantiles ns = pp_times_quantiles(&profile->reference[i]);
        struct pp_sample s = sample_of("reference", when[i], 1, &ns);
        if (ns.count > 0) PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_KERNEL, &s));
    }
    return pp_db_flush(db);
}
