/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of ppsim: one JSON object per configuration, printed as JSON, as tab-separated values or as a table.
 */
#ifndef PP_SIM_OUTPUT_H
#define PP_SIM_OUTPUT_H

#include <jansson.h>
#include <stdio.h>

#include "sim/predict.h"

/* The row of a prediction: all its figures, under the names of docs/FORMATS.md. Figures that are not known are null. */
pp_status pp_row_create(const struct pp_predictor *p, const struct pp_prediction *prediction,
                        json_t **out) PP_MUST_CHECK;

/* Prints an array of such rows in config->format. */
pp_status pp_rows_print(const json_t *rows, const struct pp_config *config, FILE *out) PP_MUST_CHECK;

#endif
