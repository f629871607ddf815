/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/split.h"

#include <math.h>
#include <stdlib.h>

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

/* The cuts to try, of ranks with one stage and with several. UNIFORM: by layers, of a model. */
enum { UNIFORM = PP_EVENS };
static const int cuts_of_one[] = {PP_EVEN_RANKS, PP_EVEN_EARLY, PP_EVEN_LEAN},
                 cuts_of_several[] = {PP_EVEN_RANKS, PP_EVEN_EARLY, PP_EVEN_STAGES, UNIFORM};
enum {
    CUTS_OF_ONE = sizeof cuts_of_one / sizeof *cuts_of_one,
    CUTS_OF_SEVERAL = sizeof cuts_of_several / sizeof *cuts_of_several
};

static int cut_of(const struct pp_point *point, int cut)
{
    return point->virtual_stages > 1 ? cuts_of_several[cut] : cuts_of_one[cut];
}

/* Are blocks cut by time? */
static bool cuts_blocks(const struct pp_config *config)
{
    return config->blocks && (!pp_config_given(config, "split") || pp_config_splits_by_time(config));
}

int pp_split_cuts(const struct pp_predictor *p, const struct pp_point *point)
{
    const bool several = point->virtual_stages > 1;
    if (pp_predict_only_times(p->config))
        return !cuts_blocks(p->config) ? 1 : several ? CUTS_OF_SEVERAL - 1 : CUTS_OF_ONE;
    return !is_own(p) ? 1 : several ? CUTS_OF_SEVERAL : CUTS_OF_ONE;
}

bool pp_split_is_spare(const struct pp_point *point, int cut, int best)
{
    return cut_of(point, cut) == PP_EVEN_LEAN && cut_of(point, best) == PP_EVEN_EARLY;
}

struct pp_cut_way pp_split_way(const struct pp_point *point, int cut)
{
    return (struct pp_cut_way){cut_of(point, cut), point->chunks};
}

/* Chooses a cut in a config of the point. */
static void choose(const struct pp_predictor *p, const struct pp_point *point, int cut, struct pp_config *out)
{
    const bool uniform = cut_of(point, cut) == UNIFORM;
    out->split = uniform ? "uniform" : p->config->split;
    out->even = uniform ? p->config->even : cut_of(point, cut);
}

pp_status pp_split_point(const struct pp_predictor *p, const struct pp_point *point, int cut, struct pp_config *out)
{
    *out = *p->config;
    if (!is_own(p)) return PP_OK;
    choose(p, point, cut, out);
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

static double stage_ns(const struct pp_model *model, const struct pp_stage *stage, const double *layer_ns)
{
    double ns = (stage->embed ? layer_ns[0] : 0) + (stage->decode ? layer_ns[model->shape.layers + 1] : 0);
    for (int l = 0; l < stage->layers; l++) ns += layer_ns[stage->first_layer + l + 1];
    return ns;
}

/* What a step takes by the formula of core/plan/cut.h: the longest, over the ranks, of M times what their stages take
 * of a microbatch, and what the stages before their first one take. */
static pp_status step_ns(const struct pp_predictor *p, const struct pp_job *job, const double *layer_ns, double *ns)
{
    const struct pp_point *point = &job->point;
    const double microbatches = pp_chunk_rows(job->config->rows, point->chunks, NULL);
    int *stage_rank = NULL;
    double *rank_ns = NULL, before = 0;
    pp_status status;
    *ns = 0;
    PP_TRY_DONE(PP_NEW(&stage_rank, job->model->nstages));
    PP_TRY_DONE(PP_NEW(&rank_ns, point->ranks));
    PP_TRY_DONE(p->schedules->place(point->schedule, point->ranks, point->virtual_stages, stage_rank));
    for (int s = 0; s < job->model->nstages; s++) {
        const double stage = stage_ns(job->model, &job->model->stages[s], layer_ns);
        double *rank = &rank_ns[stage_rank[s]];
        *rank += (*rank == 0 ? before : 0) + microbatches * stage;
        *ns = fmax(*ns, *rank);
        before += stage;
    }
done:
    free(stage_rank);
    free(rank_ns);
    return status;
}

/* The same of a cut; infinite if it is not possible. config: of the point; its cut is changed. */
static pp_status cut_ns(const struct pp_predictor *p, const struct pp_point *point, int cut, struct pp_config *config,
                        double *ns)
{
    struct pp_job *job = NULL;
    choose(p, point, cut, config);
    pp_status status = pp_job_begin(config, point, p->schedules, p->ops, &job);
    *ns = INFINITY;
    if (status == PP_OK) status = step_ns(p, job, config->layer_ns, ns);
    pp_job_free(job);
    return status == PP_USAGE ? PP_OK : status;
}

/* The formula leaves out what does not grow with the layers, and does not know schedules. Of 11,200 configurations none
 * was more than 3.4 % below what it makes of the first cut's bound. */
static const double sure = 0.95;

pp_status pp_split_least_part(const struct pp_predictor *p, const struct pp_point *point, double *part)
{
    struct pp_config config;
    double first, other;
    pp_status status;
    *part = 1;
    if (!is_own(p)) return PP_OK;
    PP_TRY(pp_split_point(p, point, 0, &config));
    PP_TRY_DONE(cut_ns(p, point, 0, &config, &first));
    for (int cut = 1; cut < pp_split_cuts(p, point); cut++) {
        PP_TRY_DONE(cut_ns(p, point, cut, &config, &other));
        *part = fmin(*part, other / first);
    }
    *part *= sure;
done:
    pp_split_point_free(p, &config);
    return status;
}
