/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile as rows of the database. Kernel rows name the task that they ran in; three of them are no kernels: "all
 * kernels" (the sum over the calls of their medians), "residual" (what the whole task took beyond that), and for queue
 * devices PP_SAMPLE_ISSUE (what issuing the task takes the host). Nor is PP_SAMPLE_GAP, which is of all tasks.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/model/task_names.h"
#include "kernels/profile.h"

/* A figure without spread. */
static struct pp_sample figure_of(const char *name, const char *context, int load, int64_t ns)
{
    struct pp_quantiles same = {.count = 1, .median_ns = ns, .p5_ns = ns, .p95_ns = ns, .min_ns = ns, .mean_ns = ns};
    return pp_sample_of(name, context, load, &same);
}

static pp_status store_kernels(const struct pp_profile_cell *cell, const char *context, struct pp_db *db,
                               int64_t run_id)
{
    for (int k = 0; k < cell->nkernels; k++) {
        struct pp_sample s = pp_sample_of(cell->kernels[k].name, context, cell->load, &cell->kernels[k].ns);
        PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_KERNEL, &s));
    }
    if (cell->nkernels == 0) return PP_OK;
    struct pp_sample figures[] = {
        figure_of("all kernels", context, cell->load, cell->kernels_ns),
        figure_of("residual", context, cell->load, cell->ns.median_ns - cell->kernels_ns),
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_KERNEL, &figures[i]));
    return PP_OK;
}

static pp_status store_cell(const struct pp_profile_shape *shape, const struct pp_profile_cell *cell, struct pp_db *db,
                            int64_t run_id)
{
    char context[sizeof shape->signature + sizeof shape->context];
    if (cell->ns.count == 0) return PP_OK;
    snprintf(context, sizeof context, "%s%s", shape->signature, pp_context_share(shape->context));
    struct pp_sample s = pp_sample_of(shape->signature, shape->context, cell->load, &cell->ns);
    s.flops = shape->flops;
    s.moved_bytes = shape->bytes;
    PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_TASK, &s));
    struct pp_sample issue = pp_sample_of(PP_SAMPLE_ISSUE, context, cell->load, &cell->host_ns);
    if (issue.count > 0) PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_KERNEL, &issue));
    return store_kernels(cell, context, db, run_id);
}

/* Queue devices may run the calls of norms and steps together, but time them one by one: what lies between the two is
 * no gap. */
static bool has_gap(const struct pp_profile *profile, const struct pp_profile_shape *shape, int load, const char *share)
{
    const bool together = profile->setup.backend->queue && (shape->kind == PP_NORM || shape->kind == PP_STEP);
    return !together && shape->cell[load].nkernels > 0 && strcmp(pp_context_share(shape->context), share) == 0;
}

/* One share of a GPU under one load. The median: the gaps of long tasks are mostly noise. */
static pp_status store_gap(const struct pp_profile *profile, int load, const char *share, struct pp_db *db,
                           int64_t run_id)
{
    struct pp_times gaps = {0};
    pp_status status = PP_OK;
    for (int i = 0; i < profile->nshapes && status == PP_OK; i++)
        if (has_gap(profile, &profile->shapes[i], load, share))
            status = pp_times_add(&gaps, profile->shapes[i].cell[load].gap_ns);
    struct pp_quantiles ns = pp_times_quantiles(&gaps);
    struct pp_sample s = pp_sample_of(PP_SAMPLE_GAP, share, profile->loads[load], &ns);
    s.mean_ns = s.median_ns;
    pp_times_free(&gaps);
    return status == PP_OK ? pp_db_add_sample(db, run_id, PP_SAMPLE_KERNEL, &s) : status;
}

/* Each share under each load once: with the first shape that has it. */
static pp_status store_gaps(const struct pp_profile *profile, struct pp_db *db, int64_t run_id)
{
    for (int load = 0; load < profile->nloads; load++)
        for (int i = 0; i < profile->nshapes; i++) {
            const char *share = pp_context_share(profile->shapes[i].context);
            int first = 0;
            while (first < i && !has_gap(profile, &profile->shapes[first], load, share)) first++;
            if (first == i && has_gap(profile, &profile->shapes[i], load, share))
                PP_TRY(store_gap(profile, load, share, db, run_id));
        }
    return PP_OK;
}

pp_status pp_profile_store(struct pp_profile *profile, struct pp_db *db, int64_t run_id)
{
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++)
            PP_TRY(store_cell(&profile->shapes[i], &profile->shapes[i].cell[load], db, run_id));
    PP_TRY(store_gaps(profile, db, run_id));
    for (int i = 0; i < PP_PROFILE_WHENS; i++) {
        struct pp_quantiles ns = pp_times_quantiles(&profile->reference[i]);
        struct pp_sample s = pp_sample_of("reference", pp_profile_whens[i], 1, &ns);
        if (ns.count > 0) PP_TRY(pp_db_add_sample(db, run_id, PP_SAMPLE_KERNEL, &s));
    }
    if (!isnan(pp_profile_taken(profile)))
        PP_TRY(pp_db_add_link(db, run_id, "worker", PP_WORKER_TAKEN, pp_profile_taken(profile)));
    return pp_db_flush(db);
}
