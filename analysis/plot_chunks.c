/* SPDX-License-Identifier: Apache-2.0
 *
 * ms/batch against chunks: one picture for each workload, number of stages and so on, one line for each schedule.
 */
#include <inttypes.h>
#include <math.h>

#include "analysis/plot.h"
#include "core/base/log.h"

const struct pp_plot_names pp_plot_chunks_names = {"ms-per-batch", {"-predicted.dat", "-measured.dat"}};

enum {
    LINES_MAX = 24,
    LINE_TEXT = 128,
    LABELS = 16,   /* there is room for so many numbers below a picture */
    BARS_UP_TO = 3 /* times the largest point: longer bars leave the picture, or its lines would all be at its bottom */
};

/* What makes two rows of the table points of one picture, and then of one line. */
static const int of_picture[] = {PP_CONF_WORKLOAD, PP_CONF_DEVICE,     PP_CONF_THREADS, PP_CONF_REPLICAS,
                                 PP_CONF_TENSOR,   PP_CONF_CHECKPOINT, PP_CONF_STAGES};
static const int of_line[] = {PP_CONF_SCHEDULE, PP_CONF_VIRTUAL, PP_CONF_BATCH_W, PP_CONF_OPTIONS};
enum { OF_LINE = sizeof of_line / sizeof *of_line };
static const int of_measured_line[] = {PP_CONF_TRANSPORT}; /* a prediction alone belongs to any */

struct picture {
    const struct pp_table *table;
    int64_t first; /* a row of it */
    int nlines;
    int64_t line[LINES_MAX]; /* a row of each */
    int64_t beyond;          /* rows of further lines */
    bool transports;         /* there are several */
    double low, high;        /* of all points and bars */
    double highest;          /* of all points */
};

static bool same_picture(const struct pp_table *table, int64_t a, int64_t b)
{
    return pp_table_same(table, a, b, of_picture, (int)(sizeof of_picture / sizeof *of_picture));
}

static bool measured(const struct pp_table *table, int64_t row) { return pp_compare_pair(table, row).measured >= 0; }

static bool same_line(const struct pp_table *table, int64_t a, int64_t b)
{
    if (!same_picture(table, a, b) || !pp_table_same(table, a, b, of_line, OF_LINE)) return false;
    return !measured(table, a) || !measured(table, b) || pp_table_same(table, a, b, of_measured_line, 1);
}

/* The first line that the row may belong to; nlines if there is none yet. */
static int line_of(const struct picture *picture, int64_t row)
{
    int line = 0;
    while (line < picture->nlines && !same_line(picture->table, picture->line[line], row)) line++;
    return line;
}

/* A run that did no steps, because it resumed one that had ended, has no time. */
static bool has_point(const struct pp_table *table, int64_t row)
{
    return isfinite(pp_table_real(table, row, PP_CONF_PREDICTED_MS)) ||
           isfinite(pp_table_real(table, row, PP_CONF_MEASURED_MS));
}

static bool is_shown(const struct picture *picture, int64_t row)
{
    return has_point(picture->table, row) && same_picture(picture->table, picture->first, row);
}

/* True if it has something to show, and no earlier row of the same picture has. */
static bool begins_picture(const struct pp_table *table, int64_t row)
{
    if (!has_point(table, row)) return false;
    for (int64_t earlier = 0; earlier < row; earlier++)
        if (has_point(table, earlier) && same_picture(table, earlier, row)) return false;
    return true;
}

/* Measured rows make lines first, so that predictions alone find theirs. */
static void find_lines(struct picture *picture)
{
    const struct pp_table *table = picture->table;
    int64_t other = -1; /* a measured row, to tell whether transports differ */
    for (int pass = 0; pass < 2; pass++)
        for (int64_t row = picture->first; row < table->nrows; row++) {
            if (!is_shown(picture, row) || measured(table, row) != (pass == 0)) continue;
            if (pass == 0 && other >= 0 && !pp_table_same(table, other, row, of_measured_line, 1))
                picture->transports = true;
            if (pass == 0) other = row;
            int line = line_of(picture, row);
            picture->beyond += line == LINES_MAX;
            if (line == picture->nlines && line < LINES_MAX) picture->line[picture->nlines++] = row;
        }
}

