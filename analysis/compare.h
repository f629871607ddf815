/* SPDX-License-Identifier: Apache-2.0
 *
 * Predictions beside measurements: their figures, by configuration and by kind of task.
 */
#ifndef PP_ANALYSIS_COMPARE_H
#define PP_ANALYSIS_COMPARE_H

#include "analysis/compare_columns.h"
#include "analysis/table.h"

/* The ids of two runs of one configuration; -1: there is no such run. */
struct pp_pair {
    int64_t predicted, measured;
};
static inline bool pp_pair_complete(const struct pp_pair *pair) { return pair->predicted >= 0 && pair->measured >= 0; }

/* Reads rows of view v_configuration: with run = 0 the newest row of each configuration, else the one row that has the
 * run of this id. PP_INPUT if there is none. pp_table_free() releases the table, also after a failure. */
pp_status pp_compare_read(struct pp_db *db, int run, struct pp_table *out) PP_MUST_CHECK;
/* The two runs of a row. */
struct pp_pair pp_compare_pair(const struct pp_table *table, int64_t row);
/* The row that pictures show: the newest row of those that were both predicted and measured, else the newest row. */
int64_t pp_compare_main(const struct pp_table *table);
/* Writes how the workers of a rank share its work, ", T = 2, N = 4"; numbers that are 1 are left out. */
enum { PP_SHARED_TEXT = 40 };
void pp_compare_shared(const struct pp_table *table, int64_t row, char buf[PP_SHARED_TEXT]);
/* Have all tasks of the row times that were given? Then its batch grows with the microbatches. */
bool pp_compare_given(const struct pp_table *table, int64_t row);
/* Writes what a row is about and what it ran on, "WORKLOAD, on cpu, 1 thread a worker"; of given times, which are no
 * device's, the former alone. Returns buf. */
enum { PP_ABOUT_TEXT = PP_WORKLOAD_BYTES + 96 };
const char *pp_compare_about(const struct pp_table *table, int64_t row, char buf[PP_ABOUT_TEXT]);
/* Writes the configuration of a row, "small, 1f1b, P = 2, V = 1, 4 chunks, D = 1, checkpoint never"; returns buf. */
const char *pp_compare_title(const struct pp_table *table, int64_t row, char *buf, size_t size);
/* The same with the runs of the row: ", runs 3 and 8" or ", run 8". */
enum { PP_TITLE_TEXT = 320 };
const char *pp_compare_title_runs(const struct pp_table *table, int64_t row, char buf[PP_TITLE_TEXT]);

/* A table with a row for each kind of task in the two runs. pp_table_free() releases it. */
pp_status pp_compare_kinds(struct pp_db *db, const struct pp_pair *pair, struct pp_table *out) PP_MUST_CHECK;

/* Writes remarks to the log: what could not be compared, and why; how much slower the machine was in the runs than in
 * the profile; whether other programs disturbed the profile. */
pp_status pp_compare_notes(struct pp_db *db, const struct pp_table *table) PP_MUST_CHECK;
/* Prints the table and the kinds of tasks. format: one of enum pp_format. Remarks go to the log, as above. */
pp_status pp_compare_print(struct pp_db *db, const struct pp_table *table, int format, FILE *out) PP_MUST_CHECK;

#endif
