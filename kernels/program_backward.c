/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward programs. Input gradients (I) and weight gradients (W) are written layer by layer from the last to the
 * first; the full backward (B) is both in turn for each layer, while its operands are in the caches. I and W alone
 * make the same calls in the same order, so they give the same bits.
 */
#include "kernels/model_program.h"

/* Where the gradient stands on its way through the stage. */
struct path {
    struct pp_ref incoming; /* gradient of the next layer's input; consumed by the first kernel of a layer */
    struct pp_ref stream;   /* scratch [T, d] */
    struct pp_ref dctx;     /* scratch [T, d] */
    struct pp_ref dh;       /* scratch [T, ff], where the backward is not split */
    struct pp_ref scratch;  /* of attention */
};

static struct pp_ref dh_of(const struct pp_writer *w, const struct path *path, int l)
{
    return w->split ? pp_ref_act(w, l, w->slot.dh) : path->dh;
}

/* C [T, n] = A [T, k] * weight [k, n], or added to C. */
static void write_input_product(struct pp_writer *w, enum pp_gemm_mode mode, struct pp_ref c, int n, struct pp_ref a,
                                int k, struct pp_ref weight)
{
    pp_writer_gemm(w, PP_KERNEL_GEMM_NN, (const int[]){(int)w->tokens, n, k}, mode, c, a, weight);
}

/* Gradient of weight [m, n] and bias [m] of a linear from dy [T, m] and its input [T, n]. */
static void write_weight_grads(struct pp_writer *w, struct pp_ref weight, struct pp_ref bias, struct pp_ref dy, int m,
                               struct pp_ref input, int n)
{
    struct pp_call *product =
        pp_writer_gemm(w, PP_KERNEL_GEMM_TN, (const int[]){m, n, (int)w->tokens}, PP_GEMM_BY_FRAME, weight, dy, input);
    product->n[4] = true;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_COLSUM, (int)w->tokens, m, 0, 0);
    call->ref[0] = bias;
    call->ref[1] = dy;
}

struct norm_grad {
    enum pp_dropout_place place;
    enum pp_layer_tensor gamma, beta;
    struct pp_ref dr, xhat, rstd, dy;
};

static void write_norm_grad(struct pp_writer *w, int l, const struct norm_grad *g)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_LAYERNORM_GRAD, w->rows, w->seq, w->model->shape.d_model, 0);
    pp_writer_dropout(w, call, l, g->place);
    const struct pp_ref refs[] = {g->dr,
                                  g->xhat,
                                  g->rstd,
                                  g->dy,
                                  pp_ref_layer(w, PP_MEM_PARAM, l, g->gamma),
                                  pp_ref_layer(w, PP_MEM_GRAD, l, g->gamma),
                                  pp_ref_layer(w, PP_MEM_GRAD, l, g->beta)};
    for (int i = 0; i < 7; i++) call->ref[i] = refs[i];
}

/* dy -> dz (over xhat2), dh, and the gradient at y1 in path->stream. */
static void write_feed_forward_grad(struct pp_writer *w, const struct path *path, int l)
{
    const int d = w->model->shape.d_model, ff = w->model->shape.d_ff;
    const struct pp_ref dz = pp_ref_act(w, l, w->slot.xhat2), dh = dh_of(w, path, l);
    const struct norm_grad norm = {
        PP_DROP_RESIDUAL2, PP_NORM2_WEIGHT, PP_NORM2_BIAS, path->stream, dz, pp_ref_act(w, l, w->slot.rstd2),
        path->incoming};
    write_norm_grad(w, l, &norm);
    write_input_product(w, PP_GEMM_WRITE, dh, ff, dz, d, pp_ref_weight(w, l, PP_LINEAR2_WEIGHT));
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_RELU_GRAD, w->rows, w->seq, ff, 0);
    pp_writer_dropout(w, call, l, PP_DROP_RELU);
    call->ref[0] = dh;
    call->ref[1] = pp_ref_act(w, l, w->slot.u);
    write_input_product(w, PP_GEMM_ADD, path->stream, d, dh, ff, pp_ref_weight(w, l, PP_LINEAR1_WEIGHT));
}

/* path->stream (gradient at y1) -> da (over xhat1), dqkv (over qkv), and the gradient at the layer's input in `out`. */
static void write_attention_grad(struct pp_writer *w, const struct path *path, int l, struct pp_ref out)
{
    const int d = w->model->shape.d_model;
    const struct pp_ref da = pp_ref_act(w, l, w->slot.xhat1), dqkv = pp_ref_act(w, l, w->slot.qkv);
    const struct norm_grad norm = {
        PP_DROP_RESIDUAL1, PP_NORM1_WEIGHT, PP_NORM1_BIAS, out, da, pp_ref_act(w, l, w->slot.rstd1), path->stream};
    write_norm_grad(w, l, &norm);
    write_input_product(w, PP_GEMM_WRITE, path->dctx, d, da, d, pp_ref_weight(w, l, PP_OUT_PROJ_WEIGHT));
    struct pp_call *call = pp_writer_attention(w, l, PP_KERNEL_ATTENTION_GRAD, PP_KERNEL_FLASH_GRAD);
    const bool flash = call->kernel == PP_KERNEL_FLASH_GRAD;
    call->ref[0] = dqkv;
    call->ref[1] = pp_ref_act(w, l, flash ? w->slot.lse : w->slot.p);
    if (flash) call->ref[2] = pp_ref_act(w, l, w->slot.ctx);
    call->ref[flash ? 3 : 2] = path->dctx;
    call->ref[flash ? 4 : 3] = path->scratch;
    write_input_product(w, PP_GEMM_ADD, out, d, dqkv, 3 * d, pp_ref_weight(w, l, PP_IN_PROJ_WEIGHT));
}

