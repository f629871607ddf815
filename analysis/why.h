/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a prediction and a measurement differ: the gap between the two is split into causes that add up to it, and the
 * critical paths of both runs stand side by side. Formulas: docs/METRICS.md, "Causes of a gap".
 */
#ifndef PP_ANALYSIS_WHY_H
#define PP_ANALYSIS_WHY_H

#include "analysis/compare.h"
#include "analysis/path.h"

struct pp_why {
    struct pp_pair pair;
    int64_t predicted_ns, measured_ns;  /* time of a batch */
    int64_t measured_steps;             /* how many steps were traced; the path is that of the median one */
    struct pp_path predicted, measured; /* with all causes, so that these add up to predicted_ns and measured_ns */
};

/* Reads both paths of a row of the table (of pp_compare_read()). PP_INPUT if one of the runs is missing, has no events,
 * or as pp_path_read(). pp_why_free() releases them; after a failure nothing is held. */
pp_status pp_why_read(struct pp_db *db, const struct pp_table *table, int64_t row, struct pp_why *out) PP_MUST_CHECK;
void pp_why_free(struct pp_why *why);

/* The two tables: a row for each cause, with the total in the last row; and a row for each stay of a path on a rank,
 * with the makespans in the last row. Times are in ns. pp_table_free() releases them, also after a failure. */
pp_status pp_why_causes(const struct pp_why *why, struct pp_table *out) PP_MUST_CHECK;
pp_status pp_why_paths(const struct pp_why *why, struct pp_table *out) PP_MUST_CHECK;

/* Prints both tables of all configurations that were predicted and measured, the largest relative gap first; in the
 * form for people only those of the largest gaps. format: one of enum pp_format. */
pp_status pp_why_print(struct pp_db *db, const struct pp_table *table, int format, FILE *out) PP_MUST_CHECK;

#endif
