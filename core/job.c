/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/plan_hash.h"
#include "core/stage_costs.h"

static pp_status known(const struct pp_schedules *schedules, const char *name, struct pp_schedule_found *out)
{
    char near[64];
    pp_status status = schedules->find(name, out);
    if (status != PP_USAGE) return status;
    if (access(name, F_OK) == 0)
        return pp_fail(PP_USAGE, "--schedule: there is no schedule \"%s\"; the file of that name is ./%s", name, name);
    const char *nearest = pp_nearest(name, schedules->names(), near, sizeof near);
    if (nearest)
        return pp_fail(PP_USAGE, "--schedule: there is no schedule \"%s\"; did you mean \"%s\"? (--list shows all)",
                       name, nearest);
    return pp_fail(PP_USAGE, "--schedule: there is no schedule \"%s\"; the schedules are %s", name, schedules->names());
}

/* All chunks and checkpoint modes of a shape; how many there are. */
static int of_shape(const struct pp_config *config, const struct pp_point *shape, struct pp_point *out)
{
    int n = 0;
    for (int c = 0; c < config->chunks.n; c++)
        for (int k = 0; k < config->checkpoint.n; k++) {
            out[n] = *shape;
            out[n].chunks = config->chunks.v[c];
            out[n++].checkpoint = config->checkpoint.v[k];
        }
    return n;
}

/* The schedules that are asked for. A list names none twice (core/options.h), but one may have several spellings. */
static pp_status find_schedules(const struct pp_config *config, const struct pp_schedules *schedules,
                                struct pp_schedule_found found[PP_LIST_MAX], int *n)
{
    *n = 0;
    for (int i = 0; i < config->schedule.n; i++) {
        int same = 0;
        PP_TRY(known(schedules, config->schedule.v[i], &found[*n]));
        while (strcmp(found[same].name, found[*n].name) != 0) same++;
        *n += same == *n;
    }
    return PP_OK;
}

pp_status pp_points(const struct pp_config *config, const struct pp_schedules *schedules, struct pp_point **points,
                    int *n)
{
    struct pp_schedule_found found[PP_LIST_MAX];
    int nschedules, total = 0, nv;
    *n = 0;
    PP_TRY(find_schedules(config, schedules, found, &nschedules));
    for (int s = 0; s < nschedules; s++) {
        pp_config_virtual(config, found[s].virtual_stages, 0, &nv);
        total += config->tensor.n * config->stages.n * nv * config->chunks.n * config->checkpoint.n;
    }
    PP_TRY(PP_NEW(points, total));
    for (int s = 0; s < nschedules; s++) {
        const int standard = found[s].virtual_stages;
        pp_config_virtual(config, standard, 0, &nv);
        for (int i = 0; i < config->tensor.n * config->stages.n; i++)
            for (int v = 0; v < nv; v++)
                *n += of_shape(config,
                               &(struct pp_point){.schedule = found[s].name,
                                                  .tensor = config->tensor.v[i / config->stages.n],
                                                  .stages = config->stages.v[i % config->stages.n],
                                                  .virtual_stages = pp_config_virtual(config, standard, v, &nv)},
                               *points + *n);
    }
    return PP_OK;
}

const char *pp_point_text(const struct pp_point *point, char buf[PP_POINT_TEXT])
{
    char virtual_stages[16] = "", checkpoint[32] = "", tensor[24] = "";
    if (point->virtual_stages > 1) snprintf(virtual_stages, sizeof virtual_stages, " x %d", point->virtual_stages);
    if (point->checkpoint != PP_CHECKPOINT_NEVER)
        snprintf(checkpoint, sizeof checkpoint, ", checkpoint %s", pp_checkpoint_names[point->checkpoint]);
    if (point->tensor > 1) snprintf(tensor, sizeof tensor, " x tensor %d", point->tensor);
    snprintf(buf, PP_POINT_TEXT, "%.150s, %d stage%s%s%s, %d chunk%s%s", point->schedule, point->stages,
             pp_plural(point->stages), virtual_stages, tensor, point->chunks, pp_plural(point->chunks), checkpoint);
    return buf;
}

