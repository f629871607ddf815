/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/kernels.h"

static float beta_of(const struct pp_cpu_call *c) { return pp_gemm_adds(c->call->n[3], c->frame) ? 1 : 0; }

void PP_SIMD(pp_cpu_gemm_nt)(const struct pp_cpu_call *c)
{
    const int32_t *n = c->call->n;
    pp_gemm(PP_GEMM_NT, n[0], n[1], n[2], c->p[1], n[2], c->p[2], n[2], beta_of(c), c->p[0], n[1]);
}

void PP_SIMD(pp_cpu_gemm_nn)(const struct pp_cpu_call *c)
{
    const int32_t *n = c->call->n;
    pp_gemm(PP_GEMM_NN, n[0], n[1], n[2], c->p[1], n[2], c->p[2], n[1], beta_of(c), c->p[0], n[1]);
}

void PP_SIMD(pp_cpu_gemm_tn)(const struct pp_cpu_call *c)
{
    const int32_t *n = c->call->n;
    pp_gemm(PP_GEMM_TN, n[0], n[1], n[2], c->p[1], n[0], c->p[2], n[1], beta_of(c), c->p[0], n[1]);
}
