/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/split.h"

#include <string.h>

#include "core/log.h"
#include "core/split_time.h"
#include "sim/costs.h"

pp_status pp_split_find(struct pp_config *config, const struct pp_predictor *p, const char *device, struct pp_db *texts)
{
    if (pp_predict_only_times(config) || strcmp(config->split, "time") != 0) return PP_OK;
    if (config->machine && !texts) return pp_machine_split_time(&p->machine, config, p->ops);
    if (config->workers.n > 0)
        return pp_fail(PP_USAGE,
                       "--split time cuts by a profile's times of one number of rows, and with --workers each "
                       "way has another; name another --split, or a --machine that has a data sheet alone");
    pp_status status = pp_split_time(config, p->ops, p->waits ? p->waits : device, texts);
    if (status != PP_INPUT || !config->machine) return status;
    PP_TRY(pp_machine_split_time(&p->machine, config, p->ops));
    pp_warn("--split time: the profile lacks kernels of this model: layers are cut by computed times of machine %s",
            p->machine.name);
    return PP_OK;
}

pp_status pp_split_way(const struct pp_predictor *p, const struct pp_way *way, struct pp_config *config)
{
    if (!way->workers || !config->layer_ns) return PP_OK;
    config->layer_ns = NULL; /* those of all ways */
    return pp_machine_split_time(&p->machine, config, p->ops);
}
