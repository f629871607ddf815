/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward programs. Gradients of inputs (I) and of weights (W) are written layer by layer from the last to the first,
 * of each its feed-forward part and then its attention; the full backward (B) is both in turn for each, which finds
 * operands in caches. I and W give the same bits. B first makes layers again where their inputs are checkpoints.
 */
#include "kernels/model_program.h"

/* Where the gradient stands on its way through the stage. */
struct path {
    struct pp_ref incoming; /* gradient of the next layer's input; read by the first kernels of a layer */
    struct pp_ref stream;   /* scratch [T, d], as incoming of the worker's tokens */
    struct pp_ref dctx;     /* scratch [T, c], c: the width of the context */
    struct pp_ref dnorm;    /* scratch [T, d], where the norm comes first: the same if it can be */
    struct pp_ref dz2;      /* scratch [T, d], where the norm comes first and the backward is not split */
    struct pp_ref du;       /* scratch [T, ff] (experts: [S, ff]), where the backward is not split, and with swiglu */
    struct pp_ref scratch;  /* of attention */
    struct pp_expert_scratch experts;
    bool inputs, weights; /* which gradients are made */
};

/* Has the stage nothing but the embedding or the decoder? */
static bool is_bare(const struct pp_writer *w) { return w->stage->layers == 0; }

/* The gradient at linear2's input; relu and gelu make it linear1's output's in place. */
static struct pp_ref du_of(const struct pp_writer *w, const struct path *path, int l)
{
    return w->split && !pp_writer_swiglu(w) ? pp_ref_act(w, l, w->slot.dh[pp_writer_kind(w, l)]) : path->du;
}

/* ... at linear1's output. */
static struct pp_ref dh_of(const struct pp_writer *w, const struct path *path, int l)
{
    return pp_writer_swiglu(w) ? pp_ref_act(w, l, w->slot.a[pp_writer_kind(w, l)]) : du_of(w, path, l);
}

/* ... at linear2's output. */
static struct pp_ref dz2_of(const struct pp_writer *w, const struct path *path, int l)
{
    if (!pp_writer_norm_first(w)) return pp_ref_act(w, l, w->slot.xhat2);
    return w->split ? pp_ref_act(w, l, w->slot.dz2) : path->dz2;
}

/* ... at the attention's. */
static struct pp_ref dz1_of(const struct pp_writer *w, int l)
{
    return pp_ref_act(w, l, pp_writer_norm_first(w) ? w->slot.xhat2 : w->slot.xhat1);
}

/* C [T, n] = A [T, k] * weight [k, n], or added to C. */
static struct pp_token_product input_product(enum pp_gemm_mode mode, struct pp_ref c, int n, struct pp_ref a, int k,
                                             struct pp_ref weight)
{
    return (struct pp_token_product){
        .kernel = PP_KERNEL_GEMM_NN, .mode = mode, .c = c, .a = a, .weight = weight, .n = n, .k = k};
}

/* The gradient at the output of a linear over columns of the weight, dz [T, d] of the worker's tokens -> that at its
 * input [T, n]. */
static void write_gathered_gradient(struct pp_writer *w, struct pp_ref c, int n, struct pp_ref dz, struct pp_ref weight)
{
    const struct pp_token_product product = input_product(PP_GEMM_WRITE, c, n, dz, w->model->local.d_model, weight);
    pp_write_gathered_product(w, PP_FULL_GRADIENTS, &product);
}

/* The gradient at the input of a linear over rows of the weight, from that at its output [T, k]. */
static struct pp_ref write_summed_gradient(struct pp_writer *w, enum pp_gemm_mode mode, struct pp_ref c,
                                           struct pp_ref a, int k, struct pp_ref weight)
{
    const struct pp_token_product product = input_product(mode, c, w->model->local.d_model, a, k, weight);
    return pp_write_summed_gradient(w, &product);
}

