/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/profile_arena.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/mix.h"
#include "core/calls/bf16.h"
#include "core/calls/fp8.h"
#include "core/model/queue.h"
#include "kernels/kernels.h"

enum { PIECE = 1 << 18 }; /* numbers made; longer data repeats them */

/* Values of received gradients: small, as after division by the number of tokens. */
static const float gradient_scale = 1e-4F;
/* Weights must not drift while the same batch is trained on for seconds, yet the step must do its work. */
static const float learning_rate = 1e-9F;

/* The values only have to look like data. */
static uint64_t next_random(uint64_t *state)
{
    const uint64_t bits = pp_mix(*state);
    *state += PP_MIX_STEP;
    return bits;
}

/* Numbers to fill memory with: uniform in center +- bound, equal for equal seeds whatever the type. */
struct numbers {
    uint64_t seed;
    float center, bound;
    enum pp_operand_type type; /* PP_TYPE_FLOAT, PP_TYPE_BF16, or PP_TYPE_FP8: E4M3 */
};

static int size_of(const struct numbers *numbers)
{
    return numbers->type == PP_TYPE_FLOAT ? sizeof(float) : numbers->type == PP_TYPE_BF16 ? sizeof(uint16_t) : 1;
}

static void make_numbers(const struct numbers *numbers, uint64_t *state, int64_t n, void *out)
{
    for (int64_t i = 0; i < n; i++) {
        float value = numbers->center + numbers->bound * ((float)(next_random(state) >> 40) * 0x1p-23F - 1.0F);
        if (numbers->type == PP_TYPE_FP8)
            ((uint8_t *)out)[i] = pp_fp8(value, false);
        else if (numbers->type == PP_TYPE_BF16)
            ((uint16_t *)out)[i] = pp_bf16(value);
        else
            ((float *)out)[i] = value;
    }
}

/* Repeats the first bytes at an offset, of which there are `done`, until there are `bytes`. A device with queues copies
 * them faster than a host uploads, and each time twice as many. piece: the same bytes in host memory. */
static pp_status repeat(struct pp_profile_arena *arena, int64_t offset, int64_t done, int64_t bytes, const void *piece)
{
    const struct pp_queue_ops *queue = arena->backend->queue;
    const int64_t first = done;
    char *base = arena->base + offset;
    for (int64_t more; done < bytes; done += more) {
        more = queue ? done : first;
        if (more > bytes - done) more = bytes - done;
        if (queue)
            PP_TRY(queue->copy(arena->device, queue->compute(arena->device), base + done, base, more));
        else
            PP_TRY(arena->backend->upload(arena->device, base + done, piece, more));
    }
    return PP_OK;
}

static pp_status fill_reals(struct pp_profile_arena *arena, int64_t offset, int64_t n, const struct numbers *numbers)
{
    const int64_t size = size_of(numbers);
    uint64_t state = numbers->seed;
    void *piece;
    const int64_t most = n < PIECE ? n : PIECE;
    PP_TRY(pp_alloc_bytes(&piece, (size_t)most, (size_t)size));
    make_numbers(numbers, &state, most, piece);
    pp_status status = arena->backend->upload(arena->device, arena->base + offset, piece, most * size);
    if (status == PP_OK) status = repeat(arena, offset, most * size, n * size, piece);
    free(piece);
    return status;
}

static pp_status fill_tokens(struct pp_profile_arena *arena, int64_t offset, int64_t n)
{
    int32_t *tokens;
    PP_TRY(PP_NEW(&tokens, n));
    uint64_t state = 1;
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(next_random(&state) % (uint64_t)arena->job->model->shape.vocab);
    pp_status status = arena->backend->upload(arena->device, arena->base + offset, tokens, n * (int64_t)sizeof *tokens);
    free(tokens);
    return status;
}

