/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, one row and head at a time, so that scores stay in the first-level cache between the two products.
 *
 * The probabilities are kept, so the backward pass needs no random numbers.
 */
#include "kernels/cpu/simd/attention.h"

void PP_SIMD(pp_cpu_attention)(const struct pp_cpu_call *c)
{
    const struct attention a = attention_of(c);
    const int seq = a.seq, dh = a.dh, width = 3 * a.d;
    float *ctx = c->p[0], *p = c->p[1], *qkv = c->p[2];
    for (int r = 0; r < a.rows; r++, qkv += (int64_t)seq * width, ctx += (int64_t)seq * a.d) {
        add_bias(&a, qkv, c->p[3]);
        for (int h = 0; h < a.heads; h++, p += (int64_t)seq * seq) {
            const float *q = qkv + h * dh, *k = q + a.d, *v = k + a.d;
            float *kept = a.dropping ? c->p[4] : p;
            product(PP_GEMM_NT, seq, seq, dh, q, width, k, width, 0, p, seq);
            for (int i = 0; i < seq; i++) softmax_row(p + (int64_t)i * seq, a.causal ? i + 1 : seq, seq, a.scale);
            if (a.dropping) drop_scores(&a, first_vector(&a, r, h), seq, seq, p, kept);
            product(PP_GEMM_NN, seq, dh, seq, kept, seq, v, width, 0, ctx + h * dh, a.d);
        }
    }
}

/* Row of dkept (gradient of kept) -> gradient of the scores before scaling, in place. */
static void softmax_grad_row(const struct attention *a, const float *p, float *ds)
{
    vf sum = {0};
    for (int j = 0; j < a->seq; j += VL)
        sum += vf_max(vf_all(0), vf_load(p + j, a->seq - j)) * vf_load(ds + j, a->seq - j);
    dscores_row(a, p, ds, vf_sum(sum) * a->drop.scale, a->seq);
}

static void copy_columns(float *to, const float *from, int64_t stride, int rows, int columns)
{
    for (int i = 0; i < rows; i++) memcpy(to + (int64_t)i * columns, from + i * stride, sizeof *to * (size_t)columns);
}

void PP_SIMD(pp_cpu_attention_grad)(const struct pp_cpu_call *c)
{
    const struct attention a = attention_of(c);
    const int seq = a.seq, dh = a.dh, width = 3 * a.d;
    const int64_t square = (int64_t)seq * seq;
    float *qkv = c->p[0], *ds = c->p[3], *kept = ds + square, *q_copy = kept + square;
    const float *p = c->p[1], *dctx = c->p[2];
    for (int r = 0; r < a.rows; r++, qkv += (int64_t)seq * width, dctx += (int64_t)seq * a.d)
        for (int h = 0; h < a.heads; h++, p += square) {
            float *q = qkv + h * dh, *k = q + a.d, *v = k + a.d;
            product(PP_GEMM_NT, seq, seq, dh, dctx + h * dh, a.d, v, width, 0, ds, seq);
            if (a.dropping) kept_scores(&a, square, p, kept);
            product(PP_GEMM_TN, seq, dh, seq, a.dropping ? kept : p, seq, dctx + h * dh, a.d, 0, v, width);
            for (int i = 0; i < seq; i++) softmax_grad_row(&a, p + (int64_t)i * seq, ds + (int64_t)i * seq);
            copy_columns(q_copy, q, width, seq, dh);
            product(PP_GEMM_NN, seq, dh, seq, ds, seq, k, width, 0, q, width);
            product(PP_GEMM_TN, seq, dh, seq, ds, seq, q_copy, dh, 0, k, width);
        }
}
