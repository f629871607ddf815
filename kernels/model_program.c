/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/model_program.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

enum {
    MAX_LAYER_CALLS = 24, /* B: 10 for the inputs, 8 for the weights; NORM, STEP: one a tensor */
    MAX_OTHER_CALLS = 8,
    SCRATCH_ALIGNMENT = 64
};

static const struct pp_tensor *layer_tensor(const struct pp_writer *w, int l, enum pp_layer_tensor tensor)
{
    return &w->model->tensors[w->stage->first_tensor + w->stage->embed + l * PP_LAYER_TENSORS + (int)tensor];
}

struct pp_ref pp_ref_layer(const struct pp_writer *w, enum pp_region region, int l, enum pp_layer_tensor tensor)
{
    return pp_ref_to(region, layer_tensor(w, l, tensor)->offset);
}

static struct pp_ref copy_of(const struct pp_tensor *t)
{
    return t->offset16 < 0 ? pp_ref_to(PP_MEM_NONE, 0) : pp_ref_to(PP_MEM_PARAM16, t->offset16);
}

struct pp_ref pp_ref_weight(const struct pp_writer *w, int l, enum pp_layer_tensor tensor)
{
    const struct pp_tensor *t = layer_tensor(w, l, tensor);
    return t->offset16 < 0 ? pp_ref_to(PP_MEM_PARAM, t->offset) : copy_of(t);
}

struct pp_ref pp_ref_embedding(const struct pp_writer *w, enum pp_region region)
{
    return pp_ref_to(region, w->model->tensors[w->stage->first_tensor].offset);
}

/* Behind the layers' tensors: the norm's two, if there is one, and the decoder's. */
static int decoder_tensor(const struct pp_writer *w, int tensor) { return tensor + (pp_writer_norm_first(w) ? 2 : 0); }

struct pp_ref pp_ref_norm(const struct pp_writer *w, enum pp_region region, int tensor)
{
    return pp_ref_layer(w, region, w->stage->layers, tensor);
}

struct pp_ref pp_ref_decoder(const struct pp_writer *w, enum pp_region region, int tensor)
{
    return pp_ref_layer(w, region, w->stage->layers, decoder_tensor(w, tensor));
}

struct pp_ref pp_ref_decoder_weight(const struct pp_writer *w)
{
    return pp_ref_weight(w, w->stage->layers, decoder_tensor(w, 0));
}

