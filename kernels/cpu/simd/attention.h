/* SPDX-License-Identifier: Apache-2.0
 *
 * What attention.c and flash.c share: what follows from a call's dimensions, products of a head, softmax and
 * dropout of scores.
 *
 * Probabilities carry dropout in their sign: negative where they are dropped.
 */
#ifndef PP_KERNELS_CPU_SIMD_ATTENTION_H
#define PP_KERNELS_CPU_SIMD_ATTENTION_H

#include <math.h>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/random.h"

/* What follows from a call's dimensions and frame. */
struct pp_simd_attention {
    int rows, seq, heads, dh;    /* seq: queries of a row; dh: columns of a query, and of a key */
    int dv, d;                   /* columns of a value; of ctx: heads * dv */
    int kv, group;               /* heads of keys and values; heads of queries that share each of these */
    int width;                   /* of qkv: heads * dh + kv * (dh + dv) */
    int keys, key_width;         /* keys of a row; numbers from a token's key to the next token's */
    float *shared, *grads;       /* the first key; where its gradient goes */
    struct pp_row_places places; /* of queries among keys */
    bool causal, dropping;
    int window; /* 0: none */
    float scale;
    struct pp_simd_dropout drop;
    int64_t first_row;
    int all_heads, first_head; /* heads of all workers that share them; number of this one's first among these */
};

/* qkv: the call's. keys, dkeys: those of calls that have keys of whole rows, which lie apart from qkv. */
static inline struct pp_simd_attention pp_simd_attention_of(const struct pp_cpu_call *c, float *qkv, float *keys,
                                                            float *dkeys)
{
    const struct pp_attention_dims *n = &c->call->attention;
    const int queries = n->heads * n->dh, kv = PP_KV_HEADS(n);
    struct pp_simd_attention a = {.rows = n->rows,
                                  .seq = n->seq,
                                  .heads = n->heads,
                                  .dh = n->dh,
                                  .dv = PP_VALUE_COLUMNS(n),
                                  .d = n->heads * PP_VALUE_COLUMNS(n),
                                  .kv = kv,
                                  .group = n->heads / kv,
                                  .width = PP_QKV_COLUMNS(n),
                                  .keys = PP_ROW_KEYS(n),
                                  .key_width = n->keys ? PP_KV_COLUMNS(n) : PP_QKV_COLUMNS(n),
                                  .shared = n->keys ? keys : qkv + queries,
                                  .grads = n->keys ? dkeys : qkv + queries,
                                  .places = pp_attention_places_of(n, c->frame),
                                  .causal = n->causal,
                                  .window = n->window,
                                  .scale = PP_SCORE_SCALE(c->call),
                                  .first_row = c->frame->first_row,
                                  .all_heads = n->heads * pp_frame_head_ranks(c->frame),
                                  .first_head = n->heads * pp_frame_head_rank(c->frame)};
    a.dropping = pp_simd_dropout_of(c, 0, &a.drop);
    return a;
}

/* Number of the row vector of a head's first query, by which dropout draws. */
static inline uint32_t pp_simd_first_vector(const struct pp_simd_attention *a, int row, int head)
{
    return (uint32_t)(((a->first_row + row) * a->all_heads + a->first_head + head) * a->keys);
}

/* Successive queries of a row that are worked on together, first .. first + n - 1, and the keys key .. key + keys - 1,
 * among which are all that these queries see. place: of the first query in the row. */
struct pp_simd_block {
    int first, n, place, key, keys;
};

/* The keys that the block's i-th query sees, counted from the block's first key. */
struct pp_simd_span {
    int begin, end;
};
static inline struct pp_simd_span pp_simd_seen_keys(const struct pp_simd_attention *a, struct pp_simd_block b, int i)
{
    const int place = b.place + i, begin = place + 1 - a->window - b.key;
    return (struct pp_simd_span){a->window && begin > 0 ? begin : 0, a->causal ? place + 1 - b.key : b.keys};
}

/* A block, with the keys that some of its queries see, and up to PP_WINDOW_STEP - 1 keys before them: so its columns
 * begin with a whole quad of dropout's random numbers. */
static inline struct pp_simd_block pp_simd_block_of(const struct pp_simd_attention *a, int first, int n, int place)
{
    const int before = place + 1 - a->window,
              key = a->window && before > 0 ? before / PP_WINDOW_STEP * PP_WINDOW_STEP : 0;
    return (struct pp_simd_block){first, n, place, key, (a->causal ? place + n : a->keys) - key};
}

/* Below this many multiplications a call of the library costs more than the product. */
enum { PP_SIMD_TINY = 8192 };

