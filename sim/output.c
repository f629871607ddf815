/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/output.h"

#include <string.h>

#include "core/config.h"
#include "core/cost.h"
#include "core/rows.h"

enum { CELL_BYTES = 64, MOST_RANKS = 32 };

/* A column of the table: its heading and how a row's cell is written. */
struct column {
    const char *heading;
    const char *key;
    void (*cell)(const json_t *row, const char *key, char *buf, size_t size);
    bool if_known; /* left out where all its cells would be "-" */
};

static double number(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

static void cell_text(const json_t *row, const char *key, char *buf, size_t size)
{
    snprintf(buf, size, "%s", json_string_value(json_object_get(row, key)));
}

static void cell_count(const json_t *row, const char *key, char *buf, size_t size)
{
    snprintf(buf, size, "%.0f", number(row, key));
}

static void cell_ms(const json_t *row, const char *key, char *buf, size_t size)
{
    double value = number(row, key);
    snprintf(buf, size, "%.*f", value < 1 ? 4 : value < 1000 ? 3 : 1, value);
}

static void cell_percent(const json_t *row, const char *key, char *buf, size_t size)
{
    snprintf(buf, size, "%.2f", 100 * number(row, key));
}

static void cell_count_if(const json_t *row, const char *key, char *buf, size_t size)
{
    if (json_is_null(json_object_get(row, key)))
        snprintf(buf, size, "-");
    else
        cell_count(row, key, buf, size);
}

static void cell_percent_if(const json_t *row, const char *key, char *buf, size_t size)
{
    if (json_is_null(json_object_get(row, key)))
        snprintf(buf, size, "-");
    else
        snprintf(buf, size, "%.1f", 100 * number(row, key));
}

/* How far the makespan is above its bound. */
static void cell_above(const json_t *row, const char *key, char *buf, size_t size)
{
    double bound = number(row, "lower_bound_ms");
    if (bound > 0)
        snprintf(buf, size, "%.1f", 100 * (number(row, key) / bound - 1));
    else
        snprintf(buf, size, "-");
}

static double largest(const json_t *array)
{
    double most = 0;
    const json_t *value;
    size_t i;
    json_array_foreach((json_t *)array, i, value) if (json_number_value(value) > most) most = json_number_value(value);
    return most;
}

static void cell_mib(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *bytes = json_object_get(row, key);
    if (json_is_array(bytes))
        snprintf(buf, size, "%.1f", largest(bytes) / (1 << 20));
    else if (json_is_integer(bytes))
        snprintf(buf, size, "%.1f", json_number_value(bytes) / (1 << 20));
    else
        snprintf(buf, size, "-");
}

static void cell_largest(const json_t *row, const char *key, char *buf, size_t size)
{
    snprintf(buf, size, "%g", largest(json_object_get(row, key)));
}

/* Only where it is more than the one arena of each worker: workers share the device. */
static void cell_device(const json_t *row, const char *key, char *buf, size_t size)
{
    if (number(row, key) > largest(json_object_get(row, "peak_bytes")))
        cell_mib(row, key, buf, size);
    else
        snprintf(buf, size, "-");
}

static void cell_fits(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    snprintf(buf, size, "%s", json_is_null(value) ? "-" : json_is_true(value) ? "yes" : "no");
}

static void cell_source(const json_t *row, const char *key, char *buf, size_t size)
{
    const char *source = json_string_value(json_object_get(row, key)),
               *machine = json_string_value(json_object_get(row, "machine"));
    bool computed = strcmp(source, pp_cost_source_names[PP_COST_MACHINE]) == 0; /* else it is the links alone */
    snprintf(buf, size, "%s%s%s", source, !machine ? "" : computed ? " " : ", links of ", machine ? machine : "");
}

static const struct column columns[] = {{"schedule", "schedule", cell_text},
                                        {"P", "stages", cell_count},
                                        {"V", "virtual", cell_count},
                                        {"chunks", "chunks", cell_count},
                                        {"M", "microbatches", cell_count},
                                        {"D", "replicas", cell_count},
                                        {"ms/batch", "ms_per_batch", cell_ms},
                                        {"tokens/s", "tokens_per_s", cell_count_if, true},
                                        {"MFU %", "mfu", cell_percent_if, true},
                                        {"makespan ms", "makespan_ms", cell_ms},
                                        {"above bound %", "makespan_ms", cell_above},
                                        {"bubble %", "bubble", cell_percent},
                                        {"peak MiB", "peak_bytes", cell_mib},
                                        {"device MiB", "device_bytes", cell_device, true},
                                        {"process MiB", "process_bytes", cell_mib, true},
                                        {"peak microbatches", "peak_microbatches", cell_largest},
                                        {"fits", "fits", cell_fits},
                                        {"times from", "cost_source", cell_source}};
enum { COLUMNS = sizeof columns / sizeof *columns };

/* Numbers to the right, the two texts at the ends of a line to the left. Width 0: the column is left out. */
static void print_cell(int column, const char *text, int width, FILE *out)
{
    if (width == 0) return;
    if (column == 0)
        fprintf(out, "%-*s", width, text);
    else
        fprintf(out, "  %*s", column == COLUMNS - 1 ? 0 : width, text);
}

static void print_table(const json_t *rows, FILE *out)
{
    char cell[CELL_BYTES];
    int width[COLUMNS];
    const json_t *row;
    size_t i;
    for (int c = 0; c < COLUMNS; c++) {
        bool shown = !columns[c].if_known;
        width[c] = (int)strlen(columns[c].heading);
        json_array_foreach((json_t *)rows, i, row)
        {
            columns[c].cell(row, columns[c].key, cell, sizeof cell);
            shown |= strcmp(cell, "-") != 0;
            if ((int)strlen(cell) > width[c]) width[c] = (int)strlen(cell);
        }
        if (!shown) width[c] = 0;
    }
    for (int c = 0; c < COLUMNS; c++) print_cell(c, columns[c].heading, width[c], out);
    fputc('\n', out);
    json_array_foreach((json_t *)rows, i, row)
    {
        for (int c = 0; c < COLUMNS; c++) {
            columns[c].cell(row, columns[c].key, cell, sizeof cell);
            print_cell(c, cell, width[c], out);
        }
        fputc('\n', out);
    }
}

static void print_path(const json_t *row, FILE *out)
{
    const char *kind, *separator = "\ncritical path:";
    double total = 0;
    json_t *value, *path = json_object_get(row, "critical_path_ms");
    json_object_foreach(path, kind, value) total += json_number_value(value);
    if (total <= 0) return;
    json_object_foreach(path, kind, value)
    {
        fprintf(out, "%s %s %.1f %%", separator, kind, 100 * json_number_value(value) / total);
        separator = ",";
    }
    fprintf(out, " of %.3f ms\n", total);
}

/* Bubble and memory of each rank; of many ranks the first. */
static void print_ranks(const json_t *row, FILE *out)
{
    const json_t *bubble = json_object_get(row, "rank_bubble");
    json_t *array, *kinds = json_object_get(row, "memory_bytes");
    const char *kind;
    fprintf(out, "\nrank  bubble %%  peak microbatches");
    json_object_foreach(kinds, kind, array) fprintf(out, "  %10s", kind);
    if (json_is_object(kinds)) fprintf(out, "  %10s  (MiB)", "all");
    fputc('\n', out);
    size_t ranks = json_array_size(bubble), shown = ranks < MOST_RANKS ? ranks : MOST_RANKS;
    for (size_t r = 0; r < shown; r++) {
        fprintf(out, "%4zu  %8.2f  %17g", r, 100 * json_number_value(json_array_get(bubble, r)),
                json_number_value(json_array_get(json_object_get(row, "peak_microbatches"), r)));
        json_object_foreach(kinds, kind, array)
            fprintf(out, "  %10.2f", json_number_value(json_array_get(array, r)) / (1 << 20));
        if (json_is_object(kinds))
            fprintf(out, "  %10.2f",
                    json_number_value(json_array_get(json_object_get(row, "peak_bytes"), r)) / (1 << 20));
        fputc('\n', out);
    }
    if (shown < ranks) fprintf(out, " ...  %zu more ranks; --format json has all\n", ranks - shown);
}

pp_status pp_rows_print(const json_t *rows, int format, FILE *out)
{
    if (format != PP_FORMAT_TABLE) return pp_rows_write(rows, format, out);
    print_table(rows, out);
    if (json_array_size(rows) != 1) return PP_OK;
    print_ranks(json_array_get(rows, 0), out);
    print_path(json_array_get(rows, 0), out);
    return PP_OK;
}
