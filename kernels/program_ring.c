/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention where keys and values go around in a ring (Liu et al. 2023, "Ring Attention with Blockwise Transformers for
 * Near-Infinite Context"; as Megatron-LM's --cp-comm-type p2p does it). Each of C workers has two chunks of each row,
 * chunks c and 2 C - 1 - c, and attends to its own keys and values first, then to those of worker c - 1, c - 2 and so
 * on, which each worker sends on to the next one meanwhile. What a chunk's queries get from two chunks' keys becomes
 * one by the sums of their exponentials (kernel merge).
 *
 * With a causal mask a worker's second chunk sees both chunks of an earlier worker's, which its first chunk sees as far
 * as the first; of a later worker's only its second chunk sees anything, but both chunks. So in each step but the first
 * two pairs of chunks have something to do: the second chunk's queries with the first chunk's keys, and, by whose keys
 * they are, the first chunks of both, or the second chunks of both (pp_ref.ring_step). No pair needs a mask then. In
 * the first step the pairs of equal chunks do.
 *
 * Backward keys and values go around once more. The gradients of what a worker had are what it adds to those that the
 * worker before sends; after C steps they are where they belong. They go around in the type of activations, and what
 * is added up is rounded to it, as Transformer Engine does it.
 */
#include "kernels/program_ring.h"

#include "kernels/model_program.h"

/* Numbers of joins that run beside (pp_join_call.beside): gradients are sent on first, then keys. */
enum { FIRST_BESIDE = 1, SECOND_BESIDE };

/* Queries and keys of one row, each of one chunk of a worker's: 0 or 1. */
struct pair {
    int row, queries, keys;
    int step;    /* in which it is */
    bool either; /* both chunks are 0 or, if the keys are a later worker's, 1 */
    bool masked; /* the chunks are the same, and queries see no later keys */
    bool first_of_step, first_of_queries, first_of_keys;
};

static int element_bytes(const struct pp_writer *w) { return pp_element_bytes(w->model->local.precision); }
static int chunk(const struct pp_writer *w) { return w->seq / 2; }
static int keys_width(const struct pp_writer *w) { return (int)pp_keys_width(&w->model->local); }

/* The part of `ref` that belongs to a row's chunk of a worker; parts, of `bytes` each, lie in this order. */
static struct pp_ref part_of(const struct pair *p, struct pp_ref ref, int of_chunk, int64_t bytes)
{
    ref.offset += (2 * p->row + of_chunk) * bytes;
    if (p->either) {
        ref.ring_step = p->step;
        ref.step_bytes = bytes;
    }
    return ref;
}

/* The same in a matrix of tokens' rows of `width` activations. */
static struct pp_ref rows_of(const struct pp_writer *w, const struct pair *p, struct pp_ref ref, int of_chunk,
                             int64_t width)
{
    return part_of(p, ref, of_chunk, chunk(w) * width * element_bytes(w));
}

static struct pp_ref queries_of(const struct pp_writer *w, const struct pair *p, int l)
{
    return rows_of(w, p, pp_ref_act(w, l, w->slot.qkv), p->queries, pp_qkv_width(&w->model->local));
}

static struct pp_ref ctx_of(const struct pp_writer *w, const struct pair *p, struct pp_ref ctx)
{
    return rows_of(w, p, ctx, p->queries, pp_attended_width(&w->model->local));
}

static struct pp_ref lse_of(const struct pp_writer *w, const struct pair *p, int l)
{
    return part_of(p, pp_ref_act(w, l, w->slot.lse), p->queries,
                   (int64_t)w->model->local.heads * chunk(w) * (int64_t)sizeof(float));
}

static struct pp_ref keys_of(const struct pp_writer *w, const struct pair *p, struct pp_ref keys)
{
    return rows_of(w, p, keys, p->keys, keys_width(w));
}

/* Attention of a pair, or its gradient. */
static struct pp_call *write_flash(struct pp_writer *w, enum pp_kernel kernel, const struct pair *p)
{
    const struct pp_shape *shape = &w->model->local;
    struct pp_call *call = pp_writer_call(w, kernel);
    call->attention = (struct pp_attention_dims){.rows = 1,
                                                 .seq = chunk(w),
                                                 .heads = shape->heads,
                                                 .dh = pp_head_dim(shape),
                                                 .causal = p->masked,
                                                 .kv = pp_kv_heads(shape),
                                                 .keys = chunk(w)};
    if (pp_value_dim(shape) != pp_head_dim(shape)) call->attention.dv = pp_value_dim(shape);
    call->scale = (float)shape->score_factor;
    return call;
}

/* Columns of rows that are copied, or added to what is there. */
static void write_columns(struct pp_writer *w, struct pp_columns_dims dims, struct pp_ref to, struct pp_ref from)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_ADD_COLUMNS);
    call->columns = dims;
    call->at.add_columns = (struct pp_add_columns_refs){.to = to, .from = from};
}

