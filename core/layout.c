/* SPDX-License-Identifier: Apache-2.0 */
#include "core/layout.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };

const char *const pp_memory_names[PP_BYTES_KINDS] = {"parameters", "gradients", "activations", "checkpoints",
                                                     "transfer",   "data",      "workspace"};

static const int pool_bytes_kind[PP_POOL_KINDS] = {
    [PP_POOL_ACT] = PP_BYTES_ACT,       [PP_POOL_CKPT] = PP_BYTES_CKPT,      [PP_POOL_RECV] = PP_BYTES_TRANSFER,
    [PP_POOL_SEND] = PP_BYTES_TRANSFER, [PP_POOL_LOCAL] = PP_BYTES_TRANSFER,
};

static int64_t align(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* A pool of the run: what the plans' pools of equal meaning share. */
struct shared_pool {
    int kind, rank, key, slots;
    int64_t slot_bytes, offset;
};

struct build {
    const struct pp_model *model;
    const struct pp_model_ops *ops;
    const struct pp_phase *phases;
    int n;
    struct shared_pool *pools;
    int npools;
    const struct pp_plan **plans; /* distinct, [nplans] */
    struct pp_layout *layout;
};

static bool split_backward(const struct pp_plan *plan)
{
    for (int c = 0; c < plan->nclasses; c++)
        if (plan->classes[c].kind == PP_W) return true;
    return false;
}

/* Rows of the largest microbatch: of checkpoints and transfers. */
static int max_rows(const struct pp_plan *plan)
{
    int most = 0;
    for (int m = 0; m < plan->microbatches; m++)
        if (plan->rows[m] > most) most = plan->rows[m];
    return most;
}

static struct pp_program_spec spec_of(const struct pp_phase *phase, int rows)
{
    return (struct pp_program_spec){.seq = phase->seq,
                                    .slot_rows = rows,
                                    .training = phase->plan->training,
                                    .split_backward = split_backward(phase->plan)};
}

/* A stage's input or output: what travels, and what checkpoints keep. */
static int64_t hidden_bytes(const struct pp_model *model, const struct pp_phase *phase, int rows)
{
    return (int64_t)rows * phase->seq * model->shape.d_model * pp_element_bytes(model->shape.precision);
}

/* Largest activation slot of a group of stages on a rank. */
static int64_t act_slot_bytes(const struct build *b, const struct pp_phase *phase, const struct pp_pool *pool)
{
    const struct pp_plan *plan = phase->plan;
    const struct pp_program_spec spec = spec_of(phase, pp_plan_slot_rows(plan, -1));
    int64_t most = 0;
    for (int s = 0; s < plan->stages; s++) {
        if (plan->stage_rank[s] != pool->rank || plan->act_group[s] != pool->key) continue;
        int64_t bytes = b->ops->act_bytes(b->model, s, &spec);
        if (bytes > most) most = bytes;
    }
    return most;
}

static int64_t slot_bytes(const struct build *b, const struct pp_phase *phase, const struct pp_pool *pool)
{
    if (pool->kind == PP_POOL_ACT) return align(act_slot_bytes(b, phase, pool));
    return align(hidden_bytes(b->model, phase, max_rows(phase->plan)));
}

static struct shared_pool *find_pool(const struct build *b, const struct pp_pool *pool)
{
    for (int i = 0; i < b->npools; i++) {
        struct shared_pool *known = &b->pools[i];
        if (known->kind == pool->kind && known->rank == pool->rank && known->key == pool->key) return known;
    }
    return NULL;
}

static pp_status merge_pools(struct build *b)
{
    int most = 0;
    for (int i = 0; i < b->n; i++) most += b->phases[i].plan->npools;
    PP_TRY(PP_NEW(&b->pools, most));
    for (int i = 0; i < b->n; i++) {
        const struct pp_plan *plan = b->phases[i].plan;
        for (int p = 0; p < plan->npools; p++) {
            const struct pp_pool *pool = &plan->pools[p];
            struct shared_pool *shared = find_pool(b, pool);
            if (!shared) {
                shared = &b->pools[b->npools++];
                *shared = (struct shared_pool){.kind = pool->kind, .rank = pool->rank, .key = pool->key};
            }
            int64_t bytes = slot_bytes(b, &b->phases[i], pool);
            if (pool->slots > shared->slots) shared->slots = pool->slots;
            if (bytes > shared->slot_bytes) shared->slot_bytes = bytes;
        }
    }
    return PP_OK;
}

/* Reserves `bytes` of one kind at the end of a rank's arena; returns where. */
static int64_t reserve(struct pp_layout *layout, int rank, int kind, int64_t bytes)
{
    int64_t offset = layout->arena_bytes[rank];
    layout->arena_bytes[rank] += align(bytes);
    layout->bytes[rank][kind] += align(bytes);
    return offset;
}

static bool trains(const struct build *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->phases[i].plan->training) return true;
    return false;
}