/* The FP8 copies of a weight within +-bound; the scale stands where amax does, too, which no other task reads. */
static pp_status fill_fp8(struct pp_profile_arena *arena, const struct pp_tensor *t, float bound)
{
    const int64_t at = arena->job->layout->param16_offset[t->stage] + t->offset8, n = 2 * t->local_elements;
    const float largest = pp_fp8_format(false).largest;
    const struct numbers copies = {.seed = (uint64_t)at, .bound = largest, .type = PP_TYPE_FP8},
                         scales = {.center = bound / largest, .type = PP_TYPE_FLOAT};
    PP_TRY(fill_reals(arena, at, n, &copies));
    return fill_reals(arena, at + n, 2, &scales);
}

static pp_status fill_parameters(struct pp_profile_arena *arena)
{
    const struct pp_job *job = arena->job;
    for (int i = 0; i < job->model->ntensors; i++) {
        const struct pp_tensor *t = &job->model->tensors[i];
        if (job->train->stage_rank[t->stage] != arena->rank || t->init == PP_INIT_ZERO) continue;
        float center = t->init == PP_INIT_ONE ? 1 : 0;
        double bound = t->init == PP_INIT_ONE ? 0 : t->init == PP_INIT_NORMAL ? t->bound * sqrt(3) : t->bound;
        const bool shards = job->model->shape.zero == PP_ZERO_PARAMETERS;
        const int64_t whole = shards ? t->part_elements : t->local_elements;
        int64_t at = job->layout->param_offset[t->stage] + (shards ? t->share_value_offset : t->value_offset);
        int64_t elements = whole;
        if (t->value_offset < 0) {
            at = job->layout->state_offset[t->stage] + pp_split_weight_offset(job->model, t);
            elements = t->part_elements;
        }
        struct numbers numbers = {.seed = (uint64_t)at, .center = center, .bound = (float)bound, .type = PP_TYPE_FLOAT};
        PP_TRY(fill_reals(arena, at, elements, &numbers));
        if (t->offset16 < 0) continue;
        numbers.type = PP_TYPE_BF16;
        const int64_t copy = shards ? t->share_offset16 : t->offset16;
        PP_TRY(fill_reals(arena, job->layout->param16_offset[t->stage] + copy, whole, &numbers));
        if (t->offset8 >= 0) PP_TRY(fill_fp8(arena, t, (float)bound));
    }
    return PP_OK;
}

static int64_t slot_offset(const struct pp_job *job, int32_t slot)
{
    return job->layout->slot_offset[job->phase_layout[PP_TRAIN]][slot];
}

/* Of parameters that are gathered: like weights, small. */
static const float gathered_scale = 0.02F;

/* With shards, what would be gathered. Two bfloat16 numbers are a float32 number like the second one, so that it does
 * not matter which of both a part has where. */
static pp_status fill_gathered(struct pp_profile_arena *arena)
{
    const struct pp_job *job = arena->job;
    const struct pp_plan *plan = job->train;
    const struct numbers numbers = {.seed = 1, .bound = gathered_scale, .type = PP_TYPE_BF16};
    int64_t bytes = 0;
    for (int c = 0; c < plan->nclasses && plan->shard_params; c++) {
        const struct pp_class *cls = &plan->classes[c];
        if (cls->kind != PP_GATHER_PARAM || plan->stage_rank[cls->stage] != arena->rank) continue;
        const struct pp_part_memory memory = pp_part_memory_of(job->model, cls);
        if (memory.bytes > bytes) bytes = memory.bytes;
    }
    for (int i = 0; i < plan->npools; i++) {
        const struct pp_pool *pool = &plan->pools[i];
        if (pool->kind != PP_POOL_PARAM || pool->rank != arena->rank) continue;
        for (int slot = pool->first; slot < pool->first + pool->slots; slot++)
            PP_TRY(fill_reals(arena, slot_offset(job, slot), bytes / pp_element_bytes(PP_BF16), &numbers));
    }
    return PP_OK;
}