struct pp_ref pp_writer_scratch(struct pp_writer *w, int64_t bytes)
{
    const int64_t at = w->out->work_bytes;
    w->out->work_bytes += (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
    return pp_ref_to(PP_MEM_WORK, at);
}

struct pp_ref pp_writer_activations(struct pp_writer *w, int width)
{
    return pp_writer_scratch(w, w->tokens * width * pp_element_bytes(w->model->shape.precision));
}

struct pp_call *pp_writer_call(struct pp_writer *w, enum pp_kernel kernel, int n0, int n1, int n2, int n3)
{
    struct pp_call *call = &w->out->calls[w->out->ncalls++];
    *call = (struct pp_call){.kernel = kernel, .n = {n0, n1, n2, n3}, .precision = w->model->shape.precision};
    return call;
}

struct pp_call *pp_writer_gemm(struct pp_writer *w, enum pp_kernel kernel, const int mnk[3], enum pp_gemm_mode mode,
                               struct pp_ref c, struct pp_ref a, struct pp_ref b)
{
    struct pp_call *call = pp_writer_call(w, kernel, mnk[0], mnk[1], mnk[2], mode);
    call->ref[0] = c;
    call->ref[1] = a;
    call->ref[2] = b;
    return call;
}

static bool has_dropout(const struct pp_writer *w) { return w->training && w->model->shape.dropout > 0; }

void pp_writer_dropout(const struct pp_writer *w, struct pp_call *call, int l, enum pp_dropout_place place)
{
    const bool residual = place == PP_DROP_RESIDUAL1 || place == PP_DROP_RESIDUAL2;
    if (!has_dropout(w) || (w->model->shape.residual_only && !residual)) return;
    /* site 0 means none, 1 is the embedding */
    call->site = 2 + (w->stage->first_layer + l) * PP_DROP_PLACES + (int)place;
    call->f[0] = (float)w->model->shape.dropout;
}

struct pp_call *pp_writer_attention(struct pp_writer *w, int l, enum pp_kernel math, enum pp_kernel flash)
{
    const struct pp_shape *shape = &w->model->shape;
    struct pp_call *call = pp_writer_call(w, shape->attention == PP_ATTENTION_FLASH ? flash : math, w->rows, w->seq,
                                          shape->heads, shape->d_model / shape->heads);
    call->n[4] = shape->mask == PP_MASK_CAUSAL;
    call->n[5] = pp_kv_heads(shape);
    pp_writer_dropout(w, call, l, PP_DROP_ATTENTION);
    return call;
}

struct pp_call *pp_writer_rope(struct pp_writer *w, enum pp_kernel kernel, struct pp_ref qkv)
{
    const struct pp_shape *shape = &w->model->shape;
    struct pp_call *call = pp_writer_call(w, kernel, w->rows, w->seq, shape->heads, shape->d_model / shape->heads);
    call->n[5] = pp_kv_heads(shape);
    call->f[0] = (float)shape->rope_theta;
    call->ref[0] = qkv;
    return call;
}

struct pp_ref pp_writer_attention_scratch(struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->shape;
    const int head_dim = shape->d_model / shape->heads;
    return pp_writer_scratch(w, shape->attention == PP_ATTENTION_FLASH ? pp_flash_scratch(w->seq, head_dim)
                                                                       : pp_attention_scratch(w->seq, head_dim));
}

void pp_writer_embedding(const struct pp_writer *w, struct pp_call *call)
{
    const struct pp_shape *shape = &w->model->shape;
    call->f[0] = shape->scale_embedding ? (float)sqrt(shape->d_model) : 1;
    if (!has_dropout(w) || shape->residual_only) return;
    call->site = 1;
    call->f[1] = (float)shape->dropout;
}

/* One call for each tensor of the stage, over its rows and columns. The embedding, the first one, has a gradient in the
 * rows of the batch's words only. */
static void write_tensors(struct pp_writer *w, enum pp_kernel kernel)
{
    for (int i = 0; i < w->stage->tensors; i++) {
        const struct pp_tensor *t = &w->model->tensors[w->stage->first_tensor + i];
        struct pp_call *call = pp_writer_call(w, kernel, (int)t->shape[0], (int)t->shape[1], i, 0);
        call->ref[0] = pp_ref_to(PP_MEM_GRAD, t->offset);
        if (kernel == PP_KERNEL_SUMSQ) continue;
        call->n[2] = kernel == PP_KERNEL_SGD && w->stage->embed && i == 0;
        call->ref[1] = call->ref[0];
        call->ref[0] = pp_ref_to(PP_MEM_PARAM, t->offset);
        call->ref[2] = copy_of(t);
        for (int s = 0; s < pp_optimizers[w->model->shape.optimizer].states; s++)
            call->ref[3 + s] = pp_ref_to(PP_MEM_STATE, s * w->stage->param_bytes + t->offset);
    }
}

static const enum pp_kernel step_kernels[PP_OPTIMIZERS] = {[PP_SGD] = PP_KERNEL_SGD, [PP_ADAMW] = PP_KERNEL_ADAMW};
/* In signatures. */
static const char *const optimizer_words[PP_OPTIMIZERS] = {[PP_SGD] = "", [PP_ADAMW] = " adamw"};
static const char *const attention_words[] = {[PP_ATTENTION_MATH] = "", [PP_ATTENTION_FLASH] = " flash"};
static const char *const norm_words[] = {[PP_NORM_LAST] = "", [PP_NORM_FIRST] = " pre"};
static const char *const activation_words[] = {[PP_RELU] = "", [PP_GELU] = " gelu"};
static const char *const position_words[] = {[PP_POSITIONS_SINUSOIDAL] = "", [PP_POSITIONS_ROPE] = " rope"};

static void write_calls(struct pp_writer *w, int kind)
{
    switch (kind) {
    case PP_F:
        pp_write_forward(w, false);
        break;
    case PP_R:
        pp_write_forward(w, true);
        break;
    case PP_B:
        pp_write_backward(w, true, true);
        break;
    case PP_I:
        pp_write_backward(w, true, false);
        break;
    case PP_W:
        pp_write_backward(w, false, true);
        break;
    case PP_NORM:
        write_tensors(w, PP_KERNEL_SUMSQ);
        break;
    case PP_STEP:
        write_tensors(w, step_kernels[w->model->shape.optimizer]);
        break;
    default:
        break; /* transfers and reductions move data, they call no kernels */
    }
}

static void write_vocabulary(const struct pp_writer *w, char *text, size_t size)
{
    const struct pp_stage *stage = w->stage;
    const int vocab = w->model->shape.vocab, padded = pp_padded_vocab(&w->model->shape);
    if (stage->embed || stage->decode) snprintf(text, size, " v%d", vocab);
    if (stage->decode && padded != vocab) snprintf(text, size, " v%d/%d", vocab, padded);
}

/* "B 2l+emb d200 h2 ff200 causal p0.2 seq35 rows5": what the work depends on, and nothing else. The rows stand at the
 * end: between shapes that differ in nothing else, times are interpolated. */
static void write_signature(const struct pp_writer *w, int kind)
{
    const struct pp_shape *shape = &w->model->shape;
    const struct pp_stage *stage = w->stage;
    char *text = w->out->signature;
    const size_t size = sizeof w->out->signature;
    const char *norm = norm_words[shape->norm], *activation = activation_words[shape->activation];
    const int kv = pp_kv_heads(shape);
    char vocab[32] = "", dropout[32] = "", precision[16] = "", heads[24] = "", of_keys[24] = "";
    write_vocabulary(w, vocab, sizeof vocab);
    if (has_dropout(w)) snprintf(dropout, sizeof dropout, " p%g%s", shape->dropout, shape->residual_only ? "r" : "");
    if (shape->precision != PP_FP32) snprintf(precision, sizeof precision, " %s", pp_precision_names[shape->precision]);
    snprintf(heads, sizeof heads, " h%d", shape->heads);
    if (kv != shape->heads) snprintf(of_keys, sizeof of_keys, " kv%d", kv);
    int used = snprintf(text, size, "%s %dl%s%s%s d%d", pp_kinds[kind].name, stage->layers, stage->embed ? "+emb" : "",
                        stage->decode ? "+dec" : "", w->training ? "" : " eval", shape->d_model);
    if (kind == PP_NORM || kind == PP_STEP)
        snprintf(text + used, size - (size_t)used, "%s%s ff%d%s%s%s%s", kv != shape->heads ? heads : "", of_keys,
                 shape->d_ff, vocab, precision, stage->decode ? norm : "",
                 kind == PP_STEP ? optimizer_words[shape->optimizer] : "");
    else
        snprintf(text + used, size - (size_t)used, "%s%s ff%d%s %s%s%s%s%s%s%s seq%d rows%d", heads, of_keys,
                 shape->d_ff, vocab, shape->mask == PP_MASK_CAUSAL ? "causal" : "full",
                 attention_words[shape->attention], dropout, precision, norm, activation,
                 position_words[shape->positions], w->seq, w->rows);
}

static pp_status check_size(const struct pp_model *model, const struct pp_class *cls, int seq)
{
    const int64_t tokens = (int64_t)cls->rows * seq;
    if (tokens > INT_MAX || 3 * (int64_t)model->shape.d_model > INT_MAX)
        return pp_fail(PP_USAGE, "a microbatch of %d row%s of %d token%s is too large: use more chunks", cls->rows,
                       pp_plural(cls->rows), seq, pp_plural(seq));
    return PP_OK;
}

pp_status pp_model_program(const struct pp_model *model, const struct pp_class *cls, const struct pp_program_spec *spec,
                           struct pp_program *out)
{
    *out = (struct pp_program){0};
    if (!pp_kinds[cls->kind].computes) return PP_OK;
    PP_TRY(check_size(model, cls, spec->seq));
    struct pp_writer w = {.model = model,
                          .stage = &model->stages[cls->stage],
                          .rows = cls->rows,
                          .seq = spec->seq,
                          .tokens = (int64_t)cls->rows * spec->seq,
                          .training = spec->training,
                          .split = spec->split_backward && spec->training,
                          .out = out};
    pp_slot_layout(model, cls->stage, spec, &w.slot);
    if (w.slot.bytes >= PP_SLOT_ENDLESS)
        return pp_fail(
            PP_USAGE,
            "the activations of a microbatch of %d row%s of %d token%s are too large to be counted: use more "
            "chunks, fewer --tokens or more stages",
            spec->slot_rows, pp_plural(spec->slot_rows), spec->seq, pp_plural(spec->seq));
    PP_TRY(PP_NEW(&out->calls, MAX_OTHER_CALLS + MAX_LAYER_CALLS * w.stage->layers));
    write_calls(&w, cls->kind);
    write_signature(&w, cls->kind);
    for (int i = 0; i < out->ncalls; i++) {
        out->flops += pp_call_flops(&out->calls[i]);
        out->bytes += pp_call_bytes(&out->calls[i]);
    }
    return PP_OK;
}