/* The chunk counts up to `rows` for which the schedule is possible, as text: the first dozen. */
static void working_chunks(const struct pp_schedules *schedules, const struct pp_point *point, int rows, char *text,
                           size_t size)
{
    int listed = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int64_t chunks = 1, last; chunks <= rows && used + 16 < size && listed < 12; chunks = last + 1) {
        const int piece = (int)((rows + chunks - 1) / chunks), m = (rows - 1) / piece + 1;
        last = piece > 1 ? (rows - 1) / (piece - 1) : rows; /* the most chunks that are cut as these are */
        if (schedules->check(point->schedule, point->stages, point->virtual_stages, m) != PP_OK) continue;
        for (; chunks <= last && used + 16 < size && listed < 12; chunks++)
            used += (size_t)snprintf(text + used, size - used, "%s%d", listed++ ? ", " : "", (int)chunks);
    }
}

static pp_status check_point(const struct pp_job *job, const struct pp_schedules *schedules, int rows, int microbatches)
{
    const struct pp_point *point = &job->point;
    pp_status status = schedules->check(point->schedule, point->stages, point->virtual_stages, microbatches);
    if (status != PP_USAGE) return status;
    char message[512], chunks[128];
    snprintf(message, sizeof message, "%s", pp_message());
    working_chunks(schedules, point, rows, chunks, sizeof chunks);
    if (!chunks[0]) return pp_fail(PP_USAGE, "%s", message); /* the number of chunks is not all that is wrong */
    return pp_fail(PP_USAGE, "%s; with %d row%s, --chunks %s work%s", message, rows, pp_plural(rows), chunks,
                   strchr(chunks, ',') ? "" : "s");
}

static struct pp_plan_spec spec_of(const struct pp_job *job, const int *rows, int microbatches, const int *groups)
{
    const struct pp_config *config = job->config;
    return (struct pp_plan_spec){.schedule = job->point.schedule,
                                 .ranks = job->point.stages,
                                 .virtual_stages = job->point.virtual_stages,
                                 .microbatches = microbatches,
                                 .replicas = config->replicas,
                                 .tensor = job->point.tensor,
                                 .zero = config->zero,
                                 .rows = rows,
                                 .checkpoint = job->point.checkpoint,
                                 .recv_buffers = pp_config_recv_buffers(config, microbatches, 2),
                                 .training = true,
                                 .optimizer = true,
                                 .clip = config->clip > 0,
                                 .act_group = groups,
                                 .batch_w = config->batch_w,
                                 .in_flight = config->in_flight};
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

/* Evaluation: forward only, one replica. Whatever the schedule, batches are cut in the same way, so that losses have
 * the same bits. */
static pp_status build_eval(struct pp_job *job, const struct pp_schedules *schedules, int *rows, const int *groups)
{
    const int eval_rows = job->config->eval_rows, chunks = job->point.chunks;
    const int m = pp_chunk_rows(eval_rows, chunks < eval_rows ? chunks : eval_rows, rows);
    struct pp_plan_spec spec = spec_of(job, rows, m, groups);
    spec.training = false;
    spec.replicas = 1;
    PP_TRY(schedules->build(&spec, &job->eval));
    return pp_plan_check(job->eval);
}

static pp_status build_plans(struct pp_job *job, const struct pp_schedules *schedules, bool evaluate)
{
    const struct pp_config *config = job->config;
    int most = config->rows > config->eval_rows ? config->rows : config->eval_rows;
    int *rows = NULL, *groups = NULL;
    pp_status status;
    PP_TRY_DONE(PP_NEW(&rows, most));
    PP_TRY_DONE(PP_NEW(&groups, job->model->nstages));
    for (int s = 0; s < job->model->nstages; s++) groups[s] = job->model->stages[s].group;
    int m = pp_chunk_rows(config->rows, job->point.chunks, rows);
    PP_TRY_DONE(check_point(job, schedules, config->rows, m));
    struct pp_plan_spec spec = spec_of(job, rows, m, groups);
    PP_TRY_DONE(pp_job_build_train(job, schedules, &spec));
    PP_TRY_DONE(pp_plan_check(job->train));
    if (evaluate) status = build_eval(job, schedules, rows, groups);
done:
    free(rows);
    free(groups);
    return status;
}

static pp_status make_phase(struct pp_job *job, int id, const struct pp_plan *plan, int seq)
{
    struct pp_phase *out = &job->phase[id];
    if (!plan || seq <= 0) return PP_OK;
    *out = (struct pp_phase){.plan = plan, .seq = seq};
    PP_TRY(PP_NEW(&out->programs, plan->nclasses));
    const int shared = plan->slot_microbatches > 1 ? pp_plan_slot_rows(plan, -1) : 0;
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        if (!pp_kinds[cls->kind].computes) continue;
        const struct pp_program_spec spec = pp_phase_spec(out, shared ? shared : cls->rows);
        PP_TRY(job->model_ops->program(job->model, cls, &spec, &out->programs[c]));
    }
    return PP_OK;
}

