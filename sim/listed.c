/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/listed.h"

#include <stdlib.h>

/* Appends the points of a way on a target. place: where their config and predictor go. */
static void append(const struct pp_target *target, const struct pp_way *way, int64_t place, struct pp_listed *out)
{
    struct pp_predictor *predictor = &out->predictors[place];
    const char *target_says = target->impossible, *way_says = way->impossible;
    pp_way_config(&target->config, way, &out->configs[place]);
    *predictor = target->predictor;
    predictor->config = &out->configs[place];
    for (int i = 0; i < way->npoints; i++)
        out->points[out->npoints++] =
            (struct pp_listed_point){predictor, &way->points[i], target_says[0] ? target_says : way_says};
}

pp_status pp_listed_create(const struct pp_target *targets, int ntargets, const struct pp_way *ways, int nways,
                           struct pp_listed *out)
{
    *out = (struct pp_listed){0};
    for (int i = 0; i < nways; i++) out->each += ways[i].npoints;
    PP_TRY(PP_NEW(&out->points, ntargets * out->each));
    PP_TRY(PP_NEW(&out->configs, (int64_t)ntargets * nways));
    PP_TRY(PP_NEW(&out->predictors, (int64_t)ntargets * nways));
    for (int64_t i = 0; i < (int64_t)ntargets * nways; i++) append(&targets[i / nways], &ways[i % nways], i, out);
    return PP_OK;
}

void pp_listed_free(struct pp_listed *listed)
{
    free(listed->points);
    free(listed->configs);
    free(listed->predictors);
    *listed = (struct pp_listed){0};
}
