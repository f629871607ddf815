/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PP_EMULATOR_TF32_H
#define PP_EMULATOR_TF32_H

#include <stdint.h>
#include <string.h>

/* The nearest TF32 number, which has 10 bits of the mantissa; of two as near the even one. On an H200 products of
 * cuBLAS 13.1, and of kernels/cuda/tf32.cu, are those of such factors: thousands of their numbers were within 2e-5 of
 * sums in double, and 7e-3 and more off those of factors that are cut. */
static inline float pp_emu_tf32(float x)
{
    enum { CUT = 13 };
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7f800000) == 0x7f800000) return x;
    u += (1u << (CUT - 1)) - 1 + (u >> CUT & 1);
    u &= ~0u << CUT;
    memcpy(&x, &u, sizeof x);
    return x;
}

#endif
