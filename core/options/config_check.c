/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of options against each other, and warnings about options without effect.
 */
#include <math.h>
#include <string.h>

#include "core/base/log.h"
#include "core/options/config.h"
#include "core/options/devices.h"
#include "core/plan/plan_spec.h"
#include "core/shape/heads.h"

static pp_status check_learning(const struct pp_config *config)
{
    const struct pp_lr_options *o = &config->over_steps;
    if (config->adamw.beta1 >= 1 || config->adamw.beta2 >= 1)
        return pp_fail(PP_USAGE, "--adam-beta%d: with 1 nothing would be learnt; choose less",
                       config->adamw.beta1 >= 1 ? 1 : 2);
    if (o->schedule == PP_LR_CONSTANT) return PP_OK;
    if (o->steps == 0)
        return pp_fail(PP_USAGE, "--lr-schedule: in which step is the learning rate --min-lr? Add --lr-steps");
    if (o->steps <= o->warmup_steps)
        return pp_fail(PP_USAGE, "--lr-steps %d: no step is left behind --warmup-steps %d; choose more", o->steps,
                       o->warmup_steps);
    if (o->least > config->lr)
        return pp_fail(PP_USAGE, "--min-lr: %g is above --lr %g; choose less", o->least, config->lr);
    return PP_OK;
}

static pp_status check_cut(const struct pp_config *config)
{
    if (pp_config_given(config, micro_batch_size) && pp_config_given(config, chunks))
        return pp_fail(PP_USAGE, "--micro-batch-size and --chunks both say how rows are cut; leave one out");
    return PP_OK;
}

static pp_status check_norms(const struct pp_config *config)
{
    if ((float)config->model.norm_epsilon > 0) return PP_OK; /* kernels have epsilon as a float */
    return pp_fail(PP_USAGE, "--norm-epsilon %g: numbers that are all equal would be divided by zero; choose more",
                   config->model.norm_epsilon);
}

static pp_status check_heads(const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    const int columns = model->head_dim ? model->head_dim : model->d_model / model->heads;
    if (!model->head_dim && model->d_model % model->heads != 0)
        return pp_fail(PP_USAGE, "--heads: %d heads do not divide --d-model %d; choose a divisor", model->heads,
                       model->d_model);
    if (model->kv_heads && model->heads % model->kv_heads != 0)
        return pp_fail(PP_USAGE, "--kv-heads: %d heads of keys and values do not divide --heads %d; choose a divisor",
                       model->kv_heads, model->heads);
    if (model->positions == PP_POSITIONS_ROPE && model->head_dim % 2 != 0)
        return pp_fail(PP_USAGE, "--head-dim %d: --positions rope rotates pairs of columns; choose an even number",
                       model->head_dim);
    if (model->positions == PP_POSITIONS_ROPE && columns % 2 != 0)
        return pp_fail(PP_USAGE,
                       "--positions rope rotates pairs of a head's columns, and --d-model %d with --heads %d has %d of "
                       "them; choose an even number",
                       model->d_model, model->heads, columns);
    if (model->rotary_dim % 2)
        return pp_fail(PP_USAGE, "--rotary-dim %d: pairs of columns are rotated; choose an even number",
                       model->rotary_dim);
    if (model->rotary_dim > columns)
        return pp_fail(PP_USAGE, "--rotary-dim %d: heads have %d columns; choose as many at most, or 0 for all",
                       model->rotary_dim, columns);
    if ((int64_t)model->heads * columns > 1 << 24)
        return pp_fail(PP_USAGE, "--head-dim: %d heads of %d columns are wider than any model", model->heads, columns);
    return PP_OK;
}

static pp_status check_window(const struct pp_config *config)
{
    const struct pp_shape *model = &config->model;
    const int window = model->window, skips = model->window_skip;
    if (window && model->mask != PP_MASK_CAUSAL)
        return pp_fail(PP_USAGE, "--window-size %d is of tokens before a token: add --mask causal", window);
    if (!window || skips != 1) return PP_OK;
    return pp_fail(PP_USAGE, "--window-attn-skip-freq 1 leaves no layer the window: leave --window-size out");
}

pp_status pp_config_check_expert_parallel(int n, int replicas)
{
    if (n <= 1 || replicas % n == 0) return PP_OK;
    return pp_fail(PP_USAGE, "--expert-parallel %d does not divide the %d replica%s, which share experts", n, replicas,
                   pp_plural(replicas));
}

