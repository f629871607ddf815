/* SPDX-License-Identifier: Apache-2.0 */
#include "core/program.h"

#include <stdlib.h>
#include <string.h>

const char *const pp_precision_names[] = {"fp32", "tf32", "bf16"};
const char *const pp_context_kind_names[] = {"a2a", "all_gather"};
const char *const pp_activation_names[] = {"relu", "gelu", "swiglu", "gelu-tanh"};
const char *const pp_bias_words[] = {
    [PP_BIAS] = "", [PP_NO_BIAS] = " nobias", [PP_BIAS_LAYERS] = " layerbias", [PP_BIAS_QKV] = " qkvbias"};

void pp_program_free(struct pp_program *program)
{
    if (!program) return;
    free(program->calls);
    memset(program, 0, sizeof *program);
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
    enum { ALIGNMENT = 256 };
    const struct pp_stage *stage = &model->stages[cls->stage];
    const struct pp_tensor_range range = pp_part_tensors(stage, cls);
    struct pp_part_memory out = {{0, 0}, {0, 0}, 0, 0};
    for (int i = range.first; i < range.first + range.n; i++) {
        const struct pp_tensor *t = &model->tensors[stage->first_tensor + i];
        const int64_t elements = pp_shape_parts(&model->shape) * t->part_elements;
        reach(&out.values, t->value_offset, elements * (int64_t)sizeof(float));
        reach(&out.copies, t->offset16, elements * pp_element_bytes(PP_BF16));
    }
    out.copies_at = (out.values.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    out.bytes = out.copies_at + out.copies.bytes;
    return out;
}

/* Programs name places in the regions of the whole stage: these begin so far before the slot. */
void pp_frame_set_part(struct pp_frame *frame, const struct pp_model *model, const struct pp_class *cls, void *param,
                       void *grad)
{
    if (cls->kind != PP_F && cls->kind != PP_R && cls->kind != PP_B) return;
    const struct pp_part_memory memory = pp_part_memory_of(model, cls);
    frame->base[PP_MEM_PARAM] = (char *)param - memory.values.offset;
    frame->base[PP_MEM_PARAM16] = memory.copies.bytes ? (char *)param + memory.copies_at - memory.copies.offset : NULL;
    if (cls->kind != PP_B) return;
    frame->base[PP_MEM_GRAD] = (char *)grad - pp_part_gradients(model, cls).offset;
    frame->accumulate = false;
}
