/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs of --times alone: they have a training plan, but no model, and no memory but that of blocks.
 */
#ifndef PP_SIM_GIVEN_JOB_H
#define PP_SIM_GIVEN_JOB_H

#include "sim/predict.h"

/* Makes the job of a point. Blocks are cut into stages by time, in this way. PP_USAGE if the point is impossible. */
pp_status pp_given_job(const struct pp_predictor *p, const struct pp_point *point, struct pp_cut_way way,
                       struct pp_job **out) PP_MUST_CHECK;

#endif
