/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the options of multi-head latent attention.
 */
#include "core/options/config.h"

/* What latent attention replaces. */
static pp_status check_replaced(const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    if (model->kv_heads)
        return pp_fail(PP_USAGE,
                       "--kv-heads %d: with --kv-lora-rank each head has a key and a value of its own; leave one out",
                       model->kv_heads);
    if (model->head_dim)
        return pp_fail(PP_USAGE,
                       "--head-dim %d: with --kv-lora-rank, --qk-nope-head-dim, --qk-rope-head-dim and --v-head-dim "
                       "say how wide heads are; leave it out",
                       model->head_dim);
    if (model->rotary_dim)
        return pp_fail(
            PP_USAGE,
            "--rotary-dim %d: with --kv-lora-rank, --qk-rope-head-dim says how many columns are rotated; leave "
            "it out",
            model->rotary_dim);
    if (model->qk_norm)
        return pp_fail(PP_USAGE, "--qk-norm yes: with --kv-lora-rank the latent vectors are normalised instead");
    if (model->bias != PP_NO_BIAS)
        return pp_fail(PP_USAGE, "--kv-lora-rank: latent attention has no biases; add --bias no");
    return PP_OK;
}

pp_status pp_config_check_latent(const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    const int nope = model->qk_nope_head_dim, rope = model->qk_rope_head_dim, value = model->v_head_dim;
    if (!model->kv_lora_rank) return PP_OK;
    PP_TRY(check_replaced(config));
    if (nope < 1 || rope < 1 || value < 1)
        return pp_fail(
            PP_USAGE, "--kv-lora-rank %d: add --qk-nope-head-dim, --qk-rope-head-dim and --v-head-dim, each at least 1",
            model->kv_lora_rank);
    if (rope % 2)
        return pp_fail(PP_USAGE, "--qk-rope-head-dim %d: pairs of columns are rotated; choose an even number", rope);
    if (model->positions != PP_POSITIONS_ROPE)
        return pp_fail(PP_USAGE, "--qk-rope-head-dim %d is rotated by positions: add --positions rope", rope);
    if ((int64_t)model->heads * ((int64_t)nope + (rope > value ? rope : value)) > 1 << 24)
        return pp_fail(PP_USAGE,
                       "--qk-nope-head-dim, --v-head-dim: %d heads of %d and %d columns are wider than any "
                       "model",
                       model->heads, nope + rope, value);
    return PP_OK;
}
