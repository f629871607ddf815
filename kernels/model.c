/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/calls/fp8.h"
#include "kernels/kernels.h"
#include "kernels/model_rows.h"

enum { TENSOR_ALIGNMENT = 64 }; /* bytes: one cache line, one AVX-512 vector; more than products on a GPU ask for */
_Static_assert(PP_PART_LINE * sizeof(uint16_t) == TENSOR_ALIGNMENT, "parts, of copies too, are aligned as tensors are");
/* 1 EiB in fp32: all sizes of a model, and sums of a few, stay far below 2^63. */
static const int64_t most_parameters = INT64_C(1) << 58;

/* What a worker computes of it, if all its layers are of one kind. */
static struct pp_shape local_shape(const struct pp_shape *shape)
{
    const int tensor = pp_shape_tensor(shape);
    struct pp_shape local = *shape;
    if (tensor == 1) return local;
    local.heads = shape->heads / tensor;
    local.kv_heads = pp_kv_heads(shape) / tensor;
    local.head_dim = pp_head_dim(shape);
    if (shape->experts)
        local.experts = shape->experts / tensor;
    else
        local.d_ff = shape->d_ff / tensor;
    local.shared_ff = shape->shared_ff / tensor;
    local.vocab = (shape->vocab + tensor - 1) / tensor;
    return local;
}

/* Rows that are shared out together; experts as they are. */
static void set_blocks(const struct pp_shape *shape, enum pp_dim dim, int64_t blocks[PP_SPLIT_BLOCKS])
{
    const int64_t keys = (int64_t)pp_kv_heads(shape) * pp_head_dim(shape);
    const bool halves = (dim == DIM_LINEAR1 && !shape->experts) || dim == DIM_SHARED1;
    const bool gates = halves && shape->activation == PP_SWIGLU;
    blocks[0] = dim == DIM_QKV ? pp_query_width(shape) : pp_dim_size(shape, dim) / (gates ? 2 : 1);
    if (dim == DIM_QKV) blocks[1] = blocks[2] = keys;
    if (gates) blocks[1] = blocks[0];
}

/* So many that the next ones are aligned, and those of each of the equal pieces in which groups sum them. */
static int64_t whole_lines(const struct pp_shape *shape, int64_t elements)
{
    const int64_t lines = (int64_t)PP_PART_LINE * pp_shape_shard_groups(shape);
    return (elements + lines - 1) / lines * lines;
}

