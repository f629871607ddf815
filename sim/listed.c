/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/listed.h"

#include <stdlib.h>

/* Appends the points of a way on a target. */
static void append(const struct pp_target *target, const struct pp_way *way, struct pp_listed *out)
{
    const char *why = target->impossible[0] ? target->impossible : way->impossible;
    for (int i = 0; i < way->npoints; i++)
        out->points[out->npoints++] = (struct pp_listed_point){&target->predictor, way, &way->points[i], why};
}

pp_status pp_listed_create(const struct pp_target *targets, int ntargets, const struct pp_way *ways, int nways,
                           struct pp_listed *out)
{
    *out = (struct pp_listed){0};
    for (int i = 0; i < nways; i++) out->each += ways[i].npoints;
    PP_TRY(PP_NEW(&out->points, ntargets * out->each));
    for (int t = 0; t < ntargets; t++)
        for (int i = 0; i < nways; i++) append(&targets[t], &ways[i], out);
    return PP_OK;
}

void pp_listed_free(struct pp_listed *listed)
{
    free(listed->points);
    *listed = (struct pp_listed){0};
}
