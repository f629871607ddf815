/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/layout.h"

#include <stdlib.h>

#include "core/plan/workers.h"

static const int64_t most_bytes = INT64_C(1) << 60; /* of all workers: sums of a few such numbers fit into 64 bits */

const char *const pp_memory_names[PP_BYTES_KINDS] = {"parameters",  "gradients", "optimizer", "activations",
                                                     "checkpoints", "transfer",  "data",      "workspace"};

static const int pool_bytes_kind[PP_POOL_KINDS] = {
    [PP_POOL_ACT] = PP_BYTES_ACT,       [PP_POOL_CKPT] = PP_BYTES_CKPT,      [PP_POOL_RECV] = PP_BYTES_TRANSFER,
    [PP_POOL_SEND] = PP_BYTES_TRANSFER, [PP_POOL_LOCAL] = PP_BYTES_TRANSFER, [PP_POOL_PARAM] = PP_BYTES_PARAM,
    [PP_POOL_GRAD] = PP_BYTES_GRAD,
};

/* The memory of a run for all pools of its plans with equal kind, rank and key. */
struct shared_pool {
    int kind, rank, key;
    int next;           /* the next one of the same rank; -1: none */
    int64_t slot_bytes; /* bytes of a slot in the plan that merge_plan() handles */
    int64_t bytes, offset;
};

struct build {
    const struct pp_model *model;
    const struct pp_model_ops *ops;
    const struct pp_phase *phases;
    int n;
    struct shared_pool *pools;
    int npools;
    int *of_rank;  /* [ranks] first shared pool of the rank; -1: none */
    int64_t *work; /* [ranks] scratch of the program that needs most */
    int64_t left;  /* bytes that all ranks of one replica, with one worker each, may still take */
    bool too_large;
    const struct pp_plan **plans; /* distinct, [nplans] */
    int64_t **slot_bytes;         /* [nplans][pools of the plan] */
    struct pp_layout *layout;
};

/* Rows of the largest microbatch, for which checkpoint slots and transfer slots have room. */
static int max_rows(const struct pp_plan *plan)
{
    int most = 0;
    for (int m = 0; m < plan->microbatches; m++)
        if (plan->rows[m] > most) most = plan->rows[m];
    return most;
}

/* Bytes of a stage's input or output, which transfers move. */
static int64_t hidden_bytes(const struct pp_model *model, const struct pp_phase *phase, int rows)
{
    return pp_hidden_bytes(&model->shape, rows, phase->seq);
}

static struct shared_pool *find_pool(const struct build *b, int kind, int rank, int key)
{
    for (int i = b->of_rank[rank]; i >= 0; i = b->pools[i].next)
        if (b->pools[i].kind == kind && b->pools[i].key == key) return &b->pools[i];
    return NULL;
}

static struct shared_pool *make_pool(struct build *b, const struct pp_pool *pool)
{
    struct shared_pool *shared = &b->pools[b->npools];
    *shared =
        (struct shared_pool){.kind = pool->kind, .rank = pool->rank, .key = pool->key, .next = b->of_rank[pool->rank]};
    b->of_rank[pool->rank] = b->npools++;
    return shared;
}

static void widen(struct shared_pool *pool, int64_t slot_bytes)
{
    if (slot_bytes > pool->slot_bytes) pool->slot_bytes = slot_bytes;
}

static struct shared_pool *shared_of(const struct build *b, const struct pp_pool *pool)
{
    return find_pool(b, pool->kind, pool->rank, pool->key);
}

/* Makes shared pools wide enough for the slots of a phase: transfers, activations and checkpoints. A slot has room for
 * the largest microbatch, and for the stage that needs most of those that use the pool. */
