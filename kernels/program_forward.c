/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward programs. Products write their output without bias; the kernel that follows adds it, so no pass over memory
 * is spent on it.
 */
#include "kernels/model_program.h"

/* Brings the stage's input into x, and into the checkpoint where the task has one and x is not that. */
static void write_input(struct pp_writer *w, struct pp_ref x, bool recompute)
{
    const struct pp_shape *shape = &w->model->local;
    if (w->stage->embed) {
        struct pp_call *call = pp_writer_call(w, PP_KERNEL_EMBED);
        call->embed = (struct pp_embed_dims){
            .rows = w->rows, .seq = w->seq, .d = shape->d_model, .vocab = shape->vocab, .positions = shape->positions};
        pp_writer_embedding(w, call);
        call->at.embed = (struct pp_embed_refs){.out = w->by_tokens ? w->full[0] : x,
                                                .tokens = pp_ref_to(PP_MEM_TOKENS, 0),
                                                .weight = pp_ref_embedding(w, PP_MEM_PARAM),
                                                .positions = pp_ref_positions(w, PP_MEM_PARAM)};
        if (shape->positions == PP_POSITIONS_SINUSOIDAL)
            call->at.embed.scratch = pp_writer_scratch(w, (int64_t)w->seq * shape->d_model * (int64_t)sizeof(float));
        pp_write_sum(w, x);
        return;
    }
    if (recompute) {
        pp_writer_copy(w, x, pp_ref_to(PP_MEM_CKPT, 0));
        return;
    }
    pp_writer_copy(w, x, pp_ref_to(PP_MEM_IN, 0));
    const bool kept = x.region == PP_MEM_CKPT;
    if (w->training && !kept) pp_writer_copy(w, pp_ref_to(PP_MEM_CKPT, 0), pp_ref_to(PP_MEM_IN, 0));
}

/* C [T, n] = A [T, k] * weight [n, k]' */
static struct pp_token_product linear(struct pp_ref c, int n, struct pp_ref a, int k, struct pp_ref weight)
{
    return (struct pp_token_product){
        .kernel = PP_KERNEL_GEMM_NT, .mode = PP_GEMM_WRITE, .c = c, .a = a, .weight = weight, .n = n, .k = k};
}

/* Of all tokens, from x [T, d] of the worker's. */
static void write_column_parallel(struct pp_writer *w, struct pp_ref c, int n, struct pp_ref x, struct pp_ref weight)
{
    const struct pp_token_product product = linear(c, n, x, w->model->local.d_model, weight);
    pp_write_gathered_product(w, 0, &product);
}

/* The same where the workers of a rank have columns of the weight, and of A: C is the sum of what they make. */
static void write_row_parallel(struct pp_writer *w, struct pp_ref c, struct pp_ref a, int k, struct pp_ref weight)
{
    const struct pp_token_product product = linear(c, w->model->local.d_model, a, k, weight);
    pp_write_summed_product(w, 0, &product, c);
}

/* in_proj, or what latent attention has in its place, and attention: x [T, d] -> ctx. */
static void write_attention(struct pp_writer *w, int l, struct pp_ref x, struct pp_ref scratch)
{
    if (pp_shape_is_latent(&w->model->local))
        pp_write_latent(w, l, x);
    else
        write_column_parallel(w, pp_ref_in_proj(w, l), (int)pp_qkv_width(&w->model->local), x,
                              pp_ref_weight(w, l, PP_IN_PROJ_WEIGHT));
    pp_write_attention(w, l, scratch);
}

struct pp_inner pp_inner_of(const struct pp_writer *w, int l)
{
    const enum pp_layer_kind kind = pp_writer_kind(w, l);
    const bool experts = kind == PP_LAYER_EXPERTS;
    const struct pp_ref u = pp_ref_u(w, l);
    return (struct pp_inner){.rows = experts ? (int)pp_writer_place_rows(w) : w->rows,
                             .seq = experts ? 1 : w->seq,
                             .width = w->model->local_kind[kind].d_ff,
                             .a = w->model->local.activation == PP_RELU ? u : pp_ref_act(w, l, w->slot.a[kind]),
                             .u = u,
                             .bias = pp_ref_layer(w, PP_MEM_PARAM, l, PP_LINEAR1_BIAS)};
}

