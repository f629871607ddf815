/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "analysis/why.h"
#include "core/base/log.h"

enum {
    MOST_BLOCKS = 5, /* configurations of the table for people */
    MOST_STAYS = 40, /* rows of two paths */
};

static double gap_of(const struct pp_table *table, int64_t row)
{
    return fabs(pp_table_real(table, row, PP_CONF_ERROR_PERCENT));
}

/* The rows that are printed, and how many were left out. */
struct chosen {
    int64_t *rows, n;
    int64_t without_edges;  /* predicted and measured, but an older ppkit stored the plan */
    int64_t without_events; /* of these runs one, or both, recorded none */
};

/* Does the database know what the tasks of the run's plan wait for? */
static pp_status has_edges(struct pp_db *db, int64_t run, bool *has)
{
    int64_t unused;
    return pp_db_integer(
        db, "SELECT edges FROM plan JOIN run ON run.plan = plan.id WHERE run.id = ?1 AND edges IS NOT NULL",
        PP_VALUES(PP_INT(run)), &unused, has);
}

static pp_status has_events(struct pp_db *db, int64_t run, bool *has)
{
    int64_t unused;
    return pp_db_integer(db, "SELECT 1 FROM busy WHERE run = ?1 LIMIT 1", PP_VALUES(PP_INT(run)), &unused, has);
}

/* Adds a row behind those with larger relative gaps. */
static void insert(const struct pp_table *table, struct chosen *c, int64_t row)
{
    int64_t at = c->n++;
    for (; at > 0 && gap_of(table, c->rows[at - 1]) < gap_of(table, row); at--) c->rows[at] = c->rows[at - 1];
    c->rows[at] = row;
}

/* Rows that were predicted and measured, the largest relative gap first. Plans without edges have no paths, nor have
 * runs without events: if there is no other row, one of these is taken, so that reading it says what to do. */
static pp_status choose(struct pp_db *db, const struct pp_table *table, struct chosen *c)
{
    int64_t bare = -1;
    PP_TRY(PP_NEW(&c->rows, table->nrows));
    for (int64_t row = 0; row < table->nrows; row++) {
        const struct pp_pair pair = pp_compare_pair(table, row);
        bool edges, events;
        if (pair.predicted < 0 || pair.measured < 0) continue;
        PP_TRY(has_edges(db, pair.predicted, &edges));
        PP_TRY(has_events(db, pair.predicted, &events));
        if (events) PP_TRY(has_events(db, pair.measured, &events));
        if (edges && events)
            insert(table, c, row);
        else
            bare = row;
        c->without_edges += !edges;
        c->without_events += edges && !events;
    }
    if (c->n == 0 && bare >= 0) insert(table, c, bare);
    return PP_OK;
}

static double ms(int64_t ns) { return (double)ns / 1e6; }

static void print_stays(const struct pp_why *why, const struct pp_table *paths, FILE *out)
{
    const int64_t n = paths->nrows - 1; /* the last one is the sum */
    pp_table_print(paths, 0, n <= MOST_STAYS ? paths->nrows : MOST_STAYS, out);
    if (n <= MOST_STAYS) return;
    fprintf(out, "  ... %" PRId64 " more stay%s (--format tsv has all); makespan %.3f predicted, %.3f measured\n",
            n - MOST_STAYS, pp_plural(n - MOST_STAYS), ms(why->predicted.length_ns), ms(why->measured.length_ns));
}

static const char *workload_of(const struct pp_table *table, int64_t row)
{
    return pp_table_text(table, row, PP_CONF_WORKLOAD);
}

static void print_block(const struct pp_table *table, int64_t row, const struct pp_why *why,
                        const struct pp_table *causes, const struct pp_table *paths, FILE *out)
{
    char title[256];
    const int64_t gap = why->predicted_ns - why->measured_ns;
    fprintf(out, "%s:\n  %s\n", pp_compare_title(table, row, title, sizeof title), workload_of(table, row));
    fprintf(out,
            "  predicted %.3f (run %" PRId64 "), measured %.3f ms/batch (run %" PRId64 "): gap %+.3f ms, %+.1f %%;\n"
            "  of the measured run step %d, the median of %" PRId64 " traced\n",
            ms(why->predicted_ns), why->pair.predicted, ms(why->measured_ns), why->pair.measured, ms(gap),
            why->measured_ns ? 100.0 * (double)gap / (double)why->measured_ns : 0.0, why->measured.step,
            why->measured_steps);
    pp_table_print(causes, 0, causes->nrows, out);
    fputc('\n', out);
    print_stays(why, paths, out);
}

