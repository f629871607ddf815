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
    const char *option, *of;
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
        {"experts-per-token", "--experts; add that", model->experts},
        {"capacity-factor", "--experts; add that", model->experts},
        {"aux-loss", "--experts; add that", model->experts},
        {"gates", "--experts; add that", model->experts},
        {"router-score", "--experts; add that", model->experts},
        {"gate-scale", "--experts; add that", model->experts},
        {"expert-groups", "--experts; add that", model->experts},
        {"groups-per-token", "--expert-groups 2 or more; add that", model->experts && model->expert_groups > 1},
        {"group-score", "--expert-groups 2 or more; add that", model->experts && model->expert_groups > 1},
        {"expert-bias", "--experts; add that", model->experts},
        {"expert-bias-rate", "--expert-bias; add that", model->experts && model->expert_bias},
        {"shared-ff", "--experts; add that", model->experts},
        {"shared-gate", "--shared-ff; add that", model->experts && model->shared_ff},
        {"dense-layers", "--experts; add that", model->experts},
        {"experts-every", "--experts; add that", model->experts},
        {"dense-ff", "--dense-layers and --experts-every; add one", has_dense_layers(config)},
        {"expert-parallel", "--experts; add that", model->experts},
        {"overlap-expert-exchange", "--experts; add that", model->experts},
        {"q-lora-rank", "--kv-lora-rank; add that", model->kv_lora_rank},
        {"qk-nope-head-dim", "--kv-lora-rank; add that", model->kv_lora_rank},
        {"qk-rope-head-dim", "--kv-lora-rank; add that", model->kv_lora_rank},
        {"v-head-dim", "--kv-lora-rank; add that", model->kv_lora_rank},
        {"rope-theta", "--positions rope; add that", rope},
        {"rotary-dim", "--positions rope; add that", rope},
        {"rope-factor", "--positions rope; add that", rope},
        {"rope-scaling", "--rope-factor above 1; add that", scaled},
        {"rope-low-freq-factor", "--rope-factor with --rope-scaling llama3 or yarn; choose one", bands},
        {"rope-high-freq-factor", "--rope-factor with --rope-scaling llama3 or yarn; choose one", bands},
        {"rope-original-tokens", "--rope-factor with --rope-scaling llama3 or yarn; choose one", bands},
        {"rope-truncate", "--rope-factor and --rope-scaling yarn; add both", truncates},
        {"rope-attention-factor", "--rope-factor and --rope-scaling yarn; add both", grows},
        {"window-attn-skip-freq", "--window-size; add that", windows},
        {"max-positions", "--positions learned; add that", learned},
        {"adam-beta1", "--optimizer adamw; add that", adamw},
        {"adam-beta2", "--optimizer adamw; add that", adamw},
        {"adam-eps", "--optimizer adamw; add that", adamw},
        {"weight-decay", "--optimizer adamw; add that", adamw},
        {"lr-steps", "--lr-schedule cosine and linear; add one", falls},
        {"min-lr", "--lr-schedule cosine and linear; add one", falls},
        {"bucket-size", "--overlap-grad-reduce; add that", config->overlap_grad_reduce}};
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
        if (!additions[i].there && pp_config_given(config, additions[i].option))
            return pp_fail(PP_USAGE, "--%s is of %s, or leave it out", additions[i].option, additions[i].of);
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

static void set_given(struct pp_config *config, const char *option, bool given)
{
    config->set[pp_config_row(option) - pp_config_rows] = given;
}

/* Groups from all of which tokens choose are none. Who gave one of these numbers has said so, whatever the preset has;
 * the other two options would be refused without groups. */
static void leave_groups(struct pp_config *config)
{
    struct pp_shape *model = &config->model;
    static const char *const options[] = {"expert-groups", "groups-per-token", "group-score"};
    bool given = false;
    if (model->groups_per_token != model->expert_groups) return;
    model->expert_groups = model->groups_per_token = 1;
    model->group_by_best = 0;
    for (int i = 0; i < 3; i++) given |= pp_config_given(config, options[i]);
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
        const struct pp_opt *row = pp_config_row(additions[i].option);
        if (additions[i].there || pp_config_given(config, row->name)) continue;
        PP_TRY(pp_options_set(row, row->def, config));
    }
    leave_to_others(config);
    leave_groups(config);
    leave_to_layers(config);
    return PP_OK;
}
