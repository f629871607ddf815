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
                   "--split time: the profile has no time of the kernel %s; run ppprof with the same model, rows, "
                   "chunks and --checkpoint first",
                   name);
}

/* What is added up. */
struct adding {
    const struct pp_model_ops *ops;
    const struct pp_call_times *times;
    struct pp_program_spec spec;
    double again; /* part of the microbatches of which R runs the stage again */
};

/* All layers but those beyond N of a stage are run again by --checkpoint layers:N. Where stages have more than N, it
 * takes as long in each of them, and does not say where to cut. */
static void set_again(const struct pp_config *config, const struct pp_point *point, struct adding *a)
{
    const int some = pp_checkpoint_some(point->checkpoint);
    a->spec.checkpoint_layers = point->checkpoint == PP_CHECKPOINT_LAYERS;
    a->spec.activation_again = point->checkpoint == PP_CHECKPOINT_ACTIVATION;
    if ((int64_t)some * point->ranks * point->virtual_stages >= config->model.layers) a->spec.again = some;
    if (point->checkpoint == PP_CHECKPOINT_ALWAYS) a->again = 1;
    if (point->checkpoint == PP_CHECKPOINT_EXCEPT_LAST)
        a->again = 1 - 1.0 / pp_chunk_rows(config->rows, point->chunks, NULL);
}

static pp_status add_task(const struct adding *a, const struct pp_model *model, int stage, int kind, double *sum)
{
    const struct pp_class cls = {.kind = kind, .stage = stage, .rows = a->spec.slot_rows, .adds = true};
    struct pp_program program;
    pp_status status = PP_OK;
    double ns = 0;
    PP_TRY(a->ops->program(model, &cls, &a->spec, &program));
    for (int k = 0; k < program.ncalls && status == PP_OK; k++) {
        status = a->times->ns(a->times->from, &program.calls[k], &ns);
        *sum += ns;
    }
    pp_program_free(&program);
    return status;
}

/* Time that one stage of the small model takes of a microbatch. */
static pp_status stage_ns(const struct adding *a, const struct pp_model *model, int stage, double *sum)
{
    double again = 0;
    *sum = 0;
    PP_TRY(add_task(a, model, stage, PP_F, sum));
    PP_TRY(add_task(a, model, stage, PP_B, sum));
    if (a->again > 0) PP_TRY(add_task(a, model, stage, PP_R, &again));
    *sum += a->again * again;
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

/* Times of the stages of such a model. ns: [STAND_IN]. */
static pp_status stand_in_ns(const struct adding *a, const struct pp_config *config, enum pp_layer_kind kind,
                             int window, double *ns)
{
    struct pp_model *model;
    struct pp_shape shape;
    pp_status status = PP_OK;
    stand_in(config, kind, window, &shape);
    PP_TRY(a->ops->create(&shape, &stand_in_cut, &model));
    for (int s = 0; s < STAND_IN && status == PP_OK; s++) status = stage_ns(a, model, s, &ns[s]);
    a->ops->destroy(model);
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
static pp_status fill(const struct adding *a, const struct pp_config *workers, double *layer_ns)
{
    struct pp_shape shape;
    double ns[PP_LAYER_KINDS][2][STAND_IN]; /* by kind; without and with a window */
    bool known[PP_LAYER_KINDS][2] = {0};
    const double *first = NULL, *last = NULL;
    pp_config_shape(workers, &shape);
    for (int l = 0; l < shape.layers; l++) {
        const enum pp_layer_kind kind = pp_layer_kind(&shape, l);
        const int window = pp_layer_window(&shape, l);
        if (!known[kind][window > 0]) PP_TRY(stand_in_ns(a, workers, kind, window, ns[kind][window > 0]));
        known[kind][window > 0] = true;
        last = ns[kind][window > 0];
        if (l == 0) first = last;
        layer_ns[l + 1] = last[1];
    }
    layer_ns[0] = surplus(first[0], first[1]);
    layer_ns[shape.layers + 1] = surplus(last[2], last[1]);
    return PP_OK;
}

pp_status pp_split_time_by(const struct pp_config *config, const struct pp_config *workers,
                           const struct pp_point *point, const struct pp_model_ops *ops,
                           const struct pp_call_times *times, double **layer_ns)
{
    struct adding adding = {.ops = ops, .times = times};
    *layer_ns = NULL;
    if (!pp_config_splits_by_time(config)) return PP_OK;
    PP_TRY(PP_NEW(layer_ns, config->model.layers + 2));
    adding.spec = (struct pp_program_spec){
        .seq = config->tokens, .slot_rows = (config->rows + point->chunks - 1) / point->chunks, .training = true};
    set_again(config, point, &adding);
    const pp_status status = fill(&adding, workers, *layer_ns);
    if (status == PP_OK) return PP_OK;
    free(*layer_ns);
    *layer_ns = NULL;
    return status;
}

pp_status pp_split_time(const struct pp_config *config, const struct pp_schedules *schedules,
                        const struct pp_model_ops *ops, const char *device, struct pp_db *db, double **layer_ns)
{
    const char *path = config->db ? config->db : PP_USUAL_DB;
    struct profiled profiled = {config, ops, device, db};
    const struct pp_call_times times = {profiled_ns, &profiled};
    struct pp_config workers;
    struct pp_point first;
    *layer_ns = NULL;
    if (!pp_config_splits_by_time(config)) return PP_OK;
    pp_split_time_workers(config, ops, &workers);
    PP_TRY(pp_points_first(config, schedules, &first));
    if (db) return pp_split_time_by(config, &workers, &first, ops, &times, layer_ns);
    if (access(path, F_OK) != 0)
        return pp_fail(PP_INPUT, "--split time needs the kernel times in %s, which is not there; run ppprof first",
                       path);
    /* One that is named is written to later. */
    PP_TRY(config->db ? pp_db_open_updated(path, &profiled.db) : pp_db_open(path, PP_DB_READ, &profiled.db));
    const pp_status status = pp_split_time_by(config, &workers, &first, ops, &times, layer_ns);
    return pp_db_close_after(profiled.db, status);
}
