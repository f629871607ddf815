/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/options/devices.h"

const struct pp_opt *pp_config_row(const char *option)
{
    for (int i = 0; i < pp_config_nrows; i++)
        if (strcmp(pp_config_rows[i].name, option) == 0) return &pp_config_rows[i];
    return NULL;
}

const struct pp_opt *pp_config_row_of(size_t field)
{
    for (int i = 0; i < pp_config_nrows; i++)
        if (pp_config_rows[i].offset == field) return &pp_config_rows[i];
    abort(); /* a field, but of no option */
}

bool pp_config_reads_text(const struct pp_config *config)
{
    return config->data && strcmp(config->data, "constant") != 0;
}

bool pp_config_given_of(const struct pp_config *config, size_t field)
{
    return config->set[pp_config_row_of(field) - pp_config_rows];
}

/* Numbers of --rope-scaling that were not given are those of its kind. */
static void set_rope_scaling(struct pp_config *config)
{
    struct pp_rope_scaling *scaling = &config->model.rope_scaling;
    const struct pp_rope_kind_info *kind = &pp_rope_kinds[scaling->kind];
    if (!pp_config_given(config, model.rope_scaling.low)) scaling->low = kind->low;
    if (!pp_config_given(config, model.rope_scaling.high)) scaling->high = kind->high;
}

pp_status pp_config_parse(unsigned tool, int argc, char **argv, struct pp_config *out, const char **operand)
{
    const struct pp_options_call call = {pp_config_rows, pp_config_nrows, tool, out, out->set, operand};
    *out = (struct pp_config){.warmup = -1, .recv_buffers = -1};
    PP_TRY(pp_options_parse(&call, argc, argv));
    PP_TRY(pp_config_apply_preset(out));
    PP_TRY(pp_config_apply_usual(out));
    if (out->data && strcmp(out->data, "generated") == 0) out->data = NULL;
    if (out->help || out->version || out->list) return PP_OK;
    if (out->resume_changed) out->resume = true;
    pp_config_cut_rows(out);
    if (pp_config_gives_times(out) && !pp_config_given(out, tensor)) out->tensor = (struct pp_ints){1, {1}};
    if (out->expert_parallel.n == 1) pp_config_set_expert_parallel(out, out->expert_parallel.v[0]);
    set_rope_scaling(out);
    PP_TRY(pp_config_check_additions(out));
    PP_TRY(pp_config_make_canonical(out));
    return pp_config_check(out, tool);
}

int pp_config_chunks(const struct pp_config *config, int chunks, int rows)
{
    const bool of_preset = config->workers.n > 0 && !pp_config_given(config, chunks);
    return of_preset && chunks > rows ? rows : chunks;
}

void pp_config_cut_rows(struct pp_config *config)
{
    struct pp_ints *chunks = &config->chunks;
    if (config->micro_batch_size.n == 0) {
        for (int i = 0; i < chunks->n; i++) chunks->v[i] = pp_config_chunks(config, chunks->v[i], config->rows);
        return;
    }
    chunks->n = 0;
    for (int i = 0; i < config->micro_batch_size.n; i++) {
        const int size = config->micro_batch_size.v[i], n = (config->rows + size - 1) / size;
        int same = 0;
        while (same < chunks->n && chunks->v[same] != n) same++;
        if (same == chunks->n) chunks->v[chunks->n++] = n;
    }
}

bool pp_config_answer(const struct pp_config *config, const struct pp_program_info *program, FILE *out)
{
    if (config->help)
        pp_options_help(pp_config_rows, pp_config_nrows, program, out);
    else if (config->version)
        fprintf(out, "%s (ppkit) %s\n", program->name, PP_VERSION);
    return config->help || config->version;
}

static int vocab_multiple(const struct pp_config *config, const char *device)
{
    return config->model.vocab_multiple ? config->model.vocab_multiple : pp_device_kind(device)->vocab_multiple;
}

