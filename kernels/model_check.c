/* SPDX-License-Identifier: Apache-2.0
 *
 * Which shapes a model can have, and which microbatches.
 */
#include <limits.h>
#include <stdio.h>

#include "kernels/kernels.h"
#include "kernels/model.h"

static pp_status check_heads(const struct pp_shape *shape)
{
    const bool divided = !shape->head_dim && !pp_shape_is_latent(shape);
    if (shape->heads < 1 || shape->head_dim < 0 || (divided && shape->d_model % shape->heads))
        return pp_fail(PP_USAGE, "--heads %d does not divide --d-model %d", shape->heads, shape->d_model);
    if (shape->kv_heads < 0 || (shape->kv_heads && shape->heads % shape->kv_heads))
        return pp_fail(PP_USAGE, "--kv-heads %d does not divide --heads %d", shape->kv_heads, shape->heads);
    return PP_OK;
}

static pp_status check_rotation(const struct pp_shape *shape)
{
    const int columns = pp_shape_is_latent(shape) ? shape->qk_rope_head_dim : pp_head_dim(shape);
    if (shape->positions == PP_POSITIONS_ROPE && (columns % 2 || !(shape->rope_theta >= 1)))
        return pp_fail(PP_USAGE,
                       "--positions rope needs heads of an even number of columns, not %d, and --rope-theta 1 or more",
                       columns);
    if (shape->rotary_dim < 0 || shape->rotary_dim % 2 || pp_rotary_dim(shape) > pp_head_dim(shape))
        return pp_fail(PP_USAGE, "--rotary-dim %d must be an even number of a head's %d columns", shape->rotary_dim,
                       pp_head_dim(shape));
    return PP_OK;
}

/* Latent attention. */
static pp_status check_latent(const struct pp_shape *shape)
{
    const int rope = shape->qk_rope_head_dim;
    if (!pp_shape_is_latent(shape)) return PP_OK;
    if (shape->kv_heads || shape->head_dim || shape->rotary_dim || shape->qk_norm || shape->bias != PP_NO_BIAS)
        return pp_fail(PP_USAGE,
                       "--kv-lora-rank %d goes with --bias no, and without --kv-heads, --head-dim, "
                       "--rotary-dim and --qk-norm",
                       shape->kv_lora_rank);
    if (shape->q_lora_rank < 0 || shape->qk_nope_head_dim < 1 || shape->v_head_dim < 1 || rope < 2 || rope % 2 ||
        shape->positions != PP_POSITIONS_ROPE)
        return pp_fail(PP_USAGE,
                       "--kv-lora-rank %d needs --qk-nope-head-dim and --v-head-dim of at least 1, an even "
                       "--qk-rope-head-dim, and --positions rope",
                       shape->kv_lora_rank);
    return PP_OK;
}

static pp_status check_window(const struct pp_shape *shape)
{
    if (shape->window >= 0 && (shape->window == 0 || shape->mask == PP_MASK_CAUSAL)) return PP_OK;
    return pp_fail(PP_USAGE, "--window-size %d must be 0, or a number of tokens beside --mask causal", shape->window);
}

enum { DROPOUT_QUAD = 4 /* columns whose random numbers come together */ };

/* Can so many workers share the feed-forward of layers that have one? */
static pp_status check_dense(const struct pp_shape *shape)
{
    const int tensor = pp_shape_tensor(shape), ff = pp_shape_of_kind(shape, PP_LAYER_DENSE).d_ff;
    const char *option = shape->dense_ff ? "dense-ff" : "d-ff";
    if (tensor == 1 || pp_layers_of_kind(shape, PP_LAYER_DENSE) == 0) return PP_OK;
    if (ff % tensor) return pp_fail(PP_USAGE, "--tensor %d does not divide --%s %d", tensor, option, ff);
    if (ff / tensor % DROPOUT_QUAD == 0) return PP_OK;
    return pp_fail(PP_USAGE, "--tensor %d leaves %d column%s of --%s %d to each worker, not a multiple of %d", tensor,
                   ff / tensor, pp_plural(ff / tensor), option, ff, DROPOUT_QUAD);
}

