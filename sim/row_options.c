/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/row_options.h"

#include <string.h>

enum { VALUE = 4400 }; /* a list of texts */

/* Options whose value is the row's, and where they need not be named. */
static const struct {
    const char *option, *key, *usual;
} dimensions[] = {
    {"machine", "for_machine", NULL},
    {"schedule", "schedule", NULL},
    {"stages", "stages", NULL},
    {"virtual", "virtual", "1"},
    {"replicas", "replicas", NULL},
    {"chunks", "chunks", NULL},
    {"tensor", "tensor", NULL},
    {"expert-parallel", "expert_parallel", "1"},
    {"context-parallel", "context_parallel", "1"},
    {"zero", "zero", "0"},
    {"shard-degree", "shard_degree", "0"},
    {"overlap-tensor-sums", "overlap_tensor_sums", "1"},
    {"overlap-expert-exchange", "overlap_expert_exchange", "0"},
    {"checkpoint", "checkpoint", "never"},
};
enum { DIMENSIONS = sizeof dimensions / sizeof *dimensions };

/* Options that are about several rows, or about what becomes of them. */
static const char *const others[] = {"workers", "global-rows",  "micro-batch-size", "auto", "top",
                                     "price",   "train-tokens", "format",           "db",   "rows"};

static void print(const char *option, const char *value, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:+-=%@";
    fprintf(out, " --%s", option);
    if (!value) return;
    if (*value && value[strspn(value, plain)] == '\0') {
        fprintf(out, " %s", value);
        return;
    }
    fputs(" '", out);
    for (; *value; value++) fputs(*value == '\'' ? "'\\''" : (const char[]){*value, '\0'}, out);
    fputc('\'', out);
}

static void print_dimension(int i, const json_t *row, FILE *out)
{
    const json_t *value = json_object_get(row, dimensions[i].key);
    char number[32];
    const char *text = json_string_value(value);
    snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (!text) text = number;
    if (!dimensions[i].usual || strcmp(text, dimensions[i].usual) != 0) print(dimensions[i].option, text, out);
}

/* Does the row have the option's value? One machine is no field of a row. */
static bool is_of_row(const char *option, const json_t *row)
{
    bool of_row = false;
    for (int i = 0; i < DIMENSIONS; i++)
        of_row |= strcmp(dimensions[i].option, option) == 0 && json_object_get(row, dimensions[i].key);
    return of_row;
}

static bool is_other(const char *option)
{
    bool other = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) other |= strcmp(others[i], option) == 0;
    return other;
}

/* Has it an effect in the row? Those that do not always have one are fields. */
static bool is_in_effect(const char *flag, const json_t *row)
{
    char key[64];
    snprintf(key, sizeof key, "%s", flag);
    for (char *c = key; *c; c++)
        if (*c == '-') *c = '_';
    return !json_is_false(json_object_get(row, key));
}

/* An option that is about the row as about the others. */
static void print_option(const struct pp_opt *option, const json_t *row, const struct pp_config *config, FILE *out)
{
    char value[VALUE];
    const bool flag = option->type == PP_OPT_FLAG;
    pp_options_text(option, config, value, sizeof value);
    if (!flag)
        print(option->name, value, out);
    else if (strcmp(value, "true") == 0 && is_in_effect(option->name, row))
        print(option->name, NULL, out);
}

void pp_row_options(const json_t *row, const struct pp_config *config, FILE *out)
{
    char rows[32];
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *option = &pp_config_rows[i];
        if ((config->set[i] || config->chosen[i]) && !is_other(option->name) && !is_of_row(option->name, row))
            print_option(option, row, config, out);
    }
    for (int i = 0; i < DIMENSIONS; i++)
        if (json_object_get(row, dimensions[i].key)) print_dimension(i, row, out);
    snprintf(rows, sizeof rows, "%" JSON_INTEGER_FORMAT,
             config->global_rows / json_integer_value(json_object_get(row, "replicas")));
    print("rows", rows, out);
}