static int64_t aligned(int64_t bytes) { return (bytes + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT; }

/* Is it looked up by word or place, and no factor of a product? */
static bool is_embedding(const struct pp_tensor_row *row)
{
    for (int i = 0; i < PP_EMBEDDING_ROWS; i++)
        if (row == &pp_embedding_rows[i]) return true;
    return false;
}

/* Is it of experts? */
static bool is_experts(const struct pp_shape *shape, const struct pp_tensor_row *row)
{
    return shape->experts && (row->dim[0] == DIM_LINEAR1 || row->dim[0] == DIM_LINEAR2);
}

/* What one expert has is shared by none. */
static enum pp_split split_of(const struct pp_shape *shape, const struct pp_tensor_row *row)
{
    if (is_experts(shape, row)) return pp_shape_sharers(shape) > 1 ? PP_SPLIT_ROWS : PP_SPLIT_NONE;
    return pp_shape_tensor(shape) > 1 ? row->split : PP_SPLIT_NONE;
}

/* The shape of what a worker has of it: not of all the experts that it sends tokens to. */
static struct pp_shape held_of(const struct pp_shape *shape, const struct pp_tensor_row *row)
{
    struct pp_shape held = split_of(shape, row) == PP_SPLIT_NONE ? *shape : local_shape(shape);
    if (is_experts(shape, row)) held.experts /= pp_shape_expert_parallel(shape);
    return held;
}

/* The decoder's weight, where it is the embedding's. */
static bool is_copy(const struct pp_shape *shape, const struct pp_tensor_row *row)
{
    return shape->tied && row->dim[0] == DIM_VOCAB && row->dim[1] == DIM_D && !is_embedding(row);
}

static void take(int64_t *end, int64_t bytes, int64_t *offset)
{
    *offset = *end;
    *end += bytes;
}

/* Takes memory for the tensor, behind what the stage has: the decoder's has room for the padded vocabulary, and so has
 * what it is a copy of; what products read has a bfloat16 copy. */
static void place_tensor(const struct pp_shape *local, struct pp_stage *s, const struct pp_tensor_row *row,
                         struct pp_tensor *t)
{
    const bool embedding = is_embedding(row);
    const bool pads = row->dim[0] == DIM_VOCAB && (!embedding || local->tied);
    const int parts = pp_shape_parts(local, t->set), shares = local->zero ? parts : 1;
    int64_t elements = (pads ? pp_padded_vocab(local) : t->local[0]) * t->local[1];
    if (parts > 1 || local->zero) {
        t->part_elements = whole_lines(local, (elements + parts - 1) / parts);
        elements = parts * t->part_elements;
    }
    const bool copied = pp_in_bf16(local->precision) && !embedding && t->ndim == 2;
    t->bytes = aligned(elements * (int64_t)sizeof(float));
    take(&s->param_bytes, t->bytes, &t->offset);
    take(&s->share_bytes, t->bytes / shares, &t->share_offset);
    t->value_offset = t->share_value_offset = t->offset16 = t->share_offset16 = -1;
    if (!copied || !pp_shape_splits_weights(local)) {
        take(&s->value_bytes, t->bytes, &t->value_offset);
        take(&s->share_value_bytes, t->bytes / shares, &t->share_value_offset);
    }
    if (!copied) return;
    const int64_t bytes = aligned(elements * pp_element_bytes(PP_BF16));
    take(&s->param16_bytes, bytes, &t->offset16);
    take(&s->share_param16_bytes, bytes / shares, &t->share_offset16);
}

/* Is it a linear of a layer, whose products may be FP8 (kernels/program_linear.c)? */
static bool is_linear(const struct pp_tensor_row *row)
{
    return row->dim[1] != DIM_NONE && row->dim[0] != DIM_EXPERTS && row->dim[0] != DIM_ONE &&
           row->dim[0] != DIM_VOCAB && row->dim[0] != DIM_POSITIONS;
}

/* Are both sides of the worker's weight, or of each of its experts' weights, those of FP8 products? */
static bool fits_fp8(const struct pp_model *model, const struct pp_tensor *t)
{
    const int experts = t->of_experts ? model->local.experts / pp_shape_expert_parallel(&model->local) : 1;
    return t->local[0] / experts % PP_FP8_STEP == 0 && t->local[1] % PP_FP8_STEP == 0;
}

/* Takes memory for FP8 copies of the stage's weights, behind all bfloat16 copies. */
static void place_fp8(const struct pp_model *model, struct pp_stage *s)
{
    for (int i = s->first_tensor; i < s->first_tensor + s->tensors; i++) {
        struct pp_tensor *t = &model->tensors[i];
        t->offset8 = -1;
        if (!pp_shape_keeps_fp8(&model->local) || !t->linear || !fits_fp8(model, t)) continue;
        take(&s->param16_bytes, aligned(2 * t->local_elements + 2 * (int64_t)sizeof(float)), &t->offset8);
    }
}

/* Where nothing is shared, replicas sum all gradients of a set at once: those of experts lie behind the others. */
static void put_experts_last(struct pp_model *model, const struct pp_stage *s)
{
    int64_t end = 0;
    for (int set = 0; set < PP_PARAM_SETS && !model->shape.zero; set++)
        for (int i = s->first_tensor; i < s->first_tensor + s->tensors; i++)
            if (model->tensors[i].set == set) take(&end, model->tensors[i].bytes, &model->tensors[i].offset);
}

/* Appends the tensors of `rows` that a model of this shape has to the stage. prefix: "layers.3." or "". */
static pp_status add_tensors(struct pp_model *model, int stage, const struct pp_shape *shape, const char *prefix,
                             const struct pp_tensor_row *rows, int n)
{
    struct pp_stage *s = &model->stages[stage];
    for (int i = 0; i < n; i++) {
        if (!pp_has_row(shape, &rows[i])) continue;
        struct pp_tensor *t = &model->tensors[model->ntensors++];
        snprintf(t->name, sizeof t->name, "%s%s", prefix, rows[i].name);
        t->ndim = rows[i].dim[1] == DIM_NONE ? 1 : 2;
        t->split = split_of(shape, &rows[i]);
        const struct pp_shape held = held_of(shape, &rows[i]);
        for (int k = 0; k < 2; k++) t->shape[k] = pp_dim_size(shape, rows[i].dim[k]);
        for (int k = 0; k < 2; k++) t->local[k] = pp_dim_size(&held, rows[i].dim[k]);
        t->elements = t->shape[0] * t->shape[1];
        t->local_elements = t->local[0] * t->local[1];
        if (t->split == PP_SPLIT_ROWS) set_blocks(shape, rows[i].dim[0], t->blocks);
        t->stage = stage;
        t->copy = is_copy(shape, &rows[i]);
        t->loads = rows[i].of == OF_EXPERT_BIAS;
        t->linear = is_linear(&rows[i]);
        t->of_experts = is_experts(shape, &rows[i]);
        t->set = t->of_experts && pp_shape_expert_parallel(shape) > 1 ? PP_EXPERTS : PP_DENSE;
        pp_row_init(shape, &rows[i], t);
        place_tensor(&model->local, s, &rows[i], t);
        s->tensors++;
        if (!t->copy) model->parameters += t->elements;
        if (t->part_elements / PP_PART_LINE > INT_MAX)
            return pp_fail(PP_USAGE, "%s is too large to be shared by %d replicas", t->name, shape->replicas);
        if (model->parameters > most_parameters)
            return pp_fail(PP_USAGE,
                           "the model has more than %.1e parameters; use fewer --layers or a smaller --d-model, --d-ff "
                           "or --vocab",
                           (double)most_parameters);
    }
    return PP_OK;
}

/* layer_at: [layers + 1], see pp_stage.layer_at. */
static pp_status fill_stage(struct pp_model *model, int stage, int *layer_at)
{
    const struct pp_shape *shape = &model->shape;
    struct pp_stage *s = &model->stages[stage];
    s->first_tensor = model->ntensors;
    s->layer_at = layer_at;
    if (s->embed) PP_TRY(add_tensors(model, stage, shape, "", pp_embedding_rows, PP_EMBEDDING_ROWS));
    layer_at[0] = s->tensors;
    for (int i = 0; i < s->layers; i++) {
        const int layer = s->first_layer + i;
        const struct pp_shape all = pp_shape_of_kind(shape, pp_layer_kind(shape, layer));
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", layer);
        PP_TRY(add_tensors(model, stage, &all, prefix, pp_layer_rows, PP_LAYER_ROWS));
        layer_at[i + 1] = s->tensors;
    }
    if (s->decode) PP_TRY(add_tensors(model, stage, shape, "", pp_last_rows, PP_LAST_ROWS));
    put_experts_last(model, s);
    place_fp8(model, s);
    return PP_OK;
}

/* pp_stage.common of all stages. */
static pp_status set_common(struct pp_model *model, const int *stage_rank)
{
    struct pp_stage *stages = model->stages, **first; /* of each rank the first stage that has layers */
    PP_TRY(PP_NEW(&first, model->nstages));
    for (int s = 0; s < model->nstages; s++) {
        struct pp_stage **of_rank = &first[stage_rank[s]];
        if (stages[s].layers == 0) continue;
        if (!*of_rank) *of_rank = &stages[s];
        const int alike = pp_stages_layers_alike(&model->shape, *of_rank, &stages[s]);
        if (*of_rank == &stages[s] || alike < (*of_rank)->common) (*of_rank)->common = alike;
    }
    for (int s = 0; s < model->nstages; s++)
        if (stages[s].layers > 0) stages[s].common = first[stage_rank[s]]->common;
    free(first);
    return PP_OK;
}

/* The first earlier stage that is alike, or the stage itself. */
static int stage_group(const struct pp_model *model, int stage)
{
    for (int i = 0; i < stage; i++)
        if (pp_stages_alike(&model->shape, &model->stages[i], &model->stages[stage])) return model->stages[i].group;
    return stage;
}

/* stage_rank: as in pp_cut. */
static pp_status fill_model(struct pp_model *model, const int *layers, const int *stage_rank)
{
    int first = 0;
    int *layer_at = model->layer_at;
    for (int i = 0; i < model->nstages; i++) {
        struct pp_stage *s = &model->stages[i];
        s->first_layer = first;
        s->layers = layers[i];
        s->embed = i == 0;
        s->decode = i == model->nstages - 1;
        first += layers[i];
    }
    if (stage_rank) PP_TRY(set_common(model, stage_rank));
    for (int i = 0; i < model->nstages; i++) {
        model->stages[i].group = stage_group(model, i);
        PP_TRY(fill_stage(model, i, layer_at));
        layer_at += layers[i] + 1;
    }
    return PP_OK;
}

pp_status pp_model_create_cut(const struct pp_shape *shape, const struct pp_cut *cut, struct pp_model **out)
{
    const int stages = cut->stages;
    pp_status status = PP_OK;
    struct pp_model *model = NULL;
    int *layers = NULL;
    *out = NULL;
    PP_TRY(pp_shape_check(shape));
    PP_TRY_DONE(PP_NEW(&layers, stages > 0 ? stages : 1));
    PP_TRY_DONE(pp_model_cut(shape, cut, layers));
    PP_TRY_DONE(PP_NEW(&model, 1));
    model->shape = *shape;
    model->local = local_shape(shape);
    for (int kind = 0; kind < PP_LAYER_KINDS; kind++) {
        const struct pp_shape all = pp_shape_of_kind(shape, kind);
        model->local_kind[kind] = local_shape(&all);
    }
    model->nstages = stages;
    PP_TRY_DONE(PP_NEW(&model->stages, stages));
    PP_TRY_DONE(PP_NEW(&model->layer_at, shape->layers + stages));
    int tensors = PP_EMBEDDING_ROWS + shape->layers * PP_LAYER_ROWS + PP_LAST_ROWS;
    PP_TRY_DONE(PP_NEW(&model->tensors, tensors));
    PP_TRY_DONE(fill_model(model, layers, cut->stage_rank));
    *out = model;
    model = NULL;
done:
    free(layers);
    pp_model_free(model);
    return status;
}

pp_status pp_model_create(const struct pp_shape *shape, int stages, const char *split, const double *layer_ns,
                          struct pp_model **out)
{
    const struct pp_cut cut = {.stages = stages, .split = split, .layer_ns = layer_ns};
    return pp_model_create_cut(shape, &cut, out);
}

void pp_model_free(struct pp_model *model)
{
    if (!model) return;
    free(model->stages);
    free(model->layer_at);
    free(model->tensors);
    free(model);
}

const struct pp_model_ops pp_model_ops = {
    .create = pp_model_create_cut,
    .destroy = pp_model_free,
    .program = pp_model_program,
    .act_bytes = pp_model_act_parts,
    .call_name = pp_call_text,
    .call_work = pp_call_work,
    .call_join = pp_call_join,
};
