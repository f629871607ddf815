/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, one row and head at a time, so that scores stay in the first-level cache between the two products. With a
 * window, queries are taken in blocks of PP_FLASH_QUERIES, and scores of keys that no query of a block sees are not
 * computed; without one, all scores are, with a mask too.
 *
 * The probabilities are kept, so the backward pass needs no random numbers.
 */
#include "kernels/cpu/simd/attention.h"

/* The block of queries from `first` on; without a window it is all queries. */
static struct pp_simd_block block_from(const struct pp_simd_attention *a, int first)
{
    const int left = a->seq - first;
    return pp_simd_block_of(a, first, a->window && left > PP_FLASH_QUERIES ? PP_FLASH_QUERIES : left, first);
}

/* Where the block lies in [seq, seq]. */
static int64_t place_of(const struct pp_simd_attention *a, struct pp_simd_block b)
{
    return (int64_t)b.first * a->seq + b.key;
}

/* From scores of the block to probabilities, zeros for all keys outside the block. p: of the head. */
static void softmax_block(const struct pp_simd_attention *a, struct pp_simd_block b, float *p)
{
    const struct pp_simd_span of_block = {b.key, b.key + b.keys};
    float *row = p + (int64_t)b.first * a->seq;
    for (int i = 0; i < b.n; i++, row += a->seq) {
        pp_simd_softmax_row(row + b.key, pp_simd_seen_keys(a, b, i), b.keys, a->scale);
        pp_simd_hide(row, of_block, a->seq);
    }
}

/* One head of one row: from its queries to ctx and p [seq, seq]; kept: room for drop(p), or p. */
static void forward_head(const struct pp_simd_attention *a, int row, int head, const float *q, float *ctx, float *p,
                         float *kept)
{
    const int seq = a->seq, dh = a->dh, width = a->width;
    const float *k = pp_simd_keys_of(a, row, head), *v = pp_simd_values_of(a, row, head);
    for (int first = 0; first < seq;) {
        const struct pp_simd_block b = block_from(a, first);
        const int64_t at = place_of(a, b), key = (int64_t)b.key * width;
        pp_simd_product(PP_GEMM_NT, b.n, b.keys, dh, q + (int64_t)first * width, width, k + key, width, 0, p + at, seq);
        softmax_block(a, b, p);
        if (a->dropping) pp_simd_drop_scores(a, pp_simd_first_vector(a, row, head), b, seq, p + at, kept + at);
        pp_simd_product(PP_GEMM_NN, b.n, a->dv, b.keys, kept + at, seq, v + key, width, 0, ctx + (int64_t)first * a->d,
                        a->d);
        first += b.n;
    }
}

void PP_SIMD(pp_cpu_attention)(const struct pp_cpu_call *c)
{
    const struct pp_attention_memory *at = &c->at.attention;
    const struct pp_simd_attention a = pp_simd_attention_of(c, at->qkv, NULL, NULL);
    const int seq = a.seq, width = a.width;
    float *ctx = at->ctx, *p = at->probabilities, *qkv = at->qkv;
    for (int r = 0; r < a.rows; r++, ctx += (int64_t)seq * a.d) {
        float *q = qkv + (int64_t)r * seq * width;
        pp_simd_add_bias(&a, q, at->bias);
        for (int h = 0; h < a.heads; h++, p += (int64_t)seq * seq)
            forward_head(&a, r, h, q + h * a.dh, ctx + h * a.dv, p, a.dropping ? at->scratch : p);
    }
}

/* Row of dkept (gradient of kept) -> gradient of the scores before scaling, in place. */
static void softmax_grad_row(const struct pp_simd_attention *a, const float *p, float *ds, int keys)
{
    vf sum = {0};
    for (int j = 0; j < keys; j += VL) sum += vf_max(vf_all(0), vf_load(p + j, keys - j)) * vf_load(ds + j, keys - j);
    pp_simd_dscores_row(a, p, ds, vf_sum(sum) * a->drop.scale, keys);
}

/* Scratch of the backward. */
struct scratch {
    float *ds, *kept; /* [seq, seq] */
    float *dk, *dv;   /* [seq, dh], [seq, dv] */
};

/* dq in place of q, which then nobody needs any more; dk and dv are written, or added to. q, k, v, p and dctx are those
 * of the head. */
static void backward_block(const struct pp_simd_attention *a, struct pp_simd_block b, float *q, const float *k,
                           const float *v, const float *p, const float *dctx, float add, const struct scratch *s)
{
    const int seq = a->seq, dh = a->dh, dv = a->dv, width = a->width;
    const int64_t at = place_of(a, b), key = (int64_t)b.key * width;
    float *ds = s->ds + at;
    const float *kept = a->dropping ? s->kept + at : p + at;
    q += (int64_t)b.first * width;
    dctx += (int64_t)b.first * a->d;
    pp_simd_product(PP_GEMM_NT, b.n, b.keys, dv, dctx, a->d, v + key, width, 0, ds, seq);
    if (a->dropping) pp_simd_kept_scores(a, b, seq, p + at, s->kept + at);
    pp_simd_product(PP_GEMM_TN, b.keys, dv, b.n, kept, seq, dctx, a->d, add, s->dv + (int64_t)b.key * dv, dv);
    for (int i = 0; i < b.n; i++) softmax_grad_row(a, p + at + (int64_t)i * seq, ds + (int64_t)i * seq, b.keys);
    pp_simd_product(PP_GEMM_TN, b.keys, dh, b.n, ds, seq, q, width, add, s->dk + (int64_t)b.key * dh, dh);
    pp_simd_product(PP_GEMM_NN, b.n, dh, b.keys, ds, seq, k + key, width, 0, q, width);
}

/* The first block of a group's first head writes all of dk and dv, and the others add to them. p, dctx: of the head. */
static void backward_head(const struct pp_simd_attention *a, float *qkv, int row, int head, const float *p,
                          const float *dctx, const struct scratch *s)
{
    float *q = qkv + (int64_t)row * a->seq * a->width + head * a->dh;
    const float *k = pp_simd_keys_of(a, row, head), *v = pp_simd_values_of(a, row, head);
    bool add = head % a->group != 0;
    for (int first = 0; first < a->seq;) {
        const struct pp_simd_block b = block_from(a, first);
        if (!add) pp_simd_clear_others(a, b, s->dk, s->dv);
        backward_block(a, b, q, k, v, p, dctx, add, s);
        add = true;
        first += b.n;
    }
}

void PP_SIMD(pp_cpu_attention_grad)(const struct pp_cpu_call *c)
{
    const struct pp_simd_attention a = pp_simd_attention_of(c, c->at.attention_grad.qkv, NULL, NULL);
    const int64_t square = (int64_t)a.seq * a.seq, side = (int64_t)a.seq * a.dh;
    float *qkv = c->at.attention_grad.qkv, *at = c->at.attention_grad.scratch;
    const struct scratch s = {at, at + square, at + 2 * square, at + 2 * square + side};
    const float *p = c->at.attention_grad.probabilities, *dctx = c->at.attention_grad.dctx;
    for (int r = 0; r < a.rows; r++, dctx += (int64_t)a.seq * a.d)
        for (int h = 0; h < a.heads; h++, p += square) {
            backward_head(&a, qkv, r, h, p, dctx + h * a.dv, &s);
            if ((h + 1) % a.group == 0) pp_simd_settle(&a, r, h, s.dk, s.dv);
        }
}
