/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the options of multi-head latent attention.
 */
#include "core/options/config.h"

/* What latent attention replaces. */
static pp_status check_replaced(const struct pp_config *config)
{
    if (config->kv_heads)
        return pp_fail(PP_USAGE,
                       "--kv-heads %d: with --kv-lora-rank each head has a key and a value of its own; leave one out",
                       config->kv_heads);
    if (config->head_dim)
        return pp_fail(PP_USAGE,
                       "--head-dim %d: with --kv-lora-rank, --qk-nope-head-dim, --qk-rope-head-dim and --v-head-dim "
                       "say how wide heads are; leave it out",
                       config->head_dim);
    if (config->rotary_dim)
        return pp_fail(
            PP_USAGE,
            "--rotary-dim %d: with --kv-lora-rank, --qk-rope-head-dim says how many columns are rotated; leave "
            "it out",
            config->rotary_dim);
    if (config->qk_norm)
        return pp_fail(PP_USAGE, "--qk-norm yes: with --kv-lora-rank the latent vectors are normalised instead");
    if (config->bias != PP_NO_BIAS)
        return pp_fail(PP_USAGE, "--kv-lora-rank: latent attention has no biases; add --bias no");
    return PP_OK;
}

pp_status pp_config_check_latent(const struct pp_config *config)
{
    const int nope = config->qk_nope_head_dim, rope = config->qk_rope_head_dim, value = config->v_head_dim;
    if (!config->kv_lora_rank) return PP_OK;
    PP_TRY(check_replaced(config));
    if (nope < 1 || rope < 1 || value < 1)
        return pp_fail(
            PP_USAGE, "--kv-lora-rank %d: add --qk-nope-head-dim, --qk-rope-head-dim and --v-head-dim, each at least 1",
            config->kv_lora_rank);
    if (rope % 2)
        return pp_fail(PP_USAGE, "--qk-rope-head-dim %d: pairs of columns are rotated; choose an even number", rope);
    if (config->positions != PP_POSITIONS_ROPE)
        return pp_fail(PP_USAGE, "--qk-rope-head-dim %d is rotated by positions: add --positions rope", rope);
    if ((int64_t)config->heads * ((int64_t)nope + (rope > value ? rope : value)) > 1 << 24)
        return pp_fail(PP_USAGE,
                       "--qk-nope-head-dim, --v-head-dim: %d heads of %d and %d columns are wider than any "
                       "model",
                       config->heads, nope + rope, value);
    return PP_OK;
}
