/* SPDX-License-Identifier: Apache-2.0
 *
 * Why prediction and measurement differ: the gap of each configuration split into causes that add up to it, and the
 * two critical paths side by side. Formulas: docs/METRICS.md.
 */
#ifndef PP_ANALYSIS_WHY_H
#define PP_ANALYSIS_WHY_H

#include "analysis/compare.h"
#include "analysis/path.h"

struct pp_why {
    struct pp_pair pair;
    int64_t predicted_ns, measured_ns;  /* of a batch */
    int64_t measured_steps;             /* traced steps that the shown one was chosen from */
    struct pp_path predicted, measured; /* with all causes: they add up to predicted_ns and measured_ns */
};

/* PP_INPUT if one of the runs is missing or has no events. */
pp_status pp_why_read(struct pp_db *db, const struct pp_table *table, int64_t row, struct pp_why *out) PP_MUST_CHECK;
void pp_why_free(struct pp_why *why);

/* Rows of the two tables; times in ns. */
pp_status pp_why_causes(const struct pp_why *why, struct pp_table *out) PP_MUST_CHECK;
pp_status pp_why_paths(const struct pp_why *why, struct pp_table *out) PP_MUST_CHECK;

/* All compared configurations of the table, the largest gap first; as a table for people no more than a few. */
pp_status pp_why_print(struct pp_db *db, const struct pp_table *table, int format, FILE *out) PP_MUST_CHECK;

#endif