struct pp_activation_dims pp_inner_dims(const struct pp_writer *w, const struct pp_inner *inner)
{
    return (struct pp_activation_dims){.rows = inner->rows,
                                       .seq = inner->seq,
                                       .width = inner->width,
                                       .tanh = w->model->local.activation == PP_GELU_TANH};
}

/* Relu works in place, others keep what they are of, with its bias. */
void pp_write_activation(struct pp_writer *w, int l, const struct pp_inner *inner, bool again)
{
    static const enum pp_kernel kernels[] = {[PP_RELU] = PP_KERNEL_RELU,
                                             [PP_GELU] = PP_KERNEL_GELU,
                                             [PP_SWIGLU] = PP_KERNEL_SWIGLU,
                                             [PP_GELU_TANH] = PP_KERNEL_GELU};
    const struct pp_shape *shape = pp_writer_shape(w, l);
    const struct pp_ref bias = again ? pp_ref_to(PP_MEM_NONE, 0) : inner->bias, u = inner->u, a = inner->a;
    struct pp_call *call = pp_writer_call(w, kernels[shape->activation]);
    call->activation = pp_inner_dims(w, inner);
    if (!shape->experts) pp_writer_dropout(w, call, l, PP_DROP_ACTIVATION);
    if (call->kernel == PP_KERNEL_RELU) call->at.relu = (struct pp_relu_refs){.u = u, .bias = bias};
    if (call->kernel == PP_KERNEL_GELU) call->at.gelu = (struct pp_gelu_refs){.u = u, .a = a, .bias = bias};
    if (call->kernel == PP_KERNEL_SWIGLU) call->at.swiglu = (struct pp_swiglu_refs){.u = u, .a = a, .bias = bias};
}

/* From x to z, both [T, d] of the worker's tokens; where z has no memory, as far as the backward needs it. */
static void write_feed_forward(struct pp_writer *w, int l, struct pp_ref x, struct pp_ref z,
                               const struct pp_scratch *scratch)
{
    const struct pp_shape *shape = pp_writer_shape(w, l);
    const struct pp_inner inner = pp_inner_of(w, l);
    if (shape->experts) {
        pp_write_experts(w, l, x, z, &scratch->at);
        return;
    }
    write_column_parallel(w, inner.a, pp_linear1_width(shape), x, pp_ref_weight(w, l, PP_LINEAR1_WEIGHT));
    pp_write_activation(w, l, &inner, false);
    if (z.region != PP_MEM_NONE) write_row_parallel(w, z, inner.u, shape->d_ff, pp_ref_weight(w, l, PP_LINEAR2_WEIGHT));
}

static struct pp_call *write_norm(struct pp_writer *w, bool plain)
{
    const struct pp_shape *shape = &w->model->local;
    const enum pp_kernel kernel = shape->normalization == PP_RMSNORM ? PP_KERNEL_RMSNORM : PP_KERNEL_LAYERNORM;
    struct pp_call *call = pp_writer_pass(w, kernel, plain);
    call->eps = (float)pp_norm_epsilon(shape);
    return call;
}

/* One of the two residual blocks' ends. */
struct residual {
    enum pp_dropout_place place;
    enum pp_layer_tensor bias, gamma, beta;
    struct pp_ref y, z, rstd, x;
    struct pp_ref sum; /* no memory: x + z is not kept */
};