/* C = op(A, B) + beta C for tiny matrices, by the definition. Elements lie `row` and `column` apart. */
struct pp_simd_tiny {
    const float *at;
    int64_t row, column;
};

static inline void pp_simd_tiny_product(int m, int n, int k, struct pp_simd_tiny a, struct pp_simd_tiny b, float beta,
                                        float *c, int ldc)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0, *to = c + (int64_t)i * ldc + j;
            for (int l = 0; l < k; l++) sum += a.at[i * a.row + l * a.column] * b.at[l * b.row + j * b.column];
            *to = beta != 0 ? sum + beta * *to : sum;
        }
}

/* As pp_gemm. */
static inline void pp_simd_product(enum pp_gemm_op op, int m, int n, int k, const float *a, int lda, const float *b,
                                   int ldb, float beta, float *c, int ldc)
{
    if ((int64_t)m * n * k >= PP_SIMD_TINY) {
        pp_gemm(op, m, n, k, a, lda, b, ldb, beta, c, ldc);
        return;
    }
    const struct pp_simd_tiny left =
        op == PP_GEMM_TN ? (struct pp_simd_tiny){a, 1, lda} : (struct pp_simd_tiny){a, lda, 1};
    const struct pp_simd_tiny right =
        op == PP_GEMM_NT ? (struct pp_simd_tiny){b, 1, ldb} : (struct pp_simd_tiny){b, ldb, 1};
    pp_simd_tiny_product(m, n, k, left, right, beta, c, ldc);
}

/* qkv of one row. bias: NULL, or added to it. */
static inline void pp_simd_add_bias(const struct pp_simd_attention *a, float *qkv, const float *bias)
{
    const int width = a->width;
    for (int t = 0; bias && t < a->seq; t++, qkv += width)
        for (int j = 0; j < width; j += VL)
            vf_store(qkv + j, width - j, vf_load(qkv + j, width - j) + vf_load(bias + j, width - j));
}

/* What a row of scores was divided by: sum of exp(score * scale - shift). */
struct pp_simd_softmax {
    float shift, sum;
};

/* Zeros for entries that are not seen. */
static inline void pp_simd_hide(float *row, struct pp_simd_span seen, int columns)
{
    memset(row, 0, sizeof *row * (size_t)seen.begin);
    memset(row + seen.end, 0, sizeof *row * (size_t)(columns - seen.end));
}

/* Row of scores -> probabilities; entries that are not seen become 0. */
static inline struct pp_simd_softmax pp_simd_softmax_row(float *row, struct pp_simd_span seen, int columns, float scale)
{
    float *const p = row + seen.begin;
    const int open = seen.end - seen.begin;
    vf most = vf_all(-INFINITY), sum = {0};
    for (int j = 0; j < open; j += VL) most = vf_max(most, vf_first(vf_load(p + j, open - j), open - j, -INFINITY));
    const float shift = vf_max_lane(most) * scale;
    for (int j = 0; j < open; j += VL) {
        vf e = vf_first(vf_exp(vf_load(p + j, open - j) * scale - shift), open - j, 0);
        vf_store(p + j, open - j, e);
        sum += e;
    }
    const struct pp_simd_softmax out = {shift, vf_sum(sum)};
    const float norm = 1 / out.sum;
    for (int j = 0; j < open; j += VL) vf_store(p + j, open - j, vf_load(p + j, open - j) * norm);
    pp_simd_hide(row, seen, columns);
    return out;
}

/* kept = drop(p), unless NULL, and p's sign turned where it is dropped; n columns of one row. kept may be p. */
static inline void pp_simd_drop_row(const struct pp_simd_dropout *drop, const uint32_t *random, float *p, float *kept,
                                    int n)
{
    for (int j = 0; j < n; j += VL) {
        vf v = vf_load(p + j, n - j);
        vi keep = (vi)(*(const vu_at *)(random + j) >= drop->threshold);
        vf_store(p + j, n - j, vf_select(keep, v, -v));
        if (kept) vf_store(kept + j, n - j, vf_keep(keep, v * drop->scale));
    }
}

/* The same for p, kept: [b.n, b.keys], rows `pitch` apart; vector: number of the row vector of the head's first place.
 */