void pp_config_found_device(struct pp_config *config, const char *device)
{
    const int found = vocab_multiple(config, device);
    if (found > 1) config->model.vocab_multiple = found;
}

int pp_config_context(const struct pp_config *config)
{
    return config->context_parallel.n > 0 ? config->context_parallel.v[0] : 1;
}

int pp_config_expert_parallel(const struct pp_config *config)
{
    return config->expert_parallel.n > 0 ? config->expert_parallel.v[0] : 1;
}

const char *pp_config_machine(const struct pp_config *config)
{
    return config->machine.n > 0 ? config->machine.v[0] : NULL;
}

double pp_config_price(const struct pp_config *config) { return config->price.n > 0 ? config->price.v[0] : 0; }

void pp_config_set_expert_parallel(struct pp_config *config, int n)
{
    config->expert_parallel = (struct pp_ints){1, {n}};
    if (n > 1 && !pp_config_given(config, tensor)) config->tensor = (struct pp_ints){1, {1}};
}

int pp_config_copies(const struct pp_config *config)
{
    const int n = pp_config_expert_parallel(config);
    return (config->replicas > n ? config->replicas / n : 1) * pp_config_context(config);
}

int pp_config_holders(const struct pp_config *config)
{
    return pp_config_copies(config) * pp_config_expert_parallel(config);
}

int pp_config_shard_group(const struct pp_config *config, int degree)
{
    const int copies = pp_config_copies(config);
    const int64_t group = (int64_t)copies * degree / config->replicas;
    if (degree == 0 || degree >= config->replicas) return copies;
    return group > 1 ? (int)group : 1;
}

bool pp_config_sums_parts(const struct pp_config *config)
{
    return config->overlap_grad_reduce && pp_config_holders(config) > 1 && !config->times;
}

bool pp_config_sums_bf16(const struct pp_config *config)
{
    return config->grad_reduce_in_bf16 && pp_config_holders(config) > 1 && !config->times;
}

void pp_config_share(const struct pp_config *config, int zero, int degree, struct pp_shape *shape)
{
    const int group = pp_config_shard_group(config, degree) * pp_config_expert_parallel(config);
    pp_shape_share(shape, zero, pp_config_holders(config), group);
}

int pp_config_max_positions(const struct pp_config *config)
{
    return config->model.max_positions ? config->model.max_positions : config->tokens;
}

void pp_config_shape(const struct pp_config *config, struct pp_shape *out)
{
    const bool lab = config->style == PP_STYLE_LAB;
    *out = config->model;
    if (!out->experts) pp_shape_drop_experts(out);
    if (out->positions != PP_POSITIONS_ROPE) out->rotary_dim = 0;
    out->max_positions = out->positions == PP_POSITIONS_LEARNED ? pp_config_max_positions(config) : 0;
    out->scale_embedding = !lab && out->positions == PP_POSITIONS_SINUSOIDAL;
    out->residual_only = out->lab_init = lab;
    out->vocab_multiple = vocab_multiple(config, config->device);
    out->expert_parallel = pp_config_expert_parallel(config);
    out->context = pp_config_context(config);
    out->sum_pieces = config->overlap_tensor_sums.v[0];
    out->exchange_pieces = config->overlap_expert_exchange.v[0];
    out->bf16_sums = pp_config_sums_bf16(config);
    pp_config_share(config, config->zero.v[0], config->shard_degree.v[0], out);
}

pp_status pp_config_shrink_model(struct pp_config *config)
{
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        char least[PP_REAL_BYTES];
        if (row->traits & PP_OPT_TENSORS)
            PP_TRY(pp_options_set(row, row->def ? row->def : pp_real_text(row->min, least), config));
    }
    return PP_OK;
}

int pp_config_recv_buffers(const struct pp_config *config, int microbatches, int standard)
{
    if (config->recv_buffers < 0) return standard;
    return config->recv_buffers == 0 ? microbatches : config->recv_buffers;
}
