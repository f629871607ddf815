/* SPDX-License-Identifier: Apache-2.0
 *
 * How calls of attention that stores no scores are launched: for the launchers, and for who counts launches.
 */
#ifndef PP_KERNELS_CUDA_FLASH_H
#define PP_KERNELS_CUDA_FLASH_H

#include <stdbool.h>

#include "kernels/cuda/launch.h"

enum {
    /* In bf16, heads of a multiple of so many columns, up to so many, go to tensor cores (attention_mma.cu). */
    PP_FLASH_STEP = 16,
    PP_FLASH_WIDEST = 128,
    PP_FLASH_COLUMNS = 256, /* that a block has in attention_flash.cu: those of wider heads are shared by several */
    PP_FLASH_LAUNCHES = 2   /* forward: the bias, and all the rest */
};

/* The backward does some pairs of a row and a head at a time, as many as have room in scratch: parts of one size, but
 * for the last. */
struct pp_flash_parts {
    int pairs, parts; /* of a part; 0: not even one pair has room */
    int launches;     /* of a part */
};

/* Operands, which are aligned to 16 bytes, can go to tensor cores. */
static inline bool pp_flash_multiplies(const struct pp_call *call)
{
    return call->precision == PP_BF16 && call->n[3] % PP_FLASH_STEP == 0 && call->n[3] <= PP_FLASH_WIDEST;
}

/* Quantities in scratch that are a head wide: gradients of queries; and of keys and values where blocks share them. */
static inline int pp_flash_roles(const struct pp_call *call) { return call->n[3] > PP_FLASH_COLUMNS ? 3 : 1; }

/* multiplies: on tensor cores, where the gradients that wait are bfloat16, and no launch makes the means alone. */
static inline struct pp_flash_parts pp_flash_divide(const struct pp_call *call, bool multiplies, int64_t scratch_bytes)
{
    const int32_t *n = call->n;
    const int64_t pairs = (int64_t)n[0] * n[2], means = (int64_t)n[1] * (int64_t)sizeof(float),
                  grads = multiplies ? (int64_t)n[1] * n[3] * 2
                                     : means * pp_flash_roles(call) * ((n[3] + 3) / 4 * 4), /* in whole quads */
        room = scratch_bytes / (means + grads);
    struct pp_flash_parts p = {0, 0, multiplies ? 3 : 4};
    if (room == 0) return p;
    p.parts = (int)((pairs + room - 1) / room);
    p.pairs = (int)((pairs + p.parts - 1) / p.parts);
    return p;
}

#endif
