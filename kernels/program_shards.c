/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs of a worker that keeps nothing but its share of parameters or gradients (PP_ZERO_GRADIENTS and up): they
 * bring it to where the shares of all are gathered, and from where they were summed. What fills the last shares up must
 * be zero there, as norms and steps are of whole shares; so a backward clears it in its slot, which may have held
 * another part.
 */
#include "kernels/model_program.h"

enum { LONGEST_ROW = 1 << 16 /* elements that a call clears in a row */ };

struct range {
    const struct pp_tensor *first, *end;
};

/* The tensors of the program's part. */
static struct range tensors_of(const struct pp_writer *w, const struct pp_class *cls)
{
    const struct pp_tensor_range range = pp_part_tensors(w->stage, cls);
    const struct pp_tensor *first = &w->model->tensors[w->stage->first_tensor + range.first];
    return (struct range){first, first + range.n};
}

static int64_t filled_up(const struct pp_writer *w, const struct pp_tensor *t)
{
    if (w->model->local.zero < PP_ZERO_GRADIENTS) return 0;
    return pp_shape_parts(&w->model->local, t->set) * t->part_elements - t->local_elements;
}

static struct pp_call *write_share(struct pp_writer *w, enum pp_kernel kernel, const struct pp_tensor *t, int precision)
{
    struct pp_call *call = pp_writer_call(w, kernel);
    call->matrix = pp_writer_extent(t, true);
    call->precision = precision;
    return call;
}

void pp_write_put(struct pp_writer *w, const struct pp_class *cls)
{
    const struct pp_part_memory memory = pp_part_memory_of(w->model, cls);
    const struct range tensors = tensors_of(w, cls);
    for (const struct pp_tensor *t = tensors.first; t < tensors.end; t++) {
        if (t->value_offset >= 0) {
            struct pp_call *call = write_share(w, PP_KERNEL_COPY, t, PP_FP32);
            const struct pp_ref slot = pp_ref_to(PP_MEM_OUT, t->value_offset - memory.values.offset);
            call->at.copy.to = pp_ref_share(w, t, slot, sizeof(float));
            call->at.copy.from = pp_ref_to(PP_MEM_PARAM, t->share_value_offset);
        }
        if (t->offset16 >= 0) {
            struct pp_call *call = write_share(w, PP_KERNEL_COPY, t, PP_BF16);
            const struct pp_ref slot = pp_ref_to(PP_MEM_OUT, memory.copies_at + t->offset16 - memory.copies.offset);
            call->at.copy.to = pp_ref_share(w, t, slot, pp_element_bytes(PP_BF16));
            call->at.copy.from = pp_ref_to(PP_MEM_PARAM16, t->share_offset16);
        }
    }
}

void pp_write_take(struct pp_writer *w, const struct pp_class *cls)
{
    const struct pp_extent gradients = pp_part_gradients(w->model, cls);
    const struct range tensors = tensors_of(w, cls);
    for (const struct pp_tensor *t = tensors.first; t < tensors.end; t++) {
        struct pp_call *call = write_share(w, PP_KERNEL_TAKE, t, PP_FP32);
        call->at.take.grad = pp_ref_to(PP_MEM_GRAD, t->share_offset);
        call->at.take.in = pp_ref_share(w, t, pp_ref_to(PP_MEM_IN, t->offset - gradients.offset), sizeof(float));
    }
}

void pp_write_clear(struct pp_writer *w, const struct pp_class *cls)
{
    const struct range tensors = tensors_of(w, cls);
    for (const struct pp_tensor *t = tensors.first; t < tensors.end; t++) {
        const int64_t n = filled_up(w, t), rows = (n + LONGEST_ROW - 1) / LONGEST_ROW;
        if (n == 0) continue;
        w->clears = true;
        /* All of the last so many elements, and with them some that the backward writes. */
        const int64_t width = (n + rows - 1) / rows, end = t->local_elements + n;
        struct pp_call *call = pp_writer_call(w, PP_KERNEL_TAKE);
        call->matrix = (struct pp_matrix_dims){.rows = (int)rows, .width = (int)width};
        call->precision = PP_FP32;
        call->at.take.grad = pp_ref_to(PP_MEM_GRAD, t->offset + (end - rows * width) * (int64_t)sizeof(float));
    }
}
