/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/kernels.h"

/* lda: the numbers of A's rows, in memory. */
static void multiply(const struct pp_cpu_call *c, enum pp_gemm_op op, int lda, int ldb)
{
    const int32_t *n = c->call->n;
    const float beta = pp_gemm_adds(n[3], c->frame) ? 1 : 0;
    const float *a = c->p[1], *b = c->p[2];
    float *to = c->p[0];
    for (int i = 0; i < PP_TIMES(n); i++) {
        pp_gemm(op, n[0], n[1], n[2], a, lda, b, ldb, beta, to, n[1]);
        a += (int64_t)n[0] * n[2];
        b += (int64_t)n[1] * n[2];
        to += (int64_t)n[0] * n[1];
    }
}

void PP_SIMD(pp_cpu_gemm_nt)(const struct pp_cpu_call *c) { multiply(c, PP_GEMM_NT, c->call->n[2], c->call->n[2]); }
void PP_SIMD(pp_cpu_gemm_nn)(const struct pp_cpu_call *c) { multiply(c, PP_GEMM_NN, c->call->n[2], c->call->n[1]); }
void PP_SIMD(pp_cpu_gemm_tn)(const struct pp_cpu_call *c) { multiply(c, PP_GEMM_TN, c->call->n[0], c->call->n[1]); }
