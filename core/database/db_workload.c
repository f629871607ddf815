/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run computes, as text. The same numbers have the same spelling, however they were given.
 */
#include <inttypes.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/text.h"
#include "core/database/db_query.h"
#include "core/options/devices.h"
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
        hash = pp_hash_word(hash, (uint64_t)model->stages[s].layers);
        if (model->nstages <= MOST) pp_text_add(t, s ? ",%d" : " %d", model->stages[s].layers);
    }
    if (model->nstages > MOST) pp_text_add(t, " cut %016" PRIx64, hash);
}

/* --split as it was given; a list that is too long for people by a hash. */
static void add_word(struct pp_text *t, const char *word)
{
    enum { MOST = 160 };
    if (strlen(word) <= MOST)
        pp_text_add(t, " %s", word);
    else
        pp_text_add(t, " split %016" PRIx64, pp_hash_bytes(0, word, strlen(word)));
}

/* The plan does not tell all cuts apart, and one cut has several names, of which `time` may be another tomorrow. */
static pp_status add_split(struct pp_text *t, const struct pp_config *config, const struct pp_job *job)
{
    const char *word = config->split ? config->split : "uniform";
    if (job && job->model && pp_split_of(word) != PP_SPLIT_BY_COUNT) PP_TRY(find_word(job, &word));
    if (word)
        add_word(t, word);
    else
        add_cut(t, job->model);
    return PP_OK;
}

/* As programs name them (kernels/signature.c). */
static void add_heads(struct pp_text *t, const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    pp_text_add(t, " h%d", model->heads);
    if (model->kv_lora_rank)
        pp_text_add(t, "x%d+%d/%d latent%d/%d", model->qk_nope_head_dim, model->qk_rope_head_dim, model->v_head_dim,
                    model->q_lora_rank, model->kv_lora_rank);
    if (model->head_dim) pp_text_add(t, "x%d", model->head_dim);
    if (model->kv_heads) pp_text_add(t, " kv%d", model->kv_heads);
}

/* Nearly as programs name them (kernels/signature.c), whose experts are those of one layer. Neither text can be changed
 * to be like the other one: databases have it. */
static void add_experts(struct pp_text *t, const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    if (!model->experts) return;
    pp_text_add(t, " x%dk%d%s%s", model->experts, model->experts_per_token, model->gates_of_all ? "a" : "",
                model->sigmoid_scores ? "l" : "");
    add_real(t, "c", model->capacity_factor);
    if (model->shared_ff) pp_text_add(t, "s%d%s", model->shared_ff, model->shared_gate ? "g" : "");
    if (model->gate_scale != 1) add_real(t, "*", model->gate_scale);
    if (model->expert_groups > 1)
        pp_text_add(t, "g%d/%d%s", model->groups_per_token, model->expert_groups, model->group_by_best ? "m" : "");
    if (model->expert_bias) add_real(t, "b", model->expert_bias_rate);
    if (pp_config_expert_parallel(config) > 1) pp_text_add(t, "/%d", pp_config_expert_parallel(config));
    if (model->dense_layers == 0 && model->experts_every <= 1) return;
    pp_text_add(t, " dense%d", model->dense_layers);
    if (model->experts_every > 1) pp_text_add(t, "/%d", model->experts_every);
    if (model->dense_ff) pp_text_add(t, "f%d", model->dense_ff);
}

/* What replicas share, and what runs beside their computations: with --zero 2 sums always do, and with 3 all. */
static void add_replicas(struct pp_text *t, const struct pp_config *config, const struct pp_shape *shape)
{
    const int zero = shape ? shape->zero : pp_config_holders(config) > 1 ? config->zero.v[0] : 0;
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
    const bool parts = shape ? pp_shape_parts_tokens(shape) : config->model.sequence;
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
    if (config->model.context_kind != PP_CONTEXT_ALL_TO_ALL)
        pp_text_add(t, "%s ", pp_context_kind_names[config->model.context_kind]);
}

static void add_rope(struct pp_text *t, const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    const struct pp_rope_scaling *scaling = &model->rope_scaling;
    add_real(t, " rope", model->rope_theta);
    if (model->rotary_dim) pp_text_add(t, "of%d", model->rotary_dim);
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
    const struct pp_shape *model = &config->model;
    if (model->window) pp_text_add(t, " window%d", model->window);
    if (model->window_skip) pp_text_add(t, "/%d", model->window_skip);
}

/* What layers are beside the tutorials'. */
static void add_layer_words(struct pp_text *t, const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    add_window(t, config);
    if (model->attention == PP_ATTENTION_FLASH) pp_text_add(t, " flash");
    if (model->norm == PP_NORM_FIRST) pp_text_add(t, " pre");
    if (model->normalization == PP_RMSNORM) pp_text_add(t, " rmsnorm");
    if (model->norm_epsilon != PP_NORM_EPSILON) add_real(t, " eps", model->norm_epsilon);
    if (model->qk_norm) pp_text_add(t, " qknorm");
    if (model->score_factor != 1) add_real(t, " scores*", model->score_factor);
    if (model->activation != PP_RELU) pp_text_add(t, " %s", pp_activation_names[model->activation]);
    pp_text_add(t, "%s", pp_bias_words[model->bias]);
    if (model->tied) pp_text_add(t, " tied");
    if (model->positions == PP_POSITIONS_ROPE) add_rope(t, config);
    if (model->positions == PP_POSITIONS_LEARNED) pp_text_add(t, " learned%d", pp_config_max_positions(config));
}

static pp_status add_model_and_data(struct pp_text *t, const struct pp_config *config, const struct pp_job *job)
{
    const struct pp_shape *model = &config->model;
    if (model->precision != PP_FP32) pp_text_add(t, "%s ", pp_precision_names[model->precision]);
    add_sharing(t, config, job);
    if (model->optimizer != PP_SGD) pp_text_add(t, "%s ", pp_optimizers[model->optimizer].name);
    pp_text_add(t, "%s%dl d%d", config->style ? "lab " : "", model->layers, model->d_model);
    add_heads(t, config);
    pp_text_add(t, " f%d", model->d_ff);
    add_experts(t, config);
    pp_text_add(t, " v%d", model->vocab);
    if (model->vocab_multiple && model->vocab_multiple != pp_device_kind(config->device)->vocab_multiple)
        pp_text_add(t, "/%d", model->vocab_multiple);
    pp_text_add(t, " %s", model->mask == PP_MASK_CAUSAL ? "causal" : "none");
    add_layer_words(t, config);
    add_real(t, " p", model->dropout);
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
