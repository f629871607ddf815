/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/text.h"
#include "core/job/plan_stages.h"
#include "core/job/stage_costs.h"
#include "core/model/task_names.h"
#include "core/shape/pieces.h"

enum { LISTED = 12, LISTED_TEXT = LISTED * 12 };

/* Writes the dozen values of --chunks, up to `rows`, that are nearest to the one asked for and with which the schedule
 * is possible. Of values that cut the rows alike only the smallest is listed. */
static void working_chunks(const struct pp_schedules *schedules, const struct pp_point *point, int rows,
                           char text[LISTED_TEXT])
{
    const int asked = point->chunks;
    int found[LISTED], n = 0;
    for (int64_t chunks = 1, last; chunks <= rows; chunks = last + 1) {
        const int piece = (int)((rows + chunks - 1) / chunks), m = (rows - 1) / piece + 1;
        last = piece > 1 ? (rows - 1) / (piece - 1) : rows; /* the largest value that cuts the rows alike */
        if (schedules->check(point->schedule, point->ranks, point->virtual_stages, m) != PP_OK) continue;
        if (n == LISTED && chunks - asked >= asked - found[0]) break; /* farther away than all these */
        if (n == LISTED) memmove(found, found + 1, (size_t)--n * sizeof *found);
        found[n++] = (int)chunks;
    }
    struct pp_text list = pp_text_in(text, LISTED_TEXT);
    for (int i = 0; i < n; i++) pp_text_add(&list, "%s%d", i ? ", " : "", found[i]);
}

static pp_status check_point(const struct pp_job *job, const struct pp_schedules *schedules, int rows, int microbatches)
{
    const struct pp_point *point = &job->point;
    pp_status status = schedules->check(point->schedule, point->ranks, point->virtual_stages, microbatches);
    if (status != PP_USAGE) return status;
    char message[PP_MESSAGE_BYTES], chunks[LISTED_TEXT];
    snprintf(message, sizeof message, "%s", pp_message());
    working_chunks(schedules, point, rows, chunks);
    if (!chunks[0]) return pp_fail(PP_USAGE, "%s", message); /* no number of chunks would help */
    return pp_fail(PP_USAGE, "%s; with %d row%s, --chunks %s work%s", message, rows, pp_plural(rows), chunks,
                   strchr(chunks, ',') ? "" : "s");
}

static struct pp_plan_spec spec_of(const struct pp_job *job, const int *rows, int microbatches,
                                   const struct pp_plan_stages *stages)
{
    const struct pp_config *config = job->config;
    return (struct pp_plan_spec){.schedule = job->point.schedule,
                                 .ranks = job->point.ranks,
                                 .virtual_stages = job->point.virtual_stages,
                                 .microbatches = microbatches,
                                 .replicas = pp_config_copies(config),
                                 .tensor = job->point.tensor,
                                 .expert_parallel = pp_config_expert_parallel(config),
                                 .context = pp_config_context(config),
                                 .zero = job->point.zero,
                                 .shard_group = pp_config_shard_group(config, job->point.shard_degree),
                                 .rounds_weights = config->model.precision == PP_FP8,
                                 .rows = rows,
                                 .checkpoint = job->point.checkpoint,
                                 .recv_buffers = pp_config_recv_buffers(config, microbatches, 2),
                                 .training = true,
                                 .optimizer = true,
                                 .clip = config->clip > 0,
                                 .tied = config->model.tied,
                                 .act_bytes = {stages->act_bytes[0], stages->act_bytes[1]},
                                 .parts = stages->parts,
                                 .gather_first = config->overlap_param_gather && !config->times,
                                 .batch_w = config->batch_w};
}

