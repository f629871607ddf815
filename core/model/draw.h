/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial values of a tensor. The host makes them (kernels/model_init.c), or a device that can, with the same bits.
 */
#ifndef PP_CORE_MODEL_DRAW_H
#define PP_CORE_MODEL_DRAW_H

#include <stdint.h>

/* How a tensor is initialised. pp_tensor.bound: uniform in +-bound; of PP_INIT_NORMAL the standard deviation. */
enum pp_init { PP_INIT_ZERO, PP_INIT_ONE, PP_INIT_UNIFORM, PP_INIT_NORMAL };

/* Elements 4q .. 4q+3 of a whole tensor are made of the four numbers of Philox4x32-10 with the key (seed's lower half,
 * its upper half) and the counter (q's lower half, its upper half, the tensor's number, this). Dropout sites, which
 * stand there otherwise, are small numbers. */
#define PP_INIT_SITE UINT32_MAX

/* Of an initial tensor, the elements first .. first + n - 1 of the whole. */
struct pp_draw {
    int init; /* enum pp_init */
    double bound;
    int tensor; /* its number in the model */
    uint64_t seed;
    int64_t first, n;
    int precision; /* of the result: PP_FP32, or PP_BF16, rounded as in core/calls/bf16.h */
};

#endif
