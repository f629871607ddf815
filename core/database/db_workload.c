/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run computes, as text. The same numbers have the same spelling, however they were given.
 */
#include <inttypes.h>
#include <string.h>

#include "core/base/text.h"
#include "core/database/db_query.h"
#include "core/options/devices.h"
#include "core/plan/plan_hash.h"
#include "core/shape/pieces.h"

static void add_real(struct pp_text *t, const char *before, double value)
{
    char number[PP_REAL_BYTES];
    pp_text_add(t, "%s%s", before, pp_real_text(value, number));
}

/* The first of these words of --split that cuts the model as it is cut; else NULL. */
static pp_status find_word(const struct pp_job *job, const char **word)
{
    static const char *const words[] = {"uniform", "parameters"};
    *word = NULL;
    for (size_t i = 0; i < sizeof words / sizeof *words && !*word; i++) {
        struct pp_model *model;
        const bool own = job->model->nstages == job->train->ranks;
        const struct pp_cut cut = {
            .stages = job->model->nstages, .split = words[i], .stage_rank = own ? NULL : job->train->stage_rank};
        const pp_status status = job->model_ops->create(&job->model->shape, &cut, &model);
        if (status == PP_USAGE) continue; /* some stage has no layers, which this word gives each */
        PP_TRY(status);
        if (pp_same_cut(job->model, model)) *word = words[i];
        job->model_ops->destroy(model);
    }
    return PP_OK;
}

/* Layers of each stage; of too many stages a hash of them. */
static void add_cut(struct pp_text *t, const struct pp_model *model)
{
    enum { MOST = 40 };
    uint64_t hash = 0;
    for (int s = 0; s < model->nstages; s++) {
        hash = pp_plan_hash_word(hash, (uint64_t)model->stages[s].layers);
        if (model->nstages <= MOST) pp_text_add(t, s ? ",%d" : " %d", model->stages[s].layers);
    }
    if (model->nstages > MOST) pp_text_add(t, " cut %016" PRIx64, hash);
}

/* --split as it was given; a list that is too long for people by a hash. */
static void add_word(struct pp_text *t, const char *word)
{
    enum { MOST = 160 };
    uint64_t hash = 0;
    if (strlen(word) <= MOST) {
        pp_text_add(t, " %s", word);
        return;
    }
    for (const char *c = word; *c; c++) hash = pp_plan_hash_word(hash, (uint64_t)*c);
    pp_text_add(t, " split %016" PRIx64, hash);
}

/* The plan does not tell all cuts apart, and one cut has several names, of which `time` may be another tomorrow. */
static pp_status add_split(struct pp_text *t, const struct pp_config *config, const struct pp_job *job)
{
    const char *word = config->split ? config->split : "uniform";
    if (job && job->model && strcmp(word, "uniform") != 0) PP_TRY(find_word(job, &word));
    if (word)
        add_word(t, word);
    else
        add_cut(t, job->model);
    return PP_OK;
}

/* As programs name them (kernels/signature.c). */
static void add_heads(struct pp_text *t, const struct pp_config *config)
{
    pp_text_add(t, " h%d", config->heads);
    if (config->kv_lora_rank)
        pp_text_add(t, "x%d+%d/%d latent%d/%d", config->qk_nope_head_dim, config->qk_rope_head_dim, config->v_head_dim,
                    config->q_lora_rank, config->kv_lora_rank);
    if (config->head_dim) pp_text_add(t, "x%d", config->head_dim);
    if (config->kv_heads) pp_text_add(t, " kv%d", config->kv_heads);
}