/* For gradients of weights, all tokens of that at a linear's output, which those of inputs have gathered before. */
static struct pp_ref gathered(struct pp_writer *w, const struct path *path, struct pp_ref dz)
{
    return w->by_tokens && path->inputs ? w->full[PP_FULL_GRADIENTS] : pp_writer_gather(w, PP_FULL_GRADIENTS, dz);
}

struct norm_grad {
    enum pp_dropout_place place;
    enum pp_layer_tensor gamma, beta;
    struct pp_ref dr, xhat, rstd, dy;
    struct pp_ref add; /* no memory: nothing is added */
};

static struct pp_call *norm_grad_call(struct pp_writer *w, bool plain)
{
    const bool rms = w->model->local.normalization == PP_RMSNORM;
    return pp_writer_pass(w, rms ? PP_KERNEL_RMSNORM_GRAD : PP_KERNEL_LAYERNORM_GRAD, plain);
}

static void write_norm_grad(struct pp_writer *w, int l, const struct norm_grad *g)
{
    struct pp_call *call = norm_grad_call(w, false);
    pp_writer_dropout(w, call, l, g->place);
    call->at.norm_grad = (struct pp_norm_grad_refs){.dr = g->dr,
                                                    .xhat = g->xhat,
                                                    .rstd = g->rstd,
                                                    .dy = g->dy,
                                                    .gamma = pp_ref_layer(w, PP_MEM_PARAM, l, g->gamma),
                                                    .gamma_grad = pp_ref_layer(w, PP_MEM_GRAD, l, g->gamma),
                                                    .beta_grad = pp_ref_layer(w, PP_MEM_GRAD, l, g->beta),
                                                    .add = g->add};
}

void pp_write_activation_grad(struct pp_writer *w, int l, const struct pp_inner *inner, struct pp_ref du,
                              struct pp_ref dh)
{
    static const enum pp_kernel kernels[] = {[PP_RELU] = PP_KERNEL_RELU_GRAD,
                                             [PP_GELU] = PP_KERNEL_GELU_GRAD,
                                             [PP_SWIGLU] = PP_KERNEL_SWIGLU_GRAD,
                                             [PP_GELU_TANH] = PP_KERNEL_GELU_GRAD};
    const struct pp_shape *shape = pp_writer_shape(w, l);
    struct pp_call *call = pp_writer_call(w, kernels[shape->activation]);
    call->activation = pp_inner_dims(w, inner);
    if (!shape->experts) pp_writer_dropout(w, call, l, PP_DROP_ACTIVATION);
    if (call->kernel == PP_KERNEL_RELU_GRAD) call->at.relu_grad = (struct pp_relu_grad_refs){.du = dh, .u = inner->a};
    if (call->kernel == PP_KERNEL_GELU_GRAD) call->at.gelu_grad = (struct pp_gelu_grad_refs){.du = dh, .a = inner->a};
    if (call->kernel == PP_KERNEL_SWIGLU_GRAD) call->at.swiglu_grad = (struct pp_swiglu_grad_refs){.a = dh, .du = du};
}

/* The gradient at linear2's output -> that at linear1's output, and at its input: written to `out`, or added; returns
 * where it is. */
static struct pp_ref write_linears_grad(struct pp_writer *w, const struct path *path, int l, enum pp_gemm_mode mode,
                                        struct pp_ref out)
{
    const struct pp_shape *shape = pp_writer_shape(w, l);
    const struct pp_ref dz = dz2_of(w, path, l), du = du_of(w, path, l), dh = dh_of(w, path, l);
    if (shape->experts) {
        const struct pp_ref all = pp_writer_gather(w, PP_FULL_GRADIENTS, dz);
        struct pp_experts_grad g = {.dz = all, .du = du, .dh = dh, .mode = mode, .out = out, .weights = path->weights};
        return pp_write_experts_grad(w, l, &path->experts, &g);
    }
    const struct pp_inner inner = pp_inner_of(w, l);
    write_gathered_gradient(w, du, shape->d_ff, dz, pp_ref_weight(w, l, PP_LINEAR2_WEIGHT));
    pp_write_activation_grad(w, l, &inner, du, dh);
    return write_summed_gradient(w, mode, out, dh, pp_linear1_width(shape), pp_ref_weight(w, l, PP_LINEAR1_WEIGHT));
}

