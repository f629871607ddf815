/* SPDX-License-Identifier: Apache-2.0
 *
 * The points of a whole sweep in one list: of each target (sim/targets.h) all ways (sim/ways.h), and of each way all
 * points. So threads share out the sweep, and not one way after another.
 */
#ifndef PP_SIM_LISTED_H
#define PP_SIM_LISTED_H

#include "sim/predict_points.h"
#include "sim/targets.h"

struct pp_listed {
    struct pp_listed_point *points; /* those of the first target, then those of the next one, .. */
    int64_t npoints, each;          /* length; number of points of each target */
};

/* The list borrows targets and ways. PP_NOMEM. Call pp_listed_free() also after a failure. */
pp_status pp_listed_create(const struct pp_target *targets, int ntargets, const struct pp_way *ways, int nways,
                           struct pp_listed *out) PP_MUST_CHECK;
void pp_listed_free(struct pp_listed *listed);

#endif
