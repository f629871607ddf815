/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/split.h"

#include "core/database/split_time.h"
#include "core/job/blocks.h"
#include "sim/costs.h"

/* Is each point cut by times of its own? So it is with --split time and a machine: its data sheet has times for any
 * number of rows, where a profile has times of some. */
static bool is_own(const struct pp_predictor *p)
{
    return pp_config_machine(p->config) && pp_config_splits_by_time(p->config);
}

pp_status pp_split_find(struct pp_config *config, const struct pp_predictor *p, struct pp_db *texts)
{
    if (pp_predict_only_times(config) || !pp_config_splits_by_time(config)) return PP_OK;
    if (is_own(p)) return PP_OK;
    if (config->workers.n > 0)
        return pp_fail(PP_USAGE,
                       "--split time cuts by a profile's times of one number of rows, and with --workers each "
                       "way has another; name another --split, or a --machine");
    return pp_split_time(config, p->schedules, p->ops, p->waits ? p->waits : config->device, texts);
}

enum { UNIFORM = PP_EVENS, CUTS }; /* before these enum pp_even */

int pp_split_cuts(const struct pp_predictor *p, const struct pp_point *point)
{
    if (point->virtual_stages == 1) return 1;
    if (pp_predict_only_times(p->config)) return p->config->blocks ? PP_EVENS : 1;
    return is_own(p) ? CUTS : 1;
}

pp_status pp_split_point(const struct pp_predictor *p, const struct pp_point *point, int cut, struct pp_config *out)
{
    *out = *p->config;
    if (!is_own(p)) return PP_OK;
    out->even_stages = cut == PP_EVEN_STAGES;
    if (cut == UNIFORM) out->split = "uniform";
    out->tensor = (struct pp_ints){1, {point->tensor}};
    out->overlap_tensor_sums = (struct pp_ints){1, {point->sum_pieces}};
    out->overlap_expert_exchange = (struct pp_ints){1, {point->exchange_pieces}};
    out->zero = (struct pp_ints){1, {point->zero}};
    out->shard_degree = (struct pp_ints){1, {point->shard_degree}};
    out->chunks = (struct pp_ints){1, {point->chunks}};
    return pp_machine_split_time(&p->machine, out, p->ops);
}

void pp_split_point_free(const struct pp_predictor *p, struct pp_config *config)
{
    if (config->layer_ns != p->config->layer_ns) pp_split_time_free(config);
}