/* dy -> dz (over xhat2), dh, and the gradient at y1 in path->stream. */
static void write_feed_forward_last(struct pp_writer *w, const struct path *path, int l)
{
    const struct norm_grad norm = {PP_DROP_RESIDUAL2, PP_NORM2_WEIGHT,    PP_NORM2_BIAS,
                                   path->stream,      dz2_of(w, path, l), pp_ref_act(w, l, w->slot.rstd2),
                                   path->incoming};
    write_norm_grad(w, l, &norm);
    write_linears_grad(w, path, l, PP_GEMM_ADD, path->stream);
}

/* The gradient at the attention's output -> dqkv (over qkv), and the gradient at its input: written to `out`, or
 * added; returns where it is. */
static struct pp_ref write_attention_grad(struct pp_writer *w, const struct path *path, int l, enum pp_gemm_mode mode,
                                          struct pp_ref out)
{
    write_gathered_gradient(w, path->dctx, pp_attended_width(&w->model->local), dz1_of(w, l),
                            pp_ref_weight(w, l, PP_OUT_PROJ_WEIGHT));
    pp_write_attention_grad(w, l, path->dctx, path->scratch);
    if (pp_shape_is_latent(&w->model->local)) return pp_write_latent_grad(w, l, mode, out);
    return write_summed_gradient(w, mode, out, pp_ref_act(w, l, w->slot.qkv), (int)pp_qkv_width(&w->model->local),
                                 pp_ref_weight(w, l, PP_IN_PROJ_WEIGHT));
}

/* The gradient at y1 -> the gradient at the layer's input in `out`. */
static void write_attention_last(struct pp_writer *w, const struct path *path, int l, struct pp_ref out)
{
    const struct norm_grad first = {
        PP_DROP_RESIDUAL1, PP_NORM1_WEIGHT, PP_NORM1_BIAS, out, dz1_of(w, l), pp_ref_act(w, l, w->slot.rstd1),
        path->stream};
    write_norm_grad(w, l, &first);
    write_attention_grad(w, path, l, PP_GEMM_ADD, out);
}

/* The gradient of a norm alone. at.add: the gradient of the stream that goes past the norm, if one does. */
static void write_plain_norm_grad(struct pp_writer *w, struct pp_norm_grad_refs at)
{
    norm_grad_call(w, true)->at.norm_grad = at;
}

/* Of a layer that begins with its norms: path->incoming -> the gradient at the attention's output (over xhat2), and
 * that of the stream there. */
static void write_feed_forward_first(struct pp_writer *w, const struct path *path, int l)
{
    struct pp_call *call = pp_writer_pass(w, PP_KERNEL_RESIDUAL_GRAD, false);
    pp_writer_dropout(w, call, l, PP_DROP_RESIDUAL2);
    call->at.residual_grad = (struct pp_residual_grad_refs){.dz = dz2_of(w, path, l), .dy = path->incoming};
    const struct pp_ref dnorm = write_linears_grad(w, path, l, PP_GEMM_WRITE, path->dnorm);
    const struct norm_grad norm = {PP_DROP_RESIDUAL1,
                                   PP_NORM2_WEIGHT,
                                   PP_NORM2_BIAS,
                                   path->stream,
                                   dz1_of(w, l),
                                   pp_ref_act(w, l, w->slot.rstd2),
                                   dnorm,
                                   path->incoming};
    write_norm_grad(w, l, &norm);
}

