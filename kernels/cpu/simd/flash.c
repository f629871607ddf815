/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention that stores no scores (Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention", 2022): one
 * row and head and a block of its queries at a time, against the keys that they see.
 *
 * Forward keeps one number for each query, from which the backward makes its probabilities again; it draws dropout's
 * numbers again, too. What is masked, or hidden by a window, for a whole block is not computed.
 */
#include "kernels/cpu/simd/attention.h"

/* Queries up to `end`, all of one run. */
static struct pp_simd_block block_from(const struct pp_simd_attention *a, int first, int end)
{
    const int n = end - first < PP_FLASH_QUERIES ? end - first : PP_FLASH_QUERIES;
    const int place = first + (first < a->places.run ? a->places.before : a->places.behind);
    return pp_simd_block_of(a, first, n, place);
}

/* One head of one row. */
struct head {
    float *q;        /* tokens lie a->width apart */
    float *k, *v;    /* those of the group, a->key_width apart */
    float *ctx;      /* d apart */
    float *lse;      /* [seq] */
    uint32_t vector; /* dropout's, of the first place */
};

static struct head head_of(const struct pp_simd_attention *a, float *qkv, float *ctx, float *lse, int row, int head)
{
    return (struct head){qkv + (int64_t)row * a->seq * a->width + head * a->dh,
                         pp_simd_keys_of(a, row, head),
                         pp_simd_values_of(a, row, head),
                         ctx + (int64_t)row * a->seq * a->d + head * a->dv,
                         lse + ((int64_t)row * a->heads + head) * a->seq,
                         pp_simd_first_vector(a, row, head)};
}

/* A head's keys, or values, from the block's first key on. */
static float *from_key(const struct pp_simd_attention *a, struct pp_simd_block b, float *keys)
{
    return keys + (int64_t)b.key * a->key_width;
}

/* p [n, keys] = q k' */
static void make_scores(const struct pp_simd_attention *a, const struct head *h, struct pp_simd_block b, float *p)
{
    pp_simd_product(PP_GEMM_NT, b.n, b.keys, a->dh, h->q + (int64_t)b.first * a->width, a->width, from_key(a, b, h->k),
                    a->key_width, 0, p, b.keys);
}

static void forward_block(const struct pp_simd_attention *a, const struct head *h, struct pp_simd_block b, float *p)
{
    make_scores(a, h, b, p);
    for (int i = 0; i < b.n; i++) {
        const struct pp_simd_softmax s =
            pp_simd_softmax_row(p + (int64_t)i * b.keys, pp_simd_seen_keys(a, b, i), b.keys, a->scale);
        h->lse[b.first + i] = s.shift + logf(s.sum);
    }
    if (a->dropping) pp_simd_drop_scores(a, h->vector, b, b.keys, p, p);
    pp_simd_product(PP_GEMM_NN, b.n, a->dv, b.keys, p, b.keys, from_key(a, b, h->v), a->key_width, 0,
                    h->ctx + (int64_t)b.first * a->d, a->d);
}

/* Queries first .. end - 1. p: scratch. */
static void forward_run(const struct pp_simd_attention *a, const struct head *h, int first, int end, float *p)
{
    for (int q = first; q < end; q += PP_FLASH_QUERIES) forward_block(a, h, block_from(a, q, end), p);
}

void PP_SIMD(pp_cpu_flash)(const struct pp_cpu_call *c)
{
    const struct pp_flash_memory *at = &c->at.flash;
    float *qkv = at->qkv;
    const struct pp_simd_attention a = pp_simd_attention_of(c, qkv, c->at.flash.keys, NULL);
    for (int r = 0; r < a.rows; r++) {
        pp_simd_add_bias(&a, qkv + (int64_t)r * a.seq * a.width, at->bias);
        for (int i = 0; i < a.heads; i++) {
            const struct head h = head_of(&a, qkv, at->ctx, at->lse, r, i);
            forward_run(&a, &h, 0, a.places.run, at->scratch);
            forward_run(&a, &h, a.places.run, a.seq, at->scratch);
        }
    }
}

/* Row of scores -> probabilities, by what their exponentials add up to. */
static void probabilities_row(const struct pp_simd_attention *a, float *row, struct pp_simd_span seen, int keys,
                              float lse)
{
    float *const p = row + seen.begin;
    const int open = seen.end - seen.begin;
    for (int j = 0; j < open; j += VL) vf_store(p + j, open - j, vf_exp(vf_load(p + j, open - j) * a->scale - lse));
    pp_simd_hide(row, seen, keys);
}

static float dot(const float *a, const float *b, int n)
{
    vf sum = {0};
    for (int j = 0; j < n; j += VL) sum += vf_load(a + j, n - j) * vf_load(b + j, n - j);
    return vf_sum(sum);
}

/* Scratch of the backward. */
struct scratch {
    float *p, *ds;  /* [queries, keys] */
    float *dk, *dv; /* [keys, dh], [keys, dv] */
};

/* dq in place of q, which then nobody needs any more; dk and dv are written, or added to. dctx: of the head. */
static void backward_block(const struct pp_simd_attention *a, const struct head *h, const float *dctx,
                           struct pp_simd_block b, float add, const struct scratch *s)
{
    const int width = a->width, dh = a->dh, dv = a->dv;
    float *q = h->q + (int64_t)b.first * width;
    const float *ctx = h->ctx + (int64_t)b.first * a->d;
    dctx += (int64_t)b.first * a->d;
    make_scores(a, h, b, s->p);
    for (int i = 0; i < b.n; i++)
        probabilities_row(a, s->p + (int64_t)i * b.keys, pp_simd_seen_keys(a, b, i), b.keys, h->lse[b.first + i]);
    if (a->dropping) pp_simd_drop_scores(a, h->vector, b, b.keys, s->p, NULL);
    pp_simd_product(PP_GEMM_NT, b.n, b.keys, dv, dctx, a->d, from_key(a, b, h->v), a->key_width, 0, s->ds, b.keys);
    for (int i = 0; i < b.n; i++) {
        const int64_t row = (int64_t)i * b.keys, token = (int64_t)i * a->d;
        pp_simd_dscores_row(a, s->p + row, s->ds + row, dot(ctx + token, dctx + token, dv), b.keys);
    }
    if (a->dropping) pp_simd_kept_scores(a, b, b.keys, s->p, s->p);
    pp_simd_product(PP_GEMM_TN, b.keys, dv, b.n, s->p, b.keys, dctx, a->d, add, s->dv + (int64_t)b.key * dv, dv);
    pp_simd_product(PP_GEMM_TN, b.keys, dh, b.n, s->ds, b.keys, q, width, add, s->dk + (int64_t)b.key * dh, dh);
    pp_simd_product(PP_GEMM_NN, b.n, dh, b.keys, s->ds, b.keys, from_key(a, b, h->k), a->key_width, 0, q, width);
}

/* From the last block of queries to the first: with a mask, too, the last one sees all keys that any does, unless there
 * is a window. So the first block done of a group's first head writes all of dk and dv, those that it does not see as
 * zeros, and the others add to them. */
static void backward_head(const struct pp_simd_attention *a, const struct head *h, const float *dctx, bool add,
                          const struct scratch *s)
{
    const int runs[][2] = {{a->places.run, a->seq}, {0, a->places.run}};
    for (int i = 0; i < 2; i++)
        for (int n = runs[i][1] - runs[i][0]; n > 0;) {
            n = (n - 1) / PP_FLASH_QUERIES * PP_FLASH_QUERIES;
            const struct pp_simd_block b = block_from(a, runs[i][0] + n, runs[i][1]);
            if (!add) pp_simd_clear_others(a, b, s->dk, s->dv);
            backward_block(a, h, dctx, b, add, s);
            add = true;
        }
}

void PP_SIMD(pp_cpu_flash_grad)(const struct pp_cpu_call *c)
{
    const struct pp_simd_attention a =
        pp_simd_attention_of(c, c->at.flash_grad.qkv, c->at.flash_grad.keys, c->at.flash_grad.dkeys);
    const int64_t queries = a.seq < PP_FLASH_QUERIES ? a.seq : PP_FLASH_QUERIES, block = queries * a.keys;
    float *at = c->at.flash_grad.scratch;
    const struct scratch s = {at, at + block, at + 2 * block, at + 2 * block + (int64_t)a.keys * a.dh};
    for (int r = 0; r < a.rows; r++)
        for (int i = 0; i < a.heads; i++) {
            const struct head h = head_of(&a, c->at.flash_grad.qkv, c->at.flash_grad.ctx, c->at.flash_grad.lse, r, i);
            const float *dctx = (const float *)c->at.flash_grad.dctx + (h.ctx - (const float *)c->at.flash_grad.ctx);
            backward_head(&a, &h, dctx, i % a.group != 0, &s);
            if ((i + 1) % a.group == 0) pp_simd_settle(&a, r, i, s.dk, s.dv);
        }
}
