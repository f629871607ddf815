/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention between in_proj and out_proj, forward and backward. Where workers have parts of the tokens of the same rows
 * (context parallelism), they get from each other what it needs of the others' tokens, in one of three ways.
 *
 * Before either a worker normalises queries and keys, where the model does: those of its tokens, of all its heads.
 *
 * All to all: attention is of all tokens and a part of the heads. What in_proj has made of a worker's tokens is laid
 * out in pieces, head part after head part, and all to all brings each worker those of its heads, in the order of the
 * tokens; what attention makes goes back the same way (Jacobs et al. 2023, "DeepSpeed Ulysses"). So attention and
 * rotary positions are the same kernels whoever has the tokens.
 *
 * All gather: attention is of the worker's queries, of all heads, and of the keys and values of all tokens (Dubey et
 * al. 2024, "The Llama 3 Herd of Models"). Those are gathered in scratch, in the order of the tokens, and once more on
 * the way back; then each worker gets what all have of the gradients of its own, and adds it up in their order.
 *
 * Ring: keys and values go around (kernels/program_ring.c).
 */
#include "kernels/model_program.h"

static bool gathers(const struct pp_writer *w) { return pp_shape_gathers_keys(&w->model->local); }
static bool rings(const struct pp_writer *w) { return pp_shape_rings_keys(&w->model->local); }

/* Does attention work on a part of the heads? */
static bool is_apart(const struct pp_writer *w) { return pp_shape_parts_heads(&w->model->local); }

/* Rows of `width` numbers: pieces of the worker's tokens to the workers that have their heads, or back. */
static void write_all_to_all(struct pp_writer *w, bool back, struct pp_ref to, struct pp_ref from, int width)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_ALL_TO_ALL);
    call->exchange = (struct pp_exchange_dims){
        .rows = (int)w->tokens, .width = width, .each = w->rows, .back = back, .group = PP_JOIN_CONTEXT_RANKS};
    call->at.exchange = (struct pp_exchange_refs){.to = to, .from = from};
}

/* Of a token's queries, keys and values. */
static struct pp_pieces_dims qkv_pieces(const struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->local;
    const int kv = pp_kv_heads(shape), keys = kv * pp_head_dim(shape), values = kv * pp_value_dim(shape);
    return (struct pp_pieces_dims){.tokens = (int)w->tokens,
                                   .width = pp_query_width(shape),
                                   .shared = keys,
                                   .parts = pp_shape_context(shape),
                                   .values = values == keys ? 0 : values};
}

/* Of what attention makes. */
static struct pp_pieces_dims attended_pieces(const struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->local;
    return (struct pp_pieces_dims){
        .tokens = (int)w->tokens, .width = pp_attended_width(shape), .parts = pp_shape_context(shape)};
}

static void write_pieces(struct pp_writer *w, enum pp_kernel kernel, struct pp_pieces_dims dims,
                         struct pp_pieces_refs at)
{
    struct pp_call *call = pp_writer_call(w, kernel);
    call->pieces = dims;
    call->at.pieces = at;
}

/* Queries of a row that attention works on. */
static int queries(const struct pp_writer *w) { return is_apart(w) ? w->row_seq : w->seq; }

/* Heads of what attention works on. */
static struct pp_call *write_heads(struct pp_writer *w, enum pp_kernel kernel)
{
    const struct pp_shape *shape = &w->model->local;
    const int parts = is_apart(w) ? pp_shape_context(shape) : 1;
    struct pp_call *call = pp_writer_call(w, kernel);
    call->attention = (struct pp_attention_dims){.rows = w->rows,
                                                 .seq = queries(w),
                                                 .heads = shape->heads / parts,
                                                 .dh = pp_head_dim(shape),
                                                 .kv = pp_kv_heads(shape) / parts};
    if (pp_value_dim(shape) != pp_head_dim(shape)) call->attention.dv = pp_value_dim(shape);
    return call;
}

/* The window of the stage's layer l; 0 if it hides nothing, as in rows that are not longer. */
static int window_of(const struct pp_writer *w, int l)
{
    const int window = pp_layer_window(&w->model->shape, w->stage->first_layer + l);
    return window < w->row_seq ? window : 0;
}

