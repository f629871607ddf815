/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/compare.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/text.h"
#include "core/options/devices.h"

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof *(array)))

#define AS_COLUMN(id, ...) {__VA_ARGS__},
#define AS_NAME(id, key, ...) "\"" key "\", "
static const struct pp_column columns[] = {PP_CONFIGURATION_COLUMNS(AS_COLUMN)};

#define AS_KIND_COLUMN(id, key, sql, ...) {key, __VA_ARGS__},
#define AS_VALUE(id, key, sql, ...) sql " AS " key ", "
static const struct pp_column kind_columns[] = {PP_OF_KIND_COLUMNS(AS_KIND_COLUMN)};

/* Microbatches in each W: no column of a run, but another plan. */
#define BATCH_W                                                                                                        \
    "coalesce((SELECT CAST(value AS INTEGER) FROM run_config WHERE run = coalesce(measured_run, predicted_run) "       \
    "AND name = 'batch-w'), 1) AS batch_w"
/* Where rows would look the same, though their plans differ: of the options that make another plan, and are no part of
 * the workload, those that were given; NULL: none. */
#define OPTIONS                                                                                                        \
    "CASE WHEN min(plan) OVER alike IS NOT max(plan) OVER alike THEN "                                                 \
    "(SELECT group_concat(name || ' ' || value, ', ') FROM (SELECT name, value FROM run_config WHERE given AND "       \
    "run = coalesce(measured_run, predicted_run) AND name IN ('clip', 'recv-buffers') ORDER BY name)) END AS options"
#define ALIKE                                                                                                          \
    "WINDOW alike AS (PARTITION BY newest, workload, device, threads, replicas, tensor, checkpoint, stages, "          \
    "schedule, virtual, chunks, batch_w)"
/* A list of names or values ends with a comma, so a NULL follows it, which is not read. */
#define CONFIGURATION                                                                                                  \
    "SELECT " PP_CONFIGURATION_COLUMNS(AS_NAME) "NULL FROM (SELECT *, " OPTIONS " FROM (SELECT *, virtual_stages AS "  \
                                                "virtual, " BATCH_W " FROM v_configuration) " ALIKE ") "

static const char newest[] = CONFIGURATION "WHERE newest AND ?1 = 0 ORDER BY workload, device, threads, replicas, "
                                           "tensor, checkpoint, stages, schedule, virtual_stages, chunks, transport, "
                                           "batch_w, options, plan, measured_run, predicted_run";
static const char of_run[] =
    CONFIGURATION "WHERE predicted_run = ?1 OR measured_run = ?1 ORDER BY newest DESC, measured_run DESC LIMIT 1";
static const char kinds[] =
    "SELECT " PP_OF_KIND_COLUMNS(AS_VALUE) "NULL FROM v_task_kind WHERE run IN (?1, ?2) GROUP BY kind "
                                           "ORDER BY measured_ms DESC, predicted_ms DESC, kind";

static pp_status nothing(struct pp_db *db, int run)
{
    if (run)
        return pp_fail(PP_INPUT,
                       "database %s: run %d is not a finished run of ppsim or ppexec; table run lists all runs",
                       db->path, run);
    return pp_fail(PP_INPUT,
                   "database %s: it holds no finished run of ppsim or ppexec: predict with ppsim --db %s, measure with "
                   "ppexec --db %s",
                   db->path, db->path, db->path);
}

/* What pictures and sentences count with. */
static pp_status check_shapes(struct pp_db *db, const struct pp_table *table)
{
    static const struct {
        int column;
        size_t option; /* PP_OPTION() that limits it */
    } shapes[] = {{PP_CONF_STAGES, PP_OPTION(stages)},
                  {PP_CONF_VIRTUAL, PP_OPTION(virtual_stages)},
                  {PP_CONF_CHUNKS, PP_OPTION(chunks)},
                  {PP_CONF_MICROBATCHES, PP_OPTION(chunks)},
                  {PP_CONF_REPLICAS, PP_OPTION(replicas)},
                  {PP_CONF_TENSOR, PP_OPTION(tensor)},
                  {PP_CONF_THREADS, PP_OPTION(threads)},
                  {PP_CONF_EXPERT_PARALLEL, PP_OPTION(expert_parallel)},
                  {PP_CONF_CONTEXT_PARALLEL, PP_OPTION(context_parallel)}};
    for (int64_t row = 0; row < table->nrows; row++)
        for (int i = 0; i < COUNT_OF(shapes); i++) {
            const int64_t value = pp_table_integer(table, row, shapes[i].column);
            if (value < 1 || (double)value > pp_config_row_of(shapes[i].option)->max)
                return pp_fail(PP_INPUT, "database %s: a run has %" PRId64 " %s: the file is damaged", db->path, value,
                               columns[shapes[i].column].key);
        }
    return PP_OK;
}