/* From there to the gradient at the layer's input in `out`. */
static void write_attention_first(struct pp_writer *w, const struct path *path, int l, struct pp_ref out)
{
    const struct pp_ref dnorm = write_attention_grad(w, path, l, PP_GEMM_WRITE, path->dnorm);
    write_plain_norm_grad(w, (struct pp_norm_grad_refs){.dr = out,
                                                        .xhat = pp_ref_act(w, l, w->slot.xhat1),
                                                        .rstd = pp_ref_act(w, l, w->slot.rstd1),
                                                        .dy = dnorm,
                                                        .gamma = pp_ref_layer(w, PP_MEM_PARAM, l, PP_NORM1_WEIGHT),
                                                        .gamma_grad = pp_ref_layer(w, PP_MEM_GRAD, l, PP_NORM1_WEIGHT),
                                                        .beta_grad = pp_ref_layer(w, PP_MEM_GRAD, l, PP_NORM1_BIAS),
                                                        .add = path->stream});
}

static void write_linear_grads(struct pp_writer *w, int l, enum pp_layer_tensor weight, struct pp_weight_grads g)
{
    g.weight = pp_ref_layer(w, PP_MEM_GRAD, l, weight);
    g.bias = pp_ref_layer(w, PP_MEM_GRAD, l, weight + 1);
    pp_write_weight_grads(w, &g);
}

static void write_feed_forward_weights(struct pp_writer *w, const struct path *path, int l)
{
    const struct pp_shape *shape = pp_writer_shape(w, l);
    const int d = shape->d_model, ff = shape->d_ff, wide = pp_linear1_width(shape);
    const struct pp_ref dh = dh_of(w, path, l), y1 = pp_ref_act(w, l, w->slot.y1);
    const struct pp_ref dz = gathered(w, path, dz2_of(w, path, l));
    if (shape->experts) {
        const struct pp_expert_weights_grad g = {dz, dh, pp_writer_gather(w, PP_FULL_OTHERS, y1), path->inputs};
        pp_write_expert_weights(w, l, &path->experts, &g);
        return;
    }
    const struct pp_ref x = pp_writer_start_gather(w, PP_FULL_OTHERS, y1), u = pp_ref_u(w, l);
    write_linear_grads(w, l, PP_LINEAR2_WEIGHT, (struct pp_weight_grads){.dy = dz, .m = d, .input = u, .n = ff});
    pp_writer_end_gather(w);
    write_linear_grads(w, l, PP_LINEAR1_WEIGHT, (struct pp_weight_grads){.dy = dh, .m = wide, .input = x, .n = d});
}

static void write_attention_weights(struct pp_writer *w, const struct path *path, int l)
{
    const struct pp_shape *shape = &w->model->local;
    const int d = shape->d_model, made = pp_attended_width(shape), read = (int)pp_qkv_width(shape);
    const struct pp_ref dz = gathered(w, path, dz1_of(w, l));
    const struct pp_ref x = pp_writer_start_gather(w, PP_FULL_OTHERS, pp_ref_x(w, l));
    const struct pp_ref ctx = pp_ref_act(w, l, w->slot.ctx), dqkv = pp_ref_act(w, l, w->slot.qkv);
    write_linear_grads(w, l, PP_OUT_PROJ_WEIGHT, (struct pp_weight_grads){.dy = dz, .m = d, .input = ctx, .n = made});
    pp_writer_end_gather(w);
    if (pp_shape_is_latent(shape))
        pp_write_latent_weights(w, l, x);
    else
        write_linear_grads(w, l, PP_IN_PROJ_WEIGHT,
                           (struct pp_weight_grads){.dy = dqkv, .m = read, .input = x, .n = d});
}

/* Of the words and, where these are weights, of the positions: the whole of these in each worker of a rank, as all have
 * all tokens then. */
