/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the options of experts against each other.
 */
#include "core/options/config.h"

static pp_status check_groups(const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    const int groups = model->expert_groups, chosen = model->groups_per_token, size = model->experts / groups;
    if (model->experts % groups || size < (model->group_by_best ? 1 : 2))
        return pp_fail(PP_USAGE, "--expert-groups %d: --experts %d cannot be in so many equal groups%s", groups,
                       model->experts, model->group_by_best ? "" : " of two or more");
    if (chosen > groups)
        return pp_fail(PP_USAGE, "--groups-per-token %d: there are --expert-groups %d; choose as many at most", chosen,
                       groups);
    if (chosen * size < model->experts_per_token)
        return pp_fail(PP_USAGE,
                       "--groups-per-token %d: so many of the groups have %d experts, and a token chooses "
                       "--experts-per-token %d; choose more groups",
                       chosen, chosen * size, model->experts_per_token);
    return PP_OK;
}

pp_status pp_config_check_experts(const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    if (!model->experts) return PP_OK;
    if (model->bias != PP_NO_BIAS && model->bias != PP_BIAS_QKV)
        return pp_fail(PP_USAGE, "--experts: experts have no biases; add --bias no");
    if (model->experts_per_token > model->experts)
        return pp_fail(PP_USAGE, "--experts-per-token %d: there are --experts %d; choose as many at most",
                       model->experts_per_token, model->experts);
    if (model->expert_groups > 1) PP_TRY(check_groups(config));
    if (model->dense_layers >= model->layers)
        return pp_fail(PP_USAGE, "--dense-layers %d leaves none of --layers %d to have --experts; choose fewer",
                       model->dense_layers, model->layers);
    if (model->capacity_factor == 0)
        return pp_fail(PP_USAGE, "--capacity-factor: with 0 experts have room for no token; choose more");
    if ((float)model->gate_scale == 0) /* kernels have it as a float */
        return pp_fail(PP_USAGE, "--gate-scale: with 0 nothing would come of what experts make; choose more");
    if (config->batch_w > 1)
        return pp_fail(PP_USAGE,
                       "--experts have places for one microbatch at a time, so there is no --batch-w %d with them",
                       config->batch_w);
    return PP_OK;
}
