/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/times_use.h"

#include "core/job/given_times.h"
#include "core/options/devices.h"
#include "sim/predict.h"

/* Blocks are cut, and may say how much memory they need. */
static bool counts_for_blocks(const struct pp_config *config, const struct pp_opt *option)
{
    if (!config->blocks) return false;
    return option->offset == PP_OPTION(split) || (option->offset == PP_OPTION(memory) && config->blocks->sized);
}

/* PP_USAGE for options that mean nothing with --times, which are the times of a microbatch on a rank, whatever computes
 * it. Without --device delay there is no model or memory, either. */
static pp_status check_meaning(const struct pp_config *config)
{
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        const bool always = row->traits & PP_OPT_ALWAYS_TIMED;
        if (!(row->traits & PP_OPT_TIMED) || !pp_config_given_of(config, row->offset) || counts_for_blocks(config, row))
            continue;
        if (always ? config->times != NULL : pp_predict_only_times(config))
            return pp_fail(PP_USAGE, "--times says how long tasks take, and --%s would change nothing; leave it out%s",
                           row->name, always || config->blocks ? "" : ", or add --device delay");
    }
    return PP_OK;
}

pp_status pp_check_times(const struct pp_config *config)
{
    const bool machine = pp_config_machine(config) != NULL;
    struct pp_given_times times; /* checked here, so that an error is reported once, and not for each point */
    PP_TRY(check_meaning(config));
    if (pp_predict_only_times(config) && config->replicas > 1 && pp_config_given(config, replicas))
        return pp_fail(PP_USAGE, "--times predicts one replica; leave out --replicas %d, or add --device delay",
                       config->replicas);
    if (config->times && (machine || config->profile))
        return pp_fail(PP_USAGE, "--times and --%s both say how long tasks take; leave one out",
                       machine ? "machine" : "profile");
    if (machine && pp_device_kind(config->device)->waits)
        return pp_fail(PP_USAGE, "--machine computes how long tasks take, and --device delay waits as long as a "
                                 "profile of ppprof or --times says; leave --machine out");
    return pp_given_times_of(config, &times);
}