static void free_phase(struct pp_phase *phase)
{
    for (int c = 0; phase->programs && c < phase->plan->nclasses; c++) pp_program_free(&phase->programs[c]);
    free(phase->programs);
    *phase = (struct pp_phase){0};
}

/* Programs depend on the length of rows alone: equal tails share a phase. */
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

pp_status pp_point_check(const struct pp_config *config, const struct pp_point *point)
{
    const int64_t stages = (int64_t)point->stages * point->virtual_stages;
    const int tensor = pp_point_tensor(point);
    const int64_t devices = (int64_t)point->stages * config->replicas, workers = devices * tensor;
    if (stages > config->layers)
        return pp_fail(PP_USAGE,
                       "%lld stages (--stages %d x --virtual %d) need as many layers, and the model has %d; use fewer "
                       "stages or more --layers",
                       (long long)stages, point->stages, point->virtual_stages, config->layers);
    if (devices > PP_MOST_WORKERS || workers > PP_MOST_WORKERS)
        return pp_fail(PP_USAGE, "--stages %d x --replicas %d x --tensor %d are %lld workers; there can be at most %d",
                       point->stages, config->replicas, tensor, (long long)workers, PP_MOST_WORKERS);
    if (config->sequence_parallel && tensor > 1 && config->batch_w > 1)
        return pp_fail(PP_USAGE,
                       "--sequence-parallel gathers one microbatch at a time, so there is no --batch-w %d with it",
                       config->batch_w);
    if (point->chunks > config->rows)
        return pp_fail(PP_USAGE, "--chunks %d is more than the %d row%s of a %s; use at most %d chunk%s, or more --%s",
                       point->chunks, config->rows, pp_plural(config->rows), config->workers ? "replica" : "batch",
                       config->rows, pp_plural(config->rows), config->workers ? "global-rows" : "rows");
    return PP_OK;
}

/* The microbatches that a stage's gradients have seen so far: those of I or B, and those of W or B. */
struct additions {
    int32_t last[2];
    uint64_t hash[2];
};

static void add(struct additions *stage, int which, int32_t microbatch, bool *other)
{
    *other |= microbatch < stage->last[which];
    stage->last[which] = microbatch;
    stage->hash[which] = pp_plan_hash_word(stage->hash[which], (uint32_t)microbatch);
}

/* Into *number: names the order in which gradients are added, where some stage does not add them in that of the
 * microbatches (a schedule of a file); 0: all do. Layer by layer, so that it does not matter how they are cut. */
static pp_status other_order(const struct pp_job *job, uint32_t *number)
{
    const struct pp_plan *plan = job->train;
    struct additions *stages;
    bool other = false;
    uint64_t hash = 0;
    PP_TRY(PP_NEW(&stages, plan->stages));
    for (int64_t t = 0; t < plan->ntasks; t++) {
        const struct pp_task *task = &plan->tasks[t];
        if (task->kind == PP_B || task->kind == PP_I) add(&stages[task->stage], 0, task->microbatch, &other);
        if (task->kind == PP_B || task->kind == PP_W) add(&stages[task->stage], 1, task->microbatch, &other);
    }
    for (int s = 0; s < plan->stages; s++)
        for (int layer = 0; layer < job->model->stages[s].layers; layer++)
            hash = pp_plan_hash_word(pp_plan_hash_word(hash, stages[s].hash[0]), stages[s].hash[1]);
    free(stages);
    *number = other ? (uint32_t)(hash >> 32) | 1 : 0;
    return PP_OK;
}