pp_status pp_config_check_shard_degree(const struct pp_config *config, int degree)
{
    const int replicas = config->replicas, n = pp_config_expert_parallel(config);
    if (degree == 0 || degree >= replicas) return PP_OK;
    if (replicas % degree)
        return pp_fail(PP_USAGE, "--shard-degree %d does not divide the %d replicas, which share in groups", degree,
                       replicas);
    if (n <= 1 || degree % n == 0) return PP_OK;
    return pp_fail(PP_USAGE,
                   "--shard-degree %d is no multiple of --expert-parallel %d: replicas that share experts "
                   "are in one group",
                   degree, n);
}

static pp_status check_positions(const struct pp_config *config)
{
    if (config->model.positions == PP_POSITIONS_LEARNED && config->tokens > pp_config_max_positions(config))
        return pp_fail(PP_USAGE,
                       "--max-positions %d: rows of --tokens %d have places without weights; choose %d or more",
                       config->model.max_positions, config->tokens, config->tokens);
    return PP_OK;
}

bool pp_config_gives_times(const struct pp_config *config)
{
    return config->times || pp_device_kind(config->device)->waits;
}

/* Given times are of whole tasks, so options about collectives inside tasks are refused with them. (Values of a preset
 * are for models, and are no reason to refuse.) */
static pp_status check_joins(const struct pp_config *config)
{
    const char *const says = config->times ? "--times says" : "--device delay waits";
    for (int i = 0; i < config->tensor.n && pp_config_gives_times(config); i++)
        if (config->tensor.v[i] > 1)
            return pp_fail(PP_USAGE,
                           "--tensor %d: %s how long a rank's tasks take as a whole, and knows nothing of the sums "
                           "inside them; leave --tensor out",
                           config->tensor.v[i], says);
    const struct {
        const char *option;
        int n;
    } sent[] = {{"expert-parallel", pp_ints_most(&config->expert_parallel)},
                {"context-parallel", pp_ints_most(&config->context_parallel)}};
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
        if (sent[i].n > 1 && pp_config_gives_times(config))
            return pp_fail(PP_USAGE,
                           "--%s %d: %s how long a rank's tasks take as a whole, and knows nothing of what is sent "
                           "inside them; leave --%s out",
                           sent[i].option, sent[i].n, says, sent[i].option);
    return PP_OK;
}

/* --- lists: a sweep leaves impossible values out; only a list without any possible value is refused --- */

static pp_status check_context(const struct pp_config *config, int context)
{
    struct pp_shape shape;
    pp_config_shape(config, &shape);
    shape.context = context;
    return pp_shape_check_context(&shape);
}

/* --times gives the times of ranks, not of layers. */
static pp_status check_checkpoint(const struct pp_config *config, int checkpoint)
{
    char mode[PP_CHECKPOINT_TEXT];
    if (!config->times || !pp_checkpoint_in_slots(checkpoint)) return PP_OK;
    return pp_fail(PP_USAGE,
                   "--checkpoint %s: --times says how long a rank's tasks take as a whole, and knows nothing of its "
                   "layers; choose never, or layers for all of them",
                   pp_checkpoint_text(checkpoint, mode));
}

static pp_status check_zero(const struct pp_config *config, int zero)
{
    if (zero >= 2 && config->times)
        return pp_fail(PP_USAGE,
                       "--zero %d: --times says how long a rank's tasks take as a whole, and knows nothing of its "
                       "layers, whose %s one by one; use --zero 1, or a model",
                       zero, zero == 3 ? "parameters are gathered" : "gradients are summed");
    if (!config->overlap_param_gather || zero >= 2 || (zero == 1 && config->overlap_grad_reduce)) return PP_OK;
    return pp_fail(PP_USAGE, "--overlap-param-gather gathers what replicas have stepped in shares, in parts: add --%s",
                   zero == 0 ? "zero 1" : "overlap-grad-reduce");
}

/* Is any value of the list possible? If not, the message is about the first one. */
static pp_status check_list(const struct pp_config *config, const struct pp_ints *list,
                            pp_status (*check)(const struct pp_config *, int))
{
    for (int i = 0; i < list->n; i++)
        if (check(config, list->v[i]) == PP_OK) return PP_OK;
    return list->n > 0 ? check(config, list->v[0]) : PP_OK;
}

static pp_status check_expert_parallel(const struct pp_config *config, int n)
{
    return config->workers.n > 0 ? PP_OK : pp_config_check_expert_parallel(n, config->replicas);
}

static pp_status check_lists(const struct pp_config *config)
{
    if (config->overlap_tensor_sums.n > 1 && pp_ints_have(&config->overlap_tensor_sums, 0))
        return pp_fail(PP_USAGE, "--overlap-tensor-sums 0 chooses the pieces; leave the others of the list out");
    PP_TRY(check_list(config, &config->expert_parallel, check_expert_parallel));
    PP_TRY(check_list(config, &config->context_parallel, check_context));
    PP_TRY(check_list(config, &config->checkpoint, check_checkpoint));
    return check_list(config, &config->zero, check_zero);
}

