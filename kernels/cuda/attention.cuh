/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on the device: what its two ways share. Short rows are worked on in shared memory, a thread block for each
 * row and head (attention_short.cu); any others tile by tile (attention_long.cu). Which way depends on the shape and
 * the kind of device alone. A kind of its own is attention without stored P (attention_flash.cu, attention_mma.cu).
 *
 * A pair is one head of queries of one row; pair = row * heads + head. A group is the successive pairs that share a
 * head of keys and values, one pair where each has its own; pair p's keys are number p / group of [rows, kv].
 * Probabilities carry dropout in their sign: negative where they are dropped. What is stored in bfloat16 is used as it
 * was rounded, so that the gradient is that of what was computed.
 */
#ifndef PP_KERNELS_CUDA_ATTENTION_CUH
#define PP_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/gpu.cuh"

/* What follows from a call's dimensions and frame. */
struct pp_attention {
    int rows, seq, heads, dh;  /* seq: queries of a row; dh: columns of a query, and of a key */
    int dv, widest;            /* columns of a value; of a key or value, whichever is wider */
    int queries, d;            /* columns of all queries, heads * dh; of ctx: heads * dv */
    int kv, group;             /* heads of keys and values, heads of queries of each */
    int width;                 /* of qkv: queries + kv * (dh + dv); the next token lies so far behind */
    int apart;                 /* from a token's first key to its first value: kv * dh */
    int keys, key_width;       /* keys of a row; numbers from a token's key to the next token's */
    int64_t to_keys, to_grads; /* from qkv to the first key, and to where its gradient goes */
    bool key_grads_apart;      /* gradients of keys have memory of their own, nobody else's keys lie there */
    pp_row_places places;      /* of queries among keys */
    bool causal;
    int window;        /* 0: none */
    bool whole_heads;  /* quads of qkv and ctx may be moved at once */
    bool whole_scores; /* and those of P */
    float scale;       /* of scores */
    /* Row vectors of scores are counted over the heads of all workers of the rank: number of our first one; how many
     * of each row are of others' heads. */
    uint32_t first_vector, other_vectors;
    struct pp_dropout drop;
};

/* Bytes of shared memory that the short way needs; more than any device has where it cannot do the shape. widest:
 * columns of a key or value, whichever is wider; group: pairs that share keys and values. */
int64_t pp_attention_short_bytes(int seq, int widest, int group);

cudaError_t pp_attention_short(const struct pp_cuda_call *c);
cudaError_t pp_attention_short_grad(const struct pp_cuda_call *c);
cudaError_t pp_attention_short_prepare(int most_shared_bytes);
cudaError_t pp_attention_long(const struct pp_cuda_call *c);
cudaError_t pp_attention_long_grad(const struct pp_cuda_call *c);
cudaError_t pp_attention_long_prepare(void);

/* Shared memory that a block of the device may have. */
cudaError_t pp_attention_shared_bytes(int *out);

/* Flash on tensor cores (attention_mma.cu): can they do the call? */
bool pp_attention_mma_does(const struct pp_cuda_call *c);
cudaError_t pp_attention_mma(const struct pp_cuda_call *c);
cudaError_t pp_attention_mma_grad(const struct pp_cuda_call *c);
int pp_attention_mma_grad_bytes(int widest); /* of shared memory for a block; forward all devices have enough */

/* How many numbers of type T lie between two addresses. */
template <typename T> static inline int64_t pp_attention_between(const void *from, const void *to)
{
    return ((intptr_t)to - (intptr_t)from) / (intptr_t)sizeof(T);
}

/* p: P. qkv: queries, keys and values, or their gradients. ctx: ctx or its gradient. keys, dkeys: the keys and values
 * of whole rows, and their gradients, in calls where they lie apart from qkv (attention.keys); else NULL. */
