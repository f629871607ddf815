/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of ppsim: one JSON object per configuration, printed as JSON, as tab-separated values or as a table.
 */
#ifndef PP_SIM_OUTPUT_H
#define PP_SIM_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include "sim/predict.h"

/* All figures of a configuration, by the names of the machine-readable contract (docs/FORMATS.md). Unknown ones are
 * null. */
pp_status pp_row_create(const struct pp_predictor *p, const struct pp_prediction *prediction,
                        json_t **out) PP_MUST_CHECK;

/* rows: array of such objects. config: what was asked for, and the format. */
pp_status pp_rows_print(const json_t *rows, const struct pp_config *config, FILE *out) PP_MUST_CHECK;

#endif
