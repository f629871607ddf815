/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that only have a meaning beside others, and values that mean the same as others.
 */
#include <assert.h>
#include <string.h>

#include "core/options/config.h"

/* Have some layers of a model with experts none? */
static bool has_dense_layers(const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    return model->experts && (model->dense_layers > 0 || (model->experts_every > 1 && model->layers > 1));
}

/* An option that only has a meaning beside another one. */
struct addition {
    size_t option; /* PP_OPTION() */
    const char *of;
    bool there; /* the other one is there */
};
enum { MOST_ADDITIONS = 64 };

/* Are rotations slowed down in another way than all alike? */
static bool has_bands(const struct pp_config *config)
{
    const struct pp_rope_scaling *scaling = &config->model.rope_scaling;
    return config->model.positions == PP_POSITIONS_ROPE && pp_rope_scales(scaling) &&
           pp_rope_kinds[scaling->kind].high > 0;
}

/* Writes all of them; returns their number. */
static int additions_of(const struct pp_config *config, struct addition out[MOST_ADDITIONS])
{
    const struct pp_shape *model = &config->model;
    const bool adamw = model->optimizer != PP_SGD;
    const bool falls = config->over_steps.schedule != PP_LR_CONSTANT;
    const bool rope = model->positions == PP_POSITIONS_ROPE, learned = model->positions == PP_POSITIONS_LEARNED;
    const bool windows = model->window || !model->window_skip;
    const bool scaled = rope && pp_rope_scales(&model->rope_scaling),
               truncates = scaled && pp_rope_kinds[model->rope_scaling.kind].truncates;
    const bool grows = scaled && pp_rope_kinds[model->rope_scaling.kind].growth > 0, bands = has_bands(config);
    const struct addition additions[] = {
        {PP_OPTION(model.experts_per_token), "--experts; add that", model->experts},
        {PP_OPTION(model.capacity_factor), "--experts; add that", model->experts},
        {PP_OPTION(model.aux_loss), "--experts; add that", model->experts},
        {PP_OPTION(model.gates_of_all), "--experts; add that", model->experts},
        {PP_OPTION(model.sigmoid_scores), "--experts; add that", model->experts},
        {PP_OPTION(model.gate_scale), "--experts; add that", model->experts},
        {PP_OPTION(model.expert_groups), "--experts; add that", model->experts},
        {PP_OPTION(model.groups_per_token), "--expert-groups 2 or more; add that",
         model->experts && model->expert_groups > 1},
        {PP_OPTION(model.group_by_best), "--expert-groups 2 or more; add that",
         model->experts && model->expert_groups > 1},
        {PP_OPTION(model.expert_bias), "--experts; add that", model->experts},
        {PP_OPTION(model.expert_bias_rate), "--expert-bias; add that", model->experts && model->expert_bias},
        {PP_OPTION(model.shared_ff), "--experts; add that", model->experts},
        {PP_OPTION(model.shared_gate), "--shared-ff; add that", model->experts && model->shared_ff},
        {PP_OPTION(model.dense_layers), "--experts; add that", model->experts},
        {PP_OPTION(model.experts_every), "--experts; add that", model->experts},
        {PP_OPTION(model.dense_ff), "--dense-layers and --experts-every; add one", has_dense_layers(config)},
        {PP_OPTION(expert_parallel), "--experts; add that", model->experts},
        {PP_OPTION(overlap_expert_exchange), "--experts; add that", model->experts},
        {PP_OPTION(model.q_lora_rank), "--kv-lora-rank; add that", model->kv_lora_rank},
        {PP_OPTION(model.qk_nope_head_dim), "--kv-lora-rank; add that", model->kv_lora_rank},
        {PP_OPTION(model.qk_rope_head_dim), "--kv-lora-rank; add that", model->kv_lora_rank},
        {PP_OPTION(model.v_head_dim), "--kv-lora-rank; add that", model->kv_lora_rank},
        {PP_OPTION(model.rope_theta), "--positions rope; add that", rope},
        {PP_OPTION(model.rotary_dim), "--positions rope; add that", rope},
        {PP_OPTION(model.rope_scaling.factor), "--positions rope; add that", rope},
        {PP_OPTION(model.rope_scaling.kind), "--rope-factor above 1; add that", scaled},
        {PP_OPTION(model.rope_scaling.low), "--rope-factor with --rope-scaling llama3 or yarn; choose one", bands},
        {PP_OPTION(model.rope_scaling.high), "--rope-factor with --rope-scaling llama3 or yarn; choose one", bands},
        {PP_OPTION(model.rope_scaling.tokens), "--rope-factor with --rope-scaling llama3 or yarn; choose one", bands},
        {PP_OPTION(model.rope_scaling.truncate), "--rope-factor and --rope-scaling yarn; add both", truncates},
        {PP_OPTION(model.rope_scaling.magnitude), "--rope-factor and --rope-scaling yarn; add both", grows},
        {PP_OPTION(model.window_skip), "--window-size; add that", windows},
        {PP_OPTION(model.max_positions), "--positions learned; add that", learned},
        {PP_OPTION(adamw.beta1), "--optimizer adamw; add that", adamw},
        {PP_OPTION(adamw.beta2), "--optimizer adamw; add that", adamw},
        {PP_OPTION(adamw.epsilon), "--optimizer adamw; add that", adamw},
        {PP_OPTION(adamw.weight_decay), "--optimizer adamw; add that", adamw},
        {PP_OPTION(over_steps.steps), "--lr-schedule cosine and linear; add one", falls},
        {PP_OPTION(over_steps.least), "--lr-schedule cosine and linear; add one", falls},
        {PP_OPTION(bucket_size), "--overlap-grad-reduce; add that", config->overlap_grad_reduce}};
    static_assert(sizeof additions / sizeof *additions <= MOST_ADDITIONS, "out is too short");
    memcpy(out, additions, sizeof additions);
    return (int)(sizeof additions / sizeof *additions);
}