/* As programs name them (kernels/signature.c). */
static void add_experts(struct pp_text *t, const struct pp_config *config)
{
    if (!config->experts) return;
    pp_text_add(t, " x%dk%d%s%s", config->experts, config->experts_per_token, config->gates_of_all ? "a" : "",
                config->sigmoid_scores ? "l" : "");
    add_real(t, "c", config->capacity_factor);
    if (config->shared_ff) pp_text_add(t, "s%d%s", config->shared_ff, config->shared_gate ? "g" : "");
    if (config->gate_scale != 1) add_real(t, "*", config->gate_scale);
    if (config->expert_groups > 1)
        pp_text_add(t, "g%d/%d%s", config->groups_per_token, config->expert_groups, config->group_by_best ? "m" : "");
    if (config->expert_bias) add_real(t, "b", config->expert_bias_rate);
    if (pp_config_expert_parallel(config) > 1) pp_text_add(t, "/%d", pp_config_expert_parallel(config));
    if (config->dense_layers == 0 && config->experts_every <= 1) return;
    pp_text_add(t, " dense%d", config->dense_layers);
    if (config->experts_every > 1) pp_text_add(t, "/%d", config->experts_every);
    if (config->dense_ff) pp_text_add(t, "f%d", config->dense_ff);
}

/* What replicas share, and what runs beside their computations: with --zero 2 sums always do, and with 3 all. */
static void add_replicas(struct pp_text *t, const struct pp_config *config, const struct pp_shape *shape)
{
    const int zero = shape ? pp_shape_zero(shape) : pp_config_holders(config) > 1 ? config->zero.v[0] : 0;
    if (zero) pp_text_add(t, "zero %d", zero);
    if (zero && shape && pp_shape_shard_groups(shape) > 1) pp_text_add(t, "/%d", shape->replicas);
    if (zero) pp_text_add(t, " ");
    if (pp_config_sums_bf16(config)) pp_text_add(t, "bf16 sums ");
    const bool gathers = config->overlap_param_gather;
    if (zero == 3 || (zero == 2 ? !gathers : !pp_config_sums_parts(config))) return;
    pp_text_add(t, "overlap%s ", gathers ? " gather" : "");
    if (config->bucket_size != PP_BUCKET_BYTES) pp_text_add(t, "%" PRId64 " B ", config->bucket_size);
}

/* How the work is shared out, beyond the plan. */
static void add_sharing(struct pp_text *t, const struct pp_config *config, const struct pp_job *job)
{
    const struct pp_shape *shape = job && job->model ? &job->model->shape : NULL;
    const bool parts = shape ? pp_shape_parts_tokens(shape) : config->sequence_parallel;
    const int pieces = shape ? pp_shape_sum_pieces(shape) : config->overlap_tensor_sums.v[0];
    const int exchanges = shape                                   ? pp_shape_exchange_pieces(shape)
                          : pp_config_expert_parallel(config) > 1 ? config->overlap_expert_exchange.v[0]
                                                                  : 0;
    add_replicas(t, config, shape);
    if (parts) pp_text_add(t, "sequence-parallel ");
    if (pieces > 1) pp_text_add(t, "sums/%d ", pieces);
    if (exchanges > 0) pp_text_add(t, "exchanges/%d ", exchanges);
    if (pp_config_context(config) == 1) return;
    pp_text_add(t, "context/%d ", pp_config_context(config));
    if (config->cp_comm_type == PP_CONTEXT_ALL_GATHER) pp_text_add(t, "all_gather ");
}

static void add_rope(struct pp_text *t, const struct pp_config *config)
{
    const struct pp_rope_scaling *scaling = &config->rope_scaling;
    add_real(t, " rope", config->rope_theta);
    if (config->rotary_dim) pp_text_add(t, "of%d", config->rotary_dim);
    if (!pp_rope_scales(scaling)) return;
    pp_text_add(t, "/%s", scaling->kind == PP_ROPE_LLAMA3 ? "" : pp_rope_kinds[scaling->kind].name);
    add_real(t, "", scaling->factor);
    if (scaling->magnitude > 0) add_real(t, "*", scaling->magnitude);
    if (!pp_rope_kinds[scaling->kind].high) return;
    add_real(t, ":", scaling->low);
    add_real(t, ":", scaling->high);
    pp_text_add(t, ":%d%s", scaling->tokens, pp_rope_kinds[scaling->kind].truncates && !scaling->truncate ? "-" : "");
}