pp_status pp_compare_read(struct pp_db *db, int run, struct pp_table *out)
{
    sqlite3_stmt *statement;
    PP_TRY(pp_db_query(db, run ? of_run : newest, PP_VALUES(PP_INT(run)), &statement));
    PP_TRY(pp_table_read(db, statement, columns, COUNT_OF(columns), out));
    return out->nrows ? check_shapes(db, out) : nothing(db, run);
}

struct pp_pair pp_compare_pair(const struct pp_table *table, int64_t row)
{
    return (struct pp_pair){pp_table_integer(table, row, PP_CONF_PREDICTED_RUN),
                            pp_table_integer(table, row, PP_CONF_MEASURED_RUN)};
}

static int64_t later_run(const struct pp_pair *pair)
{
    return pair->predicted > pair->measured ? pair->predicted : pair->measured;
}

int64_t pp_compare_main(const struct pp_table *table)
{
    int64_t best = 0;
    struct pp_pair best_pair = pp_compare_pair(table, 0);
    for (int64_t row = 1; row < table->nrows; row++) {
        struct pp_pair pair = pp_compare_pair(table, row);
        if (pp_pair_complete(&pair) < pp_pair_complete(&best_pair)) continue;
        if (pp_pair_complete(&pair) == pp_pair_complete(&best_pair) && later_run(&pair) < later_run(&best_pair))
            continue;
        best = row;
        best_pair = pair;
    }
    return best;
}

static int whole_of(const struct pp_table *table, int64_t row, int column)
{
    return (int)pp_table_integer(table, row, column);
}

enum { OF_TABLE = 1 /* of the degrees below: in which lines of a table differ, whose workload has the others */ };

static void write_degrees(const struct pp_table *table, int64_t row, int first, char buf[PP_SHARED_TEXT])
{
    static const struct {
        int column;
        const char *letter;
    } degrees[] = {{PP_CONF_TENSOR, "T"}, {PP_CONF_EXPERT_PARALLEL, "N"}, {PP_CONF_CONTEXT_PARALLEL, "C"}};
    struct pp_text text = pp_text_in(buf, PP_SHARED_TEXT);
    for (int i = first; i < COUNT_OF(degrees); i++) {
        const int n = whole_of(table, row, degrees[i].column);
        if (n > 1) pp_text_add(&text, ", %s = %d", degrees[i].letter, n);
    }
}

void pp_compare_shared(const struct pp_table *table, int64_t row, char buf[PP_SHARED_TEXT])
{
    write_degrees(table, row, 0, buf);
}

bool pp_compare_given(const struct pp_table *table, int64_t row)
{
    return strcmp(pp_table_text(table, row, PP_CONF_PRESET), PP_GIVEN_PRESET) == 0;
}

const char *pp_compare_about(const struct pp_table *table, int64_t row, char buf[PP_ABOUT_TEXT])
{
    const char *workload = pp_table_text(table, row, PP_CONF_WORKLOAD),
               *device = pp_table_text(table, row, PP_CONF_DEVICE);
    const int threads = whole_of(table, row, PP_CONF_THREADS);
    if (pp_compare_given(table, row) && !pp_device_kind(device)->waits)
        snprintf(buf, PP_ABOUT_TEXT, "%s", workload);
    else
        snprintf(buf, PP_ABOUT_TEXT, "%s, on %s, %d thread%s a worker", workload, device, threads, pp_plural(threads));
    return buf;
}

const char *pp_compare_title(const struct pp_table *table, int64_t row, char *buf, size_t size)
{
    int chunks = whole_of(table, row, PP_CONF_CHUNKS), microbatches = whole_of(table, row, PP_CONF_MICROBATCHES);
    const int batch_w = whole_of(table, row, PP_CONF_BATCH_W);
    char cut[48] = "", batched[24] = "", shared[PP_SHARED_TEXT];
    const char *options = pp_table_text(table, row, PP_CONF_OPTIONS);
    if (batch_w > 1) snprintf(batched, sizeof batched, ", batch W %d", batch_w);
    if (microbatches != chunks) snprintf(cut, sizeof cut, " (%d microbatches)", microbatches);
    pp_compare_shared(table, row, shared);
    snprintf(buf, size, "%s, %s, P = %d, V = %d, %d chunk%s%s%s, D = %d%s, checkpoint %s%s%s",
             pp_table_text(table, row, PP_CONF_PRESET), pp_table_text(table, row, PP_CONF_SCHEDULE),
             whole_of(table, row, PP_CONF_STAGES), whole_of(table, row, PP_CONF_VIRTUAL), chunks, pp_plural(chunks),
             cut, batched, whole_of(table, row, PP_CONF_REPLICAS), shared,
             pp_table_text(table, row, PP_CONF_CHECKPOINT), *options ? ", " : "", options);
    return buf;
}

