/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, one row and head at a time, so that scores stay in the first-level cache between the two products.
 *
 * The probabilities are kept, so the backward pass needs no random numbers.
 */
#include "kernels/cpu/simd/attention.h"

void PP_SIMD(pp_cpu_attention)(const struct pp_cpu_call *c)
{
    const struct pp_attention_memory *at = &c->at.attention;
    const struct attention a = attention_of(c, at->qkv, NULL, NULL);
    const int seq = a.seq, dh = a.dh, width = a.width;
    float *ctx = at->ctx, *p = at->probabilities, *qkv = at->qkv;
    for (int r = 0; r < a.rows; r++, ctx += (int64_t)seq * a.d) {
        float *q = qkv + (int64_t)r * seq * width;
        add_bias(&a, q, at->bias);
        for (int h = 0; h < a.heads; h++, q += dh, p += (int64_t)seq * seq) {
            float *kept = a.dropping ? at->scratch : p;
            product(PP_GEMM_NT, seq, seq, dh, q, width, keys_of(&a, r, h), width, 0, p, seq);
            for (int i = 0; i < seq; i++) softmax_row(p + (int64_t)i * seq, a.causal ? i + 1 : seq, seq, a.scale);
            if (a.dropping) drop_scores(&a, first_vector(&a, r, h), seq, seq, p, kept);
            product(PP_GEMM_NN, seq, dh, seq, kept, seq, values_of(&a, r, h), width, 0, ctx + h * dh, a.d);
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

/* Scratch of the backward. */
struct scratch {
    float *ds, *kept; /* [seq, seq] */
    float *dk, *dv;   /* [seq, dh] */
};

/* dq in place of q, which then nobody needs any more; dk and dv are written by the first head of a group, and the
 * others add to them. p, dctx: of the head. */
static void backward_head(const struct attention *a, float *qkv, int row, int head, const float *p, const float *dctx,
                          const struct scratch *s)
{
    const int seq = a->seq, dh = a->dh, width = a->width;
    const int64_t square = (int64_t)seq * seq;
    const float add = head % a->group != 0;
    float *q = qkv + (int64_t)row * seq * width + head * dh;
    const float *k = keys_of(a, row, head), *v = values_of(a, row, head);
    product(PP_GEMM_NT, seq, seq, dh, dctx, a->d, v, width, 0, s->ds, seq);
    if (a->dropping) kept_scores(a, square, p, s->kept);
    product(PP_GEMM_TN, seq, dh, seq, a->dropping ? s->kept : p, seq, dctx, a->d, add, s->dv, dh);
    for (int i = 0; i < seq; i++) softmax_grad_row(a, p + (int64_t)i * seq, s->ds + (int64_t)i * seq);
    product(PP_GEMM_TN, seq, dh, seq, s->ds, seq, q, width, add, s->dk, dh);
    product(PP_GEMM_NN, seq, dh, seq, s->ds, seq, k, width, 0, q, width);
}

void PP_SIMD(pp_cpu_attention_grad)(const struct pp_cpu_call *c)
{
    const struct attention a = attention_of(c, c->at.attention_grad.qkv, NULL, NULL);
    const int64_t square = (int64_t)a.seq * a.seq, side = (int64_t)a.seq * a.dh;
    float *qkv = c->at.attention_grad.qkv, *at = c->at.attention_grad.scratch;
    const struct scratch s = {at, at + square, at + 2 * square, at + 2 * square + side};
    const float *p = c->at.attention_grad.probabilities, *dctx = c->at.attention_grad.dctx;
    for (int r = 0; r < a.rows; r++, dctx += (int64_t)a.seq * a.d)
        for (int h = 0; h < a.heads; h++, p += square) {
            backward_head(&a, qkv, r, h, p, dctx + h * a.dh, &s);
            if ((h + 1) % a.group == 0) settle(&a, r, h, s.dk, s.dv);
        }
}
