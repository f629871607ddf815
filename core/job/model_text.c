/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes a model in words.
 */
#include <stdio.h>

#include "core/job/job.h"
#include "core/shape/layers.h"

static void add_rope(const struct pp_shape *shape, char *buf, size_t size)
{
    char slower[64] = "", columns[48] = "";
    if (shape->rotary_dim) snprintf(columns, sizeof columns, " in %d columns of a head", shape->rotary_dim);
    const struct pp_rope_scaling *scaling = &shape->rope_scaling;
    if (pp_rope_scales(scaling))
        snprintf(slower, sizeof slower, ", %s turns %g times slower%s",
                 scaling->kind == PP_ROPE_LINEAR ? "all" : "slow", scaling->factor,
                 scaling->kind == PP_ROPE_YARN ? " (yarn)" : "");
    snprintf(buf, size, ", rope of base %g%s%s", shape->rope_theta, columns, slower);
}

static void add_window(const struct pp_shape *shape, char *buf, size_t size)
{
    char some[48] = "";
    if (shape->window_skip)
        snprintf(some, sizeof some, " in %d of %d layers", shape->window_skip - 1, shape->window_skip);
    snprintf(buf, size, ", window of %d token%s%s", shape->window, pp_plural(shape->window), some);
}

/* Adds how the layers differ from those of PyTorch's tutorials. */
static void add_layer_words(const struct pp_shape *shape, char *buf, size_t size)
{
    static const char *const biases[] = {[PP_BIAS] = "",
                                         [PP_NO_BIAS] = ", no bias",
                                         [PP_BIAS_LAYERS] = ", no bias of the decoder",
                                         [PP_BIAS_QKV] = ", biases of queries, keys and values alone"};
    const bool named = shape->activation != PP_RELU;
    char positions[160] = "", epsilon[40] = "", window[80] = "";
    if (shape->window) add_window(shape, window, sizeof window);
    if (pp_norm_epsilon(shape) != PP_NORM_EPSILON)
        snprintf(epsilon, sizeof epsilon, ", epsilon %g", pp_norm_epsilon(shape));
    if (shape->positions == PP_POSITIONS_ROPE) add_rope(shape, positions, sizeof positions);
    if (shape->positions == PP_POSITIONS_LEARNED)
        snprintf(positions, sizeof positions, ", %d learnt position%s", shape->max_positions,
                 pp_plural(shape->max_positions));
    snprintf(buf, size, "%s%s%s%s%s%s%s%s%s%s%s", window, positions, shape->tied ? ", tied embeddings" : "",
             shape->attention == PP_ATTENTION_FLASH ? ", attention flash" : "",
             shape->norm == PP_NORM_FIRST ? ", norm first" : "", shape->normalization == PP_RMSNORM ? ", rmsnorm" : "",
             epsilon, shape->qk_norm ? ", norms of queries and keys" : "", named ? ", " : "",
             named ? pp_activation_names[shape->activation] : "", biases[shape->bias]);
}

/* " of 128 + 64 columns (values 128) from latent vectors of 1536 and 512" */
static void add_latent(const struct pp_shape *shape, char *buf, size_t size)
{
    char queries[40] = "a latent vector of ";
    if (shape->q_lora_rank) snprintf(queries, sizeof queries, "latent vectors of %d and ", shape->q_lora_rank);
    snprintf(buf, size, " of %d + %d (values %d) from %s%d", shape->qk_nope_head_dim, shape->qk_rope_head_dim,
             shape->v_head_dim, queries, shape->kv_lora_rank);
}

static void add_experts(const struct pp_shape *shape, char *buf, size_t size)
{
    char scale[32] = "", groups[48] = "";
    if (pp_shape_expert_groups(shape))
        snprintf(groups, sizeof groups, ", from %d of %d groups", shape->groups_per_token, shape->expert_groups);
    if (pp_gate_scale(shape) != 1) snprintf(scale, sizeof scale, ", gates times %g", pp_gate_scale(shape));
    snprintf(buf, size, " of %d expert%s (%d of a token%s%s%s%s%s, room for %g times that)", shape->experts,
             pp_plural(shape->experts), shape->experts_per_token, groups,
             shape->gates_of_all ? ", gates among all" : "", shape->sigmoid_scores ? ", logistic scores" : "",
             shape->expert_bias ? ", chosen with a bias" : "", scale, shape->capacity_factor);
}

/* Adds how many layers of a model with experts have none. */
static void add_dense(const struct pp_shape *shape, char *buf, size_t size)
{
    const int layers = pp_layers_of_kind(shape, PP_LAYER_DENSE);
    if (!shape->experts || layers == 0) return;
    snprintf(buf, size, ", in %d layer%s one of %d instead", layers, pp_plural(layers),
             pp_shape_of_kind(shape, PP_LAYER_DENSE).d_ff);
}

const char *pp_model_text(const struct pp_model *model, char *buf, size_t size)
{
    const struct pp_shape *shape = &model->shape;
    const int kv = pp_kv_heads(shape);
    char words[440], columns[128] = "", of_keys[40] = "", experts[240] = "", beside[48] = "", dense[64] = "";
    if (pp_shape_is_latent(shape))
        add_latent(shape, columns, sizeof columns);
    else if (shape->head_dim)
        snprintf(columns, sizeof columns, " of %d", shape->head_dim);
    if (kv != shape->heads) snprintf(of_keys, sizeof of_keys, " (%d of keys and values)", kv);
    if (shape->experts) add_experts(shape, experts, sizeof experts);
    if (shape->shared_ff)
        snprintf(beside, sizeof beside, " beside one of %d%s", shape->shared_ff,
                 shape->shared_gate ? " with a gate" : "");
    add_dense(shape, dense, sizeof dense);
    add_layer_words(shape, words, sizeof words);
    snprintf(buf, size,
             "%lld parameters: %d layer%s, d %d, %d head%s%s%s, ff %d%s%s%s, vocabulary %d, mask %s%s; %s, %s",
             (long long)model->parameters, shape->layers, pp_plural(shape->layers), shape->d_model, shape->heads,
             pp_plural(shape->heads), columns, of_keys, shape->d_ff, experts, beside, dense, shape->vocab,
             shape->mask == PP_MASK_CAUSAL ? "causal" : "none", words, pp_precision_names[shape->precision],
             pp_optimizers[shape->optimizer].name);
    return buf;
}
