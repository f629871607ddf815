/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/cost.h"

#include <stdlib.h>

#include "core/plan/workers.h"

const char *const pp_cost_source_names[PP_COST_SOURCES] = {
    [PP_COST_TIMES] = "times",     [PP_COST_PROFILE] = "profile",
    [PP_COST_KERNELS] = "kernels", [PP_COST_INTERPOLATED] = "interpolated",
    [PP_COST_SCALED] = "scaled",   [PP_COST_MACHINE] = "machine",
};

pp_status pp_cost_create(const struct pp_plan *plan, int source, struct pp_cost **out)
{
    *out = NULL;
    struct pp_cost *cost;
    PP_TRY(PP_NEW(&cost, 1));
    cost->nclasses = plan->nclasses;
    cost->source = source;
    cost->workers = pp_plan_workers(plan);
    cost->members = pp_plan_neighbours(plan);
    pp_status status = PP_NEW(&cost->classes, plan->nclasses);
    if (status != PP_OK) {
        pp_cost_free(cost);
        return status;
    }
    for (int c = 0; c < plan->nclasses; c++) cost->classes[c].source = source;
    *out = cost;
    return PP_OK;
}

void pp_cost_free(struct pp_cost *cost)
{
    if (!cost) return;
    free(cost->classes);
    free(cost);
}