const char *pp_compare_title_runs(const struct pp_table *table, int64_t row, char buf[PP_TITLE_TEXT])
{
    const struct pp_pair pair = pp_compare_pair(table, row);
    char title[PP_TITLE_TEXT];
    pp_compare_title(table, row, title, sizeof title);
    if (pp_pair_complete(&pair))
        snprintf(buf, PP_TITLE_TEXT, "%.*s, runs %" PRId64 " and %" PRId64, PP_TITLE_TEXT - 56, title, pair.predicted,
                 pair.measured);
    else
        snprintf(buf, PP_TITLE_TEXT, "%.*s, run %" PRId64, PP_TITLE_TEXT - 56, title, later_run(&pair));
    return buf;
}

pp_status pp_compare_kinds(struct pp_db *db, const struct pp_pair *pair, struct pp_table *out)
{
    sqlite3_stmt *statement;
    PP_TRY(pp_db_query(db, kinds, PP_VALUES(PP_INT(pair->predicted), PP_INT(pair->measured)), &statement));
    return pp_table_read(db, statement, kind_columns, COUNT_OF(kind_columns), out);
}

/* Rows first..end-1 are of one workload, device and thread count. */
static int64_t block_end(const struct pp_table *table, int64_t first)
{
    static const int shared[] = {PP_CONF_WORKLOAD, PP_CONF_DEVICE, PP_CONF_THREADS};
    int64_t end = first + 1;
    while (end < table->nrows && pp_table_same(table, first, end, shared, COUNT_OF(shared))) end++;
    return end;
}

static pp_status print_kinds_of(struct pp_db *db, const struct pp_table *table, int64_t row, FILE *out)
{
    char title[PP_TITLE_TEXT];
    struct pp_table of_kinds = {0};
    struct pp_pair pair = pp_compare_pair(table, row);
    pp_status status = pp_compare_kinds(db, &pair, &of_kinds);
    if (status == PP_OK && of_kinds.nrows) {
        fprintf(out, "\nTasks of %s:\n  %s\n", pp_compare_title_runs(table, row, title),
                pp_table_text(table, row, PP_CONF_WORKLOAD));
        pp_table_print(&of_kinds, 0, of_kinds.nrows, out);
    }
    pp_table_free(&of_kinds);
    return status;
}

static pp_status print_text(struct pp_db *db, const struct pp_table *table, FILE *out)
{
    for (int64_t row = 0; row < table->nrows;) {
        int64_t end = block_end(table, row);
        char about[PP_ABOUT_TEXT], shared[PP_SHARED_TEXT];
        write_degrees(table, row, OF_TABLE, shared);
        fprintf(out, "%s%s: %s%s\n", row ? "\n" : "", pp_table_text(table, row, PP_CONF_PRESET),
                pp_compare_about(table, row, about), shared);
        pp_table_print(table, row, end - row, out);
        row = end;
    }
    return print_kinds_of(db, table, pp_compare_main(table), out);
}

/* One statement's rows for each configuration, TSV: with one line of names; JSON: as the value of "kinds". */
static pp_status print_kinds(struct pp_db *db, const struct pp_table *table, int64_t row, bool json, FILE *out)
{
    struct pp_table of_kinds = {0};
    struct pp_pair pair = pp_compare_pair(table, row);
    pp_status status = pp_compare_kinds(db, &pair, &of_kinds);
    if (status == PP_OK && !json) pp_table_print_tsv(&of_kinds, out);
    for (int64_t i = 0; json && status == PP_OK && i < of_kinds.nrows; i++) {
        fputs(i ? ", {" : "{", out);
        pp_table_print_json(&of_kinds, i, out);
        fputc('}', out);
    }
    pp_table_free(&of_kinds);
    return status;
}

static pp_status print_json(struct pp_db *db, const struct pp_table *table, FILE *out)
{
    fputc('[', out);
    for (int64_t row = 0; row < table->nrows; row++) {
        fputs(row ? ",\n {" : "{", out);
        pp_table_print_json(table, row, out);
        fputs(", \"kinds\": [", out);
        PP_TRY(print_kinds(db, table, row, true, out));
        fputs("]}", out);
    }
    fputs("]\n", out);
    return PP_OK;
}

pp_status pp_compare_print(struct pp_db *db, const struct pp_table *table, int format, FILE *out)
{
    PP_TRY(pp_compare_notes(db, table));
    if (format == PP_FORMAT_JSON) return print_json(db, table, out);
    if (format == PP_FORMAT_TABLE) return print_text(db, table, out);
    pp_table_print_tsv(table, out);
    fputc('\n', out);
    return print_kinds(db, table, pp_compare_main(table), false, out);
}