static void print_rows_json(const struct pp_table *table, const char *key, FILE *out)
{
    fprintf(out, ", \"%s\": [", key);
    for (int64_t i = 0; i < table->nrows; i++) {
        fputs(i ? ",\n  {" : "\n  {", out);
        pp_table_print_json(table, i, out);
        fputc('}', out);
    }
    fputc(']', out);
}

static void print_json(const struct pp_table *table, int64_t row, const struct pp_why *why,
                       const struct pp_table *causes, const struct pp_table *paths, FILE *out)
{
    char title[256];
    fputs("{\"configuration\": ", out);
    pp_json_text(pp_compare_title(table, row, title, sizeof title), out);
    fputs(", \"workload\": ", out);
    pp_json_text(workload_of(table, row), out);
    fprintf(out,
            ", \"predicted_run\": %" PRId64 ", \"measured_run\": %" PRId64 ", \"measured_step\": %d, "
            "\"predicted_ns\": %" PRId64 ", \"measured_ns\": %" PRId64 ", \"difference_ns\": %" PRId64,
            why->pair.predicted, why->pair.measured, why->measured.step, why->predicted_ns, why->measured_ns,
            why->predicted_ns - why->measured_ns);
    print_rows_json(causes, "causes", out);
    print_rows_json(paths, "path", out);
    fputc('}', out);
}

static pp_status print_one(struct pp_db *db, const struct pp_table *table, int64_t row, int format, FILE *out)
{
    struct pp_why why;
    struct pp_table causes = {0}, paths = {0};
    PP_TRY(pp_why_read(db, table, row, &why));
    pp_status status = pp_why_causes(&why, &causes);
    if (status == PP_OK) status = pp_why_paths(&why, &paths);
    if (status == PP_OK && format == PP_FORMAT_JSON) print_json(table, row, &why, &causes, &paths, out);
    if (status == PP_OK && format == PP_FORMAT_TABLE) print_block(table, row, &why, &causes, &paths, out);
    if (status == PP_OK && format == PP_FORMAT_TSV) {
        pp_table_print_tsv(&causes, out);
        fputc('\n', out);
        pp_table_print_tsv(&paths, out);
    }
    pp_table_free(&paths);
    pp_table_free(&causes);
    pp_why_free(&why);
    return status;
}

static pp_status print_all(struct pp_db *db, const struct pp_table *table, const int64_t *rows, int64_t n, int format,
                           FILE *out)
{
    const bool json = format == PP_FORMAT_JSON;
    const int64_t most = format == PP_FORMAT_TABLE && n > MOST_BLOCKS ? MOST_BLOCKS : n;
    if (json) fputc('[', out);
    for (int64_t i = 0; i < most; i++) {
        if (i) fputs(json ? ",\n " : "\n", out);
        PP_TRY(print_one(db, table, rows[i], format, out));
    }
    if (json) fputs("]\n", out);
    if (most < n)
        pp_info("%" PRId64 " of %" PRId64 " configurations, the largest gaps: --run names another one, --format tsv "
                "prints all.",
                most, n);
    return PP_OK;
}

pp_status pp_why_print(struct pp_db *db, const struct pp_table *table, int format, FILE *out)
{
    struct chosen c = {0};
    PP_TRY(pp_compare_notes(db, table));
    pp_status status = choose(db, table, &c);
    if (status == PP_OK && c.n == 0)
        status = pp_fail(PP_INPUT,
                         "database %s: --why needs a configuration that was predicted and measured: run ppsim and "
                         "ppexec with the same options and --db %s",
                         db->path, db->path);
    if (status == PP_OK) status = print_all(db, table, c.rows, c.n, format, out);
    if (status == PP_OK && c.without_edges)
        pp_info("%" PRId64
                " configuration%s left out: an older ppkit did not store what tasks wait for; ppsim with the "
                "same options and --db %s adds it.",
                c.without_edges, pp_plural(c.without_edges), db->path);
    if (status == PP_OK && c.without_events)
        pp_info("%" PRId64
                " configuration%s left out: a run recorded no events; run it again with --db %s and --trace-steps 1 or "
                "more.",
                c.without_events, pp_plural(c.without_events), db->path);
    free(c.rows);
    return status;
}
