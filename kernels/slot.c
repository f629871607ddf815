/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/model_program.h"

enum { BUFFER_ALIGNMENT = 64 };

/* Places a buffer of `floats` at the end of the slot. */
static int64_t place(int64_t *end, int64_t floats)
{
    int64_t at = *end;
    int64_t bytes = floats * (int64_t)sizeof(float);
    *end = at + (bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    return at;
}

static void place_layer(const struct pp_shape *shape, int rows, int seq, bool split, struct pp_slot *out)
{
    const int64_t t = (int64_t)rows * seq, d = shape->d_model, ff = shape->d_ff;
    int64_t *end = &out->bytes;
    out->x = place(end, t * d);
    out->qkv = place(end, t * 3 * d);
    out->p = place(end, t * shape->heads * seq);
    out->ctx = place(end, t * d);
    out->xhat1 = place(end, t * d);
    out->rstd1 = place(end, t);
    out->y1 = place(end, t * d);
    out->u = place(end, t * ff);
    out->xhat2 = place(end, t * d);
    out->rstd2 = place(end, t);
    if (split) out->dh = place(end, t * ff);
}

void pp_slot_layout(const struct pp_model *model, int stage, const struct pp_program_spec *spec, struct pp_slot *out)
{
    const struct pp_stage *s = &model->stages[stage];
    const int64_t tokens = (int64_t)spec->slot_rows * spec->seq, d = model->shape.d_model;
    const bool split = spec->training && spec->split_backward;
    *out = (struct pp_slot){0};
    place_layer(&model->shape, spec->slot_rows, spec->seq, split, out);
    if (spec->training) {
        out->layer_bytes = out->bytes;
        out->bytes *= s->layers;
    }
    if (s->decode) {
        out->decoder_input = place(&out->bytes, tokens * d);
        out->logits = place(&out->bytes, tokens * model->shape.vocab);
    }
    if (s->embed && split) out->input_grad = place(&out->bytes, tokens * d);
}

int64_t pp_model_act_bytes(const struct pp_model *model, int stage, const struct pp_program_spec *spec)
{
    struct pp_slot slot;
    pp_slot_layout(model, stage, spec, &slot);
    return slot.bytes;
}