template <typename T>
static inline struct pp_attention pp_attention_of(const struct pp_cuda_call *c, const void *p, const void *qkv,
                                                  const void *ctx, const void *keys = NULL, const void *dkeys = NULL)
{
    const struct pp_attention_dims *n = &c->call->attention;
    struct pp_attention a;
    a.rows = n->rows;
    a.seq = n->seq;
    a.heads = n->heads;
    a.dh = n->dh;
    a.dv = PP_VALUE_COLUMNS(n);
    a.widest = PP_WIDEST_COLUMNS(n);
    a.queries = a.heads * a.dh;
    a.d = a.heads * a.dv;
    a.kv = PP_KV_HEADS(n);
    a.group = a.heads / a.kv;
    a.width = PP_QKV_COLUMNS(n);
    a.apart = a.kv * a.dh;
    a.keys = PP_ROW_KEYS(n);
    a.key_width = n->keys ? PP_KV_COLUMNS(n) : a.width;
    a.to_keys = n->keys ? pp_attention_between<T>(qkv, keys) : a.queries;
    a.to_grads = n->keys ? pp_attention_between<T>(qkv, dkeys) : a.queries;
    a.key_grads_apart = n->keys;
    a.places = pp_attention_places_of(n, c->frame);
    a.causal = n->causal;
    a.window = n->window;
    a.whole_heads = a.dh % PP_QUAD == 0 && a.dv % PP_QUAD == 0 && pp_aligned(static_cast<const T *>(qkv)) &&
                    pp_aligned(static_cast<const T *>(ctx)) && (!n->keys || pp_aligned(static_cast<const T *>(keys))) &&
                    (!n->keys || pp_aligned(static_cast<const T *>(dkeys)));
    a.whole_scores = a.seq % PP_QUAD == 0 && pp_aligned(static_cast<const T *>(p));
    a.scale = PP_SCORE_SCALE(c->call);
    const int others = a.heads * (pp_frame_head_ranks(c->frame) - 1), before = a.heads * pp_frame_head_rank(c->frame);
    a.first_vector = (uint32_t)((c->frame->first_row * (a.heads + others) + before) * a.keys);
    a.other_vectors = (uint32_t)(others * a.keys);
    a.drop = pp_dropout_of(c, 0);
    return a;
}

/* The first token's query of a pair; tokens lie a.width apart. */
template <typename T> static __device__ inline T *pp_attention_query(const pp_attention &a, T *qkv, int pair)
{
    return qkv + (int64_t)(pair / a.heads) * a.seq * a.width + pair % a.heads * a.dh;
}

/* Where the keys of the first token begin, and where its values begin. */
template <typename T> static __host__ __device__ inline T *pp_attention_keys(const pp_attention &a, T *qkv)
{
    return qkv + a.to_keys;
}
template <typename T> static __host__ __device__ inline T *pp_attention_values(const pp_attention &a, T *qkv)
{
    return qkv + a.to_keys + a.apart;
}

/* The first token's key of a pair, or its value; tokens lie a.key_width apart. from: where the first token's keys, or
 * values, begin; columns: of one key, or of one value. */
template <typename T>
static __device__ inline T *pp_attention_shared(const pp_attention &a, T *from, int pair, int columns)
{
    const int place = pair / a.group;
    return from + (int64_t)(place / a.kv) * a.keys * a.key_width + place % a.kv * columns;
}
template <typename T> static __device__ inline T *pp_attention_key(const pp_attention &a, T *qkv, int pair)
{
    return pp_attention_shared(a, pp_attention_keys(a, qkv), pair, a.dh);
}
template <typename T> static __device__ inline T *pp_attention_value(const pp_attention &a, T *qkv, int pair)
{
    return pp_attention_shared(a, pp_attention_values(a, qkv), pair, a.dv);
}

/* The first token's part of ctx, or of its gradient, that belongs to a pair; tokens lie a.d apart. */
template <typename T> static __device__ inline T *pp_attention_context(const pp_attention &a, T *ctx, int pair)
{
    return ctx + (int64_t)(pair / a.heads) * a.seq * a.d + pair % a.heads * a.dv;
}

/* Probabilities of one query. */
template <typename T> static __device__ inline T *pp_attention_row(const pp_attention &a, T *p, int pair, int query)
{
    return p + ((int64_t)pair * a.seq + query) * a.seq;
}

