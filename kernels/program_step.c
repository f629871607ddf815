/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs behind the last backward: what the workers of a rank have still to sum of their gradients, the sums of
 * squares of the global norm, the optimizer's step.
 */
#include "kernels/model_program.h"

enum {
    LONGEST_ROW = 4096, /* of a part */
    TENSOR_LINE = 16    /* elements, of which the memory of tensors has a multiple */
};

void pp_writer_extent(const struct pp_tensor *t, bool part, struct pp_call *call)
{
    int64_t width = PP_PART_LINE;
    while (part && width < LONGEST_ROW && t->part_elements % (2 * width) == 0) width *= 2;
    call->n[0] = (int)(part ? t->part_elements / width : t->local[0]);
    call->n[1] = (int)(part ? width : t->local[1]);
}

/* Where the worker's share of a tensor, or all of it, lies. */
static struct pp_ref share_of(const struct pp_writer *w, const struct pp_tensor *t, struct pp_ref ref, int bytes)
{
    const struct pp_shape *shape = &w->model->local;
    if (shape->shards)
        ref.offset /= pp_shape_parts(shape);
    else if (shape->zero && ref.region != PP_MEM_NONE)
        ref.row_bytes = t->part_elements * bytes;
    return ref;
}

/* Where a tensor of gradients begins, and ends, in memory. */
static int64_t begin_of(const struct pp_writer *w, const struct pp_tensor *t)
{
    return share_of(w, t, pp_ref_to(PP_MEM_GRAD, t->offset), sizeof(float)).offset;
}
static int64_t end_of(const struct pp_writer *w, const struct pp_tensor *t)
{
    const struct pp_shape *shape = &w->model->local;
    const int64_t parts = (shape->shards ? 1 : pp_shape_parts(shape)) * t->part_elements;
    return begin_of(w, t) + (parts ? parts : t->local_elements) * (int64_t)sizeof(float);
}

/* Sums over the workers of a rank the gradients of neighbouring tensors; last NULL: first is alone. */
static void write_gradient_sum(struct pp_writer *w, const struct pp_tensor *first, const struct pp_tensor *last)
{
    const int64_t begin = begin_of(w, first), bytes = end_of(w, last ? last : first) - begin;
    pp_writer_all_reduce(w, pp_ref_to(PP_MEM_GRAD, begin), 1, (int)(bytes / (int64_t)sizeof(float)), true);
}

/* Of norms, which each of them has whole: it has seen its heads of queries and keys, and where each has a part of the
 * tokens these alone. */
static void write_norm_sums(struct pp_writer *w)
{
    const bool rms = w->model->shape.normalization == PP_RMSNORM, heads = w->model->shape.qk_norm;
    const enum pp_layer_tensor first = heads ? PP_Q_NORM_WEIGHT : PP_NORM1_WEIGHT,
                               of_tokens = rms ? PP_NORM2_WEIGHT : PP_NORM2_BIAS,
                               last = w->by_tokens ? of_tokens : PP_K_NORM_WEIGHT;
    for (int l = 0; l < w->stage->layers && (heads || w->by_tokens); l++)
        write_gradient_sum(w, pp_writer_layer_tensor(w, l, first), pp_writer_layer_tensor(w, l, last));
    if (w->by_tokens && w->stage->decode && pp_writer_norm_first(w))
        write_gradient_sum(w, pp_writer_last_tensor(w, PP_LAST_NORM_WEIGHT),
                           pp_writer_last_tensor(w, PP_LAST_NORM_BIAS));
}

/* Workers that share experts have seen tokens of their own: of all but these, gradients are summed over them,
 * neighbours in memory at once, or tensor by tensor a replica's share. */