static void write_linear_grads(struct pp_writer *w, int l, enum pp_layer_tensor weight, struct pp_ref dy, int m,
                               struct pp_ref input, int n)
{
    write_weight_grads(w, pp_ref_layer(w, PP_MEM_GRAD, l, weight), pp_ref_layer(w, PP_MEM_GRAD, l, weight + 1), dy, m,
                       input, n);
}

static void write_layer_weight_grads(struct pp_writer *w, const struct path *path, int l)
{
    const int d = w->model->shape.d_model, ff = w->model->shape.d_ff;
    const struct pp_slot *slot = &w->slot;
    write_linear_grads(w, l, PP_LINEAR2_WEIGHT, pp_ref_act(w, l, slot->xhat2), d, pp_ref_act(w, l, slot->u), ff);
    write_linear_grads(w, l, PP_LINEAR1_WEIGHT, dh_of(w, path, l), ff, pp_ref_act(w, l, slot->y1), d);
    write_linear_grads(w, l, PP_OUT_PROJ_WEIGHT, pp_ref_act(w, l, slot->xhat1), d, pp_ref_act(w, l, slot->ctx), d);
    write_linear_grads(w, l, PP_IN_PROJ_WEIGHT, pp_ref_act(w, l, slot->qkv), 3 * d, pp_ref_act(w, l, slot->x), d);
}

static void write_embedding_grad(struct pp_writer *w, struct pp_ref dy)
{
    const struct pp_shape *shape = &w->model->shape;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_EMBED_GRAD, w->rows, w->seq, shape->d_model, shape->vocab);
    pp_writer_embedding(w, call);
    call->ref[0] = pp_ref_embedding(w, PP_MEM_GRAD);
    call->ref[1] = pp_ref_to(PP_MEM_TOKENS, 0);
    call->ref[2] = dy;
}

/* The gradient of the logits is there since the forward pass. */
static void write_decoder_grads(struct pp_writer *w, struct path *path, bool input_grads, bool weight_grads)
{
    const int d = w->model->shape.d_model, columns = pp_padded_vocab(&w->model->shape);
    const struct pp_ref dlogits = pp_ref_slot(w->slot.dlogits);
    if (input_grads) {
        write_input_product(w, PP_GEMM_WRITE, path->stream, d, dlogits, columns, pp_ref_decoder_weight(w));
        path->incoming = path->stream;
    }
    if (weight_grads)
        write_weight_grads(w, pp_ref_decoder(w, PP_MEM_GRAD, 0), pp_ref_decoder(w, PP_MEM_GRAD, 1), dlogits, columns,
                           pp_ref_slot(w->slot.decoder_input), d);
}

/* Where the gradient of the stage's input goes. */
static struct pp_ref stage_output(const struct pp_writer *w, const struct path *path)
{
    if (!w->stage->embed) return pp_ref_to(PP_MEM_OUT, 0);
    return w->split ? pp_ref_slot(w->slot.input_grad) : path->stream;
}

static struct path make_path(struct pp_writer *w, bool input_grads)
{
    const struct pp_shape *shape = &w->model->shape;
    struct path path = {.incoming = pp_ref_to(PP_MEM_IN, 0)};
    if (!input_grads) return path;
    path.stream = pp_writer_activations(w, shape->d_model);
    path.dctx = pp_writer_activations(w, shape->d_model);
    if (!w->split) path.dh = pp_writer_activations(w, shape->d_ff);
    path.scratch = pp_writer_attention_scratch(w);
    return path;
}

void pp_write_backward(struct pp_writer *w, bool input_grads, bool weight_grads)
{
    struct path path = make_path(w, input_grads);
    const struct pp_ref output = stage_output(w, &path);
    if (w->stage->decode) write_decoder_grads(w, &path, input_grads, weight_grads);
    for (int l = w->stage->layers - 1; l >= 0; l--) {
        if (input_grads) {
            write_feed_forward_grad(w, &path, l);
            write_attention_grad(w, &path, l, l ? path.stream : output);
            path.incoming = path.stream;
        }
        if (weight_grads) write_layer_weight_grads(w, &path, l);
    }
    if (w->stage->embed && weight_grads) write_embedding_grad(w, output);
}