/* Can so many workers share the tensors? */
static pp_status check_tensor(const struct pp_shape *shape)
{
    enum { HEADS = 2 /* of the rows below */ };
    const int tensor = pp_shape_tensor(shape), words = (shape->vocab + tensor - 1) / tensor;
    const struct {
        const char *option;
        int size;
    } rows[] = {{"heads", shape->heads},
                {"kv-heads", pp_kv_heads(shape)},
                {"experts", shape->experts},
                {"shared-ff", shape->shared_ff}};
    const int context = pp_shape_context(shape);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].size % tensor)
            return pp_fail(PP_USAGE, "--tensor %d does not divide --%s %d", tensor, rows[i].option, rows[i].size);
    char with[24] = "";
    if (tensor > 1) snprintf(with, sizeof with, " x --tensor %d", tensor);
    for (int i = 0; i < HEADS && !pp_shape_halves_rows(shape); i++)
        if (rows[i].size % (tensor * context))
            return pp_fail(PP_USAGE, "--context-parallel %d%s does not divide --%s %d", context, with, rows[i].option,
                           rows[i].size);
    if (shape->experts % pp_shape_sharers(shape))
        return pp_fail(PP_USAGE, "--experts %d cannot be shared evenly by --expert-parallel %d x --tensor %d workers",
                       shape->experts, pp_shape_expert_parallel(shape), pp_shape_tensor(shape));
    PP_TRY(check_dense(shape));
    if ((int64_t)words * (tensor - 1) >= shape->vocab)
        return pp_fail(
            PP_USAGE,
            "--tensor %d: of a vocabulary of %d each worker would have %d word%s, and the last one none; use fewer",
            tensor, shape->vocab, words, pp_plural(words));
    return PP_OK;
}

static pp_status check_routing(const struct pp_shape *shape)
{
    const int most = shape->experts < PP_EXPERTS_PER_TOKEN_MAX ? shape->experts : PP_EXPERTS_PER_TOKEN_MAX;
    if (shape->experts_per_token < 1 || shape->experts_per_token > most)
        return pp_fail(PP_USAGE, "--experts-per-token %d: of --experts %d a token can have 1 to %d",
                       shape->experts_per_token, shape->experts, most);
    const int groups = shape->expert_groups > 1 ? shape->expert_groups : 1, size = shape->experts / groups;
    if (shape->experts % groups || (groups > 1 && size < (shape->group_by_best ? 1 : 2)) ||
        (groups > 1 && (shape->groups_per_token < 1 || shape->groups_per_token > groups ||
                        shape->groups_per_token * size < shape->experts_per_token)))
        return pp_fail(PP_USAGE,
                       "--experts %d in --expert-groups %d: a token cannot choose %d of --groups-per-token %d",
                       shape->experts, groups, shape->experts_per_token, shape->groups_per_token);
    if (!(shape->capacity_factor > 0))
        return pp_fail(PP_USAGE, "--capacity-factor %g leaves experts no room; choose more than 0",
                       shape->capacity_factor);
    if (!(shape->aux_loss >= 0)) return pp_fail(PP_USAGE, "--aux-loss %g is less than 0", shape->aux_loss);
    return PP_OK;
}

static pp_status check_experts(const struct pp_shape *shape)
{
    const int64_t width = pp_linear1_width(shape) > shape->d_model ? pp_linear1_width(shape) : shape->d_model;
    if (shape->experts == 0) return PP_OK;
    if (shape->experts < 0 || shape->experts > PP_EXPERTS_MAX)
        return pp_fail(PP_USAGE, "--experts %d is outside 0 to %d", shape->experts, PP_EXPERTS_MAX);
    PP_TRY(check_routing(shape));
    if (shape->dense_layers < 0 || shape->dense_layers >= shape->layers || shape->experts_every < 0)
        return pp_fail(PP_USAGE, "--dense-layers %d and --experts-every %d leave none of --layers %d to have --experts",
                       shape->dense_layers, shape->experts_every, shape->layers);
    if (shape->bias != PP_NO_BIAS && shape->bias != PP_BIAS_QKV)
        return pp_fail(PP_USAGE, "--experts %d have no biases: add --bias no", shape->experts);
    if (shape->experts * width > INT_MAX)
        return pp_fail(PP_USAGE, "--experts %d of --d-ff %d and --d-model %d are too large for one layer",
                       shape->experts, shape->d_ff, shape->d_model);
    return PP_OK;
}