static const char *line_text(const struct picture *picture, int line, char buf[LINE_TEXT])
{
    int64_t row = picture->line[line];
    const int v = (int)pp_table_integer(picture->table, row, PP_CONF_VIRTUAL),
              w = (int)pp_table_integer(picture->table, row, PP_CONF_BATCH_W);
    const char *options = pp_table_text(picture->table, row, PP_CONF_OPTIONS);
    char stages[24] = "", batched[24] = "";
    if (v > 1) snprintf(stages, sizeof stages, ", V = %d", v);
    if (w > 1) snprintf(batched, sizeof batched, ", batch W %d", w);
    snprintf(buf, LINE_TEXT, "%s%s%s%s%s%s%s", pp_table_text(picture->table, row, PP_CONF_SCHEDULE), stages, batched,
             *options ? ", " : "", options, picture->transports ? ", " : "",
             picture->transports ? pp_table_text(picture->table, row, PP_CONF_TRANSPORT) : "");
    return buf;
}

/* How far the steps of a measured point spread. A spread that is not known is no spread. */
static void write_spread(struct picture *picture, int64_t row, double y, FILE *out)
{
    const double low = pp_table_real(picture->table, row, PP_CONF_MEASURED_P5_MS),
                 high = pp_table_real(picture->table, row, PP_CONF_MEASURED_P95_MS);
    picture->low = fmin(picture->low, low); /* a NAN is no limit */
    picture->high = fmax(picture->high, high);
    fprintf(out, " %.6g %.6g", isnan(low) ? y : low, isnan(high) ? y : high);
}

/* The points of one line; false if there is none. */
static bool write_line(struct picture *picture, int line, int column, FILE *out)
{
    const struct pp_table *table = picture->table;
    const bool spreads = column == PP_CONF_MEASURED_MS;
    bool any = false;
    for (int64_t row = picture->first; row < table->nrows; row++) {
        const double y = pp_table_real(table, row, column);
        if (line_of(picture, row) != line || !isfinite(y)) continue;
        if (!any) fprintf(out, "# chunks %s%s\n", table->columns[column].key, spreads ? " p5 p95" : "");
        any = true;
        picture->low = fmin(picture->low, y);
        picture->highest = fmax(picture->highest, y);
        fprintf(out, "%d %.6g", (int)pp_table_integer(table, row, PP_CONF_CHUNKS), y);
        if (spreads) write_spread(picture, row, y, out);
        fputc('\n', out);
    }
    if (any) fputs("\n\n", out);
    return any;
}

/* NAME-predicted.dat or NAME-measured.dat, and in the script which line each of its blocks is. */
static pp_status write_lines(struct pp_plots *plots, struct picture *picture, const char *name, const char *which,
                             int column, FILE *script)
{
    char file_name[96];
    snprintf(file_name, sizeof file_name, "%s-%s.dat", name, which);
    FILE *data = pp_plot_open(plots, file_name);
    if (!data) return PP_IO;
    fprintf(script, "%s = '", which);
    for (int line = 0; line < picture->nlines; line++)
        if (write_line(picture, line, column, data)) fprintf(script, " %d", line + 1);
    fprintf(script, "' # the lines that %s holds, in this order\n", file_name);
    return pp_plot_close(plots, file_name, data);
}

/* The least number of chunks of the picture that is larger than `last`; 0: there is none. */
static int next_chunks(const struct picture *picture, int last)
{
    int next = 0;
    for (int64_t row = picture->first; row < picture->table->nrows; row++) {
        const int chunks = (int)pp_table_integer(picture->table, row, PP_CONF_CHUNKS);
        if (is_shown(picture, row) && chunks > last && (next == 0 || chunks < next)) next = chunks;
    }
    return next;
}