pp_status pp_job_build_train(struct pp_job *job, const struct pp_schedules *schedules, const struct pp_plan_spec *spec)
{
    const struct pp_config *config = job->config;
    const int v = spec->virtual_stages, checkpoint = spec->checkpoint;
    struct pp_plan_spec timed = *spec;
    struct pp_stage_costs costs;
    int64_t *arrays = NULL;
    pp_status status;
    if (!schedules->timed(spec->schedule)) return schedules->build(spec, &job->train);
    timed.costs = &costs;
    PP_TRY_DONE(schedules->check(spec->schedule, spec->ranks, v, spec->microbatches));
    if (config->times)
        status = pp_stage_costs_given(&job->times, spec->ranks * v, v, checkpoint, &arrays, &costs);
    else
        status = pp_stage_costs_counted(job->model, job->model_ops, spec->rows[0], config->tokens, checkpoint, &arrays,
                                        &costs);
    if (status == PP_OK) status = schedules->build(&timed, &job->train);
done:
    free(arrays);
    return status;
}

/* Evaluation: forward only, in one replica (with context parallelism the C replicas of the same rows; with ZeRO 3 a
 * shard group, all on the same rows). Batches are cut into M microbatches, so that losses have the same bits whenever
 * the accumulation key, which has M, is equal; --chunks would not do, as several values can give the same M. */
static pp_status build_eval(struct pp_job *job, const struct pp_schedules *schedules, int *rows,
                            const struct pp_plan_stages *stages)
{
    const int eval_rows = job->config->eval_rows, most = job->train->microbatches;
    const int m = pp_chunk_rows(eval_rows, most < eval_rows ? most : eval_rows, rows);
    struct pp_plan_spec spec = spec_of(job, rows, m, stages);
    spec.training = false;
    spec.act_bytes[0] = stages->eval_act_bytes;
    spec.act_bytes[1] = NULL;
    spec.replicas = job->train->shard_params ? job->train->shard_group : job->train->context;
    PP_TRY(schedules->build(&spec, &job->eval));
    return pp_plan_check(job->eval);
}

/* --checkpoint activation computes the output of an activation function again from its input. That must still be there,
 * which is impossible for some functions. */
static pp_status check_activation(const struct pp_job *job)
{
    const int activation = job->model->shape.activation;
    if (job->point.checkpoint != PP_CHECKPOINT_ACTIVATION) return PP_OK;
    if (activation == PP_RELU)
        return pp_fail(PP_USAGE, "--checkpoint activation: relu works in place, so nothing of it is kept but what must "
                                 "be; choose another mode");
    if (activation == PP_SWIGLU && job->train->split_backward) {
        const bool batched = job->config->batch_w > 1;
        return pp_fail(PP_USAGE,
                       "--checkpoint activation: %s cuts backwards into I and W, and I puts a gradient where W would "
                       "find swiglu's input; choose another mode, or %s",
                       batched ? "--batch-w" : job->train->schedule,
                       batched ? "leave --batch-w out" : "a schedule that does not, such as 1f1b");
    }
    return PP_OK;
}

/* rows: has room for as many as there are in a batch. Free *stages also after a failure. */
static pp_status build_train(struct pp_job *job, const struct pp_schedules *schedules, bool evaluate, int *rows,
                             struct pp_plan_stages *stages)
{
    const int m = pp_chunk_rows(job->config->rows, job->point.chunks, rows);
    PP_TRY(pp_plan_stages_make(job, rows[0], evaluate, stages));
    PP_TRY(check_point(job, schedules, job->config->rows, m));
    const struct pp_plan_spec spec = spec_of(job, rows, m, stages);
    return pp_job_build_train(job, schedules, &spec);
}

pp_status pp_job_plan(struct pp_job *job, const struct pp_schedules *schedules, bool evaluate)
{
    const struct pp_config *config = job->config;
    int most = config->rows > config->eval_rows ? config->rows : config->eval_rows;
    int *rows = NULL;
    struct pp_plan_stages stages = {0};
    pp_status status;
    PP_TRY_DONE(PP_NEW(&rows, most));
    PP_TRY_DONE(build_train(job, schedules, evaluate, rows, &stages));
    PP_TRY_DONE(pp_plan_check(job->train));
    PP_TRY_DONE(check_activation(job));
    if (evaluate) status = build_eval(job, schedules, rows, &stages);
done:
    free(rows);
    pp_plan_stages_free(&stages);
    return status;
}