static int highest_zero(const struct pp_config *config)
{
    int zero = 3;
    while (zero > 0 && !pp_ints_have(&config->zero, zero)) zero--;
    return zero;
}

/* zero 0 may stem from there being only one replica; it is checked only if the user asked for it. */
pp_status pp_config_check_values(const struct pp_config *config, int checkpoint, int zero)
{
    const struct pp_shape *model = &config->model;
    const bool asked = zero > 0 || (pp_config_holders(config) > 1 && pp_ints_have(&config->zero, 0));
    PP_TRY(check_context(config, pp_config_context(config)));
    PP_TRY(check_checkpoint(config, checkpoint));
    if (model->experts && model->expert_bias && model->expert_bias_rate > 0 && pp_config_sums_bf16(config))
        return pp_fail(PP_USAGE, "--grad-reduce-in-bf16 would round the numbers of tokens by which --expert-bias "
                                 "changes; leave it out, or add --expert-bias-rate 0");
    return asked ? check_zero(config, zero) : PP_OK;
}

/* Does C divide the tokens of a row? (exec/data.c takes care of a shorter last batch. Values of a list are checked one
 * by one when their models are made, in pp_model_check_size().) */
static pp_status check_rows_parts(const struct pp_config *config, unsigned tool)
{
    const int n = config->context_parallel.n, first = pp_config_context(config);
    if (n > 1 && tool != PP_PPSIM)
        return pp_fail(PP_USAGE, "--context-parallel: only ppsim takes a list; choose one number");
    if (config->expert_parallel.n > 1 && tool != PP_PPSIM)
        return pp_fail(PP_USAGE, "--expert-parallel: only ppsim takes a list; choose one number");
    if (n == 1 && config->tokens % first)
        return pp_fail(PP_USAGE, "--context-parallel %d does not divide --tokens %d; choose a divisor", first,
                       config->tokens);
    const bool halves = pp_context_halves_rows(config->model.context_kind, first);
    if (n == 1 && halves && config->tokens % (2 * first))
        return pp_fail(PP_USAGE,
                       "--context-parallel %d: with --cp-comm-type %s each worker has two parts of a row, so --tokens "
                       "must be a multiple of %d, not %d",
                       first, pp_context_kind_names[config->model.context_kind], 2 * first, config->tokens);
    return PP_OK;
}

pp_status pp_config_check_database(const char *path)
{
    const bool uri = strncmp(path, "file:", 5) == 0;
    if (!uri && strcmp(path, ":memory:") != 0) return PP_OK;
    return pp_fail(PP_USAGE, "database \"%s\": to SQLite that is %s, and here a file must be named: %s, or write ./%s",
                   path, uri ? "a URI" : "memory, which nobody could read later",
                   uri ? "leave \"file:\" out, and what follows a \"?\"" : "choose another name", path);
}

pp_status pp_config_check(const struct pp_config *config, unsigned tool)
{
    const struct pp_shape *model = &config->model;
    PP_TRY(check_norms(config));
    PP_TRY(pp_config_check_latent(config));
    if (!model->kv_lora_rank) PP_TRY(check_heads(config));
    PP_TRY(check_window(config));
    PP_TRY(pp_config_check_experts(config));
    PP_TRY(check_positions(config));
    if (model->dropout >= 1)
        return pp_fail(PP_USAGE, "--dropout: %g leaves nothing; choose less than 1", model->dropout);
    PP_TRY(check_learning(config));
    PP_TRY(check_cut(config));
    PP_TRY(check_joins(config));
    PP_TRY(check_lists(config));
    PP_TRY(check_rows_parts(config, tool));
    if (config->db) PP_TRY(pp_config_check_database(config->db));
    if (!pp_config_gives_times(config) && (config->straggler || config->jitter > 0))
        return pp_fail(PP_USAGE, "%s changes the times that --times gives; add --times, or use --device delay",
                       config->straggler ? "--straggler" : "--jitter");
    if ((config->save_every || config->resume) && !config->save)
        return pp_fail(PP_USAGE, "--%s: the checkpoint lies beside the file of --save; name that too",
                       config->resume ? "resume" : "save-every");
    return PP_OK;
}

/* Is it certain that no GPU is used? A device that waits may wait for the times of a GPU's profile, and --machine may
 * be one with GPUs. */
static bool knows_no_gpus(const struct pp_config *config)
{
    const struct pp_device_kind *kind = pp_device_kind(config->device);
    const bool found = strcmp(kind->name, config->device) == 0; /* false for "auto" */
    return found && !kind->queue && !(kind->waits && !config->times) && config->machine.n == 0;
}

