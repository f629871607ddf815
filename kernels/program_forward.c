/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward programs. Products write their output without bias; the kernel that follows adds it, so no pass over memory
 * is spent on it.
 */
#include "kernels/model_program.h"

static const float layernorm_eps = 1e-5f;

static void write_copy(struct pp_writer *w, struct pp_ref to, struct pp_ref from)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_COPY, (int)w->tokens, w->model->shape.d_model, 0, 0);
    call->ref[0] = to;
    call->ref[1] = from;
}

/* Brings the stage's input into the slot, and into the checkpoint where the task has one. */
static void write_input(struct pp_writer *w, bool recompute)
{
    const struct pp_shape *shape = &w->model->shape;
    const struct pp_ref x = pp_ref_act(w, 0, w->slot.x);
    if (w->stage->embed) {
        struct pp_call *call = pp_writer_call(w, PP_KERNEL_EMBED, w->rows, w->seq, shape->d_model, shape->vocab);
        pp_writer_embedding(w, call);
        call->ref[0] = x;
        call->ref[1] = pp_ref_to(PP_MEM_TOKENS, 0);
        call->ref[2] = pp_ref_embedding(w, PP_MEM_PARAM);
        call->ref[3] = pp_writer_scratch(w, (int64_t)w->seq * shape->d_model * (int64_t)sizeof(float));
        return;
    }
    if (recompute) {
        write_copy(w, x, pp_ref_to(PP_MEM_CKPT, 0));
        return;
    }
    write_copy(w, x, pp_ref_to(PP_MEM_IN, 0));
    if (w->training) write_copy(w, pp_ref_to(PP_MEM_CKPT, 0), pp_ref_to(PP_MEM_IN, 0));
}

/* C [T, n] = A [T, k] * weight [n, k]' */
static struct pp_call *write_linear(struct pp_writer *w, struct pp_ref c, int n, struct pp_ref a, int k,
                                    struct pp_ref weight)
{
    return pp_writer_gemm(w, PP_KERNEL_GEMM_NT, (const int[]){(int)w->tokens, n, k}, PP_GEMM_WRITE, c, a, weight);
}

static void write_attention(struct pp_writer *w, int l, struct pp_ref scratch)
{
    struct pp_call *call = pp_writer_attention(w, l, PP_KERNEL_ATTENTION, PP_KERNEL_FLASH);
    call->ref[0] = pp_ref_act(w, l, w->slot.ctx);
    call->ref[1] = pp_ref_act(w, l, call->kernel == PP_KERNEL_FLASH ? w->slot.lse : w->slot.p);
    call->ref[2] = pp_ref_act(w, l, w->slot.qkv);
    call->ref[3] = pp_ref_layer(w, PP_MEM_PARAM, l, PP_IN_PROJ_BIAS);
    call->ref[4] = scratch;
}

static void write_relu(struct pp_writer *w, int l)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_RELU, w->rows, w->seq, w->model->shape.d_ff, 0);
    pp_writer_dropout(w, call, l, PP_DROP_RELU);
    call->ref[0] = pp_ref_act(w, l, w->slot.u);
    call->ref[1] = pp_ref_layer(w, PP_MEM_PARAM, l, PP_LINEAR1_BIAS);
}

/* One of the two residual blocks' ends. */
struct residual {
    enum pp_dropout_place place;
    enum pp_layer_tensor bias, gamma, beta;
    struct pp_ref y, z, rstd, x;
};

static void write_residual(struct pp_writer *w, int l, const struct residual *r)
{
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_LAYERNORM, w->rows, w->seq, w->model->shape.d_model, 0);
    pp_writer_dropout(w, call, l, r->place);
    call->f[1] = layernorm_eps;
    const struct pp_ref refs[] = {r->y,
                                  r->z,
                                  r->rstd,
                                  r->x,
                                  pp_ref_layer(w, PP_MEM_PARAM, l, r->bias),
                                  pp_ref_layer(w, PP_MEM_PARAM, l, r->gamma),
                                  pp_ref_layer(w, PP_MEM_PARAM, l, r->beta)};
    for (int i = 0; i < 7; i++) call->ref[i] = refs[i];
}

/* Where the output of layer l goes: the next layer's input, the decoder's input, or the next stage. */
static struct pp_ref layer_output(const struct pp_writer *w, int l)
{
    if (l + 1 < w->stage->layers) return pp_ref_act(w, l + 1, w->slot.x);
    return w->stage->decode ? pp_ref_slot(w->slot.decoder_input) : pp_ref_to(PP_MEM_OUT, 0);
}

static void write_layer(struct pp_writer *w, int l, struct pp_ref scratch)
{
    const int d = w->model->shape.d_model, ff = w->model->shape.d_ff;
    const struct pp_slot *slot = &w->slot;
    const struct pp_ref x = pp_ref_act(w, l, slot->x), ctx = pp_ref_act(w, l, slot->ctx);
    const struct pp_ref y1 = pp_ref_act(w, l, slot->y1), u = pp_ref_act(w, l, slot->u);
    const struct residual first = {PP_DROP_RESIDUAL1,
                                   PP_OUT_PROJ_BIAS,
                                   PP_NORM1_WEIGHT,
                                   PP_NORM1_BIAS,
                                   y1,
                                   pp_ref_act(w, l, slot->xhat1),
                                   pp_ref_act(w, l, slot->rstd1),
                                   x};
    const struct residual second = {PP_DROP_RESIDUAL2,
                                    PP_LINEAR2_BIAS,
                                    PP_NORM2_WEIGHT,
                                    PP_NORM2_BIAS,
                                    layer_output(w, l),
                                    pp_ref_act(w, l, slot->xhat2),
                                    pp_ref_act(w, l, slot->rstd2),
                                    y1};

    write_linear(w, pp_ref_act(w, l, slot->qkv), 3 * d, x, d, pp_ref_weight(w, l, PP_IN_PROJ_WEIGHT));
    write_attention(w, l, scratch);
    write_linear(w, first.z, d, ctx, d, pp_ref_weight(w, l, PP_OUT_PROJ_WEIGHT));
    write_residual(w, l, &first);
    write_linear(w, u, ff, y1, d, pp_ref_weight(w, l, PP_LINEAR1_WEIGHT));
    write_relu(w, l);
    write_linear(w, second.z, d, u, ff, pp_ref_weight(w, l, PP_LINEAR2_WEIGHT));
    write_residual(w, l, &second);
}

static void write_decoder(struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->shape;
    const int columns = pp_padded_vocab(shape);
    const struct pp_ref logits = pp_ref_slot(w->slot.logits);
    struct pp_call *product =
        write_linear(w, logits, columns, pp_ref_slot(w->slot.decoder_input), shape->d_model, pp_ref_decoder_weight(w));
    product->n[4] = true;
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_CROSS_ENTROPY, w->rows, w->seq, shape->vocab, w->training);
    call->n[4] = columns;
    call->ref[0] = logits;
    call->ref[1] = pp_ref_decoder(w, PP_MEM_PARAM, 1);
    call->ref[2] = pp_ref_to(PP_MEM_TARGETS, 0);
    if (w->training) call->ref[3] = pp_ref_slot(w->slot.dlogits);
}

void pp_write_forward(struct pp_writer *w, bool recompute)
{
    write_input(w, recompute);
    const struct pp_ref scratch = pp_writer_attention_scratch(w);
    for (int l = 0; l < w->stage->layers; l++) write_layer(w, l, scratch);
    if (w->stage->decode) write_decoder(w);
}
