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
    return config->experts && (config->dense_layers > 0 || (config->experts_every > 1 && config->layers > 1));
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
    const struct pp_rope_scaling *scaling = &config->rope_scaling;
    return config->positions == PP_POSITIONS_ROPE && pp_rope_scales(scaling) && pp_rope_kinds[scaling->kind].high > 0;
}

/* Writes all of them; returns their number. */
static int additions_of(const struct pp_config *config, struct addition out[MOST_ADDITIONS])
{
    const bool adamw = config->optimizer != PP_SGD;
    const bool falls = config->over_steps.schedule != PP_LR_CONSTANT;
    const bool rope = config->positions == PP_POSITIONS_ROPE, learned = config->positions == PP_POSITIONS_LEARNED;
    const bool windows = config->window_size || !config->window_attn_skip_freq;
    const bool scaled = rope && pp_rope_scales(&config->rope_scaling),
               truncates = scaled && pp_rope_kinds[config->rope_scaling.kind].truncates;
    const bool grows = scaled && pp_rope_kinds[config->rope_scaling.kind].growth > 0, bands = has_bands(config);
    const struct addition additions[] = {
        {"experts-per-token", "--experts; add that", config->experts},
        {"capacity-factor", "--experts; add that", config->experts},
        {"aux-loss", "--experts; add that", config->experts},
        {"gates", "--experts; add that", config->experts},
        {"router-score", "--experts; add that", config->experts},
        {"gate-scale", "--experts; add that", config->experts},
        {"expert-groups", "--experts; add that", config->experts},
        {"groups-per-token", "--expert-groups 2 or more; add that", config->experts && config->expert_groups > 1},
        {"group-score", "--expert-groups 2 or more; add that", config->experts && config->expert_groups > 1},
        {"expert-bias", "--experts; add that", config->experts},
        {"expert-bias-rate", "--expert-bias; add that", config->experts && config->expert_bias},
        {"shared-ff", "--experts; add that", config->experts},
        {"shared-gate", "--shared-ff; add that", config->experts && config->shared_ff},
        {"dense-layers", "--experts; add that", config->experts},
        {"experts-every", "--experts; add that", config->experts},
        {"dense-ff", "--dense-layers and --experts-every; add one", has_dense_layers(config)},
        {"expert-parallel", "--experts; add that", config->experts},
        {"overlap-expert-exchange", "--experts; add that", config->experts},
        {"q-lora-rank", "--kv-lora-rank; add that", config->kv_lora_rank},
        {"qk-nope-head-dim", "--kv-lora-rank; add that", config->kv_lora_rank},
        {"qk-rope-head-dim", "--kv-lora-rank; add that", config->kv_lora_rank},
        {"v-head-dim", "--kv-lora-rank; add that", config->kv_lora_rank},
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
    const struct pp_rope_scaling *rope = &config->rope_scaling;
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
    const int heads = config->heads, even = heads && config->d_model % heads == 0 ? config->d_model / heads : 0;
    if (config->kv_heads == heads) config->kv_heads = 0;
    if (!config->kv_lora_rank) {
        if (config->rotary_dim == (config->head_dim ? config->head_dim : even)) config->rotary_dim = 0;
        if (config->head_dim == even) config->head_dim = 0;
    }
    if (config->dense_ff == config->d_ff) config->dense_ff = 0;
    if (config->max_positions == config->tokens) config->max_positions = 0;
}

static void set_given(struct pp_config *config, const char *option, bool given)
{
    config->set[pp_config_row(option) - pp_config_rows] = given;
}

/* Groups from all of which tokens choose are none. Who gave one of these numbers has said so, whatever the preset has;
 * the other two options would be refused without groups. */
static void leave_groups(struct pp_config *config)
{
    static const char *const options[] = {"expert-groups", "groups-per-token", "group-score"};
    bool given = false;
    if (config->groups_per_token != config->expert_groups) return;
    config->expert_groups = config->groups_per_token = 1;
    config->group_by_best = 0;
    for (int i = 0; i < 3; i++) given |= pp_config_given(config, options[i]);
    for (int i = 0; i < 3; i++) set_given(config, options[i], given && i == 0);
}

/* Counts that are beyond the last layer: they mean the same as the least such count, or as none. */
static void leave_to_layers(struct pp_config *config)
{
    const int behind = config->layers - config->dense_layers; /* layers behind --dense-layers */
    if (behind > 0 && config->experts_every > behind) config->experts_every = behind;
    if (config->window_attn_skip_freq > config->layers) config->window_attn_skip_freq = 0;
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
