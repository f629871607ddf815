/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries and keys divided by their root mean square, head by head, with in_proj's bias, and the gradients of that.
 */
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/rms.h"

/* A call taken apart: of a token the heads of queries, all heads that are normalised, the columns of these, and all. */
struct qk_norm {
    int64_t tokens;
    int queries, heads, dh, columns, width;
    float eps;
};

static struct qk_norm qk_norm_of(const struct pp_cpu_call *c)
{
    const struct pp_attention_dims *n = &c->call->attention;
    const int heads = n->heads + PP_KV_HEADS(n);
    return (struct qk_norm){.tokens = (int64_t)n->rows * n->seq,
                            .queries = n->heads,
                            .heads = heads,
                            .dh = n->dh,
                            .columns = heads * n->dh,
                            .width = PP_QKV_COLUMNS(n),
                            .eps = c->call->eps};
}

/* x += bias of n columns; kept: unless NULL the same numbers. */
static void add_bias(float *x, const float *bias, float *kept, int n)
{
    for (int j = 0; j < n; j += VL) {
        const vf v = vf_load(x + j, n - j) + vf_load_any(bias, j, n - j);
        vf_store(x + j, n - j, v);
        if (kept) vf_store(kept + j, n - j, v);
    }
}

void PP_SIMD(pp_cpu_qk_norm)(const struct pp_cpu_call *c)
{
    const struct pp_qk_norm_memory *at = &c->at.qk_norm;
    const struct qk_norm q = qk_norm_of(c);
    float *x = at->qkv, *kept = at->kept;
    const float *bias = at->bias;
    for (int64_t t = 0; t < q.tokens; t++, x += q.width, kept += q.columns) {
        add_bias(x, bias, kept, q.columns);
        if (bias) add_bias(x + q.columns, bias + q.columns, NULL, q.width - q.columns);
        for (int h = 0; h < q.heads; h++) {
            const float *gamma = h < q.queries ? at->q_gamma : at->k_gamma;
            float *head = x + (int64_t)h * q.dh;
            pp_simd_rms_norm(head, head, pp_simd_rms_scale(head, q.dh, q.eps), gamma, q.dh);
        }
    }
}

/* One head of one token: dx is in place of dy; x as it was before the norm. */
static void grad_head(const struct qk_norm *q, float *dy, const float *x, const float *gamma, float *dgamma)
{
    pp_simd_rms_grad(dy, dy, x, pp_simd_rms_scale(x, q->dh, q->eps), gamma, dgamma, q->dh);
}

void PP_SIMD(pp_cpu_qk_norm_grad)(const struct pp_cpu_call *c)
{
    const struct qk_norm q = qk_norm_of(c);
    const struct pp_qk_norm_grad_memory *at = &c->at.qk_norm_grad;
    const float *gamma[] = {at->q_gamma, at->k_gamma};
    float *dgamma[] = {at->q_gamma_grad, at->k_gamma_grad};
    float *dy = at->dqkv;
    const float *x = at->kept;
    for (int i = 0; i < 2 && !c->call->adds; i++) memset(dgamma[i], 0, sizeof(float) * (size_t)q.dh);
    for (int64_t t = 0; t < q.tokens; t++, dy += q.width, x += q.columns)
        for (int h = 0; h < q.heads; h++) {
            const int of = h < q.queries ? 0 : 1;
            grad_head(&q, dy + (int64_t)h * q.dh, x + (int64_t)h * q.dh, gamma[of], dgamma[of]);
        }
}