/* A mark for each number of chunks, with the number where there is room for it. */
static void write_tics(const struct picture *picture, FILE *script)
{
    const int least = next_chunks(picture, 0);
    int most = least, labelled = 0;
    for (int chunks = least; chunks; chunks = next_chunks(picture, chunks)) most = chunks;
    const double room = pow((double)most / least, 1.0 / LABELS);
    fputs("set xtics (", script);
    for (int chunks = least; chunks; chunks = next_chunks(picture, chunks)) {
        const bool shown = chunks >= labelled * room;
        fprintf(script, shown ? "%s%d" : "%s'' %d", chunks > least ? ", " : "", chunks);
        if (shown) labelled = chunks;
    }
    fprintf(script, ")\nset xrange [%g:%g]\n", least / 1.2, most * 1.2);
}

static pp_status draw(struct pp_plots *plots, struct picture *picture, const char *name)
{
    char title[256], text[LINE_TEXT], shared[PP_SHARED_TEXT];
    const struct pp_table *table = picture->table;
    find_lines(picture);
    if (picture->beyond > 0)
        pp_info("%" PRId64 " configuration%s not in %s: it has %d lines at most; the tables have all.", picture->beyond,
                picture->beyond == 1 ? " is" : "s are", name, LINES_MAX);
    pp_compare_shared(table, picture->first, shared);
    snprintf(title, sizeof title, "%s, P = %d, D = %d%s, checkpoint %s",
             pp_table_text(table, picture->first, PP_CONF_PRESET),
             (int)pp_table_integer(table, picture->first, PP_CONF_STAGES),
             (int)pp_table_integer(table, picture->first, PP_CONF_REPLICAS), shared,
             pp_table_text(table, picture->first, PP_CONF_CHECKPOINT));
    FILE *script = pp_plot_begin(plots, name, title, picture->first);
    if (!script) return PP_IO;
    fprintf(script, "array lines[%d] = [", picture->nlines);
    for (int line = 0; line < picture->nlines; line++)
        pp_plot_text(line ? ", " : "", line_text(picture, line, text), script);
    fputs("]\n", script);
    fprintf(script, "batch_grows = %d\n", pp_compare_given(table, picture->first));
    write_tics(picture, script);
    pp_status status = write_lines(plots, picture, name, "predicted", PP_CONF_PREDICTED_MS, script);
    if (status == PP_OK) status = write_lines(plots, picture, name, "measured", PP_CONF_MEASURED_MS, script);
    const double high = fmax(picture->highest, fmin(picture->high, BARS_UP_TO * picture->highest));
    const double margin = 0.06 * fmax(high - picture->low, 0.1 * high);
    fprintf(script, "set yrange [%.6g:%.6g]\n", fmax(picture->low - margin, 0), high + margin);
    if (status == PP_OK) return pp_plot_finish(plots, name, pp_plot_chunks_gp, script);
    pp_plot_abandon(plots, name, script);
    return status;
}

/* Of all configurations, whichever the other pictures show, as many as there is room for. */
pp_status pp_plot_chunks(struct pp_plots *plots, int64_t shown)
{
    (void)shown;
    const int most = plots->room;
    int number = 0;
    for (int64_t row = 0; row < plots->table->nrows; row++) {
        char name[PP_PLOT_NAME];
        struct picture picture = {.table = plots->table, .first = row, .low = INFINITY};
        if (!begins_picture(plots->table, row)) continue;
        if (++number <= most) PP_TRY(draw(plots, &picture, pp_plot_name(&pp_plot_chunks_names, number, name)));
    }
    if (number > most)
        pp_info("%d of %d pictures of ms/batch by chunks are left out; the tables have all. --run ID draws that of one "
                "configuration.",
                number - most, number);
    return PP_OK;
}
