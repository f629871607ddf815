/* SPDX-License-Identifier: Apache-2.0
 *
 * Which calls of a program have no bias.
 */
#ifndef PP_TESTS_PROGRAM_BIAS_H
#define PP_TESTS_PROGRAM_BIAS_H

#include <string.h>

#include "kernels/kernels.h"

static inline bool is_activation(int kernel)
{
    return kernel == PP_KERNEL_RELU || kernel == PP_KERNEL_GELU || kernel == PP_KERNEL_SWIGLU;
}

/* Do these kernels have the bias of what in_proj makes, if nobody had it before? */
static inline bool is_behind_in_proj(int kernel)
{
    return kernel == PP_KERNEL_ATTENTION || kernel == PP_KERNEL_FLASH || kernel == PP_KERNEL_ROPE ||
           kernel == PP_KERNEL_TO_PIECES;
}

/* Has it been added before, of what in_proj makes? The norm of heads takes it over, or else the rotation, before
 * attention does; behind pieces it is there. */
static inline bool is_added(const struct pp_shape *shape, const struct pp_call *call)
{
    const bool attends = call->kernel == PP_KERNEL_ATTENTION || call->kernel == PP_KERNEL_FLASH;
    const bool apart = pp_shape_context(shape) > 1, rotates = call->kernel == PP_KERNEL_ROPE;
    if (attends && shape->positions == PP_POSITIONS_ROPE) return true;
    return (apart && (attends || rotates)) || shape->qk_norm;
}

/* A linear layer without one, or the decoder; gradients in pieces; added gradients; an activation function that is done
 * again. */
static inline bool has_no_bias(const struct pp_shape *shape, const struct pp_call *call, bool again)
{
    const int kernel = call->kernel;
    const bool later = is_behind_in_proj(kernel);
    const bool returns = kernel == PP_KERNEL_TO_PIECES && call->pieces.shared == 0;
    const bool adds = kernel == PP_KERNEL_RESIDUAL && call->at.residual.z.part_bytes > 0;
    const bool decodes = strstr(pp_kernel_table[kernel].name, "cross_entropy");
    if (later && is_added(shape, call)) return true;
    if (shape->bias == PP_BIAS_QKV && !later && kernel != PP_KERNEL_QK_NORM) return true;
    return shape->bias == PP_NO_BIAS || (decodes && shape->bias == PP_BIAS_LAYERS) || returns || adds ||
           (again && is_activation(kernel));
}

#endif
