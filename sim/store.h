/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores a prediction as a run in the database: options, tasks, memory, figures, and the events of one step.
 */
#ifndef PP_SIM_STORE_H
#define PP_SIM_STORE_H

#include "core/database/db.h"
#include "sim/predict.h"

/* The prediction must have a trace. */
pp_status pp_store_prediction(struct pp_db *db, const struct pp_predictor *p,
                              const struct pp_prediction *prediction) PP_MUST_CHECK;

#endif