/* What is beside experts. */
static pp_status check_beside(const struct pp_shape *shape)
{
    if (shape->shared_ff < 0 || (shape->shared_ff && !shape->experts))
        return pp_fail(PP_USAGE, "--shared-ff %d: it is 0, or more than 0 beside --experts", shape->shared_ff);
    if (shape->shared_gate && !shape->shared_ff) return pp_fail(PP_USAGE, "--shared-gate yes needs --shared-ff");
    if (shape->dense_ff < 0) return pp_fail(PP_USAGE, "--dense-ff %d is less than 0", shape->dense_ff);
    return PP_OK;
}

pp_status pp_shape_check(const struct pp_shape *shape)
{
    if (shape->d_model < 2 || shape->d_model % 2)
        return pp_fail(PP_USAGE, "--d-model %d must be an even number of at least 2", shape->d_model);
    PP_TRY(check_heads(shape));
    PP_TRY(check_rotation(shape));
    PP_TRY(check_latent(shape));
    PP_TRY(check_window(shape));
    if (shape->d_ff < 1 || shape->layers < 1 || shape->vocab < 2)
        return pp_fail(PP_USAGE, "--d-ff %d, --layers %d and --vocab %d must be at least 1, 1 and 2", shape->d_ff,
                       shape->layers, shape->vocab);
    if (shape->positions == PP_POSITIONS_LEARNED && shape->max_positions < 1)
        return pp_fail(PP_USAGE, "--max-positions %d must be at least 1", shape->max_positions);
    if (!(shape->dropout >= 0 && (float)shape->dropout < 1)) /* kernels have it as a float */
        return pp_fail(PP_USAGE, "--dropout %.10g is outside 0 <= p < 1, in float arithmetic", shape->dropout);
    PP_TRY(check_experts(shape));
    PP_TRY(check_beside(shape));
    PP_TRY(pp_shape_check_context(shape));
    return check_tensor(shape);
}

/* Kernels count places as int, and a GPU sorts choices in scratch. */
static pp_status check_places(const struct pp_model *model, int64_t tokens)
{
    const struct pp_shape *shape = &model->shape;
    if (!shape->experts) return PP_OK;
    if (tokens * shape->experts_per_token > PP_CHOICES_MAX)
        return pp_fail(
            PP_USAGE,
            "a microbatch of %lld tokens, each of --experts-per-token %d, has more than %d choices of experts: "
            "use more chunks",
            (long long)tokens, shape->experts_per_token, PP_CHOICES_MAX);
    if (pp_expert_capacity(shape, tokens) * model->local.experts > INT_MAX)
        return pp_fail(PP_USAGE, "a microbatch of %lld tokens is too large for --experts %d: use more chunks",
                       (long long)tokens, shape->experts);
    return PP_OK;
}

pp_status pp_model_check_size(const struct pp_model *model, const struct pp_class *cls, int seq)
{
    if (model->shape.positions == PP_POSITIONS_LEARNED && seq > model->shape.max_positions)
        return pp_fail(PP_USAGE, "rows of %d tokens have places without weights: --max-positions is %d", seq,
                       model->shape.max_positions);
    const int tensor = pp_shape_tensor(&model->shape), context = pp_shape_context(&model->shape),
              chunks = pp_shape_chunks(&model->shape);
    const int64_t tokens = (int64_t)cls->rows * seq;
    if (seq % context)
        return pp_fail(PP_USAGE, "--context-parallel %d does not divide rows of %d tokens", context, seq);
    if (seq % chunks)
        return pp_fail(PP_USAGE,
                       "--context-parallel %d with --cp-comm-type %s: %d chunks do not divide rows of %d tokens",
                       context, pp_context_kind_names[model->shape.context_kind], chunks, seq);
    if (tokens > INT_MAX || pp_qkv_width(&model->local) > INT_MAX ||
        (tokens + (int64_t)cls->rows * tensor) * tensor > INT_MAX)
        return pp_fail(PP_USAGE, "a microbatch of %d row%s of %d token%s is too large: use more chunks", cls->rows,
                       pp_plural(cls->rows), seq, pp_plural(seq));
    if (context * pp_keys_width(&model->local) > INT_MAX)
        return pp_fail(PP_USAGE, "--context-parallel %d x %lld keys and values of a token are too many", context,
                       (long long)pp_keys_width(&model->local));
    return check_places(model, tokens / context);
}
