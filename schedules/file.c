/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules/file.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/file_label.h"
#include "core/plan_hash.h"
#include "schedules/builder.h"
#include "schedules/csv_read.h"

bool pp_schedule_is_file(const char *name)
{
    const size_t length = strlen(name);
    return strchr(name, '/') || (length > 4 && strcasecmp(name + length - 4, ".csv") == 0);
}

static uint64_t hash_of(const struct pp_csv_schedule *file)
{
    uint64_t hash = pp_plan_hash_pair(0, file->ranks, file->stages);
    for (int r = 0; r < file->ranks; r++)
        for (int64_t i = 0; i < file->orders[r].n; i++) {
            const struct pp_op *op = &file->orders[r].ops[i];
            hash = pp_plan_hash_word(pp_plan_hash_pair(hash, op->stage, op->microbatch), op->kind);
        }
    return hash;
}

static pp_status check(const char *path, const struct pp_csv_schedule *file, const struct pp_schedule_shape *shape)
{
    const bool enough =
        shape->training ? shape->microbatches == file->microbatches : shape->microbatches <= file->microbatches;
    if (shape->ranks == file->ranks && shape->virtual_stages == file->virtual_stages && enough) return PP_OK;
    return pp_fail(
        PP_USAGE,
        "schedule %s has P = %d, V = %d and M = %d (--stages %d --virtual %d, and so many microbatches); asked "
        "for is P = %d, V = %d and M = %d",
        path, file->ranks, file->virtual_stages, file->microbatches, file->ranks, file->virtual_stages, shape->ranks,
        shape->virtual_stages, shape->microbatches);
}

pp_status pp_file_check(const char *path, const struct pp_schedule_shape *shape)
{
    struct pp_csv_schedule file;
    pp_status status = pp_csv_read(path, &file);
    if (status == PP_OK) status = check(path, &file, shape);
    pp_csv_free(&file);
    return status;
}

/* Keeps only the first `microbatches` microbatches of an order: an evaluation may have fewer than the file. */
static void keep(struct pp_order *order, int microbatches)
{
    int64_t n = 0;
    for (int64_t i = 0; i < order->n; i++)
        if (order->ops[i].microbatch < microbatches) order->ops[n++] = order->ops[i];
    order->n = n;
}

static pp_status build(const struct pp_plan_spec *spec, struct pp_csv_schedule *file, struct pp_plan **out)
{
    char name[PP_SCHEDULE_NAME];
    struct pp_plan_spec named = *spec;
    pp_file_label(spec->schedule, hash_of(file), name, sizeof name);
    named.schedule = name;
    for (int r = 0; r < file->ranks; r++) keep(&file->orders[r], spec->microbatches);
    return pp_context(pp_plan_build_orders(&named, file->orders, file->stage_rank, out), "%s", spec->schedule);
}

pp_status pp_file_build(const struct pp_plan_spec *spec, struct pp_plan **out)
{
    const struct pp_schedule_shape shape = {.ranks = spec->ranks,
                                            .virtual_stages = spec->virtual_stages,
                                            .microbatches = spec->microbatches,
                                            .training = spec->training};
    struct pp_csv_schedule file;
    *out = NULL;
    pp_status status = pp_csv_read(spec->schedule, &file);
    if (status == PP_OK) status = check(spec->schedule, &file, &shape);
    if (status == PP_OK) status = build(spec, &file, out);
    pp_csv_free(&file);
    return status;
}

pp_status pp_file_find(const char *path, struct pp_schedule_found *out)
{
    struct pp_csv_schedule file;
    struct pp_plan *plan = NULL;
    pp_status status = pp_csv_read(path, &file);
    const struct pp_plan_spec spec = {.schedule = path,
                                      .ranks = file.ranks,
                                      .virtual_stages = file.virtual_stages,
                                      .microbatches = file.microbatches,
                                      .replicas = 1,
                                      .training = true};
    out->ranks = file.ranks;
    out->virtual_stages = file.virtual_stages;
    out->microbatches = file.microbatches;
    if (status == PP_OK) status = build(&spec, &file, &plan);
    pp_plan_free(plan);
    pp_csv_free(&file);
    return status;
}

pp_status pp_file_place(const char *path, int stages, int *stage_rank)
{
    struct pp_csv_schedule file;
    const pp_status status = pp_csv_read(path, &file);
    for (int s = 0; s < stages && status == PP_OK; s++) stage_rank[s] = s < file.stages ? file.stage_rank[s] : 0;
    pp_csv_free(&file);
    return status;
}
