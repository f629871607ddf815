/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention, one row and head at a time, so that scores stay in the first-level cache between the two products.
 *
 * Probabilities are stored with a sign: negative where dropout drops them. The backward pass thus needs no random
 * numbers.
 */
#include <math.h>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/random.h"

/* A call taken apart. */
struct attention {
    int rows, seq, heads, dh, d; /* d = heads * dh */
    bool causal, dropping;
    float scale;
    struct dropout drop;
    int64_t first_row;
};

static struct attention attention_of(const struct pp_cpu_call *c)
{
    const int32_t *n = c->call->n;
    struct attention a = {.rows = n[0],
                          .seq = n[1],
                          .heads = n[2],
                          .dh = n[3],
                          .d = n[2] * n[3],
                          .causal = n[4],
                          .scale = 1 / sqrtf((float)n[3]),
                          .first_row = c->frame->first_row};
    a.dropping = dropout_of(c, c->call->f[0], &a.drop);
    return a;
}

/* Below this many multiplications a call of the library costs more than the product. */
enum { TINY = 8192 };

/* C = op(A, B) for tiny matrices, by the definition. Elements lie `row` and `column` apart. */
struct tiny {
    const float *at;
    int64_t row, column;
};

static void tiny_product(int m, int n, int k, struct tiny a, struct tiny b, float *c, int ldc)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int l = 0; l < k; l++) sum += a.at[i * a.row + l * a.column] * b.at[l * b.row + j * b.column];
            c[(int64_t)i * ldc + j] = sum;
        }
}

static void product(enum pp_gemm_op op, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float *c,
                    int ldc)
{
    if ((int64_t)m * n * k >= TINY) {
        pp_gemm(op, m, n, k, a, lda, b, ldb, 0, c, ldc);
        return;
    }
    const struct tiny left = op == PP_GEMM_TN ? (struct tiny){a, 1, lda} : (struct tiny){a, lda, 1};
    const struct tiny right = op == PP_GEMM_NT ? (struct tiny){b, 1, ldb} : (struct tiny){b, ldb, 1};
    tiny_product(m, n, k, left, right, c, ldc);
}

static void add_bias(const struct attention *a, float *qkv, const float *bias)
{
    const int width = 3 * a->d;
    for (int t = 0; t < a->seq; t++, qkv += width)
        for (int j = 0; j < width; j += VL)
            vf_store(qkv + j, width - j, vf_load(qkv + j, width - j) + vf_load(bias + j, width - j));
}

/* Row of scores -> probabilities; entries from `open` on are masked and become 0. */
static void softmax_row(float *p, int open, int seq, float scale)
{
    vf most = vf_all(-INFINITY), sum = {0};
    for (int j = 0; j < open; j += VL) most = vf_max(most, vf_first(vf_load(p + j, open - j), open - j, -INFINITY));
    const float shift = vf_max_lane(most) * scale;
    for (int j = 0; j < open; j += VL) {
        vf e = vf_first(vf_exp(vf_load(p + j, open - j) * scale - shift), open - j, 0);
        vf_store(p + j, open - j, e);
        sum += e;
    }
    const float norm = 1 / vf_sum(sum);
    for (int j = 0; j < open; j += VL) vf_store(p + j, open - j, vf_load(p + j, open - j) * norm);
    memset(p + open, 0, sizeof *p * (size_t)(seq - open));
}

/* kept = drop(p), and p's sign turned where it is dropped; n columns of one row */
static void drop_row(const struct dropout *drop, const uint32_t *random, float *p, float *kept, int n)
{
    for (int j = 0; j < n; j += VL) {
        vf v = vf_load(p + j, n - j);
        vi keep = (vi)(*(const vu_at *)(random + j) >= drop->threshold);
        vf_store(p + j, n - j, vf_select(keep, v, -v));
        vf_store(kept + j, n - j, vf_keep(keep, v * drop->scale));
    }
}

/* p, kept: [seq, seq]; first: number of the first row vector */
static void drop_scores(const struct attention *a, uint32_t first, float *p, float *kept)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    const int seq = a->seq, piece = seq < PP_RANDOM_TILE ? seq : PP_RANDOM_TILE, pitch = (piece + 3) / 4 * 4;
    const int tile = PP_RANDOM_TILE / pitch;
    for (int j0 = 0; j0 < seq; j0 += piece) {
        const int n = seq - j0 < piece ? seq - j0 : piece;
        for (int i0 = 0; i0 < seq; i0 += tile) {
            const int rows = seq - i0 < tile ? seq - i0 : tile;
            random_rows(&a->drop, first + (uint32_t)i0, rows, j0 / 4, pitch / 4, random);
            for (int i = 0; i < rows; i++)
                drop_row(&a->drop, random + i * pitch, p + (int64_t)(i0 + i) * seq + j0,
                         kept + (int64_t)(i0 + i) * seq + j0, n);
        }
    }
}

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
            product(PP_GEMM_NT, seq, seq, dh, q, width, k, width, p, seq);
            for (int i = 0; i < seq; i++) softmax_row(p + (int64_t)i * seq, a.causal ? i + 1 : seq, seq, a.scale);
            if (a.dropping) drop_scores(&a, (uint32_t)(((a.first_row + r) * a.heads + h) * seq), p, kept);
            product(PP_GEMM_NN, seq, dh, seq, kept, seq, v, width, ctx + h * dh, a.d);
        }
    }
}

/* kept = drop(|p|) from the signs */
static void kept_scores(const struct attention *a, const float *p, float *kept)
{
    const int64_t n = (int64_t)a->seq * a->seq;
    for (int64_t i = 0; i < n; i += VL)
        vf_store(kept + i, n - i, vf_max(vf_all(0), vf_load(p + i, n - i) * a->drop.scale));
}

/* Row of dkept (gradient of kept) -> gradient of the scores before scaling, in place. */
static void softmax_grad_row(const struct attention *a, const float *p, float *ds)
{
    vf sum = {0};
    for (int j = 0; j < a->seq; j += VL)
        sum += vf_max(vf_all(0), vf_load(p + j, a->seq - j)) * vf_load(ds + j, a->seq - j);
    const float mean = vf_sum(sum) * a->drop.scale;
    for (int j = 0; j < a->seq; j += VL) {
        const vf signed_p = vf_load(p + j, a->seq - j);
        const vf dp = vf_keep((vi)(signed_p > 0), vf_load(ds + j, a->seq - j) * a->drop.scale);
        vf_store(ds + j, a->seq - j, vf_max(signed_p, -signed_p) * (dp - mean) * a->scale);
    }
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
            product(PP_GEMM_NT, seq, seq, dh, dctx + h * dh, a.d, v, width, ds, seq);
            if (a.dropping) kept_scores(&a, p, kept);
            product(PP_GEMM_TN, seq, dh, seq, a.dropping ? kept : p, seq, dctx + h * dh, a.d, v, width);
            for (int i = 0; i < seq; i++) softmax_grad_row(&a, p + (int64_t)i * seq, ds + (int64_t)i * seq);
            copy_columns(q_copy, q, width, seq, dh);
            product(PP_GEMM_NN, seq, dh, seq, ds, seq, k, width, q, width);
            product(PP_GEMM_TN, seq, dh, seq, ds, seq, q_copy, dh, k, width);
        }
}