static void place_parameters(struct build *b)
{
    const int *stage_rank = b->phases[0].plan->stage_rank;
    struct pp_layout *layout = b->layout;
    for (int s = 0; s < layout->nstages; s++)
        layout->param_offset[s] = reserve(layout, stage_rank[s], PP_BYTES_PARAM, b->model->stages[s].param_bytes);
    for (int s = 0; s < layout->nstages; s++) {
        const int64_t bytes = b->model->stages[s].param16_bytes;
        layout->param16_offset[s] = bytes > 0 ? reserve(layout, stage_rank[s], PP_BYTES_PARAM, bytes) : -1;
    }
    for (int s = 0; s < layout->nstages && trains(b); s++)
        layout->grad_offset[s] = reserve(layout, stage_rank[s], PP_BYTES_GRAD, b->model->stages[s].param_bytes);
}

static void place_pools(struct build *b)
{
    for (int kind = 0; kind < PP_POOL_KINDS; kind++)
        for (int i = 0; i < b->npools; i++) {
            struct shared_pool *pool = &b->pools[i];
            if (pool->kind != kind) continue;
            pool->offset = reserve(b->layout, pool->rank, pool_bytes_kind[kind], pool->slots * pool->slot_bytes);
        }
}

/* Tokens and targets lie on every rank, so that all have the same layout; they are small. */
static void place_rest(struct build *b)
{
    struct pp_layout *layout = b->layout;
    for (int i = 0; i < b->n; i++) {
        const struct pp_plan *plan = b->phases[i].plan;
        int64_t rows = plan->first_row[plan->microbatches - 1] + plan->rows[plan->microbatches - 1];
        if (rows * b->phases[i].seq > layout->data_elements) layout->data_elements = rows * b->phases[i].seq;
    }
    for (int r = 0; r < layout->ranks; r++) {
        layout->data_offset[r] =
            reserve(layout, r, PP_BYTES_DATA, 2 * layout->data_elements * (int64_t)sizeof(int32_t));
        int64_t work = 0;
        for (int i = 0; i < b->n; i++) {
            const struct pp_phase *phase = &b->phases[i];
            for (int c = 0; phase->programs && c < phase->plan->nclasses; c++) {
                int stage = phase->plan->classes[c].stage;
                if (stage < 0 || phase->plan->stage_rank[stage] != r) continue;
                if (phase->programs[c].work_bytes > work) work = phase->programs[c].work_bytes;
            }
        }
        layout->work_offset[r] = reserve(layout, r, PP_BYTES_WORK, work);
    }
}

static int plan_index(struct build *b, const struct pp_plan *plan)
{
    int i = 0;
    while (i < b->layout->nplans && b->plans[i] != plan) i++;
    if (i == b->layout->nplans) b->plans[b->layout->nplans++] = plan;
    return i;
}

static pp_status place_slots(struct build *b)
{
    struct pp_layout *layout = b->layout;
    for (int i = 0; i < b->n; i++) plan_index(b, b->phases[i].plan);
    PP_TRY(PP_NEW(&layout->slot_offset, layout->nplans));
    for (int i = 0; i < layout->nplans; i++) {
        const struct pp_plan *plan = b->plans[i];
        PP_TRY(PP_NEW(&layout->slot_offset[i], plan->nslots));
        for (int p = 0; p < plan->npools; p++) {
            const struct pp_pool *pool = &plan->pools[p];
            const struct shared_pool *shared = find_pool(b, pool);
            for (int s = 0; s < pool->slots; s++)
                layout->slot_offset[i][pool->first + s] = shared->offset + s * shared->slot_bytes;
        }
    }
    return PP_OK;
}