static void write_residual(struct pp_writer *w, int l, const struct residual *r)
{
    struct pp_call *call = write_norm(w, false);
    pp_writer_dropout(w, call, l, r->place);
    call->at.norm = (struct pp_norm_refs){.y = r->y,
                                          .z = r->z,
                                          .rstd = r->rstd,
                                          .x = r->x,
                                          .bias = pp_ref_layer(w, PP_MEM_PARAM, l, r->bias),
                                          .gamma = pp_ref_layer(w, PP_MEM_PARAM, l, r->gamma),
                                          .beta = pp_ref_layer(w, PP_MEM_PARAM, l, r->beta),
                                          .sum = r->sum};
}

/* Where the output of layer l goes, of -1 the stage's input: the next layer's input, the decoder's input, or the next
 * stage. */
static struct pp_ref layer_output(const struct pp_writer *w, int l)
{
    if (l + 1 < w->stage->layers) return pp_ref_x(w, l + 1);
    return w->stage->decode ? pp_ref_slot(w, w->slot.decoder_input) : pp_ref_to(PP_MEM_OUT, 0);
}

/* Its output goes to y. */
static void write_layer(struct pp_writer *w, int l, struct pp_ref y, const struct pp_scratch *scratch)
{
    const struct pp_slot *slot = &w->slot;
    const struct pp_ref x = pp_ref_x(w, l), ctx = pp_ref_act(w, l, slot->ctx);
    const struct pp_ref y1 = pp_ref_act(w, l, slot->y1);
    const struct residual first = {PP_DROP_RESIDUAL1,
                                   PP_OUT_PROJ_BIAS,
                                   PP_NORM1_WEIGHT,
                                   PP_NORM1_BIAS,
                                   y1,
                                   pp_ref_act(w, l, slot->xhat1),
                                   pp_ref_act(w, l, slot->rstd1),
                                   x,
                                   {0}};
    const struct residual second = {PP_DROP_RESIDUAL2,
                                    PP_LINEAR2_BIAS,
                                    PP_NORM2_WEIGHT,
                                    PP_NORM2_BIAS,
                                    y,
                                    pp_ref_act(w, l, slot->xhat2),
                                    pp_ref_act(w, l, slot->rstd2),
                                    y1,
                                    {0}};

    write_attention(w, l, x, scratch->attention);
    write_row_parallel(w, first.z, ctx, pp_attended_width(&w->model->local), pp_ref_weight(w, l, PP_OUT_PROJ_WEIGHT));
    write_residual(w, l, &first);
    write_feed_forward(w, l, y1, second.z, scratch);
    write_residual(w, l, &second);
}

/* ---- norm first ---- */

/* y = the norm of x alone. */
static void write_plain_norm(struct pp_writer *w, struct pp_norm_refs at) { write_norm(w, true)->at.norm = at; }

/* y = x + z with its bias and dropout: the end of a layer. */
static void write_layer_end(struct pp_writer *w, int l, struct pp_ref y, struct pp_ref z, struct pp_ref x)
{
    struct pp_call *call = pp_writer_pass(w, PP_KERNEL_RESIDUAL, false);
    pp_writer_dropout(w, call, l, PP_DROP_RESIDUAL2);
    call->at.residual =
        (struct pp_residual_refs){.y = y, .z = z, .x = x, .bias = pp_ref_layer(w, PP_MEM_PARAM, l, PP_LINEAR2_BIAS)};
}

