/* SPDX-License-Identifier: Apache-2.0 */
#include "core/split_time.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Times are taken of a small model of three stages with one layer each: they tell embedding, layer and decoder apart.
 * Where some layers have a window and others not, they are taken of a model of each kind. */
enum { STAND_IN = 3 };
static const struct pp_cut stand_in_cut = {.stages = STAND_IN};

/* Times of calls from a profile, as pp_call_times. */
struct profiled {
    const struct pp_config *config;
    const struct pp_model_ops *ops;
    const char *device;
    struct pp_db *db;
};

static pp_status profiled_ns(void *from, const struct pp_call *call, double *out)
{
    const struct profiled *p = from;
    char name[PP_CALL_NAME];
    int64_t ns = 0;
    bool found = false;
    *out = 0;
    if (p->ops->call_join(call).op != PP_JOIN_NONE) return PP_OK; /* a join is no kernel */
    p->ops->call_name(call, name, sizeof name);
    PP_TRY(pp_db_find_kernel(p->db, p->device, p->config->threads, name, &ns, &found));
    *out = (double)ns;
    if (found) return PP_OK;
    return pp_fail(PP_INPUT,
                   "--split time: the profile has no time of the kernel %s; run ppprof with the same model, rows and "
                   "chunks first",
                   name);
}

/* Time of forward and backward of one stage of the small model. */
static pp_status stage_ns(const struct pp_model *model, const struct pp_class *of, int seq,
                          const struct pp_model_ops *ops, const struct pp_call_times *times, double *sum)
{
    static const int kinds[] = {PP_F, PP_B};
    *sum = 0;
    for (int i = 0; i < 2; i++) {
        struct pp_program program;
        struct pp_class cls = *of;
        cls.kind = kinds[i];
        struct pp_program_spec spec = {.seq = seq, .slot_rows = cls.rows, .training = true};
        PP_TRY(ops->program(model, &cls, &spec, &program));
        pp_status status = PP_OK;
        double ns = 0;
        for (int k = 0; k < program.ncalls && status == PP_OK; k++) {
            status = times->ns(times->from, &program.calls[k], &ns);
            *sum += ns;
        }
        pp_program_free(&program);
        PP_TRY(status);
    }
    return PP_OK;
}

static void stand_in(const struct pp_config *config, struct pp_shape *out)
{
    pp_config_shape(config, out);
    out->layers = STAND_IN;
    out->tensor = config->tensor.v[0];
}

static double surplus(double with, double without) { return with > without ? with - without : 0; }

static bool is_possible(const struct pp_config *config, const struct pp_model_ops *ops)
{
    struct pp_model *model = NULL;
    struct pp_shape shape;
    stand_in(config, &shape);
    if (config->tokens % pp_config_context(config) || ops->create(&shape, &stand_in_cut, &model) != PP_OK) return false;
    ops->destroy(model);
    return true;
}

void pp_split_time_workers(const struct pp_config *config, const struct pp_model_ops *ops, struct pp_config *out)
{
    const struct pp_ints *tensor = &config->tensor, *context = &config->context_parallel;
    const int last = tensor->n * context->n - 1;
    for (int i = 0; i <= last; i++) {
        *out = *config;
        out->tensor = (struct pp_ints){1, {tensor->v[i / context->n]}};
        out->context_parallel = (struct pp_ints){1, {context->v[i % context->n]}};
        if (i < last && is_possible(out, ops)) break;
    }
}

/* Times of the stages of a small model of this shape, of microbatches of so many rows. */
static pp_status stand_in_ns(const struct pp_config *config, const struct pp_shape *shape, int rows,
                             const struct pp_model_ops *ops, const struct pp_call_times *times, double ns[STAND_IN])
{
    struct pp_model *model = NULL;
    pp_status status = PP_OK;
    PP_TRY(ops->create(shape, &stand_in_cut, &model));
    for (int s = 0; s < STAND_IN && status == PP_OK; s++) {
        const struct pp_class of = {.stage = s, .rows = rows};
        status = stage_ns(model, &of, config->tokens, ops, times, &ns[s]);
    }
    ops->destroy(model);
    return status;
}

pp_status pp_split_time_by(struct pp_config *config, const struct pp_config *workers, const struct pp_model_ops *ops,
                           const struct pp_call_times *times)
{
    struct pp_shape shape, all_alike;
    double ns[STAND_IN], full[STAND_IN]; /* full: without a window */
    if (strcmp(config->split, "time") != 0) return PP_OK;
    stand_in(workers, &shape);
    const int rows = (config->rows + config->chunks.v[0] - 1) / config->chunks.v[0];
    all_alike = shape;
    all_alike.window_skip = 0;
    PP_TRY(stand_in_ns(config, &all_alike, rows, ops, times, ns));
    all_alike.window = 0;
    memcpy(full, ns, sizeof full);
    if (shape.window_skip) PP_TRY(stand_in_ns(config, &all_alike, rows, ops, times, full));
    PP_TRY(PP_NEW(&config->layer_ns, config->layers + 2));
    config->layer_ns[0] = surplus(ns[0], ns[1]);
    for (int l = 1; l <= config->layers; l++) config->layer_ns[l] = pp_layer_window(&shape, l - 1) ? ns[1] : full[1];
    config->layer_ns[config->layers + 1] = surplus(ns[2], ns[1]);
    return PP_OK;
}

pp_status pp_split_time(struct pp_config *config, const struct pp_model_ops *ops, const char *device, struct pp_db *db)
{
    const char *path = config->db ? config->db : "pp.db";
    struct profiled profiled = {config, ops, device, db};
    const struct pp_call_times times = {profiled_ns, &profiled};
    struct pp_config workers;
    if (strcmp(config->split, "time") != 0) return PP_OK;
    pp_split_time_workers(config, ops, &workers);
    if (db) return pp_split_time_by(config, &workers, ops, &times);
    if (access(path, F_OK) != 0)
        return pp_fail(PP_INPUT, "--split time needs the kernel times in %s, which is not there; run ppprof first",
                       path);
    PP_TRY(pp_db_open(path, PP_DB_READ, &profiled.db));
    pp_status status = pp_split_time_by(config, &workers, ops, &times);
    pp_status closed = pp_db_close(profiled.db);
    return status == PP_OK ? closed : status;
}

void pp_split_time_free(struct pp_config *config)
{
    free(config->layer_ns);
    config->layer_ns = NULL;
}