static inline void pp_simd_drop_scores(const struct pp_simd_attention *a, uint32_t vector, struct pp_simd_block b,
                                       int pitch, float *p, float *kept)
{
    uint32_t random[PP_RANDOM_TILE + PP_RANDOM_ROUND];
    const int piece = b.keys < PP_RANDOM_TILE ? b.keys : PP_RANDOM_TILE, width = (piece + 3) / 4 * 4;
    const int tile = PP_RANDOM_TILE / width;
    vector += (uint32_t)b.place;
    for (int j0 = 0; j0 < b.keys; j0 += piece) {
        const int n = b.keys - j0 < piece ? b.keys - j0 : piece;
        for (int i0 = 0; i0 < b.n; i0 += tile) {
            const int some = b.n - i0 < tile ? b.n - i0 : tile;
            pp_simd_random_rows(&a->drop, vector + (uint32_t)i0, some, (b.key + j0) / 4, width / 4, random);
            for (int i = 0; i < some; i++) {
                const int64_t at = (int64_t)(i0 + i) * pitch + j0;
                pp_simd_drop_row(&a->drop, random + i * width, p + at, kept ? kept + at : NULL, n);
            }
        }
    }
}

/* kept = drop(|p|) from the signs of a block's probabilities, rows `pitch` apart; kept may be p. */
static inline void pp_simd_kept_scores(const struct pp_simd_attention *a, struct pp_simd_block b, int pitch,
                                       const float *p, float *kept)
{
    for (int i = 0; i < b.n; i++, p += pitch, kept += pitch)
        for (int j = 0; j < b.keys; j += VL)
            vf_store(kept + j, b.keys - j, vf_max(vf_all(0), vf_load(p + j, b.keys - j) * a->drop.scale));
}

/* Row of dkept (gradient of kept) -> gradient of the scores before scaling, in place. mean: the row's sum of
 * drop(p) * dkept. */
static inline void pp_simd_dscores_row(const struct pp_simd_attention *a, const float *p, float *ds, float mean,
                                       int columns)
{
    for (int j = 0; j < columns; j += VL) {
        const vf signed_p = vf_load(p + j, columns - j);
        const vf dp = vf_keep((vi)(signed_p > 0), vf_load(ds + j, columns - j) * a->drop.scale);
        vf_store(ds + j, columns - j, vf_max(signed_p, -signed_p) * (dp - mean) * a->scale);
    }
}

/* From a->shared, or a->grads, to the keys that this head of this row sees, [keys, dh], and to its values, [keys, dv];
 * tokens lie a->key_width apart. */
static inline int64_t pp_simd_key_offset(const struct pp_simd_attention *a, int row, int head)
{
    return (int64_t)row * a->keys * a->key_width + head / a->group * a->dh;
}
static inline int64_t pp_simd_value_offset(const struct pp_simd_attention *a, int row, int head)
{
    return (int64_t)row * a->keys * a->key_width + a->kv * a->dh + head / a->group * a->dv;
}
static inline float *pp_simd_keys_of(const struct pp_simd_attention *a, int row, int head)
{
    return a->shared + pp_simd_key_offset(a, row, head);
}
static inline float *pp_simd_values_of(const struct pp_simd_attention *a, int row, int head)
{
    return a->shared + pp_simd_value_offset(a, row, head);
}

/* In rows of `columns` numbers, one for each key: zeros for the keys outside the block. */
static inline void pp_simd_clear_rows(const struct pp_simd_attention *a, struct pp_simd_block b, float *rows,
                                      int columns)
{
    const int end = b.key + b.keys;
    memset(rows, 0, sizeof(float) * (size_t)b.key * (size_t)columns);
    memset(rows + (int64_t)end * columns, 0, sizeof(float) * (size_t)(a->keys - end) * (size_t)columns);
}

/* Gradients of a group's keys, [keys, dh], and values, [keys, dv]: zeros for those outside the block. */
static inline void pp_simd_clear_others(const struct pp_simd_attention *a, struct pp_simd_block b, float *dk, float *dv)
{
    pp_simd_clear_rows(a, b, dk, a->dh);
    pp_simd_clear_rows(a, b, dv, a->dv);
}

/* Copies the gradients of a group's keys, [keys, dh], and values, [keys, dv], to their place. All queries of the group
 * must have added to them. */
static inline void pp_simd_settle(const struct pp_simd_attention *a, int row, int head, const float *dk,
                                  const float *dv)
{
    float *keys = a->grads + pp_simd_key_offset(a, row, head), *values = a->grads + pp_simd_value_offset(a, row, head);
    for (int64_t t = 0; t < a->keys; t++) {
        memcpy(keys + t * a->key_width, dk + t * a->dh, sizeof(float) * (size_t)a->dh);
        memcpy(values + t * a->key_width, dv + t * a->dv, sizeof(float) * (size_t)a->dv);
    }
}

#endif
