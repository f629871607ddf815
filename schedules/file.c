/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules/file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/file_label.h"
#include "core/base/hash.h"
#include "schedules/builder.h"
#include "schedules/csv_read.h"

/* A file that was named, as it was when it was first named: a sweep asks for it thousands of times. */
struct named_file {
    struct named_file *next;
    char *path;
    struct pp_csv_schedule csv;
    bool read, built;                    /* tried */
    struct pp_failure reading, building; /* and what came of it */
};

static struct named_file *named_files;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, and while a file is read or built */

static pp_status add_file(const char *path, struct named_file **out)
{
    PP_TRY(PP_NEW(out, 1));
    (*out)->path = strdup(path);
    if (!(*out)->path) {
        free(*out);
        return pp_fail(PP_NOMEM, "there is not enough memory for the name of a schedule");
    }
    (*out)->next = named_files;
    named_files = *out;
    return PP_OK;
}

static pp_status find_file(const char *path, struct named_file **out)
{
    struct named_file *file = named_files;
    while (file && strcmp(file->path, path) != 0) file = file->next;
    if (!file) PP_TRY(add_file(path, &file));
    *out = file;
    if (file->read) return pp_fail_again(&file->reading);
    file->read = true;
    const pp_status status = pp_keep(&file->reading, pp_csv_read(path, &file->csv));
    if (status != PP_OK) pp_csv_free(&file->csv);
    return status;
}

/* Nobody changes *out, which lives as long as the process. */
static pp_status read_file(const char *path, const struct pp_csv_schedule **out)
{
    struct named_file *file;
    pthread_mutex_lock(&lock);
    const pp_status status = find_file(path, &file);
    pthread_mutex_unlock(&lock);
    *out = status == PP_OK ? &file->csv : NULL;
    return status;
}

bool pp_schedule_is_file(const char *name)
{
    const size_t length = strlen(name);
    return strchr(name, '/') || (length > 4 && strcasecmp(name + length - 4, ".csv") == 0);
}

static uint64_t hash_of(const struct pp_csv_schedule *file)
{
    uint64_t hash = pp_hash_pair(0, file->ranks, file->stages);
    for (int r = 0; r < file->ranks; r++)
        for (int64_t i = 0; i < file->orders[r].n; i++) {
            const struct pp_op *op = &file->orders[r].ops[i];
            hash = pp_hash_word(pp_hash_pair(hash, op->stage, op->microbatch), op->kind);
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
    const struct pp_csv_schedule *file;
    PP_TRY(read_file(path, &file));
    return check(path, file, shape);
}

/* The order of a rank, of the first `microbatches` microbatches: an evaluation may have fewer than the file. */
static pp_status keep(const struct pp_order *order, int microbatches, struct pp_order *out)
{
    PP_TRY(PP_NEW(&out->ops, order->n));
    for (int64_t i = 0; i < order->n; i++)
        if (order->ops[i].microbatch < microbatches) out->ops[out->n++] = order->ops[i];
    return PP_OK;
}

static pp_status build_orders(const struct pp_plan_spec *spec, const struct pp_csv_schedule *file,
                              struct pp_order *orders, struct pp_plan **out)
{
    char name[PP_SCHEDULE_NAME];
    struct pp_plan_spec named = *spec;
    pp_file_label(spec->schedule, hash_of(file), name, sizeof name);
    named.schedule = name;
    for (int r = 0; r < file->ranks; r++) PP_TRY(keep(&file->orders[r], spec->microbatches, &orders[r]));
    return pp_prefix(pp_plan_build_orders(&named, orders, file->stage_rank, out), "%s", spec->schedule);
}

static pp_status build(const struct pp_plan_spec *spec, const struct pp_csv_schedule *file, struct pp_plan **out)
{
    struct pp_order *orders;
    PP_TRY(PP_NEW(&orders, file->ranks));
    const pp_status status = build_orders(spec, file, orders, out);
    for (int r = 0; r < file->ranks; r++) free(orders[r].ops);
    free(orders);
    return status;
}

pp_status pp_file_build(const struct pp_plan_spec *spec, struct pp_plan **out)
{
    const struct pp_schedule_shape shape = {.ranks = spec->ranks,
                                            .virtual_stages = spec->virtual_stages,
                                            .microbatches = spec->microbatches,
                                            .training = spec->training};
    const struct pp_csv_schedule *file;
    *out = NULL;
    PP_TRY(read_file(spec->schedule, &file));
    PP_TRY(check(spec->schedule, file, &shape));
    return build(spec, file, out);
}

/* Can its orders be run? */
static pp_status try_file(const char *path, const struct pp_csv_schedule *file)
{
    struct pp_plan *plan = NULL;
    const struct pp_plan_spec spec = {.schedule = path,
                                      .ranks = file->ranks,
                                      .virtual_stages = file->virtual_stages,
                                      .microbatches = file->microbatches,
                                      .replicas = 1,
                                      .training = true};
    const pp_status status = build(&spec, file, &plan);
    pp_plan_free(plan);
    return status;
}

static pp_status find_working_file(const char *path, struct named_file **out)
{
    PP_TRY(find_file(path, out));
    struct named_file *file = *out;
    if (file->built) return pp_fail_again(&file->building);
    file->built = true;
    return pp_keep(&file->building, try_file(path, &file->csv));
}

pp_status pp_file_find(const char *path, struct pp_schedule_found *out)
{
    struct named_file *file;
    pthread_mutex_lock(&lock);
    const pp_status status = find_working_file(path, &file);
    pthread_mutex_unlock(&lock);
    PP_TRY(status);
    out->ranks = file->csv.ranks;
    out->virtual_stages = file->csv.virtual_stages;
    out->microbatches = file->csv.microbatches;
    return PP_OK;
}

pp_status pp_file_place(const char *path, int stages, int *stage_rank)
{
    const struct pp_csv_schedule *file;
    PP_TRY(read_file(path, &file));
    for (int s = 0; s < stages; s++) stage_rank[s] = s < file->stages ? file->stage_rank[s] : 0;
    return PP_OK;
}
