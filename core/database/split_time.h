/* SPDX-License-Identifier: Apache-2.0
 *
 * --split time: how long the embedding, one layer and the decoder take, from the kernels of a profile or from other
 * times of calls, so that layers can be cut into stages of equal time.
 */
#ifndef PP_CORE_DATABASE_SPLIT_TIME_H
#define PP_CORE_DATABASE_SPLIT_TIME_H

#include "core/database/db.h"
#include "core/job/job.h"
#include "core/options/config.h"

/* Times of layers for pp_config.layer_ns, from the kernel times of `device` in the database; the caller frees
 * *layer_ns. NULL if config->split is not "time". [layers + 2]: of the embedding, each layer, and the decoder: forward,
 * backward, and what its checkpoint mode runs again, of one microbatch of the first point (pp_points()), on one worker
 * of pp_split_time_workers(). Collectives inside tasks are not counted, since profiles do not have them. db: NULL: that
 * of --db, else pp.db of this folder. PP_INPUT, with advice, if a kernel was not profiled. */
pp_status pp_split_time(const struct pp_config *config, const struct pp_schedules *schedules,
                        const struct pp_model_ops *ops, const char *device, struct pp_db *db,
                        double **layer_ns) PP_MUST_CHECK;
/* The same of another point, from other times of calls. workers: from pp_split_time_workers(). */
pp_status pp_split_time_by(const struct pp_config *config, const struct pp_config *workers,
                           const struct pp_point *point, const struct pp_model_ops *ops,
                           const struct pp_call_times *times, double **layer_ns) PP_MUST_CHECK;
/* *out is the config with one value of each of the lists --tensor, --context-parallel and --expert-parallel: the first
 * combination that is possible for the model; if none is, the last, so that creating its model says why. */
void pp_split_time_workers(const struct pp_config *config, const struct pp_model_ops *ops, struct pp_config *out);

#endif
