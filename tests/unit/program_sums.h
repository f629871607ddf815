/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that the workers of a rank have still to sum, and what programs sum of them.
 */
#ifndef PP_TESTS_PROGRAM_SUMS_H
#define PP_TESTS_PROGRAM_SUMS_H

#include <string.h>

#include "core/model/model.h"
#include "kernels/kernels.h"

static inline bool is_norm(const struct pp_tensor *t) { return t->ndim == 1 && strstr(t->name, "norm"); }

/* Has each of the group's workers all of the tensor that the others have, and its gradient of its own tokens, or heads,
 * alone? */
static inline bool is_partial(const struct pp_model *model, const struct pp_tensor *t, enum pp_join_group group)
{
    if (group != PP_JOIN_TENSOR_RANKS) return false; /* as replicas, by the plan */
    if (strstr(t->name, "_a_norm")) return false;    /* of latent vectors of all tokens, whose gradients are sums */
    if (strstr(t->name, "self_attn") && is_norm(t)) return pp_shape_tensor(&model->shape) > 1;
    return pp_shape_parts_tokens(&model->shape) && is_norm(t);
}

/* Sums of the stage's tensors that there are to be: a tensor's over each group. */
static inline int partial_sums(const struct pp_model *model, int stage)
{
    int n = 0;
    for (int k = 0; k < model->stages[stage].tensors; k++) {
        const struct pp_tensor *t = &model->tensors[model->stages[stage].first_tensor + k];
        for (int group = 0; group < PP_JOIN_GROUPS; group++) n += is_partial(model, t, (enum pp_join_group)group);
    }
    return n;
}

/* How many of the stage's tensors calls sum. */
static inline int tensors_in_sums(const struct pp_model *model, int stage, const struct pp_program *program)
{
    int n = 0;
    for (int i = 0; i < program->ncalls; i++) {
        const struct pp_operand o = pp_call_operand(&program->calls[i], 0);
        const int64_t first = program->calls[i].at.join.memory.offset, end = first + o.elements * o.element_bytes;
        if (program->calls[i].kernel != PP_KERNEL_ALL_REDUCE) continue;
        for (int k = 0; k < model->stages[stage].tensors; k++) {
            const struct pp_tensor *t = &model->tensors[model->stages[stage].first_tensor + k];
            n += t->offset >= first && t->offset < end;
        }
    }
    return n;
}

#endif