/* Attention, or its gradient, as far as its kinds do not differ. */
static struct pp_call *write_scores(struct pp_writer *w, int l, enum pp_kernel math, enum pp_kernel flash)
{
    const struct pp_shape *shape = &w->model->local;
    struct pp_call *call = write_heads(w, shape->attention == PP_ATTENTION_FLASH ? flash : math);
    call->attention.causal = shape->mask == PP_MASK_CAUSAL;
    call->attention.window = window_of(w, l);
    if (gathers(w)) call->attention.keys = w->row_seq;
    call->scale = (float)shape->score_factor;
    pp_writer_dropout(w, call, l, PP_DROP_ATTENTION);
    return call;
}

/* The norm of queries and keys, or its gradient, in place: of the worker's tokens, before it gives any to others. */
static struct pp_call *write_qk_norm(struct pp_writer *w, enum pp_kernel kernel)
{
    const struct pp_shape *shape = &w->model->local;
    struct pp_call *call = pp_writer_call(w, kernel);
    call->attention = (struct pp_attention_dims){
        .rows = w->rows, .seq = w->seq, .heads = shape->heads, .dh = pp_head_dim(shape), .kv = pp_kv_heads(shape)};
    call->eps = (float)pp_norm_epsilon(shape);
    return call;
}

/* qkv: as in_proj has made it. */
static void write_norm_of_heads(struct pp_writer *w, int l, struct pp_ref qkv, struct pp_ref bias)
{
    write_qk_norm(w, PP_KERNEL_QK_NORM)->at.qk_norm =
        (struct pp_qk_norm_refs){.qkv = qkv,
                                 .bias = bias,
                                 .kept = pp_ref_act(w, l, w->slot.kept),
                                 .q_gamma = pp_ref_layer(w, PP_MEM_PARAM, l, PP_Q_NORM_WEIGHT),
                                 .k_gamma = pp_ref_layer(w, PP_MEM_PARAM, l, PP_K_NORM_WEIGHT)};
}

static void write_norm_of_heads_grad(struct pp_writer *w, int l, struct pp_ref dqkv)
{
    write_qk_norm(w, PP_KERNEL_QK_NORM_GRAD)->at.qk_norm_grad =
        (struct pp_qk_norm_grad_refs){.dqkv = dqkv,
                                      .kept = pp_ref_act(w, l, w->slot.kept),
                                      .q_gamma = pp_ref_layer(w, PP_MEM_PARAM, l, PP_Q_NORM_WEIGHT),
                                      .k_gamma = pp_ref_layer(w, PP_MEM_PARAM, l, PP_K_NORM_WEIGHT),
                                      .q_gamma_grad = pp_ref_layer(w, PP_MEM_GRAD, l, PP_Q_NORM_WEIGHT),
                                      .k_gamma_grad = pp_ref_layer(w, PP_MEM_GRAD, l, PP_K_NORM_WEIGHT)};
}

/* The rotation of queries and keys, or its gradient, in place. */
static struct pp_call *write_rope(struct pp_writer *w, enum pp_kernel kernel)
{
    const struct pp_shape *shape = &w->model->local;
    const struct pp_rope_scaling *scaling = &shape->rope_scaling;
    struct pp_call *call = write_heads(w, kernel);
    const struct pp_attention_dims heads = call->attention;
    call->rope = (struct pp_rope_dims){.rows = heads.rows,
                                       .seq = heads.seq,
                                       .heads = heads.heads,
                                       .dh = heads.dh,
                                       .columns = pp_rotary_dim(shape) < heads.dh ? pp_rotary_dim(shape) : 0,
                                       .kv = heads.kv,
                                       .still = pp_unrotated_dim(shape),
                                       .dv = heads.dv};
    call->turns = (struct pp_rope_scalars){.theta = (float)shape->rope_theta};
    if (pp_rope_scales(scaling))
        call->turns = (struct pp_rope_scalars){.theta = (float)shape->rope_theta,
                                               .factor = (float)scaling->factor,
                                               .low = (float)scaling->low,
                                               .high = (float)scaling->high,
                                               .tokens = (float)scaling->tokens,
                                               .magnitude = (float)pp_rope_magnitude(scaling),
                                               .kind = scaling->kind,
                                               .whole = scaling->truncate};
    return call;
}

/* From w->pieces[1] the keys and values of the worker's tokens to w->pieces[0], of all tokens; back: gradients of these
 * to what all have of those of the worker's tokens. */
