/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/row_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/printable.h"
#include "sim/predict.h"

/* Options of which a row has its own value. All are named, for a preset or a schedule may have another one. */
static const struct {
    const char *option, *key;
    enum { OF_ALL, OF_MODEL, OF_EXPERTS } of; /* refused without */
} dimensions[] = {
    {"stages", "stages", OF_ALL},
    {"virtual", "virtual", OF_ALL},
    {"replicas", "replicas", OF_ALL},
    {"chunks", "chunks", OF_ALL},
    {"tensor", "tensor", OF_ALL},
    {"expert-parallel", "expert_parallel", OF_EXPERTS},
    {"context-parallel", "context_parallel", OF_MODEL},
    {"zero", "zero", OF_MODEL},
    {"shard-degree", "shard_degree", OF_MODEL},
    {"overlap-tensor-sums", "overlap_tensor_sums", OF_MODEL},
    {"overlap-expert-exchange", "overlap_expert_exchange", OF_EXPERTS},
    {"checkpoint", "checkpoint", OF_ALL},
};
enum { DIMENSIONS = sizeof dimensions / sizeof *dimensions };

/* Options that are about several rows, or about what becomes of them; and what is printed by itself. */
static const char *const others[] = {"workers", "global-rows", "micro-batch-size", "auto", "top",
                                     "format",  "schedule",    "machine",          "rows"};

/* Options that only have a meaning in rows where this is true, or more than 1. */
static const struct {
    const char *option, *key;
} conditions[] = {
    {"sequence-parallel", "sequence_parallel"},     {"overlap-grad-reduce", "overlap_grad_reduce"},
    {"bucket-size", "overlap_grad_reduce"},         {"overlap-param-gather", "overlap_param_gather"},
    {"grad-reduce-in-bf16", "grad_reduce_in_bf16"}, {"cp-comm-type", "context_parallel"},
};

static bool is_printable(const char *value)
{
    char *copy = strdup(value);
    const bool same = copy && strcmp(pp_printable(copy), value) == 0;
    free(copy);
    return same;
}

/* In quotes; what is no printable text as $'...', with its bytes as numbers. */
static void print_quoted(const char *value, FILE *out)
{
    const bool text = is_printable(value);
    fputs(text ? " '" : " $'", out);
    for (const char *c = value; *c; c++) {
        const bool safe = *c >= ' ' && *c <= '~' && *c != '\'' && *c != '\\';
        if (text && *c == '\'')
            fputs("'\\''", out);
        else if (text || safe)
            fputc(*c, out);
        else
            fprintf(out, "\\%03o", (unsigned)(unsigned char)*c);
    }
    fputc('\'', out);
}

static void print(const char *option, const char *value, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:+-=%@";
    fprintf(out, "%s--%s", ftell(out) > 0 ? " " : "", option);
    if (value && *value && value[strspn(value, plain)] == '\0')
        fprintf(out, " %s", value);
    else if (value)
        print_quoted(value, out);
}

static void print_dimension(int i, const json_t *row, FILE *out)
{
    const json_t *value = json_object_get(row, dimensions[i].key);
    char number[32];
    snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    print(dimensions[i].option, json_is_string(value) ? json_string_value(value) : number, out);
}

static bool is_printed(const char *option)
{
    bool printed = false;
    for (int i = 0; i < DIMENSIONS; i++) printed |= strcmp(dimensions[i].option, option) == 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) printed |= strcmp(others[i], option) == 0;
    return printed;
}

static bool has_meaning(const char *option, const json_t *row)
{
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        const json_t *value = json_object_get(row, conditions[i].key);
        if (strcmp(conditions[i].option, option) == 0) return json_is_true(value) || json_integer_value(value) > 1;
    }
    return true;
}

/* An option of which all rows have the same value. */
static void print_option(const struct pp_opt *option, const struct pp_config *config, FILE *out)
{
    char text[PP_OPTION_TEXT];
    const char *value = pp_options_text(option, config, text);
    if (option->type == PP_OPT_FLAG)
        print(option->name, NULL, out);
    else if (strcmp(option->name, "data") == 0 && !config->data)
        print(option->name, "generated", out);
    else
        print(option->name, value, out);
}

static void print_all(const json_t *row, const struct pp_config *config, const char *schedule, FILE *out)
{
    const bool model = !pp_predict_only_times(config);
    const char *machine = pp_config_machine(config);
    char rows[32];
    for (int i = 0; i < pp_config_nrows; i++) {
        const char *name = pp_config_rows[i].name;
        if ((config->set[i] || config->chosen[i]) && !is_printed(name) && has_meaning(name, row))
            print_option(&pp_config_rows[i], config, out);
    }
    if (machine) print("machine", machine, out);
    print("schedule", schedule, out);
    for (int i = 0; i < DIMENSIONS; i++)
        if (dimensions[i].of == OF_ALL || (model && (config->model.experts || dimensions[i].of == OF_MODEL)))
            print_dimension(i, row, out);
    snprintf(rows, sizeof rows, "%d", config->rows);
    if (model) print("rows", rows, out);
}

json_t *pp_row_options(const json_t *row, const struct pp_config *config, const char *schedule)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) return NULL;
    print_all(row, config, schedule, out);
    json_t *made = fclose(out) == 0 ? json_string(text) : NULL;
    free(text);
    return made;
}
