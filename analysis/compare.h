/* SPDX-License-Identifier: Apache-2.0
 *
 * Prediction beside measurement: figures by configuration and by kind of task.
 */
#ifndef PP_ANALYSIS_COMPARE_H
#define PP_ANALYSIS_COMPARE_H

#include "analysis/table.h"

/* The two runs that are laid side by side; -1 where there is none. */
struct pp_pair {
    int64_t predicted, measured;
};

/* Rows of view v_configuration: the newest of each configuration, or only the one that run `run` (not 0) belongs to.
 * PP_INPUT if there is no such finished run, or none at all. */
pp_status pp_compare_read(struct pp_db *db, int run, struct pp_table *out) PP_MUST_CHECK;
struct pp_pair pp_compare_pair(const struct pp_table *table, int64_t row);
/* The row to look at closely: of those that were predicted and measured the newest, else the newest. */
int64_t pp_compare_main(const struct pp_table *table);
/* ", T = 2, N = 4": how workers of a rank share it; what is 1 is not said. */
enum { PP_SHARED_TEXT = 40 };
void pp_compare_shared(const struct pp_table *table, int64_t row, char buf[PP_SHARED_TEXT]);
/* "small, 1f1b, P = 2, V = 1, 4 chunks (4 microbatches), D = 1, checkpoint never" */
const char *pp_compare_title(const struct pp_table *table, int64_t row, char *buf, size_t size);

/* Tasks of each kind in the two runs. */
pp_status pp_compare_kinds(struct pp_db *db, const struct pp_pair *pair, struct pp_table *out) PP_MUST_CHECK;

/* What could not be compared, why, how far the machine drifted, and whether its profile was disturbed, to the log. */
pp_status pp_compare_notes(struct pp_db *db, const struct pp_table *table) PP_MUST_CHECK;
/* Everything, in one of enum pp_format, on `out`. What could not be compared, and why, goes to the log. */
pp_status pp_compare_print(struct pp_db *db, const struct pp_table *table, int format, FILE *out) PP_MUST_CHECK;

#endif