/* What would arrive from other ranks: receive slots, each as large as the largest microbatch. */
static pp_status fill_received(struct pp_profile_arena *arena)
{
    const struct pp_job *job = arena->job;
    const struct pp_plan *plan = job->train;
    int rows = 0;
    for (int i = 0; i < plan->microbatches; i++) rows = plan->rows[i] > rows ? plan->rows[i] : rows;
    const struct pp_shape *shape = &job->model->shape;
    const int64_t n = pp_hidden_bytes(shape, rows, job->phase[PP_TRAIN].seq) / pp_element_bytes(shape->precision);
    for (int i = 0; i < plan->npools; i++) {
        const struct pp_pool *pool = &plan->pools[i];
        if (pool->kind != PP_POOL_RECV || pool->rank != arena->rank) continue;
        bool gradient = pool->key % 2 != 0; /* see struct pp_pool */
        for (int slot = pool->first; slot < pool->first + pool->slots; slot++) {
            const int64_t at = slot_offset(job, slot);
            const struct numbers numbers = {.seed = (uint64_t)at,
                                            .bound = gradient ? gradient_scale : 1,
                                            .type = pp_in_bf16(shape->precision) ? PP_TYPE_BF16 : PP_TYPE_FLOAT};
            PP_TRY(fill_reals(arena, at, n, &numbers));
        }
    }
    return PP_OK;
}

static pp_status fill(struct pp_profile_arena *arena)
{
    const struct pp_layout *layout = arena->job->layout;
    PP_TRY(fill_parameters(arena));
    PP_TRY(fill_gathered(arena));
    PP_TRY(fill_received(arena));
    return fill_tokens(arena, layout->data_offset[arena->rank], 2 * layout->data_elements);
}

pp_status pp_profile_arena_open(const struct pp_job *job, const struct pp_backend *backend, struct pp_device *device,
                                int rank, struct pp_profile_arena *out)
{
    *out = (struct pp_profile_arena){
        .job = job, .backend = backend, .device = device, .rank = rank, .bytes = job->layout->arena_bytes[rank]};
    void *base = NULL, *results = NULL;
    out->results_bytes =
        (1 + (int64_t)job->model->ntensors * pp_shape_sums(&job->model->shape)) * (int64_t)sizeof *out->results;
    pp_status status = backend->alloc(device, out->results_bytes, &results);
    out->results = results;
    if (status == PP_OK) status = backend->alloc(device, out->bytes, &base);
    out->base = base;
    if (status == PP_OK) status = fill(out);
    if (status != PP_OK) pp_profile_arena_close(out);
    return status;
}

void pp_profile_arena_close(struct pp_profile_arena *arena)
{
    if (arena->base) arena->backend->release(arena->device, arena->base, arena->bytes);
    if (arena->results) arena->backend->release(arena->device, arena->results, arena->results_bytes);
    arena->base = NULL;
    arena->results = NULL;
}

void pp_profile_arena_frame(struct pp_profile_arena *arena, const struct pp_task *task, struct pp_frame *out)
{
    const struct pp_job *job = arena->job;
    const struct pp_phase *phase = &job->phase[PP_TRAIN];
    const struct pp_arena place = {arena->base, arena->rank, job->layout->slot_offset[job->phase_layout[PP_TRAIN]]};
    const int64_t tokens = (int64_t)job->config->rows * phase->seq * job->config->replicas;
    *out = (struct pp_frame){
        .seed = job->config->seed,
        .training = true,
        .loss_scale = 1.0F / (float)tokens,
        .tokens = tokens,
        .learning_rate = learning_rate,
        .adamw = pp_adamw_at(&job->config->adamw, learning_rate, 0),
        .clip_factor = 1,
        .loss = arena->results,
        .sums = arena->results + 1,
        .tensor = pp_plan_tensor(phase->plan),
        .context = phase->plan->context,
        /* With a window the last worker's queries see the most keys (kernels/work.c), and a step waits for it. */
        .context_rank = phase->plan->context - 1,
        .halves = pp_shape_halves_rows(&job->model->shape),
    };
    pp_frame_place(job, phase, &place, task, out);
}
