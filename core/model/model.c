/* SPDX-License-Identifier: Apache-2.0 */
#include "core/model/model.h"

#include "core/model/layout.h"

int pp_stages_layers_alike(const struct pp_shape *shape, const struct pp_stage *a, const struct pp_stage *b)
{
    int n = 0;
    while (n < a->layers && n < b->layers &&
           pp_layer_kind(shape, a->first_layer + n) == pp_layer_kind(shape, b->first_layer + n))
        n++;
    return n;
}

bool pp_stages_alike(const struct pp_shape *shape, const struct pp_stage *a, const struct pp_stage *b)
{
    return a->layers == b->layers && a->embed == b->embed && a->decode == b->decode && a->common == b->common &&
           pp_stages_layers_alike(shape, a, b) == a->layers;
}

/* The first and the last tensor of a part that are of a set; first > last: none is. */
struct span {
    const struct pp_tensor *first, *last;
};

static struct span span_of(const struct pp_model *model, const struct pp_class *cls)
{
    const struct pp_stage *stage = &model->stages[cls->stage];
    const struct pp_tensor_range range = pp_part_tensors(stage, cls);
    const struct pp_tensor *first = &model->tensors[stage->first_tensor + range.first];
    return (struct span){first, first + range.n - 1};
}

struct pp_extent pp_part_sum(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set)
{
    struct span s = span_of(model, cls);
    while (s.first <= s.last && s.first->set != (int)set) s.first++;
    while (s.first < s.last && s.last->set != (int)set) s.last--;
    if (s.first > s.last) return (struct pp_extent){0, 0};
    return (struct pp_extent){s.first->offset, s.last->offset + s.last->bytes - s.first->offset};
}

struct pp_extent pp_part_gradients(const struct pp_model *model, const struct pp_class *cls)
{
    const struct span s = span_of(model, cls);
    return (struct pp_extent){s.first->offset, s.last->offset + s.last->bytes - s.first->offset};
}

static int64_t share_bytes(const struct pp_model *model, const struct pp_tensor *t)
{
    return model->shape.zero ? t->part_elements * (int64_t)sizeof(float) : t->bytes;
}

struct pp_extent pp_part_share(const struct pp_model *model, const struct pp_class *cls)
{
    const struct span s = span_of(model, cls);
    const int64_t end = s.last->share_offset + share_bytes(model, s.last);
    return (struct pp_extent){s.first->share_offset, end - s.first->share_offset};
}

int64_t pp_summed_bytes(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set)
{
    const struct span s = span_of(model, cls);
    int64_t bytes = 0;
    if (cls->kind == PP_REDUCE_SHARE) return set == PP_DENSE ? pp_part_share(model, cls).bytes : 0;
    for (const struct pp_tensor *t = s.first; t <= s.last; t++) bytes += t->set == (int)set ? t->bytes : 0;
    return bytes;
}

int64_t pp_sent_bytes(const struct pp_model *model, const struct pp_class *cls, enum pp_param_set set)
{
    if (!model->shape.bf16_sums || (cls->kind != PP_REDUCE_GRAD && cls->kind != PP_REDUCE_SHARE)) return 0;
    return pp_summed_bytes(model, cls, set) / 2;
}

/* Makes `extent` begin with the first tensor that has something, and end with this one. */
static void reach(struct pp_extent *extent, int64_t offset, int64_t bytes)
{
    if (offset < 0) return;
    if (extent->bytes == 0) extent->offset = offset;
    extent->bytes = offset + bytes - extent->offset;
}

struct pp_part_memory pp_part_memory_of(const struct pp_model *model, const struct pp_class *cls)
{
    const struct pp_stage *stage = &model->stages[cls->stage];
    const struct pp_tensor_range range = pp_part_tensors(stage, cls);
    struct pp_part_memory out = {{0, 0}, {0, 0}, 0, 0};
    for (int i = range.first; i < range.first + range.n; i++) {
        const struct pp_tensor *t = &model->tensors[stage->first_tensor + i];
        const int64_t elements = pp_shape_parts(&model->shape, t->set) * t->part_elements;
        reach(&out.values, t->value_offset, elements * (int64_t)sizeof(float));
        reach(&out.copies, t->offset16, elements * pp_element_bytes(PP_BF16));
    }
    out.copies_at = pp_layout_align(out.values.bytes);
    out.bytes = out.copies_at + out.copies.bytes;
    return out;
}

/* Programs name places in the regions of the whole stage: these begin so far before the slot. */
void pp_frame_set_part(struct pp_frame *frame, const struct pp_model *model, const struct pp_class *cls, void *param,
                       void *grad)
{
    if (cls->kind != PP_F && cls->kind != PP_R && cls->kind != PP_B) return;
    if (param) {
        const struct pp_part_memory memory = pp_part_memory_of(model, cls);
        char *const copies = (char *)param + memory.copies_at - memory.copies.offset;
        frame->base[PP_MEM_PARAM] = (char *)param - memory.values.offset;
        frame->base[PP_MEM_PARAM16] = memory.copies.bytes ? copies : NULL;
    }
    if (cls->kind == PP_B && grad) frame->base[PP_MEM_GRAD] = (char *)grad - pp_part_gradients(model, cls).offset;
}
