/* SPDX-License-Identifier: Apache-2.0
 *
 * FP8 in plain C. The device cpu computes in fp32 only, so no training comes here: these are what the kernels of other
 * backends are compared with. Products are summed in double for that.
 */
#include <string.h>

#include "core/calls/fp8.h"
#include "kernels/cpu/simd/kernels.h"

static int64_t matrix_size(const struct pp_fp8_dims *n) { return (int64_t)n->rows * n->width; }

void PP_SIMD(pp_cpu_amax)(const struct pp_cpu_call *c)
{
    const struct pp_fp8_dims *n = &c->call->fp8;
    const float *x = c->at.amax.x;
    float amax = 0;
    for (int64_t i = 0; i < PP_TIMES(n) * matrix_size(n); i++) amax = fmaxf(amax, fabsf(x[i]));
    *(float *)c->at.amax.amax = amax;
}

static void round_matrix(const struct pp_fp8_dims *n, float factor, const float *x, uint8_t *q, uint8_t *turned)
{
    for (int i = 0; i < n->rows; i++) {
        for (int j = 0; j < n->width; j++) {
            const int64_t at = (int64_t)i * n->width + j;
            const uint8_t code = pp_fp8(x[at] * factor, n->gradient);
            if (q) q[at] = code;
            if (turned) turned[(int64_t)j * n->rows + i] = code;
        }
    }
}

void PP_SIMD(pp_cpu_to_fp8)(const struct pp_cpu_call *c)
{
    const struct pp_fp8_dims *n = &c->call->fp8;
    const struct pp_to_fp8_memory *at = &c->at.to_fp8;
    const float factor = pp_fp8_factor(*(const float *)at->amax, n->gradient);
    uint8_t *q = at->q, *turned = at->turned;
    *(float *)at->scale = 1 / factor;
    for (int i = 0; i < PP_TIMES(n); i++) {
        const int64_t begin = i * matrix_size(n);
        round_matrix(n, factor, (const float *)at->x + begin, q ? q + begin : NULL, turned ? turned + begin : NULL);
    }
}

/* What each code means. */
struct meanings {
    double of[UINT8_MAX + 1];
};

static struct meanings meanings_of(bool gradient)
{
    struct meanings meanings;
    for (int code = 0; code <= UINT8_MAX; code++) meanings.of[code] = pp_fp8_float((uint8_t)code, gradient);
    return meanings;
}

static double dot(const struct meanings *of_a, const struct meanings *of_b, const uint8_t *a, const uint8_t *b, int k)
{
    double sum = 0;
    for (int i = 0; i < k; i++) sum += of_a->of[a[i]] * of_b->of[b[i]];
    return sum;
}

void PP_SIMD(pp_cpu_gemm_fp8)(const struct pp_cpu_call *c)
{
    const struct pp_gemm_dims *n = &c->call->gemm;
    const struct pp_gemm_fp8_memory *at = &c->at.gemm_fp8;
    const struct meanings of_a = meanings_of(n->gradient), of_b = meanings_of(false);
    const double scale = (double)*(const float *)at->scale_a * *(const float *)at->scale_b;
    const bool adds = pp_gemm_adds(c->call, n->mode, c->frame);
    float *to = at->c;
    for (int64_t row = 0; row < (int64_t)PP_TIMES(n) * n->m; row++) {
        const uint8_t *a = (const uint8_t *)at->a + row * n->k, *b = (const uint8_t *)at->b + row / n->m * n->n * n->k;
        for (int j = 0; j < n->n; j++, to++)
            *to = (float)((adds ? *to : 0) + scale * dot(&of_a, &of_b, a, b + (int64_t)j * n->k, n->k));
    }
}