pp_status pp_config_check_additions(const struct pp_config *config)
{
    struct addition additions[MOST_ADDITIONS];
    const struct pp_rope_scaling *rope = &config->model.rope_scaling;
    const int n = additions_of(config, additions);
    for (int i = 0; i < n; i++)
        if (!additions[i].there && pp_config_given_of(config, additions[i].option))
            return pp_fail(PP_USAGE, "--%s is of %s, or leave it out", pp_config_row_of(additions[i].option)->name,
                           additions[i].of);
    const bool may_be_one = rope->kind == PP_ROPE_YARN && rope->low > 0; /* as in Kimi K2 */
    if (has_bands(config) && (may_be_one ? rope->high < rope->low : rope->high <= rope->low))
        return pp_fail(PP_USAGE, "--rope-high-freq-factor %g must be %s --rope-low-freq-factor %g", rope->high,
                       may_be_one ? "at least" : "more than", rope->low);
    return PP_OK;
}

/* Sets the options whose value says "as another option" where they are equal to that. (With latent attention nothing is
 * as wide as --d-model / --heads, and what is given of such widths is refused.) */
static void leave_to_others(struct pp_config *config)
{
    struct pp_shape *model = &config->model;
    const int heads = model->heads, even = heads && model->d_model % heads == 0 ? model->d_model / heads : 0;
    if (model->kv_heads == heads) model->kv_heads = 0;
    if (!model->kv_lora_rank) {
        if (model->rotary_dim == (model->head_dim ? model->head_dim : even)) model->rotary_dim = 0;
        if (model->head_dim == even) model->head_dim = 0;
    }
    if (model->dense_ff == model->d_ff) model->dense_ff = 0;
    if (model->max_positions == config->tokens) model->max_positions = 0;
}

static void set_given(struct pp_config *config, size_t option, bool given)
{
    config->set[pp_config_row_of(option) - pp_config_rows] = given;
}

/* Groups from all of which tokens choose are none. Who gave one of these numbers has said so, whatever the preset has;
 * the other two options would be refused without groups. */
static void leave_groups(struct pp_config *config)
{
    struct pp_shape *model = &config->model;
    static const size_t options[] = {PP_OPTION(model.expert_groups), PP_OPTION(model.groups_per_token),
                                     PP_OPTION(model.group_by_best)};
    bool given = false;
    if (model->groups_per_token != model->expert_groups) return;
    model->expert_groups = model->groups_per_token = 1;
    model->group_by_best = 0;
    for (int i = 0; i < 3; i++) given |= pp_config_given_of(config, options[i]);
    for (int i = 0; i < 3; i++) set_given(config, options[i], given && i == 0);
}

/* Counts that are beyond the last layer: they mean the same as the least such count, or as none. */
static void leave_to_layers(struct pp_config *config)
{
    struct pp_shape *model = &config->model;
    const int behind = model->layers - model->dense_layers; /* layers behind --dense-layers */
    if (behind > 0 && model->experts_every > behind) model->experts_every = behind;
    if (model->window_skip > model->layers) model->window_skip = 0;
}

pp_status pp_config_make_canonical(struct pp_config *config)
{
    struct addition additions[MOST_ADDITIONS];
    const int n = additions_of(config, additions);
    for (int i = 0; i < n; i++) {
        const struct pp_opt *row = pp_config_row_of(additions[i].option);
        if (additions[i].there || pp_config_given_of(config, row->offset)) continue;
        PP_TRY(pp_options_set(row, row->def, config));
    }
    leave_to_others(config);
    leave_groups(config);
    leave_to_layers(config);
    return PP_OK;
}