static void write_embedding_grad(struct pp_writer *w, struct pp_ref dy)
{
    const struct pp_shape *shape = &w->model->local;
    dy = pp_writer_gather(w, PP_FULL_GRADIENTS, dy);
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_EMBED_GRAD);
    call->embed = (struct pp_embed_dims){.rows = w->rows, .seq = w->seq, .d = shape->d_model, .vocab = shape->vocab};
    pp_writer_embedding(w, call);
    call->at.embed_grad = (struct pp_embed_grad_refs){
        .weight_grad = pp_ref_embedding(w, PP_MEM_GRAD), .tokens = pp_ref_to(PP_MEM_TOKENS, 0), .dy = dy};
    if (shape->positions != PP_POSITIONS_LEARNED) return;
    call = pp_writer_call(w, PP_KERNEL_POSITIONS_GRAD);
    call->positions =
        (struct pp_positions_dims){.rows = w->rows, .seq = w->seq, .d = shape->d_model, .places = shape->max_positions};
    pp_writer_embedding(w, call);
    call->at.positions_grad =
        (struct pp_positions_grad_refs){.positions_grad = pp_ref_positions(w, PP_MEM_GRAD), .dy = dy};
}

/* The gradient at the output of the last layer, in `out`, becomes path->incoming. */
static void write_decoder_input_grad(struct pp_writer *w, struct path *path, struct pp_ref out)
{
    const struct pp_ref dlogits = pp_ref_slot(w, w->slot.dlogits);
    const struct pp_ref to = pp_writer_norm_first(w) ? path->stream : out;
    struct pp_token_product product = input_product(PP_GEMM_WRITE, to, w->model->local.d_model, dlogits,
                                                    pp_padded_vocab(&w->model->local), pp_ref_decoder_weight(w));
    product.plain = true;
    const struct pp_ref dx = pp_write_summed_gradient(w, &product);
    path->incoming = out;
    if (pp_writer_norm_first(w))
        write_plain_norm_grad(w,
                              (struct pp_norm_grad_refs){.dr = out,
                                                         .xhat = pp_ref_slot(w, w->slot.xhat),
                                                         .rstd = pp_ref_slot(w, w->slot.rstd),
                                                         .dy = dx,
                                                         .gamma = pp_ref_last(w, PP_MEM_PARAM, PP_LAST_NORM_WEIGHT),
                                                         .gamma_grad = pp_ref_last(w, PP_MEM_GRAD, PP_LAST_NORM_WEIGHT),
                                                         .beta_grad = pp_ref_last(w, PP_MEM_GRAD, PP_LAST_NORM_BIAS)});
    else if (w->by_tokens)
        pp_writer_copy(w, out, dx);
}

/* The gradient of the logits is there since the forward pass. */
static void write_decoder_grads(struct pp_writer *w, struct path *path, struct pp_ref out)
{
    if (path->inputs) write_decoder_input_grad(w, path, out);
    if (!path->weights) return;
    const struct pp_ref input = pp_writer_gather(w, PP_FULL_OTHERS, pp_ref_slot(w, w->slot.decoder_input));
    pp_write_weight_grads(w, &(struct pp_weight_grads){.weight = pp_ref_last(w, PP_MEM_GRAD, PP_DECODER_WEIGHT),
                                                       .bias = pp_ref_last(w, PP_MEM_GRAD, PP_DECODER_BIAS),
                                                       .dy = pp_ref_slot(w, w->slot.dlogits),
                                                       .m = pp_padded_vocab(&w->model->local),
                                                       .input = input,
                                                       .n = w->model->local.d_model,
                                                       .plain = true});
}

/* Where the gradient of the stage's input goes; of the embedding's output. */
static struct pp_ref stage_output(const struct pp_writer *w, const struct path *path)
{
    if (!w->stage->embed) return pp_ref_to(PP_MEM_OUT, 0);
    if (w->split) return pp_ref_slot(w, w->slot.input_grad);
    return is_bare(w) ? path->incoming : path->stream;
}

/* Gradients of weights need u of a layer, and those of inputs where the layer has experts, for the router. */
static bool reads_inner(const struct path *path, bool experts) { return path->weights || experts; }