static pp_status name_key(struct pp_job *job)
{
    uint32_t order;
    const struct pp_plan *plan = job->train;
    const struct pp_shape *shape = &job->model->shape, *local = &job->model->local;
    const char *flash = shape->attention == PP_ATTENTION_FLASH ? " flash" : "";
    char precision[16] = "", columns[24] = "", rows[48], batch[24] = "", ordered[24] = "", tensor[32] = "";
    PP_TRY(other_order(job, &order));
    if (shape->precision != PP_FP32) snprintf(precision, sizeof precision, " %s", pp_precision_names[shape->precision]);
    if (pp_padded_vocab(local) != local->vocab) snprintf(columns, sizeof columns, " logits %d", pp_padded_vocab(local));
    if (plan->slot_microbatches > 1) snprintf(batch, sizeof batch, " batch-w %d", plan->slot_microbatches);
    if (plan->tensor > 1)
        snprintf(tensor, sizeof tensor, " T%d%s", plan->tensor, pp_shape_parts_tokens(shape) ? " sequence" : "");
    if (order) snprintf(ordered, sizeof ordered, " order %08x", order);
    const size_t size = sizeof job->accumulation_key;
    const int used = snprintf(job->accumulation_key, size, "D%d M%d%s threads %d%s%s%s rows %s%s%s",
                              job->config->replicas, plan->microbatches, tensor, job->config->threads, precision,
                              columns, flash, pp_plan_rows_text(plan, rows, sizeof rows), batch, ordered);
    if ((size_t)used < size) return PP_OK;
    return pp_fail(PP_INTERNAL, "the accumulation key has %d characters: raise PP_ACCUMULATION_KEY", used);
}

pp_status pp_job_create(const struct pp_config *config, const struct pp_point *point,
                        const struct pp_schedules *schedules, const struct pp_model_ops *ops, bool evaluate,
                        const struct pp_tails *tails, struct pp_job **out)
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
    PP_TRY_DONE(pp_given_times_check(&job->times, point->stages));
    pp_config_shape(config, &shape);
    shape.tensor = pp_point_tensor(point);
    PP_TRY_DONE(
        ops->create(&shape, point->stages * point->virtual_stages, config->split, config->layer_ns, &job->model));
    PP_TRY_DONE(build_plans(job, schedules, evaluate));
    PP_TRY_DONE(make_phases(job, tails ? tails : &(struct pp_tails){0}));
    PP_TRY_DONE(make_layout(job));
    PP_TRY_DONE(name_key(job));
    *out = job;
done:
    if (status != PP_OK) pp_job_free(job);
    return status;
}

void pp_job_free(struct pp_job *job)
{
    if (!job) return;
    for (int i = 0; i < PP_PHASES; i++) free_phase(&job->phase[i]);
    pp_layout_free(job->layout);
    pp_plan_free(job->train);
    pp_plan_free(job->eval);
    if (job->model) job->model_ops->destroy(job->model);
    free(job->times.measured.ns);
    free(job);
}

const char *pp_job_context(const struct pp_job *job, int sharers, char *buf, size_t size)
{
    char share[24] = "";
    if (sharers > 1) snprintf(share, sizeof share, " share 1/%d", sharers);
    snprintf(buf, size, "%s %s%s", job->train->schedule, pp_checkpoint_names[job->train->checkpoint], share);
    return buf;
}

/* What the layers are beside the tutorials'. */
static void add_layer_words(const struct pp_shape *shape, char *buf, size_t size)
{
    static const char *const activations[] = {[PP_RELU] = "", [PP_GELU] = ", gelu", [PP_SWIGLU] = ", swiglu"};
    char rope[40] = "";
    if (shape->positions == PP_POSITIONS_ROPE) snprintf(rope, sizeof rope, ", rope of base %g", shape->rope_theta);
    snprintf(buf, size, "%s%s%s%s%s%s", rope, shape->attention == PP_ATTENTION_FLASH ? ", attention flash" : "",
             shape->norm == PP_NORM_FIRST ? ", norm first" : "", shape->normalization == PP_RMSNORM ? ", rmsnorm" : "",
             activations[shape->activation], shape->bias == PP_NO_BIAS ? ", no bias" : "");
}

const char *pp_model_text(const struct pp_model *model, char *buf, size_t size)
{
    const struct pp_shape *shape = &model->shape;
    const int kv = pp_kv_heads(shape);
    char words[128], columns[24] = "", of_keys[40] = "";
    if (shape->head_dim) snprintf(columns, sizeof columns, " of %d", shape->head_dim);
    if (kv != shape->heads) snprintf(of_keys, sizeof of_keys, " (%d of keys and values)", kv);
    add_layer_words(shape, words, sizeof words);
    snprintf(buf, size, "%lld parameters: %d layer%s, d %d, %d head%s%s%s, ff %d, vocabulary %d, mask %s%s; %s, %s",
             (long long)model->parameters, shape->layers, pp_plural(shape->layers), shape->d_model, shape->heads,
             pp_plural(shape->heads), columns, of_keys, shape->d_ff, shape->vocab,
             shape->mask == PP_MASK_CAUSAL ? "causal" : "none", words, pp_precision_names[shape->precision],
             pp_optimizers[shape->optimizer].name);
    return buf;
}
