/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs have of the optimizer: its kernels, and how its state lies in memory.
 */
#ifndef PP_TESTS_PROGRAM_OPTIMIZER_H
#define PP_TESTS_PROGRAM_OPTIMIZER_H

#include "kernels/kernels.h"

static inline bool is_step(int kernel)
{
    return kernel == PP_KERNEL_SGD || kernel == PP_KERNEL_ADAMW || kernel == PP_KERNEL_ADAMW_BF16 ||
           kernel == PP_KERNEL_BALANCE;
}

static inline int state_type(const struct pp_shape *shape)
{
    return shape->optimizer == PP_ADAMW_BF16 ? PP_TYPE_BF16 : PP_TYPE_FLOAT;
}

/* Tensors are aligned to 64 bytes, and their bfloat16 state, which lies as they do, to half of that. */
static inline int alignment_of(int region, const struct pp_operand *o)
{
    return region == PP_MEM_STATE && o->type == PP_TYPE_BF16 ? 32 : 64;
}

#endif
