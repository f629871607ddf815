/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs behind the last backward: what the workers of a rank have still to sum of their gradients, the sums of
 * squares of the global norm, the optimizer's step.
 */
#include "kernels/model_program.h"

enum { LONGEST_ROW = 4096 /* of a part */ };

struct pp_matrix_dims pp_writer_extent(const struct pp_tensor *t, bool part)
{
    int64_t width = PP_PART_LINE;
    while (part && width < LONGEST_ROW && t->part_elements % (2 * width) == 0) width *= 2;
    return (struct pp_matrix_dims){.rows = (int)(part ? t->part_elements / width : t->local[0]),
                                   .width = (int)(part ? width : t->local[1])};
}

struct pp_ref pp_ref_share(const struct pp_writer *w, const struct pp_tensor *t, struct pp_ref ref, int element_bytes)
{
    const int64_t bytes = t->part_elements * element_bytes;
    const int n = pp_shape_expert_parallel(&w->model->local);
    ref.row_bytes = t->set == PP_EXPERTS ? bytes : n * bytes;
    ref.expert_bytes = t->set == PP_EXPERTS || n == 1 ? 0 : bytes;
    return ref;
}

/* Where the worker's share of a tensor lies, or all of it; where shares alone are kept, at share_offset. */
static struct pp_ref share_of(const struct pp_writer *w, const struct pp_tensor *t, struct pp_ref whole, bool alone,
                              int64_t share_offset, int element_bytes)
{
    if (alone) whole.offset = share_offset;
    const bool among = w->model->local.zero && !alone && whole.region != PP_MEM_NONE;
    return among ? pp_ref_share(w, t, whole, element_bytes) : whole;
}

/* Of part k of its gradient, or of the share. */
static struct pp_ref gradient_of(const struct pp_writer *w, const struct pp_tensor *t, int k)
{
    const int64_t offset = t->offset + k * t->part_elements * (int64_t)sizeof(float);
    return share_of(w, t, pp_ref_to(PP_MEM_GRAD, offset), w->model->local.zero >= PP_ZERO_GRADIENTS, t->share_offset,
                    sizeof(float));
}

