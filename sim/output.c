/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/output.h"

#include <math.h>
#include <string.h>

#include "core/base/memory_text.h"
#include "core/base/text.h"
#include "core/base/wrap.h"
#include "core/job/rows.h"
#include "core/options/config.h"
#include "core/plan/cost.h"

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

/* A stage's microbatch counts 1/V. */
static double microbatches(double n) { return round(n * 100) / 100; }

static void cell_largest(const json_t *row, const char *key, char *buf, size_t size)
{
    snprintf(buf, size, "%g", microbatches(pp_json_most(json_object_get(row, key))));
}

/* Memory of a device, if several workers share it, so that it is more than the largest arena. */
static double device_bytes(const json_t *row, const char *key)
{
    const double bytes = number(row, key);
    return bytes > pp_json_most(json_object_get(row, "peak_bytes")) ? bytes : (double)NAN;
}

/* The price of 10^9 tokens, where that of the whole training does not say the same. */
static void cell_price(const json_t *row, const char *key, char *buf, size_t size)
{
    if (json_is_number(json_object_get(row, "train_cost")))
        snprintf(buf, size, "-");
    else
        pp_show_short(row, key, buf, size);
}

static void cell_fits(const json_t *row, const char *key, char *buf, size_t size)
{
    const json_t *value = json_object_get(row, key);
    snprintf(buf, size, "%s", json_is_null(value) ? "-" : json_is_true(value) ? "yes" : "no");
}

/* The name of the machine, unless the row is of a sweep over machines and the column `machine` has it. */
static void cell_source(const json_t *row, const char *key, char *buf, size_t size)
{
    const char *source = json_string_value(json_object_get(row, key)),
               *swept = json_string_value(json_object_get(row, "for_machine")),
               *machine = json_string_value(json_object_get(row, "machine"));
    const bool computed = strcmp(source, pp_cost_source_names[PP_COST_MACHINE]) == 0, /* false: only links are */
        given = strcmp(source, pp_cost_source_names[PP_COST_TIMES]) == 0;
    if (computed && swept && machine && strcmp(swept, machine) == 0) machine = NULL;
    const char *before = !machine ? "" : computed ? " " : ", links of ";
    snprintf(buf, size, "%s%s%s%s", given ? "--" : "", source, before, machine ? machine : "");
}