static pp_status make_phase(struct pp_job *job, int id, const struct pp_plan *plan, int seq)
{
    if (!plan || seq <= 0) return PP_OK;
    job->phase[id] = (struct pp_phase){.plan = plan, .seq = seq, .once = job->once};
    return pp_phase_create(job->model, job->model_ops, NULL, &job->phase[id]);
}

/* Programs depend on the tokens per row alone, so test and validation tails of equal length share a phase. */
static pp_status make_phases(struct pp_job *job, const struct pp_tails *tails)
{
    const int tokens = job->config->tokens;
    PP_TRY(make_phase(job, PP_TRAIN, job->train, tokens));
    PP_TRY(make_phase(job, PP_TRAIN_TAIL, job->train, tails->train));
    PP_TRY(make_phase(job, PP_EVAL, job->eval, tokens));
    PP_TRY(make_phase(job, PP_VALID_TAIL, job->eval, tails->valid));
    return make_phase(job, PP_TEST_TAIL, job->eval, tails->test == tails->valid ? 0 : tails->test);
}

static pp_status make_layout(struct pp_job *job)
{
    struct pp_phase used[PP_PHASES];
    int n = 0;
    for (int i = 0; i < PP_PHASES; i++)
        if (job->phase[i].plan) used[n++] = job->phase[i];
    for (int i = 0; i < PP_PHASES; i++) job->phase_layout[i] = job->phase[i].plan == job->train ? 0 : 1;
    return pp_layout_create(job->model, job->model_ops, used, n, &job->layout);
}

/* The order of microbatches in which a stage's gradients are added: [0] those that I or B makes, [1] those that W or B
 * makes. */
struct additions {
    int32_t last[2];
    uint64_t hash[2];
};

static void add(struct additions *stage, int which, int32_t microbatch, bool *other)
{
    *other |= microbatch < stage->last[which];
    stage->last[which] = microbatch;
    stage->hash[which] = pp_hash_word(stage->hash[which], (uint32_t)microbatch);
}

/* *number: 0 if all stages add their gradients in the order of the microbatches; else (in schedule files) a hash of the
 * orders. It is made for the embedding, each layer and the decoder, so that it does not depend on how they are cut into
 * stages. */
static pp_status other_order(const struct pp_job *job, uint32_t *number)
{
    const struct pp_plan *plan = job->train;
    struct additions *stages;
    bool other = false;
    uint64_t hash = 0;
    PP_TRY(PP_NEW(&stages, plan->stages));
    for (int64_t t = 0; t < plan->ntasks; t++) {
        const struct pp_task *task = &plan->tasks[t];
        if (task->flags & PP_TASK_MORE) continue; /* its last part counts */
        if (task->kind == PP_B || task->kind == PP_I) add(&stages[task->stage], 0, task->microbatch, &other);
        if (task->kind == PP_B || task->kind == PP_W) add(&stages[task->stage], 1, task->microbatch, &other);
    }
    for (int s = 0; s < plan->stages; s++) {
        const struct pp_stage *stage = &job->model->stages[s];
        for (int item = 0; item < stage->embed + stage->layers + stage->decode; item++)
            hash = pp_hash_word(pp_hash_word(hash, stages[s].hash[0]), stages[s].hash[1]);
    }
    free(stages);
    *number = other ? (uint32_t)(hash >> 32) | 1 : 0;
    return PP_OK;
}

/* "D8"; "D8/4" if each four replicas shard. */
static const char *replicas_text(const struct pp_job *job, char buf[32])
{
    const int n = snprintf(buf, 32, "D%d", job->config->replicas), degree = job->point.shard_degree;
    if (degree) snprintf(buf + n, 32 - (size_t)n, "/%d", degree);
    return buf;
}

