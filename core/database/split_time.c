/* SPDX-License-Identifier: Apache-2.0 */
#include "core/database/split_time.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/shape/layers.h"

/* Times are taken of small models of three stages with one layer each, all like one of the model's: they tell
 * embedding, layer and decoder apart. There is one such model for each kind of layers, with a window and without, that
 * the model has. */
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
        cls.adds = true;
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

/* A model of layers of this kind. window: of all of them; 0: they have none. */
static void stand_in(const struct pp_config *config, enum pp_layer_kind kind, int window, struct pp_shape *out)
{
    struct pp_shape shape;
    pp_config_shape(config, &shape);
    *out = pp_shape_of_kind(&shape, kind);
    out->layers = STAND_IN;
    out->tensor = config->tensor.v[0];
    out->window = window;
    out->window_skip = 0;
}

/* Times of forward and backward of the stages of such a model. ns: [STAND_IN]. */
static pp_status stand_in_ns(const struct pp_config *config, enum pp_layer_kind kind, int window,
                             const struct pp_model_ops *ops, const struct pp_call_times *times, double *ns)
{
    const int rows = (config->rows + config->chunks.v[0] - 1) / config->chunks.v[0];
    struct pp_model *model;
    struct pp_shape shape;
    pp_status status = PP_OK;
    stand_in(config, kind, window, &shape);
    PP_TRY(ops->create(&shape, &stand_in_cut, &model));
    for (int s = 0; s < STAND_IN && status == PP_OK; s++) {
        const struct pp_class of = {.stage = s, .rows = rows};
        status = stage_ns(model, &of, config->tokens, ops, times, &ns[s]);
    }
    ops->destroy(model);
    return status;
}

static double surplus(double with, double without) { return with > without ? with - without : 0; }

static bool is_possible(const struct pp_config *config, const struct pp_model_ops *ops)
{
    struct pp_shape shape;
    bool possible = config->tokens % pp_config_context(config) == 0;
    pp_config_shape(config, &shape);
    for (int kind = 0; kind < PP_LAYER_KINDS && possible; kind++) {
        struct pp_model *model = NULL;
        struct pp_shape small;
        if (pp_layers_of_kind(&shape, kind) == 0) continue;
        stand_in(config, kind, 0, &small);
        possible = ops->create(&small, &stand_in_cut, &model) == PP_OK;
        ops->destroy(model);
    }
    return possible;
}

void pp_split_time_workers(const struct pp_config *config, const struct pp_model_ops *ops, struct pp_config *out)
{
    const struct pp_ints *tensor = &config->tensor, *context = &config->context_parallel,
                         *experts = &config->expert_parallel;
    const int last = tensor->n * context->n * experts->n - 1;
    for (int i = 0; i <= last; i++) {
        *out = *config;
        out->tensor = (struct pp_ints){1, {tensor->v[i / experts->n / context->n]}};
        out->context_parallel = (struct pp_ints){1, {context->v[i / experts->n % context->n]}};
        pp_config_set_expert_parallel(out, experts->v[i % experts->n]);
        if (i < last && is_possible(out, ops)) break;
    }
}

/* The time of each layer, and what the embedding takes in addition to the first layer, and the decoder to the last. */
static pp_status fill(const struct pp_config *workers, const struct pp_model_ops *ops,
                      const struct pp_call_times *times, double *layer_ns)
{
    struct pp_shape shape;
    double ns[PP_LAYER_KINDS][2][STAND_IN]; /* by kind; without and with a window */
    bool known[PP_LAYER_KINDS][2] = {0};
    const double *first = NULL, *last = NULL;
    pp_config_shape(workers, &shape);
    for (int l = 0; l < shape.layers; l++) {
        const enum pp_layer_kind kind = pp_layer_kind(&shape, l);
        const int window = pp_layer_window(&shape, l);
        if (!known[kind][window > 0]) PP_TRY(stand_in_ns(workers, kind, window, ops, times, ns[kind][window > 0]));
        known[kind][window > 0] = true;
        last = ns[kind][window > 0];
        if (l == 0) first = last;
        layer_ns[l + 1] = last[1];
    }
    layer_ns[0] = surplus(first[0], first[1]);
    layer_ns[shape.layers + 1] = surplus(last[2], last[1]);
    return PP_OK;
}

pp_status pp_split_time_by(struct pp_config *config, const struct pp_config *workers, const struct pp_model_ops *ops,
                           const struct pp_call_times *times)
{
    double *layer_ns;
    if (!pp_config_splits_by_time(config)) return PP_OK;
    PP_TRY(PP_NEW(&layer_ns, config->layers + 2));
    const pp_status status = fill(workers, ops, times, layer_ns);
    if (status == PP_OK)
        config->layer_ns = layer_ns;
    else
        free(layer_ns);
    return status;
}

pp_status pp_split_time(struct pp_config *config, const struct pp_schedules *schedules, const struct pp_model_ops *ops,
                        const char *device, struct pp_db *db)
{
    const char *path = config->db ? config->db : PP_USUAL_DB;
    struct profiled profiled = {config, ops, device, db};
    const struct pp_call_times times = {profiled_ns, &profiled};
    struct pp_config workers;
    if (!pp_config_splits_by_time(config)) return PP_OK;
    pp_split_time_workers(config, ops, &workers);
    PP_TRY(pp_points_first_chunks(config, schedules, &workers.chunks));
    if (db) return pp_split_time_by(config, &workers, ops, &times);
    if (access(path, F_OK) != 0)
        return pp_fail(PP_INPUT, "--split time needs the kernel times in %s, which is not there; run ppprof first",
                       path);
    /* One that is named is written to later. */
    PP_TRY(config->db ? pp_db_open_updated(path, &profiled.db) : pp_db_open(path, PP_DB_READ, &profiled.db));
    pp_status status = pp_split_time_by(config, &workers, ops, &times);
    pp_status closed = pp_db_close(profiled.db);
    return status == PP_OK ? closed : status;
}

void pp_split_time_free(struct pp_config *config)
{
    free(config->layer_ns);
    config->layer_ns = NULL;
}
