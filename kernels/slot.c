/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/model_program.h"

enum { BUFFER_ALIGNMENT = 64 };

/* Sizes stop at PP_SLOT_ENDLESS, of which two and an alignment are still below 2^63. */
static int64_t bounded(int64_t bytes) { return bytes < PP_SLOT_ENDLESS ? bytes : PP_SLOT_ENDLESS; }

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? PP_SLOT_ENDLESS : bounded(product);
}

/* A slot in the making: of so many rows. seq, part_seq: tokens of a row that the worker has, and of the stream;
 * row_seq: all; experts: of the model, 0 in a layer without; places: of the worker's experts. */
struct placing {
    int rows, seq, part_seq, row_seq, element_bytes, experts;
    int64_t places, end;
};

/* Places a buffer of `width` numbers of `bytes` each for each of so many tokens of a row at the end of the slot. */
static struct pp_buffer place_tokens(struct placing *p, int tokens, int64_t width, int bytes)
{
    const struct pp_buffer at = {p->end, times(times(tokens, width), bytes)};
    const int64_t size = times(p->rows, at.row_bytes);
    p->end = bounded(p->end + (size + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT);
    return at;
}

/* Of the worker's tokens. */
static struct pp_buffer place(struct placing *p, int64_t width, int bytes)
{
    return place_tokens(p, p->seq, width, bytes);
}

/* Activations of the stream's width, and float32 numbers of its tokens. */
static struct pp_buffer place_stream(struct placing *p, int64_t d)
{
    return place_tokens(p, p->part_seq, d, p->element_bytes);
}

/* So many numbers, whatever the rows: a slot with such buffers holds one microbatch. */
static struct pp_buffer place_once(struct placing *p, int64_t numbers, int bytes)
{
    const struct pp_buffer at = {p->end, 0};
    const int64_t size = times(numbers, bytes);
    p->end = bounded(p->end + (size + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT);
    return at;
}

/* Columns of linear1's output, or of linear2's input: of all tokens, or of places. */
static struct pp_buffer place_inner(struct placing *p, int64_t width)
{
    return p->experts ? place_once(p, times(p->places, width), p->element_bytes) : place(p, width, p->element_bytes);
}

/* What route makes, and, for a W of its own, the gradient at its logits. */
static void place_routes(struct placing *p, int chosen, bool split, struct pp_slot *out)
{
    out->probabilities = place(p, p->experts, sizeof(float));
    out->choices = place(p, chosen, sizeof(int32_t));
    out->gates = place(p, chosen, sizeof(float));
    out->places = place(p, chosen, sizeof(int32_t));
    out->holds = place_once(p, p->places, sizeof(int32_t));
    out->counts = place_once(p, p->experts, sizeof(float));
    if (split) out->droute = place(p, p->experts, p->element_bytes);
}

/* What others have sent, which is not asked for again. */
static void place_received(struct placing *p, int64_t d, bool split, struct pp_slot *out)
{
    out->received = place_once(p, times(p->places, d), p->element_bytes);
    out->received_gates = place_once(p, p->places, sizeof(float));
    if (split) out->received_dy = place_once(p, times(p->places, d), p->element_bytes);
}

/* Of the feed-forward beside experts: a, u and dh of all tokens, under the same conditions; and its gate, with the
 * gradient at its logit for a W of its own. */
static void place_shared(struct placing *p, const struct pp_shape *shape, bool split, struct pp_slot *out)
{
    const int ff = shape->shared_ff, e = p->element_bytes;
    if (!ff) return;
    if (shape->activation != PP_RELU) out->shared_a = place(p, pp_gated_width(shape, ff), e);
    if (!out->activation_again) out->shared_u = place(p, ff, e);
    if (split && shape->activation != PP_SWIGLU) out->shared_dh = place(p, ff, e);
    if (!shape->shared_gate) return;
    out->shared_gate = place(p, 1, sizeof(float));
    if (split) out->shared_dlogit = place(p, 1, e);
}

static struct pp_buffer place_rstd(struct placing *p) { return place_tokens(p, p->part_seq, 1, sizeof(float)); }

/* What latent attention keeps before qkv, and, for a W of its own, gradients of what qkv is joined of. */
static void place_latent(struct placing *p, const struct pp_shape *shape, bool split, struct pp_slot *out)
{
    const int e = p->element_bytes, queries = shape->q_lora_rank, keys = shape->kv_lora_rank;
    if (!pp_shape_is_latent(shape)) return;
    if (queries) out->q_a = place(p, queries, e);
    if (queries) out->q_n = place(p, queries, e);
    if (queries) out->q_rstd = place(p, 1, sizeof(float));
    out->kv_a = place(p, keys + shape->qk_rope_head_dim, e);
    out->kv_n = place(p, keys, e);
    out->kv_rstd = place(p, 1, sizeof(float));
    if (!split) return;
    out->dq = place(p, pp_query_width(shape), e);
    out->dkv = place(p, pp_latent_kv_width(shape), e);
}

static void place_attention(struct placing *p, const struct pp_shape *shape, struct pp_slot *out)
{
    const bool flash = shape->attention == PP_ATTENTION_FLASH;
    const int e = p->element_bytes;
    out->qkv = place(p, pp_qkv_width(shape), e);
    if (shape->qk_norm) out->kept = place(p, pp_qk_width(shape), e);
    if (flash)
        out->lse = place(p, shape->heads, sizeof(float));
    else
        out->p = place(p, (int64_t)shape->heads * p->row_seq, e);
    out->ctx = place(p, pp_attended_width(shape), e);
    if (pp_shape_parts_heads(shape) && flash) out->ctx_there = place(p, pp_attended_width(shape), e);
}

/* The buffers that layers of both kinds have, at the same place. */
static void place_stem(struct placing *p, const struct pp_shape *shape, const struct pp_program_spec *spec,
                       struct pp_slot *out)
{
    const int64_t d = shape->d_model;
    const bool split = spec->training && spec->split_backward;
    if (shape->norm == PP_NORM_FIRST || !spec->checkpoint_layers) out->x = place_stream(p, d);
    place_latent(p, shape, split, out);
    place_attention(p, shape, out);
    out->xhat1 = place_stream(p, d);
    out->rstd1 = place_rstd(p);
    out->y1 = place_stream(p, d);
    out->xhat2 = place_stream(p, d);
    out->rstd2 = place_rstd(p);
    if (split && shape->norm == PP_NORM_FIRST) out->dz2 = place_stream(p, d);
}

/* The feed-forward of a layer of a kind. */
static void place_feed_forward(struct placing *p, const struct pp_shape *shape, enum pp_layer_kind kind, bool split,
                               struct pp_slot *out)
{
    if (p->experts) place_routes(p, shape->experts_per_token, split, out);
    if (p->experts && pp_shape_expert_parallel(shape) > 1) place_received(p, shape->d_model, split, out);
    if (shape->activation != PP_RELU) out->a[kind] = place_inner(p, pp_linear1_width(shape));
    if (!out->activation_again) out->u[kind] = place_inner(p, shape->d_ff);
    if (split && shape->activation != PP_SWIGLU) out->dh[kind] = place_inner(p, shape->d_ff);
    place_shared(p, shape, split, out);
}

/* Places the buffers of one layer of each kind that the stage has, each time from the slot's beginning. bytes:
 * [PP_LAYER_KINDS] becomes the bytes of a layer of each kind; returns the most of them. */
static int64_t place_layers(struct placing *p, const struct pp_model *model, const struct pp_stage *s,
                            const struct pp_program_spec *spec, struct pp_slot *out, int64_t *bytes)
{
    const int experts = pp_stage_layers_with_experts(model, s, s->layers);
    const int layers[PP_LAYER_KINDS] = {[PP_LAYER_DENSE] = s->layers - experts, [PP_LAYER_EXPERTS] = experts};
    const bool split = spec->training && spec->split_backward;
    if (s->layers == 0) return 0;
    out->activation_again = spec->training && spec->activation_again;
    place_stem(p, &model->local, spec, out);
    int64_t most = p->end;
    for (int kind = 0; kind < PP_LAYER_KINDS; kind++) {
        struct placing of = *p;
        if (layers[kind] == 0) continue;
        of.experts = kind == PP_LAYER_EXPERTS ? model->shape.experts : 0;
        place_feed_forward(&of, &model->local_kind[kind], kind, split, out);
        bytes[kind] = of.end;
        most = of.end > most ? of.end : most;
    }
    return most;
}

/* Where logits are not float32 like their gradient, it has a buffer of its own. */
static void place_decoder(struct placing *p, const struct pp_shape *shape, bool training, struct pp_slot *out)
{
    const int columns = pp_padded_vocab(shape);
    if (shape->norm == PP_NORM_FIRST) {
        out->xhat = place_stream(p, shape->d_model);
        out->rstd = place_rstd(p);
    }
    out->decoder_input = place_stream(p, shape->d_model);
    out->dlogits = out->logits = place(p, columns, sizeof(float));
    if (training && p->element_bytes != sizeof(float)) out->dlogits = place(p, columns, p->element_bytes);
}

int64_t pp_slot_layer(const struct pp_model *model, const struct pp_stage *stage, const struct pp_slot *slot, int l)
{
    if (l < slot->again) return times(slot->checkpoint_bytes, l);
    const int experts =
        pp_stage_layers_with_experts(model, stage, l) - pp_stage_layers_with_experts(model, stage, slot->again);
    const int64_t before = bounded(slot->others + times(slot->layer_bytes[PP_LAYER_EXPERTS], experts));
    return bounded(before + times(slot->layer_bytes[PP_LAYER_DENSE], l - slot->again - experts));
}

void pp_slot_layout(const struct pp_model *model, int stage, const struct pp_program_spec *spec, struct pp_slot *out)
{
    const struct pp_stage *s = &model->stages[stage];
    const struct pp_shape *shape = &model->local;
    const bool split = spec->training && spec->split_backward;
    struct placing p = {.rows = spec->slot_rows,
                        .seq = pp_own_tokens(shape, spec->seq),
                        .row_seq = spec->seq,
                        .part_seq = pp_part_tokens(shape, spec->seq),
                        .element_bytes = pp_element_bytes(shape->precision)};
    int64_t bytes[PP_LAYER_KINDS] = {0};
    if (shape->experts) p.places = times(shape->experts, pp_expert_capacity(&model->shape, times(p.rows, p.seq)));
    *out = (struct pp_slot){0};
    p.end = place_layers(&p, model, s, spec, out, bytes);
    const bool apart = spec->training && !spec->checkpoint_layers; /* each layer has buffers of its own */
    if (apart) {
        out->again = spec->again < s->layers ? spec->again : s->layers;
        for (int kind = 0; kind < PP_LAYER_KINDS; kind++) out->layer_bytes[kind] = bytes[kind];
        p.end = 0;
        out->checkpoint = place_stream(&p, shape->d_model);
        out->checkpoint_bytes = p.end;
        out->others = times(out->checkpoint_bytes, out->again);
        p.end = pp_slot_layer(model, s, out, s->layers);
    }
    out->begin[PP_ACT_MORE] = apart ? pp_slot_layer(model, s, out, s->common) : p.end;
    out->begin[PP_ACT_ENDS] = p.end;
    if (s->decode) place_decoder(&p, shape, spec->training, out);
    if (s->embed && split) out->input_grad = place_stream(&p, shape->d_model);
    out->bytes = p.end;
    if (s->common == 0) out->begin[PP_ACT_MORE] = out->begin[PP_ACT_ENDS] = p.end;
}

void pp_model_act_parts(const struct pp_model *model, int stage, const struct pp_program_spec *spec,
                        int64_t bytes[PP_ACT_PARTS])
{
    struct pp_slot slot;
    pp_slot_layout(model, stage, spec, &slot);
    for (int i = 0; i < PP_ACT_PARTS; i++)
        bytes[i] = (i + 1 < PP_ACT_PARTS ? slot.begin[i + 1] : slot.bytes) - slot.begin[i];
}

int64_t pp_model_act_bytes(const struct pp_model *model, int stage, const struct pp_program_spec *spec)
{
    struct pp_slot slot;
    pp_slot_layout(model, stage, spec, &slot);
    return slot.bytes;
}