/* The place of a query in the whole row, counted in keys. */
static __device__ inline int pp_attention_place(const pp_attention &a, int query)
{
    return query + (query < a.places.run ? a.places.before : a.places.behind);
}

/* The keys that a query sees are those from pp_attention_begin() to pp_attention_open() - 1. */
static __device__ inline int pp_attention_open(const pp_attention &a, int query)
{
    return a.causal ? pp_attention_place(a, query) + 1 : a.keys;
}
static __device__ inline int pp_attention_begin(const pp_attention &a, int query)
{
    return a.window ? max(pp_attention_place(a, query) + 1 - a.window, 0) : 0;
}

struct pp_attention_span {
    int begin, end;
    __device__ inline bool has(int key) const { return key >= begin && key < end; }
};
static __device__ inline pp_attention_span pp_attention_seen(const pp_attention &a, int query)
{
    return {pp_attention_begin(a, query), pp_attention_open(a, query)};
}

/* The first query that sees this key or a later one; a.seq or more if no query does. */
static __device__ inline int pp_attention_first(const pp_attention &a, int key)
{
    const int first = max(key - a.places.before, 0);
    if (!a.causal) return 0;
    return first < a.places.run ? first : max(key - a.places.behind, a.places.run);
}

/* One behind the last query that sees this key, or an earlier one. */
static __device__ inline int pp_attention_end(const pp_attention &a, int key)
{
    return a.window ? min(pp_attention_first(a, key + a.window), a.seq) : a.seq;
}

template <typename T> static __device__ inline pp_quad pp_load_if(bool whole, const T *p, int64_t left)
{
    return whole ? pp_load<true>(p, left) : pp_load<false>(p, left);
}

template <typename T> static __device__ inline void pp_store_if(bool whole, T *p, int64_t left, pp_quad q)
{
    if (whole)
        pp_store<true>(p, left, q);
    else
        pp_store<false>(p, left, q);
}

/* A number as T would hold it. */
template <typename T> static __device__ inline float pp_round(float x) { return pp_to_float(pp_from_float<T>(x)); }

/* Number of the row vector of a pair's first place: dropout's. */
static __device__ inline uint32_t pp_attention_vectors(const pp_attention &a, int pair)
{
    return a.first_vector + (uint32_t)pair * (uint32_t)a.keys + (uint32_t)(pair / a.heads) * a.other_vectors;
}

/* Makes probabilities negative where dropout drops them. vector: number of the query's row vector; quad: number of the
 * quad in that row. */
static __device__ inline void pp_attention_sign(const pp_attention &a, uint32_t vector, int quad, pp_quad &p)
{
    if (!a.drop.on) return;
    const uint4 random = pp_random(a.drop, vector, (uint32_t)quad);
    p.v[0] = random.x >= a.drop.threshold ? p.v[0] : -p.v[0];
    p.v[1] = random.y >= a.drop.threshold ? p.v[1] : -p.v[1];
    p.v[2] = random.z >= a.drop.threshold ? p.v[2] : -p.v[2];
    p.v[3] = random.w >= a.drop.threshold ? p.v[3] : -p.v[3];
}

/* drop(p): zero where p is negative, else p times dropout's scale. NaN stays NaN. */
static __device__ inline pp_quad pp_attention_kept(float scale, pp_quad p)
{
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) p.v[i] = p.v[i] < 0 ? 0 : p.v[i] * scale;
    return p;
}

/* The gradient of scores, before they are multiplied by a.scale. p: probabilities with dropout in their signs; dkept:
 * the gradient of drop(p); mean: the sum of drop(p) * dkept over the row. */
static __device__ inline pp_quad pp_attention_dscores(const pp_attention &a, pp_quad p, pp_quad dkept, float mean)
{
    pp_quad out;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) {
        const float dp = p.v[i] > 0 ? dkept.v[i] * a.drop.scale : 0;
        out.v[i] = fabsf(p.v[i]) * (dp - mean) * a.scale;
    }
    return out;
}

#endif
