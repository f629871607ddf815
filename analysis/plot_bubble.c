/* SPDX-License-Identifier: Apache-2.0
 *
 * Idle share of each rank, predicted beside measured.
 */
#include <math.h>
#include <stdlib.h>

#include "analysis/plot.h"

const struct pp_plot_names pp_plot_bubble_names = {"bubble", {".dat"}};

static const char by_rank[] = "SELECT rank, avg(bubble) FROM v_bubble WHERE run = ?1 GROUP BY rank ORDER BY rank";

/* values[rank], and the mean of all in values[ranks]; NAN where nothing was traced. */
static pp_status read_bubbles(struct pp_db *db, int64_t run, int ranks, double *values, bool *any)
{
    sqlite3_stmt *statement;
    bool found;
    double sum = 0;
    int known = 0;
    *any = false;
    for (int i = 0; i <= ranks; i++) values[i] = NAN;
    PP_TRY(pp_db_query(db, by_rank, PP_VALUES(PP_INT(run)), &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    while (found) {
        const int rank = sqlite3_column_int(statement, 0);
        if (rank >= 0 && rank < ranks) {
            values[rank] = sqlite3_column_double(statement, 1);
            sum += values[rank];
            known++;
        }
        PP_TRY(pp_db_row(db, statement, &found));
    }
    *any = known > 0;
    if (*any) values[ranks] = sum / known;
    return PP_OK;
}

static void write_value(double value, FILE *out)
{
    if (isnan(value))
        fputs(" ?", out);
    else
        fprintf(out, " %.6g", 100 * value);
}

static pp_status write_data(const struct pp_plots *plots, int ranks, const double *predicted, const double *measured)
{
    static const char name[] = "bubble.dat";
    FILE *data = pp_plot_open(plots, name);
    if (!data) return PP_IO;
    fputs("# rank predicted_percent measured_percent; the last line is the mean\n", data);
    for (int i = 0; i <= ranks; i++) {
        fprintf(data, "%d", i);
        write_value(predicted[i], data);
        write_value(measured[i], data);
        fputc('\n', data);
    }
    return pp_plot_close(plots, name, data);
}

static pp_status draw(struct pp_plots *plots, int64_t row, int ranks, double *predicted, double *measured)
{
    char title[PP_TITLE_TEXT];
    bool any_predicted, any_measured;
    struct pp_pair pair = pp_compare_pair(plots->table, row);
    PP_TRY(read_bubbles(plots->db, pair.predicted, ranks, predicted, &any_predicted));
    PP_TRY(read_bubbles(plots->db, pair.measured, ranks, measured, &any_measured));
    if (!any_predicted && !any_measured) return PP_OK;
    PP_TRY(write_data(plots, ranks, predicted, measured));
    FILE *script = pp_plot_begin(plots, "bubble", pp_compare_title_runs(plots->table, row, title), row);
    if (!script) return PP_IO;
    fprintf(script, "ranks = %d\ncolumns = '%s%s' # of bubble.dat: 2 predicted, 3 measured\n", ranks,
            any_predicted ? " 2" : "", any_measured ? " 3" : "");
    return pp_plot_finish(plots, "bubble", pp_plot_bubble_gp, script);
}

pp_status pp_plot_bubble(struct pp_plots *plots, int64_t row)
{
    int ranks = (int)pp_table_integer(plots->table, row, PP_CONF_STAGES);
    double *predicted = calloc((size_t)(ranks + 1) * 2, sizeof *predicted);
    if (!predicted) return pp_fail(PP_NOMEM, "there is not enough memory for %d ranks", ranks);
    pp_status status = draw(plots, row, ranks, predicted, predicted + ranks + 1);
    free(predicted);
    return status;
}