static void write_expert_rank_sums(struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->local;
    const struct pp_tensor *t = &w->model->tensors[w->stage->first_tensor], *const end = t + w->stage->tensors;
    for (; t < end; t++) {
        const struct pp_tensor *first = t;
        if (t->of_experts) continue;
        while (!shape->zero && t + 1 < end && !t[1].of_experts) t++;
        const int64_t n = shape->zero ? t->part_elements : (end_of(w, t) - first->offset) / (int64_t)sizeof(float);
        struct pp_call *call =
            pp_writer_call(w, PP_KERNEL_ALL_REDUCE, (int)((n + TENSOR_LINE - 1) / TENSOR_LINE), TENSOR_LINE, 0, 0);
        call->n[4] = true;
        call->n[5] = PP_JOIN_EXPERT_RANKS;
        call->ref[0] = share_of(w, first, pp_ref_to(PP_MEM_GRAD, first->offset), sizeof(float));
    }
}

/* Before anything else is done with the gradients: in NORM, or where nothing is clipped in STEP. */
static void write_sums(struct pp_writer *w)
{
    write_norm_sums(w);
    if (pp_shape_expert_parallel(&w->model->local) > 1) write_expert_rank_sums(w);
}

int pp_norm_calls(const struct pp_shape *shape) { return shape->zero ? 1 : pp_shape_parts(shape); }

void pp_write_norm(struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->local;
    const int parts = pp_shape_parts(shape), sums = pp_shape_sums(shape), calls = pp_norm_calls(shape);
    const bool apart = pp_shape_expert_parallel(shape) > 1;
    if (w->clip) write_sums(w);
    for (int i = 0; i < w->stage->tensors; i++) {
        const struct pp_tensor *t = &w->model->tensors[w->stage->first_tensor + i];
        for (int k = 0; k < calls && !t->copy; k++) {
            const int once =
                (t->split == PP_SPLIT_NONE ? PP_ONCE_TENSOR : 0) | (apart && !t->of_experts ? PP_ONCE_EXPERT : 0);
            struct pp_call *call = pp_writer_call(w, PP_KERNEL_SUMSQ, 0, 0, i * sums + k, once);
            const int64_t offset = t->offset + k * t->part_elements * (int64_t)sizeof(float);
            pp_writer_extent(t, parts > 1, call);
            call->ref[0] = share_of(w, t, pp_ref_to(PP_MEM_GRAD, offset), sizeof(float));
        }
    }
}

static const enum pp_kernel step_kernels[PP_OPTIMIZERS] = {[PP_SGD] = PP_KERNEL_SGD, [PP_ADAMW] = PP_KERNEL_ADAMW};

/* A call for each tensor. The embedding, the first one, has a gradient in the rows of the batch's words only, unless it
 * has the decoder's, too. */
void pp_write_step(struct pp_writer *w)
{
    const struct pp_shape *shape = &w->model->local;
    const enum pp_kernel kernel = step_kernels[shape->optimizer];
    const int shares = shape->zero ? pp_shape_parts(shape) : 1;
    if (!w->clip) write_sums(w);
    for (int i = 0; i < w->stage->tensors; i++) {
        const struct pp_tensor *t = &w->model->tensors[w->stage->first_tensor + i];
        struct pp_call *call = pp_writer_call(w, kernel, 0, 0, 0, 0);
        pp_writer_extent(t, shape->zero, call);
        call->n[2] = kernel == PP_KERNEL_SGD && w->stage->embed && i == 0 && !shape->tied;
        call->ref[0] = share_of(w, t, pp_ref_tensor(PP_MEM_PARAM, t), sizeof(float));
        if (t->value_offset < 0) call->ref[0] = pp_ref_to(PP_MEM_STATE, pp_split_weight_offset(w->model, t));
        call->ref[1] = share_of(w, t, pp_ref_to(PP_MEM_GRAD, t->offset), sizeof(float));
        call->ref[2] = share_of(w, t, pp_ref_copy(t), pp_element_bytes(PP_BF16));
        for (int s = 0; s < pp_optimizers[shape->optimizer].states; s++)
            call->ref[3 + s] = pp_ref_to(PP_MEM_STATE, (s * w->stage->param_bytes + t->offset) / shares);
    }
}