/* Fixed regions and transfer slots, plus the most activation and checkpoint bytes in use at once in the order of each
 * rank. */
static void live_peaks(const struct build *b)
{
    struct pp_layout *layout = b->layout;
    for (int r = 0; r < layout->ranks; r++) {
        int64_t fixed = layout->arena_bytes[r] - layout->bytes[r][PP_BYTES_ACT] - layout->bytes[r][PP_BYTES_CKPT],
                most = 0;
        for (int i = 0; i < b->n; i++) {
            const struct pp_plan *plan = b->phases[i].plan;
            int64_t live = 0, taken, freed;
            for (int64_t e = plan->issue_start[r]; e < plan->issue_start[r + 1]; e++) {
                int32_t id = pp_issue_task(plan->issue[e]);
                if (plan->tasks[id].act < 0) continue;
                pp_layout_task_bytes(b->model, b->ops, &b->phases[i], id, &taken, &freed);
                live += taken;
                if (live > most) most = live;
                live -= freed;
            }
        }
        layout->live_peak_bytes[r] = fixed + most;
    }
}

void pp_layout_task_bytes(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phase,
                          int32_t task, int64_t *taken, int64_t *freed)
{
    const struct pp_task *t = &phase->plan->tasks[task];
    *taken = *freed = 0;
    if (t->act < 0) return;
    int rows = phase->plan->rows[t->microbatch];
    const struct pp_program_spec spec = spec_of(phase, pp_plan_slot_rows(phase->plan, t->microbatch));
    int64_t act = ops->act_bytes(model, t->stage, &spec);
    int64_t ckpt = hidden_bytes(model, phase, rows);
    if (t->flags & PP_TASK_TAKE_ACT) *taken += align(act);
    if (t->flags & PP_TASK_TAKE_CKPT) *taken += align(ckpt);
    if (t->flags & PP_TASK_FREE_ACT) *freed += align(act);
    if (t->flags & PP_TASK_FREE_CKPT) *freed += align(ckpt);
}

static pp_status allocate(struct pp_layout *layout)
{
    PP_TRY(PP_NEW(&layout->param_offset, layout->nstages));
    PP_TRY(PP_NEW(&layout->param16_offset, layout->nstages));
    PP_TRY(PP_NEW(&layout->grad_offset, layout->nstages));
    PP_TRY(PP_NEW(&layout->arena_bytes, layout->ranks));
    PP_TRY(PP_NEW(&layout->bytes, layout->ranks));
    PP_TRY(PP_NEW(&layout->live_peak_bytes, layout->ranks));
    PP_TRY(PP_NEW(&layout->data_offset, layout->ranks));
    return PP_NEW(&layout->work_offset, layout->ranks);
}

pp_status pp_layout_create(const struct pp_model *model, const struct pp_model_ops *ops, const struct pp_phase *phases,
                           int n, struct pp_layout **out)
{
    struct build b = {.model = model, .ops = ops, .phases = phases, .n = n};
    pp_status status;
    *out = NULL;
    PP_TRY(PP_NEW(&b.layout, 1));
    b.layout->ranks = phases[0].plan->ranks;
    b.layout->nstages = model->nstages;
    PP_TRY_DONE(PP_NEW(&b.plans, n));
    PP_TRY_DONE(allocate(b.layout));
    PP_TRY_DONE(merge_pools(&b));
    place_parameters(&b);
    place_pools(&b);
    place_rest(&b);
    PP_TRY_DONE(place_slots(&b));
    live_peaks(&b);
    *out = b.layout;
done:
    free(b.pools);
    free(b.plans);
    if (status != PP_OK) pp_layout_free(b.layout);
    return status;
}

void pp_layout_free(struct pp_layout *layout)
{
    if (!layout) return;
    for (int i = 0; layout->slot_offset && i < layout->nplans; i++) free(layout->slot_offset[i]);
    free(layout->slot_offset);
    free(layout->param_offset);
    free(layout->param16_offset);
    free(layout->grad_offset);
    free(layout->arena_bytes);
    free(layout->bytes);
    free(layout->live_peak_bytes);
    free(layout->data_offset);
    free(layout->work_offset);
    free(layout);
}