/* The stream comes from `in` and goes to `out`; where that has no memory, the backward needs nothing of the rest. */
static void write_norm_first_layer(struct pp_writer *w, int l, struct pp_ref in, struct pp_ref out,
                                   const struct pp_scratch *scratch)
{
    const struct pp_slot *slot = &w->slot;
    const struct pp_ref h1 = pp_ref_act(w, l, slot->x), h2 = pp_ref_act(w, l, slot->y1);
    const struct pp_ref none = {0};
    const bool ends = out.region == PP_MEM_NONE;
    const struct pp_ref stream = ends ? none : scratch->stream, z2 = ends ? none : scratch->z2;
    const struct residual middle = {PP_DROP_RESIDUAL1,
                                    PP_OUT_PROJ_BIAS,
                                    PP_NORM2_WEIGHT,
                                    PP_NORM2_BIAS,
                                    h2,
                                    pp_ref_act(w, l, slot->xhat2),
                                    pp_ref_act(w, l, slot->rstd2),
                                    in,
                                    stream};

    write_plain_norm(w, (struct pp_norm_refs){.y = h1,
                                              .z = pp_ref_act(w, l, slot->xhat1),
                                              .rstd = pp_ref_act(w, l, slot->rstd1),
                                              .x = in,
                                              .gamma = pp_ref_layer(w, PP_MEM_PARAM, l, PP_NORM1_WEIGHT),
                                              .beta = pp_ref_layer(w, PP_MEM_PARAM, l, PP_NORM1_BIAS)});
    write_attention(w, l, h1, scratch->attention);
    write_row_parallel(w, middle.z, pp_ref_act(w, l, slot->ctx), pp_attended_width(&w->model->local),
                       pp_ref_weight(w, l, PP_OUT_PROJ_WEIGHT));
    write_residual(w, l, &middle);
    write_feed_forward(w, l, h2, z2, scratch);
    if (!ends) write_layer_end(w, l, out, z2, stream);
}

/* The stream's norm is the decoder's input. */
static void write_last_norm(struct pp_writer *w, struct pp_ref stream)
{
    write_plain_norm(w, (struct pp_norm_refs){.y = pp_ref_slot(w, w->slot.decoder_input),
                                              .z = pp_ref_slot(w, w->slot.xhat),
                                              .rstd = pp_ref_slot(w, w->slot.rstd),
                                              .x = stream,
                                              .gamma = pp_ref_last(w, PP_MEM_PARAM, PP_LAST_NORM_WEIGHT),
                                              .beta = pp_ref_last(w, PP_MEM_PARAM, PP_LAST_NORM_BIAS)});
}

/* The loss, and the gradient of the logits. The workers of a rank have columns of these: each tells the others the
 * greatest of its part of a row, the sum of the exponentials, and the target's where it has that. */
static void write_loss(struct pp_writer *w, enum pp_kernel kernel, struct pp_ref parts)
{
    const struct pp_shape *local = &w->model->local;
    const bool gradient = w->training && kernel != PP_KERNEL_CROSS_ENTROPY_PART;
    struct pp_call *call = pp_writer_call(w, kernel);
    call->loss = (struct pp_loss_dims){
        .rows = w->rows, .seq = w->seq, .vocab = local->vocab, .gradient = gradient, .columns = pp_padded_vocab(local)};
    if (kernel != PP_KERNEL_CROSS_ENTROPY) call->loss.whole = w->model->shape.vocab;
    call->at.loss = (struct pp_loss_refs){.logits = pp_ref_slot(w, w->slot.logits),
                                          .bias = pp_ref_last(w, PP_MEM_PARAM, PP_DECODER_BIAS),
                                          .targets = pp_ref_to(PP_MEM_TARGETS, 0),
                                          .parts = parts};
    if (gradient) call->at.loss.dlogits = pp_ref_slot(w, w->slot.dlogits);
}

static void write_shared_loss(struct pp_writer *w)
{
    const int64_t rows = w->tokens * pp_shape_tensor(&w->model->shape);
    const struct pp_ref parts = pp_writer_scratch(w, rows * PP_ENTROPY_PART * (int64_t)sizeof(float));
    write_loss(w, PP_KERNEL_CROSS_ENTROPY_PART, parts);
    pp_writer_all_reduce(w, parts, rows, PP_ENTROPY_PART, true);
    write_loss(w, PP_KERNEL_CROSS_ENTROPY_JOIN, parts);
}

