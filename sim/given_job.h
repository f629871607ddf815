/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs of --times alone: they have a training plan, but no model, and no memory but that of blocks.
 */
#ifndef PP_SIM_GIVEN_JOB_H
#define PP_SIM_GIVEN_JOB_H

#include "sim/predict.h"

/* Makes the job of a point. Blocks are cut into stages by time, so that ranks or stages have as much as each other.
 * PP_USAGE if the point is impossible. */
pp_status pp_given_job(const struct pp_predictor *p, const struct pp_point *point, enum pp_even even,
                       struct pp_job **out) PP_MUST_CHECK;

#endif
