/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the options of experts against each other.
 */
#include "core/options/config.h"

static pp_status check_groups(const struct pp_config *config)
{
    const int groups = config->expert_groups, chosen = config->groups_per_token, size = config->experts / groups;
    if (config->experts % groups || size < (config->group_by_best ? 1 : 2))
        return pp_fail(PP_USAGE, "--expert-groups %d: --experts %d cannot be in so many equal groups%s", groups,
                       config->experts, config->group_by_best ? "" : " of two or more");
    if (chosen > groups)
        return pp_fail(PP_USAGE, "--groups-per-token %d: there are --expert-groups %d; choose as many at most", chosen,
                       groups);
    if (chosen * size < config->experts_per_token)
        return pp_fail(PP_USAGE,
                       "--groups-per-token %d: so many of the groups have %d experts, and a token chooses "
                       "--experts-per-token %d; choose more groups",
                       chosen, chosen * size, config->experts_per_token);
    return PP_OK;
}

pp_status pp_config_check_experts(const struct pp_config *config)
{
    if (!config->experts) return PP_OK;
    if (config->bias != PP_NO_BIAS && config->bias != PP_BIAS_QKV)
        return pp_fail(PP_USAGE, "--experts: experts have no biases; add --bias no");
    if (config->experts_per_token > config->experts)
        return pp_fail(PP_USAGE, "--experts-per-token %d: there are --experts %d; choose as many at most",
                       config->experts_per_token, config->experts);
    if (config->expert_groups > 1) PP_TRY(check_groups(config));
    if (config->dense_layers >= config->layers)
        return pp_fail(PP_USAGE, "--dense-layers %d leaves none of --layers %d to have --experts; choose fewer",
                       config->dense_layers, config->layers);
    if (config->capacity_factor == 0)
        return pp_fail(PP_USAGE, "--capacity-factor: with 0 experts have room for no token; choose more");
    if ((float)config->gate_scale == 0) /* kernels have it as a float */
        return pp_fail(PP_USAGE, "--gate-scale: with 0 nothing would come of what experts make; choose more");
    if (config->batch_w > 1)
        return pp_fail(PP_USAGE,
                       "--experts have places for one microbatch at a time, so there is no --batch-w %d with them",
                       config->batch_w);
    return PP_OK;
}
