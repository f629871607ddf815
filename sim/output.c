/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/output.h"

#include <string.h>

#include "core/config.h"
#include "core/cost.h"
#include "core/rows.h"

enum { MOST_RANKS = 32 };

static double number(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

/* By how many percent the makespan is above its lower bound. */
static void cell_above(const json_t *row, const char *key, char *buf, size_t size)
{
    double bound = number(row, "lower_bound_ms");
    if (bound > 0)
        snprintf(buf, size, "%.1f", 100 * (number(row, key) / bound - 1));
    else
        snprintf(buf, size, "-");
}

static void cell_largest(const json_t *row, const char *key, char *buf, size_t size)
{
    snprintf(buf, size, "%g", pp_json_most(json_object_get(row, key)));
}

/* Memory of a device, if several workers share it, so that it is more than the largest arena. */
static void cell_device(const json_t *row, const char *key, char *buf, size_t size)
{
    if (number(row, key) > pp_json_most(json_object_get(row, "peak_bytes")))
        pp_show_mib(row, key, buf, size);
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
    bool computed = strcmp(source, pp_cost_source_names[PP_COST_MACHINE]) == 0; /* false: only links are computed */
    snprintf(buf, size, "%s%s%s", source, !machine ? "" : computed ? " " : ", links of ", machine ? machine : "");
}

static const struct pp_row_column columns[] = {
    {"devices", "devices", pp_show_count, .if_mixed = true, .option = "workers"},
    {"tokens/s", "tokens_per_s", pp_show_count, .if_known = true},
    {"MFU %", "mfu", pp_show_percent, .if_known = true},
    {"days", "train_days", pp_show_figure, .if_known = true},
    {"cost", "train_cost", pp_show_figure, .if_known = true},
    {"cost/Gtoken", "cost_per_gtoken", pp_show_figure, .if_known = true},
    {"makespan ms", "makespan_ms", pp_show_figure},
    {"above bound %", "makespan_ms", cell_above},
    {"bubble %", "bubble", pp_show_percent},
    {"peak MiB", "peak_bytes", pp_show_mib},
    {"device MiB", "device_bytes", cell_device, .if_known = true},
    {"process MiB", "process_bytes", pp_show_mib, .if_known = true},
    {"peak microbatches", "peak_microbatches", cell_largest},
    {"fits", "fits", cell_fits},
    {"times from", "cost_source", cell_source, .left = true},
};

/* Time of collectives inside tasks, of the rank that spends most. */
static void print_sums(const json_t *row, FILE *out)
{
    const double sums = number(row, "tensor_ms"), ms = number(row, "ms_per_batch");
    static const struct {
        const char *degree, *what;
    } rows[] = {{"tensor", "sums over tensor ranks"},
                {"expert_parallel", "exchanges of workers that share experts"},
                {"context_parallel", "exchanges of workers that share tokens"}};
    const char *separator = "\n";
    for (size_t i = 0; i < sizeof rows / sizeof *rows && sums > 0; i++) {
        if (number(row, rows[i].degree) <= 1) continue;
        fprintf(out, "%s%s", separator, rows[i].what);
        separator = ", ";
    }
    if (sums > 0) fprintf(out, ": %.3f of %.3f ms/batch, on the rank with most\n", sums, ms);
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

/* Bubble and memory of each rank; of many ranks only the first ones. */
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
    if (shown < ranks)
        fprintf(out, " ...  %zu more rank%s; --format json has all\n", ranks - shown,
                pp_plural((int64_t)(ranks - shown)));
}

/* How --split has cut the model. */
static void print_layers(const json_t *row, FILE *out)
{
    const json_t *layers = json_object_get(row, "stage_layers");
    const size_t stages = json_array_size(layers);
    if (stages < 2 || stages > MOST_RANKS) return;
    fprintf(out, "\nlayers of stages: ");
    for (size_t s = 0; s < stages; s++)
        fprintf(out, "%s%d", s ? "," : "", (int)json_integer_value(json_array_get(layers, s)));
    fputc('\n', out);
}

pp_status pp_rows_print(const json_t *rows, const struct pp_config *config, FILE *out)
{
    if (config->format != PP_FORMAT_TABLE) return pp_rows_write(rows, config->format, out);
    pp_rows_table(rows, config, columns, sizeof columns / sizeof *columns, out);
    if (json_array_size(rows) != 1) return PP_OK;
    print_ranks(json_array_get(rows, 0), out);
    print_layers(json_array_get(rows, 0), out);
    print_sums(json_array_get(rows, 0), out);
    print_path(json_array_get(rows, 0), out);
    return PP_OK;
}
