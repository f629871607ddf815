/* SPDX-License-Identifier: Apache-2.0
 *
 * The norm of one vector by its root mean square, as torch.nn.RMSNorm's, and its gradient: of a head's query or key
 * (qk_norm.c), and of a latent vector (latent.c). Vectors have n numbers.
 */
#ifndef PP_KERNELS_CPU_SIMD_RMS_H
#define PP_KERNELS_CPU_SIMD_RMS_H

#include <math.h>

#include "kernels/cpu/simd/simd.h"

/* 1 / sqrt(mean of the squares + eps): what the vector is multiplied by. */
static inline float pp_simd_rms_scale(const float *x, int n, float eps)
{
    vf squares = {0};
    for (int j = 0; j < n; j += VL) {
        const vf v = vf_load(x + j, n - j);
        squares += v * v;
    }
    return 1 / sqrtf(vf_sum(squares) / (float)n + eps);
}

/* y = x * scale * gamma; y may be x. */
static inline void pp_simd_rms_norm(float *y, const float *x, float scale, const float *gamma, int n)
{
    for (int j = 0; j < n; j += VL) vf_store(y + j, n - j, vf_load(x + j, n - j) * scale * vf_load(gamma + j, n - j));
}

/* dx: the gradient at x, from dy, that at y; it may be dy or x. dgamma is added to. */
static inline void pp_simd_rms_grad(float *dx, const float *dy, const float *x, float scale, const float *gamma,
                                    float *dgamma, int n)
{
    vf sum = {0};
    for (int j = 0; j < n; j += VL) {
        const int left = n - j;
        const vf xhat = vf_load(x + j, left) * scale, d = vf_load(dy + j, left);
        vf_store(dgamma + j, left, vf_load(dgamma + j, left) + d * xhat);
        sum += d * vf_load(gamma + j, left) * xhat;
    }
    const float mean = vf_sum(sum) / (float)n;
    for (int j = 0; j < n; j += VL) {
        const int left = n - j;
        const vf g = vf_load(dy + j, left) * vf_load(gamma + j, left);
        vf_store(dx + j, left, (g - vf_load(x + j, left) * scale * mean) * scale);
    }
}

#endif
