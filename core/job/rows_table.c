/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "core/base/memory_text.h"
#include "core/job/rows.h"

double pp_json_most(const json_t *value)
{
    double most = json_is_number(value) ? json_number_value(value) : 0;
    for (size_t i = 0; i < json_array_size(value); i++) most = fmax(most, json_number_value(json_array_get(value, i)));
    return most;
}

double pp_row_most(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    return !value || json_is_null(value) ? (double)NAN : pp_json_most(value);
}

static void show(const json_t *value, double number, int digits, char *buf, size_t size)
{
    if (!value || json_is_null(value))
        snprintf(buf, size, "-");
    else
        snprintf(buf, size, "%.*f", digits, number);
}

void pp_show_text(const json_t *row, const char *key, char *buf, size_t size)
{
    const char *text = json_string_value(json_object_get(row, key));
    snprintf(buf, size, "%s", text ? text : "-");
}

void pp_show_count(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    show(value, json_number_value(value), 0, buf, size);
}

void pp_show_figure(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    const double ms = json_number_value(value);
    show(value, ms, ms < 1 ? 4 : ms < 1000 ? 3 : 1, buf, size);
}

void pp_show_short(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    const double number = json_number_value(value);
    show(value, number, number < 1 ? 4 : number < 10 ? 3 : number < 100 ? 2 : number < 1000 ? 1 : 0, buf, size);
}

void pp_show_percent(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    show(value, 100 * json_number_value(value), 2, buf, size);
}

/* The ZeRO stage; "-" if there is only one replica. */
static void show_zero(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_int_t sharers = json_integer_value(json_object_get(row, "replicas")) *
                               json_integer_value(json_object_get(row, "context_parallel"));
    if (sharers > 1)
        pp_show_count(row, key, buf, size);
    else
        snprintf(buf, size, "-");
}

/* The shard degree; "-" if all replicas shard, or none. */
static void show_degree(const json_t *row, const char *key, char *buf, size_t size)
{
    if (json_integer_value(json_object_get(row, key)) > 0)
        pp_show_count(row, key, buf, size);
    else
        snprintf(buf, size, "-");
}

static const struct pp_row_column configuration[] = {
    {{"machine", .left = true}, "for_machine", pp_show_text},
    {{"schedule", .left = true, .stays = true}, "schedule", pp_show_text},
    {{"P"}, "stages", pp_show_count},
    {{"V"}, "virtual", pp_show_count},
    {{"chunks", .twin = "M"}, "chunks", pp_show_count},
    {{"M"}, "microbatches", pp_show_count},
    {{"D"}, "replicas", pp_show_count},
    {{"T", .usual = "1"}, "tensor", pp_show_count, .option = "tensor"},
    {{"K", .usual = "1"}, "overlap_tensor_sums", pp_show_count, .option = "overlap-tensor-sums"},
    {{"EP", .usual = "1"}, "expert_parallel", pp_show_count, .option = "expert-parallel"},
    {{"KE", .usual = "0"}, "overlap_expert_exchange", pp_show_count, .option = "overlap-expert-exchange"},
    {{"CP", .usual = "1"}, "context_parallel", pp_show_count, .option = "context-parallel"},
    {{"zero", .gaps = true, .usual = "0"}, "zero", show_zero, .option = "zero"},
    {{"shard"}, "shard_degree", show_degree},
    {{"checkpoint", .left = true, .usual = "never"}, "checkpoint", pp_show_text, .option = "checkpoint"},
    {{"ms/batch", .stays = true}, "ms_per_batch", pp_show_figure},
};

enum { CONFIGURATION = sizeof configuration / sizeof *configuration, COLUMNS = CONFIGURATION + PP_ROW_COLUMNS };
_Static_assert((int)COLUMNS <= (int)PP_TEXT_COLUMNS, "a table has room for all columns");

/* What the cells are made from. */
struct table {
    const json_t *rows;
    struct pp_row_column columns[COLUMNS];
    struct pp_text_column texts[COLUMNS];
    const struct pp_memory_unit *units[COLUMNS]; /* NULL: the column has no sizes of memory */
};

static const char *cell(const void *of, int64_t row, int column, char buf[PP_CELL_BYTES])
{
    const struct table *table = of;
    const struct pp_row_column *c = &table->columns[column];
    const struct pp_memory_unit *unit = table->units[column];
    const json_t *object = json_array_get(table->rows, (size_t)row);
    if (!unit) {
        c->show(object, c->key, buf, PP_CELL_BYTES);
        return buf;
    }
    const double bytes = c->bytes(object, c->key);
    if (isnan(bytes)) return "-";
    snprintf(buf, PP_CELL_BYTES, "%.*f", unit->decimals, bytes / unit->bytes);
    return buf;
}

/* The unit that fits the largest size of a column. */
static const struct pp_memory_unit *unit_of(const json_t *rows, const struct pp_row_column *column)
{
    double most = 0;
    for (size_t i = 0; i < json_array_size(rows); i++)
        most = fmax(most, column->bytes(json_array_get(rows, i), column->key)); /* a NAN does not count */
    return pp_memory_unit(most);
}

/* Were several values given for the column's option? Then none goes without saying. */
static bool varies(const struct pp_row_column *column, const struct pp_config *config)
{
    const struct pp_opt *row = column->option ? pp_config_row(column->option) : NULL;
    return row && ((const struct pp_ints *)((const char *)config + row->offset))->n > 1;
}

void pp_rows_table(const json_t *rows, const struct pp_config *config, const struct pp_row_column *columns, int n,
                   FILE *out)
{
    struct table table = {.rows = rows};
    memcpy(table.columns, configuration, sizeof configuration);
    memcpy(table.columns + CONFIGURATION, columns, (size_t)n * sizeof *columns);
    n += CONFIGURATION;
    for (int c = 0; c < n; c++) {
        const struct pp_row_column *column = &table.columns[c];
        table.texts[c] = column->text;
        if (varies(column, config)) table.texts[c].usual = NULL;
        if (!column->bytes) continue;
        table.units[c] = unit_of(rows, column);
        table.texts[c].unit = table.units[c]->name;
    }
    const struct pp_text_table text = {
        .columns = table.texts, .ncolumns = n, .nrows = (int64_t)json_array_size(rows), .cell = cell, .of = &table};
    pp_text_table_print(&text, out);
}