/* How gradients are summed over replicas: for each microbatch (ZeRO 2 and 3)? Rounded to bfloat16? */
static const char *summing_words(const struct pp_plan *plan, const struct pp_shape *shape)
{
    static const char *const words[2][2] = {{"", " bf16 sums"}, {" summed each", " summed each bf16 sums"}};
    return words[plan->shards && plan->microbatches > 1][shape->bf16_sums];
}

static pp_status name_key(struct pp_job *job)
{
    uint32_t order;
    const struct pp_plan *plan = job->train;
    const struct pp_shape *shape = &job->model->shape, *local = &job->model->local;
    const char *flash = shape->attention == PP_ATTENTION_FLASH ? " flash" : "";
    char precision[16] = "", columns[24] = "", rows[48], batch[24] = "", ordered[24] = "", tensor[48] = "",
         experts[24] = "", context[40] = "", pieces[16] = "", replicas[32];
    PP_TRY(other_order(job, &order));
    if (shape->precision != PP_FP32) snprintf(precision, sizeof precision, " %s", pp_precision_names[shape->precision]);
    if (pp_padded_vocab(local) != local->vocab) snprintf(columns, sizeof columns, " logits %d", pp_padded_vocab(local));
    if (plan->slot_microbatches > 1) snprintf(batch, sizeof batch, " batch-w %d", plan->slot_microbatches);
    if (plan->expert_parallel > 1) snprintf(experts, sizeof experts, " experts/%d", plan->expert_parallel);
    if (pp_exchange_pieces(shape) > 1)
        snprintf(experts, sizeof experts, " experts/%d/%d", plan->expert_parallel, pp_exchange_pieces(shape));
    if (plan->context > 1)
        snprintf(context, sizeof context, " context/%d%s", plan->context, pp_shape_context_words(shape));
    if (pp_shape_sum_pieces(shape) > 1) snprintf(pieces, sizeof pieces, "/%d", shape->sum_pieces);
    if (pp_plan_tensor(plan) > 1)
        snprintf(tensor, sizeof tensor, " T%d%s%s", pp_plan_tensor(plan), pieces,
                 pp_shape_parts_tokens(shape) ? " sequence" : "");
    if (order) snprintf(ordered, sizeof ordered, " order %08x", order);
    const size_t size = sizeof job->accumulation_key;
    const int used = snprintf(job->accumulation_key, size, "%s M%d%s%s%s%s threads %d%s%s%s rows %s%s%s",
                              replicas_text(job, replicas), plan->microbatches, summing_words(plan, shape), tensor,
                              experts, context, job->config->threads, precision, columns, flash,
                              pp_plan_rows_text(plan, rows, sizeof rows), batch, ordered);
    if ((size_t)used < size) return PP_OK;
    return pp_fail(PP_INTERNAL, "the accumulation key has %d characters: raise PP_ACCUMULATION_KEY", used);
}

static pp_status make_model(struct pp_job *job, const struct pp_shape *shape, const struct pp_schedules *schedules)
{
    const struct pp_point *point = &job->point;
    int *stage_rank = NULL;
    struct pp_cut cut = {.stages = point->ranks * point->virtual_stages,
                         .split = job->config->split,
                         .layer_ns = job->config->layer_ns,
                         .way = {job->config->even, point->chunks}};
    if (point->virtual_stages > 1) {
        PP_TRY(PP_NEW(&stage_rank, cut.stages));
        cut.stage_rank = stage_rank;
        const pp_status status = schedules->place(point->schedule, point->ranks, point->virtual_stages, stage_rank);
        if (status != PP_OK) {
            free(stage_rank);
            return status;
        }
    }
    const pp_status status = job->model_ops->create(shape, &cut, &job->model);
    free(stage_rank);
    return status;
}

