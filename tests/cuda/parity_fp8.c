/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of FP8 products, and of what makes their factors.
 */
#include "parity.h"

#define PLAIN 0, false
#define LARGE 0, true
#define STRAIGHT true /* behind PLAIN or LARGE: not only turned */
#define FIRST .tensor = 2
#define SECOND .tensor = 2, .tensor_rank = 1

const struct parity_case parity_fp8_cases[] = {
    /* m, n, k, mode, wide, times, gradient */
    {PP_KERNEL_GEMM_FP8, {16, 16, 16, PP_GEMM_WRITE}, PLAIN},
    {PP_KERNEL_GEMM_FP8, {48, 80, 112, PP_GEMM_WRITE}, PLAIN},
    {PP_KERNEL_GEMM_FP8, {48, 80, 112, PP_GEMM_ADD}, PLAIN},
    {PP_KERNEL_GEMM_FP8, {48, 80, 112, PP_GEMM_WRITE, 0, 0, 1}, PLAIN},
    {PP_KERNEL_GEMM_FP8, {48, 80, 112, PP_GEMM_ADD, 0, 0, 1}, PLAIN},
    {PP_KERNEL_GEMM_FP8, {48, 80, 112, PP_GEMM_ADD_ONCE, 0, 0, 1}, PLAIN, FIRST},
    {PP_KERNEL_GEMM_FP8, {48, 80, 112, PP_GEMM_ADD_ONCE, 0, 0, 1}, PLAIN, SECOND},
    {PP_KERNEL_GEMM_FP8, {80, 112, 48, PP_GEMM_GRADIENT, 1, 0, 1}, PLAIN},
    {PP_KERNEL_GEMM_FP8, {32, 48, 16, PP_GEMM_WRITE, 0, 3}, PLAIN},
    {PP_KERNEL_GEMM_FP8, {32, 48, 80, PP_GEMM_WRITE, 0, 3, 1}, PLAIN},
    {PP_KERNEL_GEMM_FP8, {48, 16, 32, PP_GEMM_GRADIENT, 1, 8, 1}, PLAIN},
    {PP_KERNEL_GEMM_FP8, {144, 528, 512, PP_GEMM_WRITE}, LARGE},
    {PP_KERNEL_GEMM_FP8, {144, 272, 512, PP_GEMM_GRADIENT, 1, 0, 1}, LARGE},
    /* rows, width, times */
    {PP_KERNEL_AMAX, {1, 1}, PLAIN},
    {PP_KERNEL_AMAX, {7, 9}, PLAIN},
    {PP_KERNEL_AMAX, {16, 16}, PLAIN},
    {PP_KERNEL_AMAX, {35, 100, 3}, PLAIN}, /* several blocks */
    {PP_KERNEL_AMAX, {48, 112, 8}, PLAIN},
    {PP_KERNEL_AMAX, {1030, 2048}, LARGE}, /* more octets than threads */
    /* rows, width, times, gradient: octets, tiles and their lines whole or not; one tile, several across and down */
    {PP_KERNEL_TO_FP8, {1, 1}, PLAIN},
    {PP_KERNEL_TO_FP8, {1, 1}, PLAIN, STRAIGHT},
    {PP_KERNEL_TO_FP8, {7, 9}, PLAIN},
    {PP_KERNEL_TO_FP8, {7, 9, 0, 1}, PLAIN, STRAIGHT},
    {PP_KERNEL_TO_FP8, {16, 16}, PLAIN},
    {PP_KERNEL_TO_FP8, {16, 16, 0, 1}, PLAIN, STRAIGHT},
    {PP_KERNEL_TO_FP8, {128, 64}, PLAIN, STRAIGHT},
    {PP_KERNEL_TO_FP8, {144, 80}, PLAIN},
    {PP_KERNEL_TO_FP8, {144, 80, 0, 1}, PLAIN, STRAIGHT},
    {PP_KERNEL_TO_FP8, {140, 72}, PLAIN, STRAIGHT}, /* whole octets, broken lines */
    {PP_KERNEL_TO_FP8, {129, 65, 0, 1}, PLAIN},
    {PP_KERNEL_TO_FP8, {3, 200, 5}, PLAIN, STRAIGHT},
    {PP_KERNEL_TO_FP8, {32, 48, 8}, PLAIN},
    {PP_KERNEL_TO_FP8, {160, 96, 3, 1}, PLAIN, STRAIGHT},
    {PP_KERNEL_TO_FP8, {272, 528, 2}, LARGE, STRAIGHT},
    {0},
};