static void widen_slots(struct build *b, const struct pp_phase *phase)
{
    const struct pp_plan *plan = phase->plan;
    const struct pp_program_spec spec = pp_phase_spec(phase, pp_plan_most_slot_rows(plan));
    const int64_t hidden = pp_layout_align(hidden_bytes(b->model, phase, max_rows(plan)));
    for (int p = 0; p < plan->npools; p++)
        if (pool_bytes_kind[plan->pools[p].kind] == PP_BYTES_TRANSFER) widen(shared_of(b, &plan->pools[p]), hidden);
    for (int s = 0; s < plan->stages; s++) {
        struct shared_pool *shared;
        int64_t act[PP_ACT_PARTS];
        b->ops->act_bytes(b->model, s, &spec, act);
        for (int i = 0; i < PP_ACT_PARTS; i++) {
            shared = find_pool(b, PP_POOL_ACT, plan->stage_rank[s], plan->act_pool[s][i]);
            if (shared) widen(shared, pp_layout_align(act[i]));
        }
        shared = find_pool(b, PP_POOL_CKPT, plan->stage_rank[s], 0);
        if (shared && plan->training)
            widen(shared, pp_layout_align(pp_phase_checkpoint_bytes(b->model, phase, s, max_rows(plan))));
    }
}

/* The same for the parameter and gradient slots of ZeRO 2 and 3: a slot has room for the largest part. */
static void widen_parts(struct build *b, const struct pp_plan *plan)
{
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        if (cls->kind == PP_GATHER_PARAM && plan->shard_params)
            widen(find_pool(b, PP_POOL_PARAM, plan->stage_rank[cls->stage], 0),
                  pp_layout_align(pp_part_memory_of(b->model, cls).bytes));
        if (cls->kind == PP_REDUCE_GRAD && plan->shards)
            widen(find_pool(b, PP_POOL_GRAD, plan->stage_rank[cls->stage], 0),
                  pp_layout_align(pp_part_gradients(b->model, cls).bytes));
    }
}

/* Adds the pools of plan i. Plans run one after the other, so each divides the same memory into slots of its own size.
 */
static pp_status merge_plan(struct build *b, int i)
{
    const struct pp_plan *plan = b->plans[i];
    PP_TRY(PP_NEW(&b->slot_bytes[i], plan->npools));
    for (int p = 0; p < plan->npools; p++) {
        struct shared_pool *shared = shared_of(b, &plan->pools[p]);
        if (!shared) shared = make_pool(b, &plan->pools[p]);
        shared->slot_bytes = 0;
    }
    for (int k = 0; k < b->n; k++)
        if (b->phases[k].plan == plan) widen_slots(b, &b->phases[k]);
    widen_parts(b, plan);
    for (int p = 0; p < plan->npools; p++) {
        struct shared_pool *shared = shared_of(b, &plan->pools[p]);
        int64_t bytes;
        b->slot_bytes[i][p] = shared->slot_bytes;
        if (__builtin_mul_overflow(plan->pools[p].slots, shared->slot_bytes, &bytes)) bytes = INT64_MAX;
        if (bytes > shared->bytes) shared->bytes = bytes;
    }
    return PP_OK;
}

static void add_plan(struct build *b, const struct pp_plan *plan)
{
    int i = 0;
    while (i < b->layout->nplans && b->plans[i] != plan) i++;
    if (i == b->layout->nplans) b->plans[b->layout->nplans++] = plan;
}

static pp_status merge_pools(struct build *b)
{
    const int ranks = b->layout->ranks;
    int most = 0;
    for (int i = 0; i < b->n; i++) most += b->phases[i].plan->npools;
    for (int i = 0; i < b->n; i++) add_plan(b, b->phases[i].plan);
    PP_TRY(PP_NEW(&b->pools, most));
    PP_TRY(PP_NEW(&b->of_rank, ranks));
    for (int r = 0; r < ranks; r++) b->of_rank[r] = -1;
    for (int i = 0; i < b->layout->nplans; i++) PP_TRY(merge_plan(b, i));
    return PP_OK;
}

/* Reserves n * bytes bytes of a kind at the end of a rank's arena, and returns their offset; -1 if the arena becomes
 * too large. */
static int64_t reserve(struct build *b, int rank, int kind, int64_t n, int64_t bytes)
{
    struct pp_layout *layout = b->layout;
    int64_t offset = layout->arena_bytes[rank], size;
    b->too_large = b->too_large || __builtin_mul_overflow(n, bytes, &size) || size > b->left;
    if (b->too_large) return -1;
    size = pp_layout_align(size);
    b->left -= size;
    layout->arena_bytes[rank] += size;
    layout->bytes[rank][kind] += size;
    return offset;
}