/* Sends keys and values, or their gradients, on to the next worker, beside what comes next. */
static void write_shift(struct pp_writer *w, int beside, struct pp_ref to, struct pp_ref from)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_SHIFT);
    call->exchange = (struct pp_exchange_dims){
        .rows = (int)w->tokens, .width = keys_width(w), .group = PP_JOIN_CONTEXT_RANKS, .beside = beside};
    call->at.exchange = (struct pp_exchange_refs){.to = to, .from = from};
}

static struct pair pair_of(const struct pp_writer *w, int step, int row, int queries, int keys)
{
    const bool causal = w->model->local.mask == PP_MASK_CAUSAL, own = step == 0, same = queries == keys;
    return (struct pair){.row = row,
                         .queries = queries,
                         .keys = keys,
                         .step = step,
                         .either = causal && !own && same,
                         .masked = causal && own && same,
                         .first_of_step = row == 0 && queries == 0 && keys == 0,
                         .first_of_queries = own && keys == 0,
                         .first_of_keys = own && (causal ? same : queries == 0)};
}

/* Has a pair something to do? The second chunks of both are met where the first ones are, if they are either. */
static bool meets(const struct pp_writer *w, const struct pair *p)
{
    const bool causal = w->model->local.mask == PP_MASK_CAUSAL;
    return !causal || (p->queries >= p->keys && !(p->either && p->keys == 1));
}

typedef void write_pair_fn(struct pp_writer *w, int l, const struct pair *p, struct pp_ref scratch, struct pp_ref dctx);

/* Has `each` write all pairs of a step. */
static void write_pairs(struct pp_writer *w, int l, int step, struct pp_ref scratch, struct pp_ref dctx,
                        write_pair_fn *each)
{
    for (int i = 0; i < 4 * w->rows; i++) {
        const struct pair p = pair_of(w, step, i / 4, i % 2, i / 2 % 2);
        if (meets(w, &p)) each(w, l, &p, scratch, dctx);
    }
}

static void write_pair(struct pp_writer *w, int l, const struct pair *p, struct pp_ref scratch, struct pp_ref none)
{
    const struct pp_shape *shape = &w->model->local;
    const struct pp_ref ctx = ctx_of(w, p, pp_ref_act(w, l, w->slot.ctx)), lse = lse_of(w, p, l);
    struct pp_call *call = write_flash(w, PP_KERNEL_FLASH, p);
    call->at.flash = (struct pp_flash_refs){.ctx = p->first_of_queries ? ctx : w->ring.part,
                                            .lse = p->first_of_queries ? lse : w->ring.part_lse,
                                            .qkv = queries_of(w, p, l),
                                            .bias = none,
                                            .scratch = scratch,
                                            .keys = keys_of(w, p, w->ring.keys[p->step % 2])};
    if (p->first_of_queries) return;
    call = pp_writer_call(w, PP_KERNEL_MERGE);
    call->merge = (struct pp_merge_dims){.tokens = chunk(w), .heads = shape->heads, .dv = pp_value_dim(shape)};
    call->at.merge = (struct pp_merge_refs){.ctx = ctx, .lse = lse, .part = w->ring.part, .part_lse = w->ring.part_lse};
}

void pp_write_ring(struct pp_writer *w, int l, struct pp_ref scratch)
{
    const struct pp_ref none = {0};
    const int steps = pp_shape_context(&w->model->local);
    for (int i = 0; i < steps; i++) {
        const bool sends = i + 1 < steps;
        if (sends) write_shift(w, FIRST_BESIDE, w->ring.keys[(i + 1) % 2], w->ring.keys[i % 2]);
        write_pairs(w, l, i, scratch, none, write_pair);
        if (sends) pp_write_await(w, FIRST_BESIDE);
    }
}

