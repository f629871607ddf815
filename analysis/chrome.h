/* SPDX-License-Identifier: Apache-2.0
 *
 * Export to the Chrome trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
 */
#ifndef PP_ANALYSIS_CHROME_H
#define PP_ANALYSIS_CHROME_H

#include "analysis/compare.h"

/* Writes the two runs of a row of the table (of pp_compare_read()) to the file `path`: the prediction as process 1, the
 * measurement as process 2. Each worker has a thread for its computations, and below it as many for the transfers
 * that arrive as are under way at once, and one for its collectives. Slices of one thread do not
 * overlap. An arrow leads from the task that made the data of a transfer to the task that uses them. */
pp_status pp_chrome_write(struct pp_db *db, const struct pp_table *table, int64_t row, const char *path) PP_MUST_CHECK;

#endif