static const struct pp_row_column columns[] = {
    {{"devices", .aside = true}, "devices", pp_show_count},
    {{"tokens/s", .spare = 2}, "tokens_per_s", pp_show_count},
    {{"MFU", "%"}, "mfu", pp_show_percent},
    {{"days"}, "train_days", pp_show_short},
    {{"cost"}, "train_cost", pp_show_short},
    {{"cost per Gtoken"}, "cost_per_gtoken", cell_price},
    {{"makespan", "ms", .twin = "ms/batch", .spare = 5}, "makespan_ms", pp_show_figure},
    {{"above bound", "%", .spare = 4}, "makespan_ms", cell_above},
    {{"bubble", "%", .spare = 1}, "bubble", pp_show_percent},
    {{"peak"}, "peak_bytes", .bytes = pp_row_most},
    {{"device"}, "device_bytes", .bytes = device_bytes},
    {{"process"}, "process_bytes", .bytes = pp_row_most},
    {{"peak M", .spare = 3}, "peak_microbatches", cell_largest},
    {{"fits", .aside = true}, "fits", cell_fits},
    {{"times from", .left = true, .aside = true}, "cost_source", cell_source},
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

/* Of the critical path: less than that behind it is no news. */
#define NOTABLE 0.01

/* The path of one step's computations. What ends a step behind them is not part of it: with ZeRO 1 and 2 parameters are
 * gathered there. It may begin before the makespan, with what is gathered first, or after it, if its first task waited
 * for the step before. */
static void print_path(const json_t *row, const struct pp_config *config, FILE *out)
{
    char buf[1024];
    struct pp_text text = pp_text_in(buf, sizeof buf);
    const char *kind, *separator = "";
    double total = 0;
    json_t *value, *path = json_object_get(row, "critical_path_ms");
    json_object_foreach(path, kind, value) total += json_number_value(value);
    if (total <= 0) return;
    pp_text_add(&text, "critical path:");
    json_object_foreach(path, kind, value)
    {
        pp_text_add(&text, "%s %s %.1f %%", separator, kind, 100 * json_number_value(value) / total);
        separator = ",";
    }
    pp_text_add(&text, " of %.3f ms", total);
    const double between = number(row, "ms_per_batch") - fmax(total, number(row, "makespan_ms"));
    if (between > NOTABLE * total && config->jitter <= 0) /* with jitter a batch is a mean of steps, the path of one */
        pp_text_add(&text, "; then %.3f ms in which nothing is computed, until the next step begins", between);
    fputc('\n', out);
    pp_wrap(out, buf, 0, 2);
}

/* The table of ranks: its first columns, then one for each kind of memory, then all of it. */
enum { RANK, RANK_BUBBLE, RANK_PEAK, RANK_MEMORY };
struct ranks {
    const json_t *row;
    const json_t *memory[PP_TEXT_COLUMNS]; /* arrays over ranks, of the columns from RANK_MEMORY on */
    const struct pp_memory_unit *unit;     /* of all these */
};

static double of_rank(const json_t *array, int64_t rank)
{
    return json_number_value(json_array_get(array, (size_t)rank));
}

static const char *rank_cell(const void *of, int64_t rank, int column, char buf[PP_CELL_BYTES])
{
    const struct ranks *r = of;
    if (column == RANK)
        snprintf(buf, PP_CELL_BYTES, "%d", (int)rank);
    else if (column == RANK_BUBBLE)
        snprintf(buf, PP_CELL_BYTES, "%.2f", 100 * of_rank(json_object_get(r->row, "rank_bubble"), rank));
    else if (column == RANK_PEAK)
        snprintf(buf, PP_CELL_BYTES, "%g", microbatches(of_rank(json_object_get(r->row, "peak_microbatches"), rank)));
    else if (of_rank(r->memory[column], rank) > 0)
        snprintf(buf, PP_CELL_BYTES, "%.*f", r->unit->decimals, of_rank(r->memory[column], rank) / r->unit->bytes);
    else
        return "-";
    return buf;
}

/* Bubble and memory of each rank; of many ranks only the first ones. */
static void print_ranks(const json_t *row, FILE *out)
{
    struct pp_text_column texts[PP_TEXT_COLUMNS] = {
        {"rank", .stays = true}, {"bubble", "%", .stays = true}, {"peak M", .stays = true}};
    const char *kind;
    char group[32];
    json_t *array, *kinds = json_object_get(row, "memory_bytes"), *peak = json_object_get(row, "peak_bytes");
    struct ranks ranks = {row, .unit = pp_memory_unit(pp_json_most(peak))};
    int n = RANK_MEMORY;
    snprintf(group, sizeof group, "memory %s", ranks.unit->name);
    json_object_foreach(kinds, kind, array)
    {
        ranks.memory[n] = array;
        texts[n++] = (struct pp_text_column){kind, .group = group, .stays = true};
    }
    ranks.memory[n] = peak;
    if (json_is_object(kinds)) texts[n++] = (struct pp_text_column){"all", .group = group, .stays = true};
    const int64_t all = (int64_t)json_array_size(json_object_get(row, "rank_bubble")),
                  shown = all < MOST_RANKS ? all : MOST_RANKS;
    fputc('\n', out);
    pp_text_table_print(&(struct pp_text_table){texts, n, shown, .cell = rank_cell, .of = &ranks}, out);
    if (shown < all)
        fprintf(out, " ...  %d more rank%s; --format json has all\n", (int)(all - shown), pp_plural(all - shown));
}

/* How --split has cut the model, or the blocks of --times. */
static void print_layers(const json_t *row, FILE *out)
{
    const json_t *layers = json_object_get(row, "stage_layers");
    const size_t stages = json_array_size(layers);
    if (stages < 2 || stages > MOST_RANKS) return;
    fprintf(out, "\n%s of stages: ", json_is_null(json_object_get(row, "parameters")) ? "blocks" : "layers");
    for (size_t s = 0; s < stages; s++)
        fprintf(out, "%s%d", s ? "," : "", (int)json_integer_value(json_array_get(layers, s)));
    fputc('\n', out);
}

static void print_table(const json_t *rows, const struct pp_config *config, FILE *out)
{
    const json_t *first = json_array_get(rows, 0);
    pp_rows_table(rows, config, columns, sizeof columns / sizeof *columns, out);
    if (json_array_size(rows) != 1) return;
    print_ranks(first, out);
    print_layers(first, out);
    print_sums(first, out);
    print_path(first, config, out);
}

pp_status pp_rows_print(const struct pp_row *rows, int64_t n, const struct pp_config *config, FILE *out)
{
    json_t *array = json_array();
    pp_status status = PP_OK;
    for (int64_t i = 0; i < n; i++) array = pp_json_append(array, json_incref(rows[i].json));
    if (!array)
        status = pp_fail(PP_NOMEM, "cannot allocate room for the results");
    else if (config->format == PP_FORMAT_TABLE)
        print_table(array, config, out);
    else
        status = pp_rows_write(array, config->format, out);
    json_decref(array);
    return status;
}
