/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "core/rows.h"

enum { CELL_BYTES = 64 };

double pp_json_most(const json_t *value)
{
    double most = json_is_number(value) ? json_number_value(value) : 0;
    for (size_t i = 0; i < json_array_size(value); i++) most = fmax(most, json_number_value(json_array_get(value, i)));
    return most;
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

void pp_show_percent(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    show(value, 100 * json_number_value(value), 2, buf, size);
}

void pp_show_mib(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    show(value, pp_json_most(value) / (1 << 20), 1, buf, size);
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
    {"machine", "for_machine", pp_show_text, .left = true, .if_known = true},
    {"schedule", "schedule", pp_show_text, .left = true},
    {"P", "stages", pp_show_count},
    {"V", "virtual", pp_show_count},
    {"chunks", "chunks", pp_show_count},
    {"M", "microbatches", pp_show_count},
    {"D", "replicas", pp_show_count},
    {"T", "tensor", pp_show_count, .usual = "1", .option = "tensor"},
    {"K", "overlap_tensor_sums", pp_show_count, .if_mixed = true, .option = "overlap-tensor-sums"},
    {"EP", "expert_parallel", pp_show_count, .usual = "1"},
    {"CP", "context_parallel", pp_show_count, .usual = "1", .option = "context-parallel"},
    {"zero", "zero", show_zero, .if_mixed = true, .option = "zero"},
    {"shard", "shard_degree", show_degree, .usual = "-", .option = "shard-degree"},
    {"checkpoint", "checkpoint", pp_show_text, .left = true, .if_mixed = true, .option = "checkpoint"},
    {"ms/batch", "ms_per_batch", pp_show_figure},
};

enum { CONFIGURATION = sizeof configuration / sizeof *configuration };

/* The text of a cell; row NULL: of the heading. */
static const char *cell(const struct pp_row_column *column, const json_t *row, char buf[CELL_BYTES])
{
    if (!row) return column->heading;
    column->show(row, column->key, buf, CELL_BYTES);
    return buf;
}

/* Were several values given for the column's option? Then it is shown even if all remaining rows have the same one. */
static bool varies(const struct pp_row_column *column, const struct pp_config *config)
{
    const struct pp_opt *row = column->option ? pp_config_row(column->option) : NULL;
    return row && ((const struct pp_ints *)((const char *)config + row->offset))->n > 1;
}

/* The width of the column's widest cell; 0: the column is left out. */
static int width_of(const struct pp_row_column *column, const json_t *rows, const struct pp_config *config)
{
    char buf[CELL_BYTES], first[CELL_BYTES] = "-";
    int width = (int)strlen(column->heading);
    bool known = !column->if_known, mixed = !column->if_mixed, other = !column->usual;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *text = cell(column, json_array_get(rows, i), buf);
        if (strcmp(first, "-") == 0) cell(column, json_array_get(rows, i), first);
        known |= strcmp(text, "-") != 0;
        mixed |= strcmp(text, "-") != 0 && strcmp(text, first) != 0;
        other |= column->usual && strcmp(text, column->usual) != 0;
        if ((int)strlen(text) > width) width = (int)strlen(text);
    }
    return varies(column, config) || (known && mixed && other) ? width : 0;
}

static void print_line(const struct pp_row_column *columns, const int *width, int n, const json_t *row, FILE *out)
{
    char buf[CELL_BYTES];
    const char *separator = "";
    for (int c = 0; c < n; c++) {
        const int room = !columns[c].left ? width[c] : c + 1 < n ? -width[c] : 0;
        if (width[c] == 0) continue;
        fprintf(out, "%s%*s", separator, room, cell(&columns[c], row, buf));
        separator = "  ";
    }
    fputc('\n', out);
}

void pp_rows_table(const json_t *rows, const struct pp_config *config, const struct pp_row_column *columns, int n,
                   FILE *out)
{
    struct pp_row_column all[CONFIGURATION + PP_ROW_COLUMNS];
    int width[CONFIGURATION + PP_ROW_COLUMNS];
    memcpy(all, configuration, sizeof configuration);
    memcpy(all + CONFIGURATION, columns, (size_t)n * sizeof *columns);
    n += CONFIGURATION;
    for (int c = 0; c < n; c++) width[c] = width_of(&all[c], rows, config);
    print_line(all, width, n, NULL, out);
    for (size_t i = 0; i < json_array_size(rows); i++) print_line(all, width, n, json_array_get(rows, i), out);
}
