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

pp_status pp_split_find(const struct pp_config *config, const struct pp_predictor *p, struct pp_db *texts,
                        double **layer_ns)
{
    *layer_ns = NULL;
    if (pp_predict_only_times(config) || !pp_config_splits_by_time(config)) return PP_OK;
    if (is_own(p)) return PP_OK;
    if (config->workers.n > 0)
        return pp_fail(PP_USAGE,
                       "--split time cuts by a profile's times of one number of rows, and with --workers each "
                       "way has another; name another --split, or a --machine");
    return pp_split_time(config, p->schedules, p->ops, p->waits ? p->waits : config->device, texts, layer_ns);
}

/* The cuts to try, of ranks with one stage and with several. The last ones are of a model only: by layers, and by
 * parameters. Where replicas exchange gradients and parameters, a stage with more of them takes longer, which no time
 * of a layer has. */
enum { UNIFORM = PP_EVENS, PARAMETERS };
static const int cuts_of_one[] = {PP_EVEN_RANKS, PP_EVEN_EARLY, PP_EVEN_LEAN, UNIFORM, PARAMETERS},
                 cuts_of_several[] = {PP_EVEN_RANKS, PP_EVEN_EARLY, PP_EVEN_STAGES, UNIFORM, PARAMETERS};
enum { CUTS_OF_BLOCKS = 3, CUTS = sizeof cuts_of_one / sizeof *cuts_of_one };

static int cut_of(const struct pp_point *point, int cut)
{
    return point->virtual_stages > 1 ? cuts_of_several[cut] : cuts_of_one[cut];
}

/* Are blocks cut by time? */
static bool cuts_blocks(const struct pp_config *config)
{
    return config->blocks && (!pp_config_given(config, split) || pp_config_splits_by_time(config));
}

int pp_split_cuts(const struct pp_predictor *p)
{
    if (pp_predict_only_times(p->config)) return cuts_blocks(p->config) ? CUTS_OF_BLOCKS : 1;
    return is_own(p) ? CUTS : 1;
}

bool pp_split_is_spare(const struct pp_point *point, int cut, int best)
{
    return cut_of(point, cut) == PP_EVEN_LEAN && cut_of(point, best) == PP_EVEN_EARLY;
}

struct pp_cut_way pp_split_way(const struct pp_point *point, int cut)
{
    return (struct pp_cut_way){cut_of(point, cut), point->chunks};
}

pp_status pp_split_begin(const struct pp_predictor *p, const struct pp_point *point, struct pp_config *out,
                         double **layer_ns)
{
    *out = *p->config;
    *layer_ns = NULL;
    if (pp_predict_only_times(p->config) || !is_own(p)) return PP_OK;
    out->tensor = (struct pp_ints){1, {point->tensor}};
    out->overlap_tensor_sums = (struct pp_ints){1, {point->sum_pieces}};
    out->overlap_expert_exchange = (struct pp_ints){1, {point->exchange_pieces}};
    out->zero = (struct pp_ints){1, {point->zero}};
    out->shard_degree = (struct pp_ints){1, {point->shard_degree}};
    PP_TRY(pp_machine_split_time(&p->machine, out, point, p->ops, layer_ns));
    out->layer_ns = *layer_ns;
    return PP_OK;
}

void pp_split_choose(const struct pp_predictor *p, const struct pp_point *point, int cut, struct pp_config *config)
{
    const int by = cut_of(point, cut);
    if (!is_own(p)) return;
    config->even = by < PP_EVENS ? by : p->config->even;
    config->split = by == UNIFORM ? "uniform" : by == PARAMETERS ? "parameters" : p->config->split;
}