/* Options about workers that share a layer. */
static void remark_on_sharers(const struct pp_config *config)
{
    const char *alone = pp_ints_most(&config->tensor) > 1 ? NULL : "changes nothing without --tensor 2 or more";
    if (alone && config->model.sequence) pp_warn("--sequence-parallel %s", alone);
    if (alone && pp_ints_most(&config->overlap_tensor_sums) > 1) pp_warn("--overlap-tensor-sums %s", alone);
    const bool exchanges = config->overlap_expert_exchange.n > 1 || config->overlap_expert_exchange.v[0] > 0;
    if (exchanges && pp_ints_most(&config->expert_parallel) == 1)
        pp_warn("--overlap-expert-exchange changes nothing without --expert-parallel 2 or more");
    if (config->model.context_kind != PP_CONTEXT_ALL_TO_ALL && pp_ints_most(&config->context_parallel) == 1)
        pp_warn("--cp-comm-type changes nothing without --context-parallel 2 or more");
    if (config->host_order && config->workers.n == 0 && config->replicas == 1)
        pp_warn("--host-order replicas changes nothing without --replicas 2 or more");
}

/* Other software's kernels are those on tensor cores that store no scores. */
static bool is_flash_in_bf16(const struct pp_config *config)
{
    return config->model.attention == PP_ATTENTION_FLASH && pp_in_bf16(config->model.precision);
}

bool pp_config_library_attends(const struct pp_config *config)
{
    struct pp_shape shape;
    pp_config_shape(config, &shape);
    return config->library_attention && is_flash_in_bf16(config) &&
           pp_others_attend(pp_head_dim(&shape), pp_value_dim(&shape));
}

static void remark_on_attention(const struct pp_config *config)
{
    static const char *const needs[] = {" without --attention flash and --precision bf16 or fp8",
                                        ": the columns of a head are no multiple of 8, or more than 256"};
    if (config->library_attention && !pp_config_library_attends(config))
        pp_warn("--attention-kernel library changes no attention%s", needs[is_flash_in_bf16(config)]);
}

/* Options about groups of replicas that shard. */
static void remark_on_groups(const struct pp_config *config)
{
    const int zero = highest_zero(config);
    bool alone = config->workers.n == 0 && pp_config_copies(config) > 1 && pp_ints_most(&config->expert_parallel) == 1;
    if (!zero && !pp_ints_have(&config->shard_degree, 0)) pp_warn("--shard-degree changes nothing without --zero");
    for (int i = 0; i < config->shard_degree.n; i++)
        alone = alone && pp_config_shard_group(config, config->shard_degree.v[i]) == 1;
    if (zero && alone)
        pp_warn("--zero %d changes nothing with --shard-degree %d: groups of one replica share nothing", zero,
                config->shard_degree.v[0]);
}

/* Options that another one leaves without effect. (Presets set some of them, too: that is not worth a word.) */
static void remark_on_unused(const struct pp_config *config)
{
    const struct {
        size_t option; /* PP_OPTION() */
        const char *because;
        bool unused;
    } options[] = {{PP_OPTION(model.init_std), "with --init, whose weights it begins with", config->init != NULL},
                   {PP_OPTION(generated_tokens), "without --data generated", config->data != NULL},
                   {PP_OPTION(eval_rows), "with --no-eval", config->no_eval},
                   {PP_OPTION(eval_batches), "with --no-eval", config->no_eval}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].unused && pp_config_given_of(config, options[i].option))
            pp_warn("--%s changes nothing %s", pp_config_row_of(options[i].option)->name, options[i].because);
}

void pp_config_remarks(const struct pp_config *config)
{
    remark_on_unused(config);
    if (config->gpus > 0 && knows_no_gpus(config))
        pp_warn("--gpus %d changes nothing with --device %s", config->gpus, config->device);
    remark_on_attention(config);
    remark_on_sharers(config);
    remark_on_groups(config);
    if (pp_config_holders(config) > 1 || pp_ints_most(&config->context_parallel) > 1 || config->workers.n > 0) return;
    const char *without = "--replicas 2 or more";
    const char *other = pp_config_gives_times(config) ? "" : ", or --context-parallel 2 or more";
    if (config->overlap_grad_reduce) pp_warn("--overlap-grad-reduce changes nothing without %s%s", without, other);
    if (config->grad_reduce_in_bf16) pp_warn("--grad-reduce-in-bf16 changes nothing without %s%s", without, other);
    const int zero = highest_zero(config);
    if (zero) pp_warn("--zero %d changes nothing without %s%s", zero, without, other);
}
