/* SPDX-License-Identifier: Apache-2.0
 *
 * Remarks on predictions beside measurements: what their errors, drift and peaks are not about.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analysis/alone.h"
#include "analysis/compare.h"
#include "core/base/log.h"
#include "core/base/stats.h"

/* Has the row a prediction and a measurement? A run that resumed one which had ended measured nothing. */
static bool is_compared(const struct pp_table *table, int64_t row)
{
    const struct pp_pair pair = pp_compare_pair(table, row);
    return pp_pair_complete(&pair) && !isnan(pp_table_real(table, row, PP_CONF_MEASURED_MS));
}

/* An error against a data sheet is not one against measured kernels. */
static void report_assumed(const struct pp_table *table)
{
    int64_t assumed = 0, compared = 0;
    for (int64_t row = 0; row < table->nrows; row++) {
        if (!is_compared(table, row)) continue;
        compared++;
        assumed += strcmp(pp_table_text(table, row, PP_CONF_COST_SOURCE), "machine") == 0;
    }
    if (assumed)
        pp_info_wrapped("%" PRId64 " of %" PRId64
                        " prediction%s that %s measured rest%s on assumptions about a machine, not on measured "
                        "kernels: run ppprof, then ppsim again.",
                        assumed, compared, pp_plural(compared), compared == 1 ? "was" : "were",
                        assumed == 1 ? "s" : "");
}

/* The first column of a statement of one row. */
static pp_status figure_of(struct pp_db *db, const char *sql, const struct pp_value *values, int n, double *value,
                           bool *found)
{
    sqlite3_stmt *statement;
    PP_TRY(pp_db_query(db, sql, values, n, &statement));
    PP_TRY(pp_db_row(db, statement, found));
    if (!*found) return PP_OK;
    *value = sqlite3_column_double(statement, 0);
    sqlite3_reset(statement);
    return PP_OK;
}

/* least and most are fractions of the time in the profile. */
static void tell_drift(double least, double most)
{
    const bool slower = least >= 0, mixed = !slower && most > 0;
    const double first = 100 * fmin(fabs(least), fabs(most)), last = 100 * fmax(fabs(least), fabs(most));
    char range[64];
    if (mixed)
        snprintf(range, sizeof range, "%.1f %% less to %.1f %% more", -100 * least, 100 * most);
    else if (last - first < 0.05)
        snprintf(range, sizeof range, "%.1f %% %s", last, slower ? "more" : "less");
    else
        snprintf(range, sizeof range, "%.1f to %.1f %% %s", first, last, slower ? "more" : "less");
    pp_info_wrapped(
        "Drift: the reference kernel took %s time in the runs than in the profile: so the machine itself was "
        "%s.",
        range,
        mixed    ? "faster in some and slower in others"
        : slower ? "slower"
                 : "faster");
}

/* The reference kernel does the same work in profile and run: where it took longer, the machine itself was slower. */
static pp_status report_drift(struct pp_db *db, const struct pp_table *table)
{
    static const char drift_of[] =
        "SELECT m.reference_ns / f.reference_ns - 1 FROM run m JOIN run f ON f.id = " PP_SQL_PROFILE
        " WHERE m.id = ?2 AND f.host = m.host AND f.reference_ns > 0 AND m.reference_ns > 0";
    double least = INFINITY, most = -INFINITY;
    for (int64_t row = 0; row < table->nrows; row++) {
        struct pp_pair pair = pp_compare_pair(table, row);
        double drift;
        bool found;
        if (!pp_pair_complete(&pair)) continue;
        PP_TRY(figure_of(db, drift_of, PP_VALUES(PP_INT(pair.predicted), PP_INT(pair.measured)), &drift, &found));
        if (!found) continue;
        if (drift < least) least = drift;
        if (drift > most) most = drift;
    }
    if (most >= least) tell_drift(least, most);
    return PP_OK;
}

/* The largest figure of the measured, or else the predicted, runs of all pairs. */
static pp_status largest(struct pp_db *db, const struct pp_table *table, const char *query, bool measured, double *most)
{
    *most = 0;
    for (int64_t row = 0; row < table->nrows; row++) {
        const struct pp_pair pair = pp_compare_pair(table, row);
        double taken;
        bool found;
        PP_TRY(figure_of(db, query, PP_VALUES(PP_INT(measured ? pair.measured : pair.predicted)), &taken, &found));
        if (found && taken > *most) *most = taken;
    }
    return PP_OK;
}

/* Of the profile that a prediction took its times from, and of the runs. */
static pp_status report_taken(struct pp_db *db, const struct pp_table *table)
{
    static const char of_profile[] =
        "SELECT value FROM link JOIN run r ON r.id = ?1 WHERE r.cost_source NOT IN ('machine', 'times') "
        "AND link.run = " PP_SQL_PROFILE " AND link = 'worker' AND parameter = '" PP_WORKER_TAKEN "'";
    static const char of_its_trace[] =
        "SELECT value FROM link WHERE run = ?1 AND link = 'run' AND parameter = '" PP_WORKER_TAKEN "'";
    double most;
    char remark[256];
    PP_TRY(largest(db, table, of_profile, false, &most));
    if (pp_taken_remark(most, "ppprof", remark, sizeof remark)) pp_info_wrapped("Profile: %s.", remark);
    PP_TRY(largest(db, table, of_its_trace, true, &most));
    if (pp_taken_remark(most, "ppexec", remark, sizeof remark)) pp_info_wrapped("Runs: at most, %s.", remark);
    return PP_OK;
}

static bool same_peaks(const struct pp_table *table, int64_t row)
{
    return pp_table_integer(table, row, PP_CONF_PREDICTED_PEAK_BYTES) ==
           pp_table_integer(table, row, PP_CONF_MEASURED_PEAK_BYTES);
}

/* Memory for evaluations, of as many rows as a run says: where only one of two runs has it, or of other rows, their
 * peaks differ for that. */
static pp_status report_evaluations(struct pp_db *db, const struct pp_table *table)
{
#define EVALUATED(run)                                                                                                 \
    "(SELECT max(CASE name WHEN 'eval-rows' THEN CAST(value AS INTEGER) END) * min(NOT (name = 'no-eval' AND value = " \
    "'true' OR name = 'data' AND value = 'constant')) FROM run_config WHERE run = " run ")"
    static const char differ[] = "SELECT " EVALUATED("?1") " IS NOT " EVALUATED("?2");
#undef EVALUATED
    int64_t different = 0, first = 0;
    for (int64_t row = table->nrows - 1; row >= 0; row--) {
        struct pp_pair pair = pp_compare_pair(table, row);
        double value = 0;
        bool found;
        if (!is_compared(table, row) || same_peaks(table, row)) continue;
        PP_TRY(figure_of(db, differ, PP_VALUES(PP_INT(pair.predicted), PP_INT(pair.measured)), &value, &found));
        if (!found || value == 0) continue;
        different++;
        first = pair.measured;
    }
    if (different)
        pp_info_wrapped("Peaks of %" PRId64 " configuration%s (the first: measured run %" PRId64
                        ") cannot be compared: only one of the two has memory for evaluations, or they have it for "
                        "different rows. Give ppsim and ppexec the same --no-eval and --eval-rows.",
                        different, pp_plural(different), first);
    return PP_OK;
}

pp_status pp_compare_notes(struct pp_db *db, const struct pp_table *table)
{
    pp_alone_notes(table);
    report_assumed(table);
    PP_TRY(report_evaluations(db, table));
    PP_TRY(report_drift(db, table));
    return report_taken(db, table);
}
