/* SPDX-License-Identifier: Apache-2.0
 *
 * What --auto tries: of each option that says how devices are used, and was not given, the values between which people
 * who train large models choose, where they have a meaning for the model.
 */
#include <stdio.h>

#include "core/options/config.h"

/* Tokens from which on workers may share a row; from which on a ring is about as fast as gathering, or faster
 * (docs/TIMES.md, "A ring"). */
enum { LONG_ROW = 16384, RING_ROW = 32768 };

static bool has_experts(const struct pp_config *config) { return config->model.experts > 0; }
static bool has_long_rows(const struct pp_config *config) { return config->tokens >= LONG_ROW; }
static bool suits_ring(const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    return config->tokens >= RING_ROW && model->attention == PP_ATTENTION_FLASH && !model->window &&
           model->dropout == 0;
}
static bool suits_gathering(const struct pp_config *config)
{
    return has_long_rows(config) && config->model.attention == PP_ATTENTION_FLASH && !suits_ring(config);
}
/* Others have times of some rows only, and each way its own. */
static bool is_on_a_machine(const struct pp_config *config) { return pp_config_machine(config); }
static bool has_no_chunks(const struct pp_config *config) { return !pp_config_given(config, chunks); }
static bool has_no_schedule(const struct pp_config *config) { return !pp_config_given(config, schedule); }
static bool has_tensor_ranks(const struct pp_config *config) { return pp_ints_most(&config->tensor) > 1; }
static bool is_shared(const struct pp_config *config) { return !pp_ints_have(&config->zero, 0); }

/* In this order: what stands behind may depend on what stands before. */
static const struct {
    size_t option; /* PP_OPTION() */
    const char *value;
    bool (*suits)(const struct pp_config *config); /* NULL: it suits any */
    bool layers;                                   /* the model's number of layers follows */
} usual[] = {
    {PP_OPTION(virtual_stages), "1,2,4", has_no_schedule}, /* as these are for */
    {PP_OPTION(schedule), "1f1b,interleaved,zbv", NULL},
    {PP_OPTION(micro_batch_size), "1,2,4", has_no_chunks},
    {PP_OPTION(tensor), "1,2,4,8", NULL},
    {PP_OPTION(context_parallel), "1,2,4,8,16", has_long_rows},
    /* about as fast as a2a, and not bound to heads of keys */
    {PP_OPTION(model.context_kind), "all_gather", suits_gathering},
    {PP_OPTION(model.context_kind), "p2p", suits_ring},
    {PP_OPTION(expert_parallel), "1,2,4,8,16,32,64", has_experts},
    {PP_OPTION(split), "time", is_on_a_machine},
    {PP_OPTION(zero), "1,3", NULL},
    /* not "layers", which makes the decoder again, too */
    {PP_OPTION(checkpoint), "never,activation,layers:", NULL, true},
    {PP_OPTION(model.sequence), "true", has_tensor_ranks},
    {PP_OPTION(overlap_tensor_sums), "0", has_tensor_ranks},
    {PP_OPTION(overlap_expert_exchange), "2", has_experts},
    {PP_OPTION(overlap_grad_reduce), "true", NULL},
    {PP_OPTION(overlap_param_gather), "true", is_shared},
    {PP_OPTION(top), "10", NULL},
};

pp_status pp_config_apply_usual(struct pp_config *config)
{
    if (!config->usual) return PP_OK;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const struct pp_opt *row = pp_config_row_of(usual[i].option);
        if (pp_config_given_of(config, row->offset) || (usual[i].suits && !usual[i].suits(config))) continue;
        char layers[64]; /* a list of modes keeps no text, as others do */
        snprintf(layers, sizeof layers, "%s%d", usual[i].value, config->model.layers);
        PP_TRY(pp_options_set(row, usual[i].layers ? layers : usual[i].value, config));
        config->chosen[row - pp_config_rows] = true;
    }
    return PP_OK;
}