/* Where a tensor of gradients begins, and ends, in memory. */
static int64_t begin_of(const struct pp_writer *w, const struct pp_tensor *t) { return gradient_of(w, t, 0).offset; }
static int64_t end_of(const struct pp_writer *w, const struct pp_tensor *t)
{
    const struct pp_shape *shape = &w->model->local;
    const int64_t parts = (shape->zero >= PP_ZERO_GRADIENTS ? 1 : pp_shape_parts(shape, t->set)) * t->part_elements;
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

/* Of the stage's i-th tensor. Of experts of expert ranks, which each has other ones, sums are those of the first part
 * of each, then those of the second: the order of shares. */
static void write_squares(struct pp_writer *w, int i)
{
    const struct pp_shape *shape = &w->model->local;
    const struct pp_tensor *t = &w->model->tensors[w->stage->first_tensor + i];
    const bool apart = t->set == PP_EXPERTS && !shape->zero;
    const bool alike = t->set == PP_DENSE && !shape->zero && pp_shape_expert_parallel(shape) > 1;
    const int parts = shape->zero ? 1 : pp_shape_parts(shape, t->set);
    const int once = (t->split == PP_SPLIT_NONE ? PP_ONCE_TENSOR : 0) | (alike ? PP_ONCE_EXPERT : 0);
    const struct pp_matrix_dims extent = pp_writer_extent(t, t->part_elements > 0);
    for (int k = 0; k < parts; k++) {
        const int at = apart ? k * pp_shape_expert_parallel(shape) : k;
        struct pp_call *call = pp_writer_call(w, PP_KERNEL_SUMSQ);
        call->sumsq = (struct pp_sumsq_dims){.rows = extent.rows,
                                             .width = extent.width,
                                             .index = i * pp_shape_sums(shape) + at,
                                             .once = once,
                                             .apart = apart};
        call->at.sumsq.gradient = gradient_of(w, t, k);
    }
}

static bool counts_in_norm(const struct pp_tensor *t) { return !t->copy && !t->loads; }

/* What is still to be summed of the gradients comes first: in NORM, or where nothing is clipped in STEP. */
void pp_write_norm(struct pp_writer *w)
{
    if (w->clip) write_norm_sums(w);
    for (int i = 0; i < w->stage->tensors; i++)
        if (counts_in_norm(&w->model->tensors[w->stage->first_tensor + i])) write_squares(w, i);
}

static const enum pp_kernel step_kernels[PP_OPTIMIZERS] = {
    [PP_SGD] = PP_KERNEL_SGD, [PP_ADAMW] = PP_KERNEL_ADAMW, [PP_ADAMW_BF16] = PP_KERNEL_ADAMW_BF16};

/* The values that a step changes. */
static struct pp_ref values_of(const struct pp_writer *w, const struct pp_tensor *t)
{
    if (t->value_offset < 0) return pp_ref_to(PP_MEM_STATE, pp_split_weight_offset(w->model, t));
    return share_of(w, t, pp_ref_tensor(PP_MEM_PARAM, t), w->model->local.zero == PP_ZERO_PARAMETERS,
                    t->share_value_offset, sizeof(float));
}

/* The embedding, the stage's first tensor, has a gradient in the rows of the batch's words only, unless it has the
 * decoder's, too. */
static void write_optimizer(struct pp_writer *w, const struct pp_tensor *t, bool first)
{
    const struct pp_shape *shape = &w->model->local;
    const enum pp_kernel kernel = step_kernels[shape->optimizer];
    const struct pp_matrix_dims extent = pp_writer_extent(t, shape->zero);
    const bool sparse = kernel == PP_KERNEL_SGD && w->stage->embed && first && !shape->tied;
    struct pp_call *call = pp_writer_call(w, kernel);
    call->step = (struct pp_step_dims){.rows = extent.rows, .width = extent.width, .sparse = sparse};
    call->at.step.w = values_of(w, t);
    call->at.step.g = gradient_of(w, t, 0);
    call->at.step.copy =
        share_of(w, t, pp_ref_copy(t), shape->zero == PP_ZERO_PARAMETERS, t->share_offset16, pp_element_bytes(PP_BF16));
    for (int s = 0; s < pp_optimizers[shape->optimizer].states; s++)
        call->ref[PP_OPERAND(step, m) + (size_t)s] = pp_ref_to(PP_MEM_STATE, pp_state_offset(w->model, t, s));
}

static void write_balance(struct pp_writer *w, const struct pp_tensor *t)
{
    const struct pp_shape *shape = &w->model->shape;
    const struct pp_matrix_dims extent = pp_writer_extent(t, shape->zero);
    struct pp_call *call = pp_writer_call(w, PP_KERNEL_BALANCE);
    call->balance = (struct pp_balance_dims){
        .rows = extent.rows, .width = extent.width, .experts = shape->experts, .chosen = shape->experts_per_token};
    call->scale = (float)shape->expert_bias_rate;
    call->at.balance = (struct pp_balance_refs){.bias = values_of(w, t), .loads = gradient_of(w, t, 0)};
}

/* A call for each tensor: first those of the optimizer, so that a GPU can launch these in groups. */
void pp_write_step(struct pp_writer *w)
{
    const struct pp_tensor *tensors = &w->model->tensors[w->stage->first_tensor];
    if (!w->clip) write_norm_sums(w);
    for (int i = 0; i < w->stage->tensors; i++)
        if (!tensors[i].loads) write_optimizer(w, &tensors[i], i == 0);
    for (int i = 0; i < w->stage->tensors; i++)
        if (tensors[i].loads) write_balance(w, &tensors[i]);
}