static void write_chunks(struct pp_writer *w, bool back)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_ALL_TO_ALL);
    call->exchange = (struct pp_exchange_dims){.rows = w->rows * w->row_seq,
                                               .width = (int)pp_keys_width(&w->model->local),
                                               .each = 2 * w->rows,
                                               .back = back,
                                               .group = PP_JOIN_CONTEXT_RANKS,
                                               .halves = pp_shape_context(&w->model->local)};
    call->at.exchange = (struct pp_exchange_refs){.to = w->pieces[0], .from = w->pieces[1]};
}

/* The worker's keys and values. bias: no memory, or added to qkv before. */
static void write_own_keys(struct pp_writer *w, struct pp_ref to, struct pp_ref qkv, struct pp_ref bias)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_COPY_KEYS);
    call->pieces = qkv_pieces(w);
    call->pieces.parts = 0;
    call->at.copy_keys = (struct pp_copy_keys_refs){.to = to, .qkv = qkv, .bias = bias};
}

static void write_gathering(struct pp_writer *w, struct pp_ref qkv, struct pp_ref bias)
{
    write_own_keys(w, w->pieces[1], qkv, bias);
    write_chunks(w, false);
}

static void write_gathering_grad(struct pp_writer *w, struct pp_ref dqkv)
{
    write_chunks(w, true);
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_SUM_KEYS);
    call->pieces = qkv_pieces(w);
    call->at.sum_keys = (struct pp_sum_keys_refs){.qkv = dqkv, .from = w->pieces[0]};
}

/* What attention makes, where it makes it. Of all tokens flash reads it once more. */
static struct pp_ref attended_of(const struct pp_writer *w, int l)
{
    if (!is_apart(w)) return pp_ref_act(w, l, w->slot.ctx);
    return w->model->local.attention == PP_ATTENTION_FLASH ? pp_ref_act(w, l, w->slot.ctx_there) : w->pieces[0];
}

struct pp_ref pp_ref_in_proj(const struct pp_writer *w, int l)
{
    return is_apart(w) ? w->pieces[0] : pp_ref_act(w, l, w->slot.qkv);
}

/* The bias, if there is one, comes first: with the norm, on the way, with the rotation, or with attention. */
void pp_write_attention(struct pp_writer *w, int l, struct pp_ref scratch)
{
    const struct pp_ref none = {0}, qkv = pp_ref_act(w, l, w->slot.qkv), ctx = attended_of(w, l);
    struct pp_ref bias = pp_ref_layer(w, PP_MEM_PARAM, l, PP_IN_PROJ_BIAS);
    if (w->model->local.qk_norm) {
        write_norm_of_heads(w, l, pp_ref_in_proj(w, l), bias);
        bias = none;
    }
    if (is_apart(w)) {
        write_pieces(w, PP_KERNEL_TO_PIECES, qkv_pieces(w),
                     (struct pp_pieces_refs){.to = w->pieces[1], .from = w->pieces[0], .bias = bias});
        write_all_to_all(w, false, qkv, w->pieces[1], (int)pp_qkv_width(&w->model->local));
        bias = none;
    }
    if (pp_writer_rotates(w)) {
        write_rope(w, PP_KERNEL_ROPE)->at.rope = (struct pp_rope_refs){.qkv = qkv, .bias = bias};
        bias = none;
    }
    if (gathers(w)) {
        write_gathering(w, qkv, bias);
        bias = none;
    }
    if (rings(w)) {
        write_own_keys(w, w->ring.keys[0], qkv, bias);
        pp_write_ring(w, l, scratch);
        return;
    }
    struct pp_call *call = write_scores(w, l, PP_KERNEL_ATTENTION, PP_KERNEL_FLASH);
    if (call->kernel == PP_KERNEL_FLASH)
        call->at.flash = (struct pp_flash_refs){.ctx = ctx,
                                                .lse = pp_ref_act(w, l, w->slot.lse),
                                                .qkv = qkv,
                                                .bias = bias,
                                                .scratch = scratch,
                                                .keys = gathers(w) ? w->pieces[0] : none};
    else
        call->at.attention = (struct pp_attention_refs){
            .ctx = ctx, .probabilities = pp_ref_act(w, l, w->slot.p), .qkv = qkv, .bias = bias, .scratch = scratch};
    if (!is_apart(w)) return;
    write_all_to_all(w, true, w->pieces[1], ctx, pp_attended_width(&w->model->local));
    write_pieces(w, PP_KERNEL_FROM_PIECES, attended_pieces(w),
                 (struct pp_pieces_refs){.to = pp_ref_act(w, l, w->slot.ctx), .from = w->pieces[1]});
}

