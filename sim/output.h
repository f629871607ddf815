/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of ppsim: one JSON object per configuration, printed as JSON, as tab-separated values or as a table.
 */
#ifndef PP_SIM_OUTPUT_H
#define PP_SIM_OUTPUT_H

#include <stdio.h>

#include "sim/row.h"

/* Prints rows[n] in config->format. */
pp_status pp_rows_print(const struct pp_row *rows, int64_t n, const struct pp_config *config, FILE *out) PP_MUST_CHECK;

#endif
