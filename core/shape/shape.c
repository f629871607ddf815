/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shape/shape.h"

#include "core/shape/layers.h"

const char *const pp_precision_names[] = {"fp32", "tf32", "bf16", "fp8"};
const struct pp_rope_kind_info pp_rope_kinds[PP_ROPE_KINDS] = {
    [PP_ROPE_LLAMA3] = {"llama3", .low = 1, .high = 4},
    [PP_ROPE_YARN] = {"yarn", .low = 1, .high = 32, .growth = 0.1, .truncates = true},
    [PP_ROPE_LINEAR] = {"linear"}};
const char *const pp_context_kind_names[] = {"a2a", "all_gather", "p2p"};
const char *const pp_context_kind_words[] = {"", " all_gather", " p2p"};
const char *const pp_activation_names[] = {"relu", "gelu", "swiglu", "gelu-tanh"};
const char *const pp_bias_words[] = {
    [PP_BIAS] = "", [PP_NO_BIAS] = " nobias", [PP_BIAS_LAYERS] = " layerbias", [PP_BIAS_QKV] = " qkvbias"};

void pp_shape_drop_experts(struct pp_shape *shape)
{
    shape->experts = shape->experts_per_token = shape->shared_ff = shape->expert_groups = shape->groups_per_token = 0;
    shape->dense_layers = shape->experts_every = shape->dense_ff = 0;
    shape->capacity_factor = shape->aux_loss = shape->gate_scale = shape->expert_bias_rate = 0;
    shape->shared_gate = shape->gates_of_all = shape->sigmoid_scores = shape->expert_bias = shape->group_by_best = 0;
}

pp_status pp_shape_check_context(const struct pp_shape *shape)
{
    const char *kind = pp_context_kind_names[shape->context_kind];
    if (pp_shape_halves_rows(shape) && shape->attention != PP_ATTENTION_FLASH)
        return pp_fail(PP_USAGE, "--cp-comm-type %s needs --attention flash", kind);
    if (!pp_shape_rings_keys(shape)) return PP_OK;
    if (shape->window)
        return pp_fail(PP_USAGE, "--cp-comm-type %s has no --window-size: choose a2a or all_gather", kind);
    if (shape->dropout > 0 && !shape->residual_only)
        return pp_fail(PP_USAGE,
                       "--cp-comm-type %s has no dropout of attention: choose a2a or all_gather, or --dropout 0", kind);
    return PP_OK;
}

struct pp_shape pp_shape_of_kind(const struct pp_shape *shape, enum pp_layer_kind kind)
{
    struct pp_shape all = *shape;
    if (shape->experts && kind != PP_LAYER_EXPERTS) {
        if (shape->dense_ff) all.d_ff = shape->dense_ff;
        pp_shape_drop_experts(&all);
    }
    all.dense_layers = all.experts_every = all.dense_ff = 0;
    return all;
}