/* The gradients that the worker before has sent are awaited only when something is to be added to them. */
static void write_pair_grad(struct pp_writer *w, int l, const struct pair *p, struct pp_ref scratch, struct pp_ref dctx)
{
    const struct pp_shape *shape = &w->model->local;
    const int rows = chunk(w), width = (int)pp_qkv_width(shape), columns = pp_query_width(shape), keys = keys_width(w);
    const struct pp_ref grads = keys_of(w, p, w->ring.grads[p->step % 2]);
    write_columns(w, (struct pp_columns_dims){rows, columns, .to_pitch = width, .from_pitch = width}, w->ring.part_qkv,
                  queries_of(w, p, l));
    struct pp_call *call = write_flash(w, PP_KERNEL_FLASH_GRAD, p);
    call->at.flash_grad = (struct pp_flash_grad_refs){.qkv = w->ring.part_qkv,
                                                      .lse = lse_of(w, p, l),
                                                      .ctx = ctx_of(w, p, pp_ref_act(w, l, w->slot.ctx)),
                                                      .dctx = ctx_of(w, p, dctx),
                                                      .scratch = scratch,
                                                      .keys = keys_of(w, p, w->ring.keys[p->step % 2]),
                                                      .dkeys = p->first_of_keys ? grads : w->ring.part_keys};
    write_columns(w, (struct pp_columns_dims){rows, columns, columns, width, .adds = !p->first_of_queries},
                  rows_of(w, p, w->ring.queries, p->queries, columns), w->ring.part_qkv);
    if (p->first_of_keys) return;
    if (p->first_of_step && p->step > 0) pp_write_await(w, FIRST_BESIDE);
    write_columns(w, (struct pp_columns_dims){rows, keys, keys, keys, .adds = 1}, grads, w->ring.part_keys);
}

/* What was added up takes the place of queries, keys and values. */
static void write_sums(struct pp_writer *w, int l, struct pp_ref grads)
{
    const struct pp_shape *shape = &w->model->local;
    const int n = (int)w->tokens, width = (int)pp_qkv_width(shape), columns = pp_query_width(shape),
              keys = keys_width(w);
    const struct pp_ref dqkv = pp_ref_act(w, l, w->slot.qkv);
    write_columns(w, (struct pp_columns_dims){n, columns, width, columns, 0}, dqkv, w->ring.queries);
    write_columns(w, (struct pp_columns_dims){n, keys, width, keys, 0},
                  pp_ref_further(dqkv, (int64_t)columns * element_bytes(w)), grads);
}

void pp_write_ring_grad(struct pp_writer *w, int l, struct pp_ref dctx, struct pp_ref scratch)
{
    const int steps = pp_shape_context(&w->model->local);
    for (int i = 0; i < steps; i++) {
        const bool sends = i + 1 < steps;
        const struct pp_ref grads = w->ring.grads[i % 2];
        if (sends) write_shift(w, i > 0 ? SECOND_BESIDE : FIRST_BESIDE, w->ring.keys[(i + 1) % 2], w->ring.keys[i % 2]);
        write_pairs(w, l, i, scratch, dctx, write_pair_grad);
        if (sends) pp_write_await(w, i > 0 ? SECOND_BESIDE : FIRST_BESIDE);
        write_shift(w, FIRST_BESIDE, w->ring.grads[(i + 1) % 2], grads);
    }
    pp_write_await(w, FIRST_BESIDE);
    write_sums(w, l, w->ring.grads[steps % 2]);
}

void pp_writer_take_ring(struct pp_writer *w, bool back)
{
    const struct pp_shape *shape = &w->model->local;
    const int64_t rows = chunk(w), activation = element_bytes(w);
    for (int i = 0; i < 2; i++) w->ring.keys[i] = pp_writer_activations(w, keys_width(w));
    w->ring.part = pp_writer_scratch(w, rows * pp_attended_width(shape) * activation);
    w->ring.part_lse = pp_writer_scratch(w, rows * shape->heads * (int64_t)sizeof(float));
    if (!back) return;
    for (int i = 0; i < 2; i++) w->ring.grads[i] = pp_writer_activations(w, keys_width(w));
    w->ring.queries = pp_writer_activations(w, pp_query_width(shape));
    w->ring.part_qkv = pp_writer_scratch(w, rows * pp_qkv_width(shape) * activation);
    w->ring.part_keys = pp_writer_scratch(w, rows * keys_width(w) * activation);
}