static bool trains(const struct build *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->phases[i].plan->training) return true;
    return false;
}

struct pp_stage_bytes pp_stage_bytes_of(const struct pp_model *model, int stage)
{
    const struct pp_stage *s = &model->stages[stage];
    const struct pp_shape *shape = &model->shape;
    const int64_t split = pp_shape_splits_weights(shape) ? s->share_bytes - s->share_value_bytes : 0;
    const bool own = shape->zero == PP_ZERO_PARAMETERS;
    return (struct pp_stage_bytes){.values = own ? s->share_value_bytes : s->value_bytes,
                                   .copies = own ? s->share_param16_bytes : s->param16_bytes,
                                   .gradients = shape->zero >= PP_ZERO_GRADIENTS ? s->share_bytes : s->param_bytes,
                                   .state = pp_states_bytes(model, s) + split};
}

/* Bytes of the bfloat16 gradients of the rank's largest collective of this kind; 0: gradients are not rounded. */
static int64_t most_sent(const struct build *b, int kind, int rank)
{
    int64_t most = 0;
    for (int i = 0; i < b->n; i++) {
        const struct pp_plan *plan = b->phases[i].plan;
        for (int c = 0; c < plan->nclasses; c++) {
            const struct pp_class *cls = &plan->classes[c];
            if (cls->kind != kind || plan->stage_rank[cls->stage] != rank) continue;
            for (int set = 0; set < PP_PARAM_SETS; set++) {
                const int64_t bytes = pp_combines_set(plan, kind, set) ? pp_sent_bytes(b->model, cls, set) : 0;
                if (bytes > most) most = bytes;
            }
        }
    }
    return most;
}

static void place_sent(struct build *b)
{
    for (int r = 0; r < b->layout->ranks; r++) {
        const int64_t all = most_sent(b, PP_REDUCE_GRAD, r), share = most_sent(b, PP_REDUCE_SHARE, r);
        b->layout->sent_offset[r] = all ? reserve(b, r, PP_BYTES_GRAD, 1, all) : -1;
        b->layout->sent_share_offset[r] = share ? reserve(b, r, PP_BYTES_GRAD, 1, share) : -1;
    }
}

/* Parameters, bfloat16 copies, gradients, optimizer state. */
static void place_parameters(struct build *b)
{
    const int *stage_rank = b->phases[0].plan->stage_rank;
    struct pp_layout *layout = b->layout;
    for (int s = 0; s < layout->nstages; s++)
        layout->param_offset[s] = reserve(b, stage_rank[s], PP_BYTES_PARAM, 1, pp_stage_bytes_of(b->model, s).values);
    for (int s = 0; s < layout->nstages; s++) {
        const int64_t bytes = pp_stage_bytes_of(b->model, s).copies;
        layout->param16_offset[s] = bytes > 0 ? reserve(b, stage_rank[s], PP_BYTES_PARAM, 1, bytes) : -1;
    }
    for (int s = 0; s < layout->nstages && trains(b); s++)
        layout->grad_offset[s] = reserve(b, stage_rank[s], PP_BYTES_GRAD, 1, pp_stage_bytes_of(b->model, s).gradients);
    place_sent(b);
    for (int s = 0; s < layout->nstages; s++) {
        const int64_t bytes = trains(b) ? pp_stage_bytes_of(b->model, s).state : 0;
        layout->state_offset[s] = bytes ? reserve(b, stage_rank[s], PP_BYTES_STATE, 1, bytes) : -1;
    }
}

static void place_pools(struct build *b)
{
    for (int kind = 0; kind < PP_POOL_KINDS; kind++)
        for (int i = 0; i < b->npools; i++) {
            struct shared_pool *pool = &b->pools[i];
            if (pool->kind != kind) continue;
            pool->offset = reserve(b, pool->rank, pool_bytes_kind[kind], 1, pool->bytes);
        }
}

/* Tokens and targets, and scratch. All ranks have room for tokens and targets, which are small, so that layouts are
 * alike. */
