/* SPDX-License-Identifier: Apache-2.0
 *
 * --split time in ppsim: whose times cut the layers. Nothing is done for other splits. What pp_split_find() sets in the
 * config is released with pp_split_time_free() (core/split_time.h).
 */
#ifndef PP_SIM_SPLIT_H
#define PP_SIM_SPLIT_H

#include "sim/predict.h"

/* By the profile's kernels on the config's device, or the one that is waited for (texts: what came with the machine or
 * as --profile, NULL: the database's); of --machine, where these are not all there, by that: as for the times of tasks,
 * but for all kernels, as a cut compares them. PP_USAGE, PP_INPUT where there is neither. Where a data sheet is all
 * there is, pp_split_point() does it. */
pp_status pp_split_find(struct pp_config *config, const struct pp_predictor *p, struct pp_db *texts) PP_MUST_CHECK;

/* *out: p->config, but where a data sheet is all there is with the times of the point's own rows and T, as if it was
 * asked for alone. For the creation of its job; release it then. */
pp_status pp_split_point(const struct pp_predictor *p, const struct pp_point *point,
                         struct pp_config *out) PP_MUST_CHECK;
void pp_split_point_free(const struct pp_predictor *p, struct pp_config *config);

#endif
