/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of one vector width, one function for each row of the kernel table (what each computes:
 * core/calls/calls_*.h).
 */
#ifndef PP_KERNELS_CPU_SIMD_KERNELS_H
#define PP_KERNELS_CPU_SIMD_KERNELS_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/simd.h"

#define X(ID, name, dims, named, flops) void PP_SIMD(pp_cpu_##name)(const struct pp_cpu_call *c);
PP_KERNEL_LIST(X)
#undef X

void PP_SIMD(pp_cpu_add)(float *to, const float *a, const float *b, int64_t n);
float PP_SIMD(pp_cpu_spin)(void);

#endif
