/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of weights in TF32, C [m,n] += A [k,m]' B [k,n], with A turned first: for the launchers of products, and
 * for pp_cuda_scratch_bytes().
 *
 * Tensor cores of compute capability 9.0 read TF32 factors only where the terms of a sum lie one behind the other (PTX
 * ISA, wgmma: "transpose" is of 16-bit types alone), and in a gradient of weights they do so in neither factor. cuBLAS
 * turns both while it multiplies. On an H200 a gradient of 12288 x 4096 weights from 700 tokens took 357 us as it lies,
 * and takes 263 with a copy of A that is turned (docs/results/h200-findings.md, TF32). A turned B beside it wins
 * less than its copy costs.
 *
 * What is turned waits in the worker's scratch. Large factors are turned part by part: so many rows of C at a time.
 */
#ifndef PP_KERNELS_CUDA_TURNED_H
#define PP_KERNELS_CUDA_TURNED_H

#include "kernels/cuda/launch.h"

/* LEAST: with 140 tokens copying takes what is won, with 700 a quarter is won, and between nothing was measured; rows
 * are not to be few. MOST: of more, a part would have too few rows to fill the GPU. STEP: of rows of C, and the largest
 * tile of cuBLAS has as many. TERMS: an address of 16 bytes, which the fast kernels of cuBLAS want of each row. */
enum {
    PP_TURNED_LEAST_M = 1024,
    PP_TURNED_LEAST_N = 2048,
    PP_TURNED_LEAST_K = 512,
    PP_TURNED_MOST_K = 16384,
    PP_TURNED_STEP = 256,
    PP_TURNED_TERMS = 4
};

/* Would a product of this shape gain? It is for GPUs of compute capability 9.x. */
static inline bool pp_turned_gains(const struct pp_call *call)
{
    const struct pp_gemm_dims *n = &call->gemm;
    return call->kernel == PP_KERNEL_GEMM_TN && call->precision == PP_TF32 && PP_TIMES(n) == 1 &&
           n->m >= PP_TURNED_LEAST_M && n->n >= PP_TURNED_LEAST_N && n->k >= PP_TURNED_LEAST_K &&
           n->k <= PP_TURNED_MOST_K && n->k % PP_TURNED_TERMS == 0;
}

/* Rows of C that are computed at a time (the last time there may be fewer), in parts about as large as each other. 0:
 * scratch has not even room for PP_TURNED_STEP of them. */
static inline int pp_turned_rows(const struct pp_gemm_dims *n, int64_t scratch_bytes)
{
    const int64_t fit = scratch_bytes / ((int64_t)sizeof(float) * n->k), room = fit / PP_TURNED_STEP * PP_TURNED_STEP;
    if (room == 0 || fit >= n->m) return room == 0 ? 0 : n->m;
    const int64_t parts = (n->m + room - 1) / room, steps = (n->m + PP_TURNED_STEP - 1) / PP_TURNED_STEP;
    return (int)((steps + parts - 1) / parts * PP_TURNED_STEP);
}

/* Bytes of scratch for that; 0: none. */
static inline int64_t pp_turned_bytes(const struct pp_call *call)
{
    const int64_t all = (int64_t)sizeof(float) * call->gemm.m * call->gemm.k;
    if (!pp_turned_gains(call)) return 0;
    return all < PP_CUDA_MOST_SCRATCH_BYTES ? all : PP_CUDA_MOST_SCRATCH_BYTES;
}

#endif
