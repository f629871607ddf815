/* SPDX-License-Identifier: Apache-2.0
 *
 * --split time: what embedding, one layer and decoder cost, from the kernels of a profile or by other times of calls,
 * so that stages can be cut to equal times.
 */
#ifndef PP_CORE_SPLIT_TIME_H
#define PP_CORE_SPLIT_TIME_H

#include "core/config.h"
#include "core/db.h"
#include "core/program.h"

/* If config->split is "time", sets config->layer_ns ([layers + 2]: embedding, layers, decoder; forward and backward
 * of one microbatch of the first of --chunks, on one of pp_split_time_workers(), whose sums no profile has) from the
 * device's kernel times in the database (NULL: --db, else pp.db of this folder). PP_INPUT with advice where a kernel
 * was not profiled. Release with pp_split_time_free(). Does nothing for other splits. */
pp_status pp_split_time(struct pp_config *config, const struct pp_model_ops *ops, const char *device,
                        struct pp_db *db) PP_MUST_CHECK;
/* The same by other times. workers: those of pp_split_time_workers(). */
pp_status pp_split_time_by(struct pp_config *config, const struct pp_config *workers, const struct pp_model_ops *ops,
                           const struct pp_call_times *times) PP_MUST_CHECK;
/* *out: of the lists --tensor and --context-parallel the first that the model can have; without any, the last, which
 * says why. */
void pp_split_time_workers(const struct pp_config *config, const struct pp_model_ops *ops, struct pp_config *out);
void pp_split_time_free(struct pp_config *config);

#endif
