/* SPDX-License-Identifier: Apache-2.0
 *
 * --split time in ppsim: whose times cut the layers. Both do nothing for other splits. What they set in the config is
 * released with pp_split_time_free() (core/split_time.h).
 */
#ifndef PP_SIM_SPLIT_H
#define PP_SIM_SPLIT_H

#include "sim/predict.h"
#include "sim/ways.h"

/* By the profile's kernels on the device (texts: what came with the machine or as --profile, NULL: the database's); of
 * --machine, where these are not all there or a data sheet is all there is, by that: as for the times of tasks, but for
 * all kernels, as a cut compares them. PP_USAGE, PP_INPUT where there is neither. */
pp_status pp_split_find(struct pp_config *config, const struct pp_predictor *p, const char *device,
                        struct pp_db *texts) PP_MUST_CHECK;

/* Of a way of --workers, as if it was asked for alone: by its own T and rows. config: the way's, whose times are then
 * its own. */
pp_status pp_split_way(const struct pp_predictor *p, const struct pp_way *way, struct pp_config *config) PP_MUST_CHECK;

#endif