static void add_window(struct pp_text *t, const struct pp_config *config)
{
    if (config->window_size) pp_text_add(t, " window%d", config->window_size);
    if (config->window_attn_skip_freq) pp_text_add(t, "/%d", config->window_attn_skip_freq);
}

/* What layers are beside the tutorials'. */
static void add_layer_words(struct pp_text *t, const struct pp_config *config)
{
    add_window(t, config);
    if (config->attention == PP_ATTENTION_FLASH) pp_text_add(t, " flash");
    if (config->norm == PP_NORM_FIRST) pp_text_add(t, " pre");
    if (config->normalization == PP_RMSNORM) pp_text_add(t, " rmsnorm");
    if (config->norm_epsilon != PP_NORM_EPSILON) add_real(t, " eps", config->norm_epsilon);
    if (config->qk_norm) pp_text_add(t, " qknorm");
    if (config->score_factor != 1) add_real(t, " scores*", config->score_factor);
    if (config->activation != PP_RELU) pp_text_add(t, " %s", pp_activation_names[config->activation]);
    pp_text_add(t, "%s", pp_bias_words[config->bias]);
    if (config->tie_embeddings) pp_text_add(t, " tied");
    if (config->positions == PP_POSITIONS_ROPE) add_rope(t, config);
    if (config->positions == PP_POSITIONS_LEARNED) pp_text_add(t, " learned%d", pp_config_max_positions(config));
}

static pp_status add_model_and_data(struct pp_text *t, const struct pp_config *config, const struct pp_job *job)
{
    if (config->precision != PP_FP32) pp_text_add(t, "%s ", pp_precision_names[config->precision]);
    add_sharing(t, config, job);
    if (config->optimizer != PP_SGD) pp_text_add(t, "%s ", pp_optimizers[config->optimizer].name);
    pp_text_add(t, "%s%dl d%d", config->style ? "lab " : "", config->layers, config->d_model);
    add_heads(t, config);
    pp_text_add(t, " f%d", config->d_ff);
    add_experts(t, config);
    pp_text_add(t, " v%d", config->vocab);
    if (config->vocab_multiple && config->vocab_multiple != pp_device_kind(config->device)->vocab_multiple)
        pp_text_add(t, "/%d", config->vocab_multiple);
    pp_text_add(t, " %s", config->mask == PP_MASK_CAUSAL ? "causal" : "none");
    add_layer_words(t, config);
    add_real(t, " p", config->dropout);
    pp_text_add(t, " %dx%d", config->rows, config->tokens);
    PP_TRY(add_split(t, config, job));
    if (job && job->sharers > 1) pp_text_add(t, " share 1/%d", job->sharers);
    if (job && config->host_order) pp_text_add(t, " hosts of replicas");
    return PP_OK;
}

static void add_times(struct pp_text *t, const struct pp_given_times *times)
{
    if (times->blocks) {
        pp_text_add(t, "%d blocks %016" PRIx64, times->blocks->n, times->blocks->hash);
    } else {
        add_real(t, "", times->forward_ms);
        add_real(t, ",", times->input_ms);
        add_real(t, ",", times->weight_ms);
    }
    if (times->hop_ms > 0) add_real(t, ",", times->hop_ms);
    pp_text_add(t, " ms");
}

pp_status pp_db_workload(const struct pp_config *config, const struct pp_job *job, char buf[PP_WORKLOAD_BYTES])
{
    struct pp_given_times times;
    struct pp_text t = pp_text_in(buf, PP_WORKLOAD_BYTES);
    PP_TRY(pp_given_times_of(config, &times));
    if (config->times)
        add_times(&t, &times);
    else
        PP_TRY(add_model_and_data(&t, config, job));
    if (times.slow_factor > 0) {
        pp_text_add(&t, ", rank %d", times.slow_rank);
        add_real(&t, ":", times.slow_factor);
    }
    if (config->jitter > 0) {
        add_real(&t, ", jitter ", config->jitter);
        pp_text_add(&t, " %%");
    }
    if (pp_text_fits(&t)) return PP_OK;
    return pp_fail(PP_INTERNAL, "a workload's name has %zu characters: raise PP_WORKLOAD_BYTES", t.used);
}