/* From the gradient at what attention makes to that at qkv, in place of qkv. */
static void write_scores_grad(struct pp_writer *w, int l, struct pp_ref dctx, struct pp_ref scratch)
{
    const struct pp_ref none = {0}, dqkv = pp_ref_act(w, l, w->slot.qkv);
    if (gathers(w)) write_gathering(w, dqkv, none);
    struct pp_call *call = write_scores(w, l, PP_KERNEL_ATTENTION_GRAD, PP_KERNEL_FLASH_GRAD);
    if (call->kernel == PP_KERNEL_FLASH_GRAD)
        call->at.flash_grad = (struct pp_flash_grad_refs){.qkv = dqkv,
                                                          .lse = pp_ref_act(w, l, w->slot.lse),
                                                          .ctx = attended_of(w, l),
                                                          .dctx = dctx,
                                                          .scratch = scratch,
                                                          .keys = gathers(w) ? w->pieces[0] : none,
                                                          .dkeys = gathers(w) ? w->pieces[1] : none};
    else
        call->at.attention_grad = (struct pp_attention_grad_refs){
            .qkv = dqkv, .probabilities = pp_ref_act(w, l, w->slot.p), .dctx = dctx, .scratch = scratch};
    if (gathers(w)) write_gathering_grad(w, dqkv);
}

void pp_write_attention_grad(struct pp_writer *w, int l, struct pp_ref dctx, struct pp_ref scratch)
{
    const struct pp_ref none = {0}, dqkv = pp_ref_act(w, l, w->slot.qkv);
    if (is_apart(w)) {
        write_pieces(w, PP_KERNEL_TO_PIECES, attended_pieces(w),
                     (struct pp_pieces_refs){.to = w->pieces[1], .from = dctx});
        write_all_to_all(w, false, w->pieces[0], w->pieces[1], pp_attended_width(&w->model->local));
        dctx = w->pieces[0];
    }
    if (rings(w)) {
        write_own_keys(w, w->ring.keys[0], dqkv, none);
        pp_write_ring_grad(w, l, dctx, scratch);
    } else {
        write_scores_grad(w, l, dctx, scratch);
    }
    if (pp_writer_rotates(w)) write_rope(w, PP_KERNEL_ROPE_GRAD)->at.rope_grad.dqkv = dqkv;
    if (is_apart(w)) {
        write_all_to_all(w, true, w->pieces[1], dqkv, (int)pp_qkv_width(&w->model->local));
        write_pieces(w, PP_KERNEL_FROM_PIECES, qkv_pieces(w),
                     (struct pp_pieces_refs){.to = dqkv, .from = w->pieces[1]});
    }
    if (w->model->local.qk_norm) write_norm_of_heads_grad(w, l, dqkv);
}

struct pp_ref pp_writer_attention_scratch(struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->local;
    const int columns = pp_head_dim(shape) + pp_value_dim(shape);
    if (shape->attention != PP_ATTENTION_FLASH) return pp_writer_scratch(w, pp_attention_scratch(w->row_seq, columns));
    /* a ring: chunk by chunk */
    const int seq = rings(w) ? w->seq / 2 : queries(w), keys = rings(w) ? seq : w->row_seq;
    return pp_writer_scratch(w, pp_flash_scratch(seq, keys, columns));
}

void pp_writer_take_pieces(struct pp_writer *w, bool back)
{
    const struct pp_shape *shape = &w->model->local;
    const int keys = (int)pp_keys_width(shape), context = pp_shape_context(shape);
    if (context == 1 || w->stage->layers == 0) return;
    if (rings(w)) pp_writer_take_ring(w, back);
    for (int i = 0; i < 2 && is_apart(w); i++) w->pieces[i] = pp_writer_activations(w, (int)pp_qkv_width(shape));
    if (!gathers(w)) return;
    w->pieces[0] = pp_writer_activations(w, context * keys);
    w->pieces[1] = pp_writer_activations(w, back ? context * keys : keys);
}
