/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cost.h"

#include <stdlib.h>

const char *const pp_cost_source_names[PP_COST_SOURCES] = {
    [PP_COST_TIMES] = "times",     [PP_COST_PROFILE] = "profile",
    [PP_COST_KERNELS] = "kernels", [PP_COST_INTERPOLATED] = "interpolated",
    [PP_COST_MACHINE] = "machine",
};

void pp_cost_free(struct pp_cost *cost)
{
    if (!cost) return;
    free(cost->classes);
    free(cost);
}
