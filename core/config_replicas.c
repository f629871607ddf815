/* SPDX-License-Identifier: Apache-2.0
 *
 * What replicas share, and what runs beside their computations.
 */
#include "core/config.h"

static pp_status check_zero(const struct pp_config *config)
{
    if (config->zero == 2)
        return pp_fail(PP_USAGE, "--zero 2: stages are 1 and 3; with --zero 1 gradients are whole, as a pipeline needs "
                                 "them that adds up those of its microbatches before they are summed");
    if (config->zero < 3) return PP_OK;
    if (config->times)
        return pp_fail(PP_USAGE, "--zero 3: --times says how long a rank's tasks take as a whole, and knows nothing of "
                                 "its layers, whose parameters are gathered one by one; use --zero 1, or a model");
    const char *too = config->overlap_grad_reduce ? "overlap-grad-reduce" : "overlap-param-gather";
    if (!config->overlap_grad_reduce && !config->overlap_param_gather) return PP_OK;
    return pp_fail(PP_USAGE, "--zero 3 always gathers and sums layer by layer, beside what is computed: leave --%s out",
                   too);
}

static pp_status check_overlap(const struct pp_config *config)
{
    const char *lacks = config->zero ? config->overlap_grad_reduce ? NULL : "overlap-grad-reduce" : "zero 1";
    if (!config->overlap_param_gather || !lacks) return PP_OK;
    return pp_fail(PP_USAGE, "--overlap-param-gather gathers what replicas have stepped in shares, in parts: add --%s",
                   lacks);
}

pp_status pp_config_check_sharing(const struct pp_config *config)
{
    PP_TRY(check_zero(config));
    return check_overlap(config);
}
