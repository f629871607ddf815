/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs from given times (--times).
 */
#include "sim/costs.h"

static pp_status set_times(const struct pp_plan *plan, const struct pp_given_times *times, struct pp_cost *cost)
{
    for (int c = 0; c < plan->nclasses; c++) {
        PP_TRY(pp_given_class_ns(times, plan, &plan->classes[c], &cost->classes[c].ns));
        cost->classes[c].loaded_ns = cost->classes[c].ns;
    }
    cost->link.latency_ns = pp_given_hop_ns(times);
    cost->jitter = times->jitter;
    cost->seed = times->seed;
    return PP_OK;
}

pp_status pp_cost_from_times(const struct pp_plan *plan, const struct pp_given_times *times, struct pp_cost **out)
{
    PP_TRY(pp_given_times_check(times, plan->ranks));
    PP_TRY(pp_cost_create(plan, PP_COST_TIMES, out));
    pp_status status = set_times(plan, times, *out);
    if (status == PP_OK) return PP_OK;
    pp_cost_free(*out);
    *out = NULL;
    return status == PP_INPUT ? PP_USAGE : status; /* a task that is too long: a sweep leaves the point out */
}
