/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of cublasLt's matrices.
 */
#ifndef PP_EMULATOR_CUBLASLT_NUMBER_H
#define PP_EMULATOR_CUBLASLT_NUMBER_H

#include <library_types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/calls/fp8.h"

static inline bool pp_emu_is_fp8(cudaDataType type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

/* Bytes of a number; 0: the type is not emulated. */
static inline size_t pp_emu_number_bytes(cudaDataType type)
{
    return pp_emu_is_fp8(type) ? 1 : type == CUDA_R_16BF ? 2 : type == CUDA_R_32F ? 4 : 0;
}

static inline float pp_emu_get_number(cudaDataType type, const void *p, uint64_t i)
{
    if (type == CUDA_R_32F) return ((const float *)p)[i];
    if (pp_emu_is_fp8(type)) return pp_fp8_float(((const uint8_t *)p)[i], type == CUDA_R_8F_E5M2);
    const uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static inline uint16_t pp_emu_to_bfloat16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* type: float32 or bfloat16. */
static inline void pp_emu_set_number(cudaDataType type, void *p, uint64_t i, float f)
{
    if (type == CUDA_R_32F)
        ((float *)p)[i] = f;
    else
        ((uint16_t *)p)[i] = pp_emu_to_bfloat16(f);
}

/* Bits of the mantissa: of a fast sum in FP8 Hopper cuts off the rest. */
enum { PP_EMU_FAST_BITS = 13 };

/* The number with so many bits of its mantissa. */
static inline float pp_emu_cut_number(float f, int bits)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    if ((u & 0x7f800000) == 0x7f800000) return f;
    u &= ~0u << (23 - bits);
    memcpy(&f, &u, sizeof(f));
    return f;
}

#endif