pp_status pp_job_begin(const struct pp_config *config, const struct pp_point *point,
                       const struct pp_schedules *schedules, const struct pp_model_ops *ops, struct pp_job **out)
{
    struct pp_shape shape;
    struct pp_job *job;
    pp_status status;
    *out = NULL;
    PP_TRY(pp_point_check(config, point));
    PP_TRY(PP_NEW(&job, 1));
    job->config = config;
    job->model_ops = ops;
    job->point = *point;
    PP_TRY_DONE(pp_given_times_of(config, &job->times));
    PP_TRY_DONE(pp_given_times_check(&job->times, point->ranks));
    pp_config_shape(config, &shape);
    shape.tensor = pp_point_tensor(point);
    shape.sum_pieces = point->sum_pieces;
    shape.exchange_pieces = point->exchange_pieces;
    pp_config_share(config, point->zero, point->shard_degree, &shape);
    PP_TRY_DONE(make_model(job, &shape, schedules));
    *out = job;
done:
    if (status != PP_OK) pp_job_free(job);
    return status;
}

pp_status pp_job_complete(struct pp_job *job, const struct pp_schedules *schedules, bool evaluate,
                          const struct pp_tails *tails)
{
    PP_TRY(pp_job_plan(job, schedules, evaluate));
    PP_TRY(make_phases(job, tails ? tails : &(struct pp_tails){0}));
    PP_TRY(make_layout(job));
    return name_key(job);
}

pp_status pp_job_train(struct pp_job *job, const struct pp_schedules *schedules, const struct pp_job_lender *lender)
{
    const struct pp_lender lends = {lender->job->model, &lender->job->phase[PP_TRAIN]};
    struct pp_plan_stages stages = {0};
    int *rows;
    PP_TRY(PP_NEW(&rows, job->config->rows));
    pp_status status = build_train(job, schedules, false, rows, &stages);
    struct pp_phase *phase = &job->phase[PP_TRAIN];
    *phase = (struct pp_phase){.plan = job->train, .seq = job->config->tokens, .once = job->once};
    if (status == PP_OK) status = pp_phase_create(job->model, job->model_ops, &lends, phase);
    job->lender = lender;
    pp_plan_stages_free(&stages);
    free(rows);
    return status;
}

pp_status pp_job_create(const struct pp_config *config, const struct pp_point *point,
                        const struct pp_schedules *schedules, const struct pp_model_ops *ops, bool evaluate,
                        const struct pp_tails *tails, struct pp_job **out)
{
    struct pp_job *job;
    *out = NULL;
    PP_TRY(pp_job_begin(config, point, schedules, ops, &job));
    const pp_status status = pp_job_complete(job, schedules, evaluate, tails);
    if (status == PP_OK)
        *out = job;
    else
        pp_job_free(job);
    return status;
}

void pp_job_free(struct pp_job *job)
{
    if (!job) return;
    for (int i = 0; i < PP_PHASES; i++) pp_phase_free(&job->phase[i]);
    pp_layout_free(job->layout);
    pp_plan_free(job->train);
    pp_plan_free(job->eval);
    if (!job->borrows) {
        if (job->model) job->model_ops->destroy(job->model);
        pp_given_times_free(&job->times);
    }
    free(job);
}

int pp_job_sum_pieces(const struct pp_job *job)
{
    const struct pp_shape *shape = &job->model->shape;
    return pp_sum_pieces(shape, (int64_t)job->train->rows[0] * pp_part_tokens(shape, job->config->tokens));
}

const char *pp_job_context(const struct pp_job *job, int sharers, char *buf, size_t size)
{
    char share[24] = "", mode[PP_CHECKPOINT_TEXT];
    if (sharers > 1) snprintf(share, sizeof share, PP_NAME_SHARE "1/%d", sharers);
    snprintf(buf, size, "%s %s%s", job->train->schedule, pp_checkpoint_text(job->train->checkpoint, mode), share);
    return buf;
}
