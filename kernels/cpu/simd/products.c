/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/kernels.h"

/* lda: the numbers of A's rows, in memory. */
static void multiply(const struct pp_cpu_call *c, enum pp_gemm_op op, int lda, int ldb)
{
    const struct pp_gemm_dims *n = &c->call->gemm;
    const float beta = pp_gemm_adds(c->call, n->mode, c->frame) ? 1 : 0;
    const float *a = c->at.gemm.a, *b = c->at.gemm.b;
    float *to = c->at.gemm.c;
    for (int i = 0; i < PP_TIMES(n); i++) {
        pp_gemm(op, n->m, n->n, n->k, a, lda, b, ldb, beta, to, n->n);
        a += (int64_t)n->m * n->k;
        b += (int64_t)n->n * n->k;
        to += (int64_t)n->m * n->n;
    }
}

void PP_SIMD(pp_cpu_gemm_nt)(const struct pp_cpu_call *c) { multiply(c, PP_GEMM_NT, c->call->gemm.k, c->call->gemm.k); }
void PP_SIMD(pp_cpu_gemm_nn)(const struct pp_cpu_call *c) { multiply(c, PP_GEMM_NN, c->call->gemm.k, c->call->gemm.n); }
void PP_SIMD(pp_cpu_gemm_tn)(const struct pp_cpu_call *c) { multiply(c, PP_GEMM_TN, c->call->gemm.m, c->call->gemm.n); }