static void place_rest(struct build *b)
{
    struct pp_layout *layout = b->layout;
    for (int i = 0; i < b->n; i++) {
        const struct pp_plan *plan = b->phases[i].plan;
        int64_t rows = plan->first_row[plan->microbatches - 1] + plan->rows[plan->microbatches - 1];
        const int64_t elements = rows * pp_own_tokens(&b->model->shape, b->phases[i].seq);
        if (elements > layout->data_elements) layout->data_elements = elements;
    }
    for (int i = 0; i < b->n; i++) {
        const struct pp_phase *phase = &b->phases[i];
        for (int c = 0; phase->programs && c < phase->plan->nclasses; c++) {
            const int stage = phase->plan->classes[c].stage;
            if (stage < 0) continue;
            int64_t *work = &b->work[phase->plan->stage_rank[stage]];
            if (phase->programs[c].work_bytes > *work) *work = phase->programs[c].work_bytes;
        }
    }
    for (int r = 0; r < layout->ranks; r++) {
        layout->data_offset[r] = reserve(b, r, PP_BYTES_DATA, 2 * (int64_t)sizeof(int32_t), layout->data_elements);
        layout->work_offset[r] = reserve(b, r, PP_BYTES_WORK, 1, b->work[r]);
    }
}

static pp_status place(struct build *b)
{
    place_parameters(b);
    place_pools(b);
    place_rest(b);
    if (!b->too_large) return PP_OK;
    return pp_fail(
        PP_USAGE, "all workers together need more than 1 EiB of memory; use a smaller model, fewer --rows or --tokens");
}

static pp_status place_slots(struct build *b)
{
    struct pp_layout *layout = b->layout;
    PP_TRY(PP_NEW(&layout->slot_offset, layout->nplans));
    for (int i = 0; i < layout->nplans; i++) {
        const struct pp_plan *plan = b->plans[i];
        PP_TRY(PP_NEW(&layout->slot_offset[i], plan->nslots));
        for (int p = 0; p < plan->npools; p++) {
            const struct pp_pool *pool = &plan->pools[p];
            for (int s = 0; s < pool->slots; s++)
                layout->slot_offset[i][pool->first + s] = shared_of(b, pool)->offset + s * b->slot_bytes[i][p];
        }
    }
    return PP_OK;
}

static pp_status allocate(struct pp_layout *layout)
{
    PP_TRY(PP_NEW(&layout->param_offset, layout->nstages));
    PP_TRY(PP_NEW(&layout->param16_offset, layout->nstages));
    PP_TRY(PP_NEW(&layout->grad_offset, layout->nstages));
    PP_TRY(PP_NEW(&layout->state_offset, layout->nstages));
    PP_TRY(PP_NEW(&layout->sent_offset, layout->ranks));
    PP_TRY(PP_NEW(&layout->sent_share_offset, layout->ranks));
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
    b.left = most_bytes / ((int64_t)phases[0].plan->replicas * phases[0].plan->members);
    pp_status status;
    *out = NULL;
    PP_TRY(PP_NEW(&b.layout, 1));
    b.layout->ranks = phases[0].plan->ranks;
    b.layout->neighbours = pp_plan_neighbours(phases[0].plan);
    b.layout->nstages = model->nstages;
    PP_TRY_DONE(PP_NEW(&b.plans, n));
    PP_TRY_DONE(PP_NEW(&b.slot_bytes, n));
    PP_TRY_DONE(allocate(b.layout));
    PP_TRY_DONE(PP_NEW(&b.work, b.layout->ranks));
    PP_TRY_DONE(merge_pools(&b));
    PP_TRY_DONE(place(&b));
    PP_TRY_DONE(place_slots(&b));
    pp_layout_live_peaks(model, ops, phases, n, b.layout);
    *out = b.layout;
done:
    for (int i = 0; b.slot_bytes && i < n; i++) free(b.slot_bytes[i]);
    free(b.slot_bytes);
    free(b.pools);
    free(b.of_rank);
    free(b.work);
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
    free(layout->state_offset);
    free(layout->sent_offset);
    free(layout->sent_share_offset);
    free(layout->arena_bytes);
    free(layout->bytes);
    free(layout->live_peak_bytes);
    free(layout->data_offset);
    free(layout->work_offset);
    free(layout);
}
