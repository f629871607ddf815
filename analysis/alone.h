/* SPDX-License-Identifier: Apache-2.0
 *
 * Predictions without a measurement, and measurements without a prediction: how many there are, and why.
 */
#ifndef PP_ANALYSIS_ALONE_H
#define PP_ANALYSIS_ALONE_H

#include "analysis/compare.h"

/* Of a table of pp_compare_read(), to the log. */
void pp_alone_notes(const struct pp_table *table);

#endif
