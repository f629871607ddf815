/* SPDX-License-Identifier: Apache-2.0
 *
 * Export to the Chrome trace format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
 */
#ifndef PP_ANALYSIS_CHROME_H
#define PP_ANALYSIS_CHROME_H

#include "analysis/compare.h"

/* Both runs as processes 1 (prediction) and 2 (measurement); a thread for each worker, and below it those for what
 * arrives and for its collectives; arrows follow each transfer from the task that made the data to the one that uses
 * it. */
pp_status pp_chrome_write(struct pp_db *db, const struct pp_table *table, int64_t row, const char *path) PP_MUST_CHECK;

#endif