static void write_decoder(struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->local;
    struct pp_token_product product =
        linear(pp_ref_slot(w, w->slot.logits), pp_padded_vocab(shape), pp_ref_slot(w, w->slot.decoder_input),
               shape->d_model, pp_ref_decoder_weight(w));
    product.wide = product.plain = true;
    pp_write_gathered_product(w, 0, &product);
    if (pp_shape_tensor(shape) > 1)
        write_shared_loss(w);
    else
        write_loss(w, PP_KERNEL_CROSS_ENTROPY, pp_ref_to(PP_MEM_NONE, 0));
}

static void write_norm_last_layers(struct pp_writer *w, bool recompute)
{
    if (w->part.lowest) write_input(w, layer_output(w, -1), recompute);
    if (w->stage->layers == 0) return;
    const struct pp_scratch scratch = {.attention = pp_writer_attention_scratch(w), .at = pp_writer_expert_places(w)};
    for (int l = w->part.begin; l < w->part.end; l++)
        if (pp_writer_begin_layer(w, l, false)) write_layer(w, l, layer_output(w, l), &scratch);
}

/* Where the stream stands before layer l; behind the last one. A recomputed stage sends nothing. */
static struct pp_ref stream_at(const struct pp_writer *w, int l, const struct pp_scratch *scratch, bool recompute)
{
    if (l == w->stage->layers && !w->stage->decode) return pp_ref_to(recompute ? PP_MEM_NONE : PP_MEM_OUT, 0);
    return pp_writer_keeps(w, l) ? pp_ref_checkpoint(w, l) : scratch->stream;
}

static void write_norm_first_layers(struct pp_writer *w, bool recompute)
{
    struct pp_scratch scratch = {.stream = pp_writer_stream(w)}; /* at the same place in all parts of a task */
    if (w->stage->layers > 0) scratch.z2 = pp_writer_stream(w);
    if (w->part.lowest) write_input(w, stream_at(w, 0, &scratch, recompute), recompute);
    if (w->stage->layers > 0) scratch.attention = pp_writer_attention_scratch(w);
    if (w->stage->layers > 0) scratch.at = pp_writer_expert_places(w);
    for (int l = w->part.begin; l < w->part.end; l++) {
        const struct pp_ref in = stream_at(w, l, &scratch, recompute), out = stream_at(w, l + 1, &scratch, recompute);
        if (pp_writer_begin_layer(w, l, out.region == PP_MEM_NONE)) write_norm_first_layer(w, l, in, out, &scratch);
    }
    if (w->stage->decode && w->part.highest) write_last_norm(w, stream_at(w, w->stage->layers, &scratch, recompute));
}

void pp_write_forward(struct pp_writer *w, bool recompute)
{
    if (recompute && w->stage->layers == 0 && !w->stage->decode) return; /* nothing is kept of an embedding alone */
    pp_writer_take_again(w, true);
    pp_writer_take_full(w, 1);
    pp_writer_take_pieces(w, false);
    pp_writer_take_latent(w, false);
    if (pp_writer_norm_first(w))
        write_norm_first_layers(w, recompute);
    else
        write_norm_last_layers(w, recompute);
    if (w->stage->decode && w->part.highest) write_decoder(w);
}

void pp_write_layer_again(struct pp_writer *w, int l, const struct pp_scratch *scratch)
{
    const struct pp_ref none = {0};
    const bool last = w->checkpoints && l + 1 == w->stage->layers;
    const bool decode = w->stage->decode && last, first = pp_writer_norm_first(w);
    const struct pp_ref input = pp_ref_slot(w, w->slot.decoder_input);
    if (l < 0 && !first)
        pp_writer_copy(w, input, pp_ref_checkpoint(w, 0));
    else if (l >= 0 && first)
        write_norm_first_layer(w, l, pp_ref_checkpoint(w, l), decode ? scratch->stream : none, scratch);
    else if (l >= 0)
        write_layer(w, l, decode ? input : none, scratch);
    if (!decode) return;
    if (first) write_last_norm(w, l < 0 ? pp_ref_checkpoint(w, 0) : scratch->stream);
    write_decoder(w);
}
