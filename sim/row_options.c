/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/row_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/printable.h"
#include "sim/predict.h"

/* Options of which a row has its own value. All are named, for a preset or a schedule may have another one. */
static const struct {
    size_t option; /* PP_OPTION() */
    const char *key;
    enum { OF_ALL, OF_MODEL, OF_EXPERTS } of; /* refused without */
} dimensions[] = {
    {PP_OPTION(stages), "stages", OF_ALL},
    {PP_OPTION(virtual_stages), "virtual", OF_ALL},
    {PP_OPTION(replicas), "replicas", OF_ALL},
    {PP_OPTION(chunks), "chunks", OF_ALL},
    {PP_OPTION(tensor), "tensor", OF_ALL},
    {PP_OPTION(expert_parallel), "expert_parallel", OF_EXPERTS},
    {PP_OPTION(context_parallel), "context_parallel", OF_MODEL},
    {PP_OPTION(zero), "zero", OF_MODEL},
    {PP_OPTION(shard_degree), "shard_degree", OF_MODEL},
    {PP_OPTION(overlap_tensor_sums), "overlap_tensor_sums", OF_MODEL},
    {PP_OPTION(overlap_expert_exchange), "overlap_expert_exchange", OF_EXPERTS},
    {PP_OPTION(checkpoint), "checkpoint", OF_ALL},
};
enum { DIMENSIONS = sizeof dimensions / sizeof *dimensions };

/* Options that are about several rows, or about what becomes of them; and what is printed by itself. */
static const size_t others[] = {PP_OPTION(workers),  PP_OPTION(global_rows), PP_OPTION(micro_batch_size),
                                PP_OPTION(usual),    PP_OPTION(top),         PP_OPTION(format),
                                PP_OPTION(schedule), PP_OPTION(machine),     PP_OPTION(rows)};

/* Options that only have a meaning in rows where this is true, or more than 1. */
static const struct {
    size_t option; /* PP_OPTION() */
    const char *key;
} conditions[] = {
    {PP_OPTION(model.sequence), "sequence_parallel"},        {PP_OPTION(overlap_grad_reduce), "overlap_grad_reduce"},
    {PP_OPTION(bucket_size), "overlap_grad_reduce"},         {PP_OPTION(overlap_param_gather), "overlap_param_gather"},
    {PP_OPTION(grad_reduce_in_bf16), "grad_reduce_in_bf16"}, {PP_OPTION(model.context_kind), "context_parallel"},
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
    print(pp_config_row_of(dimensions[i].option)->name, json_is_string(value) ? json_string_value(value) : number, out);
}

static bool is_printed(const struct pp_opt *option)
{
    bool printed = false;
    for (int i = 0; i < DIMENSIONS; i++) printed |= dimensions[i].option == option->offset;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) printed |= others[i] == option->offset;
    return printed;
}

static bool has_meaning(const struct pp_opt *option, const json_t *row)
{
    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        const json_t *value = json_object_get(row, conditions[i].key);
        if (conditions[i].option == option->offset) return json_is_true(value) || json_integer_value(value) > 1;
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
    else if (option->offset == PP_OPTION(data) && !config->data)
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
        const struct pp_opt *option = &pp_config_rows[i];
        if ((config->set[i] || config->chosen[i]) && !is_printed(option) && has_meaning(option, row))
            print_option(option, config, out);
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