static struct path make_path(struct pp_writer *w, bool input_grads, bool weight_grads)
{
    const struct pp_shape *shape = &w->model->local;
    const int width = pp_attended_width(shape);
    struct path path = {.incoming = pp_ref_to(PP_MEM_IN, 0), .inputs = input_grads, .weights = weight_grads};
    pp_writer_take_again(w, reads_inner(&path, w->capacity > 0));
    pp_writer_take_full(w, 2);
    if (w->capacity) path.experts = pp_writer_expert_scratch(w, input_grads);
    if (!input_grads) return path;
    path.stream = pp_writer_stream(w); /* at the same place in all parts of a task */
    if (!w->part.highest) path.incoming = path.stream;
    if (is_bare(w)) return path;
    path.dctx = path.dnorm = pp_writer_activations(w, width);
    if (pp_writer_norm_first(w) && (w->by_tokens || width != shape->d_model)) path.dnorm = pp_writer_stream(w);
    if (!w->split || pp_writer_swiglu(w)) path.du = pp_writer_inner(w);
    if (!w->split && pp_writer_norm_first(w)) path.dz2 = pp_writer_stream(w);
    path.scratch = pp_writer_attention_scratch(w);
    pp_writer_take_pieces(w, true);
    pp_writer_take_latent(w, true);
    return path;
}

/* The last layer's turn is before the decoder's gradients, while scratch is not in use; the others need of it no more
 * than attention does. */
static void write_again(struct pp_writer *w, int l, const struct path *path)
{
    const struct pp_scratch scratch = {
        .attention = path->scratch, .at = path->experts.at, .stream = path->stream, .z2 = path->dnorm};
    if (w->checkpoints || (l >= 0 && pp_writer_keeps(w, l))) pp_write_layer_again(w, l, &scratch);
}

/* Before the gradient takes a's place. */
static void write_inner_again(struct pp_writer *w, int l, const struct path *path)
{
    const struct pp_shape *shape = pp_writer_shape(w, l);
    const struct pp_inner inner = pp_inner_of(w, l);
    if (!w->slot.activation_again || !reads_inner(path, shape->experts > 0)) return;
    if (shape->experts)
        pp_write_experts_inner_again(w, l);
    else
        pp_write_activation(w, l, &inner, true);
    if (path->weights || shape->shared_gate) pp_write_shared_again(w, l);
}

/* path->incoming -> the gradient at the layer's input in `out`, and those of its weights. */
static void write_layer(struct pp_writer *w, struct path *path, int l, struct pp_ref out)
{
    const bool first = pp_writer_norm_first(w);
    write_inner_again(w, l, path);
    if (path->inputs) (first ? write_feed_forward_first : write_feed_forward_last)(w, path, l);
    if (path->weights) write_feed_forward_weights(w, path, l);
    if (path->inputs) (first ? write_attention_first : write_attention_last)(w, path, l, out);
    if (path->weights) write_attention_weights(w, path, l);
    path->incoming = path->stream;
}

/* The gradient at the embedding's output is in `dy`, unless no layer has written it there. */
static void write_embedding_end(struct pp_writer *w, const struct path *path, struct pp_ref dy)
{
    if (is_bare(w) && w->split && path->inputs) pp_writer_copy(w, dy, path->incoming);
    if (path->weights) write_embedding_grad(w, dy);
}

void pp_write_backward(struct pp_writer *w, bool input_grads, bool weight_grads)
{
    struct path path = make_path(w, input_grads, weight_grads);
    w->fp8.both = input_grads && weight_grads && w->sum_pieces == 1;
    const struct pp_ref output = stage_output(w, &path);
    const int last = w->part.end - 1;
    const bool decode = w->stage->decode && w->part.highest;
    if (decode) write_again(w, last, &path);
    if (decode) write_decoder_grads(w, &path, is_bare(w) ? output : path.stream);
    for (int l = last; l >= w->part.begin; l--) {
        if (!pp_writer_begin_layer(w, l, decode && l == last)) continue;
        if (!decode || l < last) write_again(w, l, &path);
        write_layer(w, &path, l, l ? path.stream : output);
    }
    if (w->stage->embed && w->part.lowest) write_embedding_end(w, &path, output);
}
