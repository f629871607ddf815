/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention that stores no scores (Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention", 2022; Dao,
 * "FlashAttention-2", 2023), for rows of any length.
 *
 * Forward, a thread block has 64 queries of a pair and goes over the keys that they see, 64 at a time: softmax is
 * taken as far as the keys are known, and what was summed before is rescaled where a larger score comes. Backward
 * makes P again from the sums (lse) and has two kernels, so that no two blocks add to one place: one for the gradient
 * of 64 queries, over the keys, and one for those of 64 keys and values, over the queries.
 *
 * Two products forward, seven backward (scores and gradients of P are made twice), in float arithmetic; P stays in
 * shared memory, in float whatever the precision. A block of keys and values goes over the queries of all heads that
 * share them, in their order. Gradients wait in the worker's scratch until nobody needs any more what they take the
 * place of. Where each head has keys and values of its own those of queries do, and then a block is the only one that
 * needs its keys and values; where heads share them it is the other way round, as there are fewer of these. Where heads
 * are so wide that several blocks share the columns of their gradients, all of them wait. What does not fit into
 * scratch is done part by part, some groups at a time; there is room for one at least.
 *
 * In bf16 most heads go to tensor cores instead (attention_mma.cu).
 */
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/flash.h"

namespace
{

using pp_tile::context_of;
using pp_tile::end_query;
using pp_tile::first_key;
using pp_tile::first_query;
using pp_tile::held;
using pp_tile::keys_of;
using pp_tile::last_key;
using pp_tile::queries_of;
using pp_tile::row_max;
using pp_tile::row_sum;
using pp_tile::SIDE;
using pp_tile::THREADS;
using pp_tile::values_of;

enum { MOST_TILES = 4 };
static_assert(MOST_TILES * (int)SIDE == (int)PP_FLASH_COLUMNS, "attention_tiles.h knows the blocks");
enum { MEAN_THREADS = 128, MEAN_WARPS = MEAN_THREADS / PP_WARP };

/* First column of this block's N tiles of columns. */
template <int N> __device__ inline int first_column() { return (int)blockIdx.y * N * SIDE; }

/* With a mask the last queries, and the first keys, have most to do: they begin, those of all pairs. */
__device__ inline int query_tile() { return (int)(gridDim.z - 1 - blockIdx.z) * SIDE; }
__device__ inline int key_tile() { return (int)blockIdx.z * SIDE; }

/* The keys that a query sees; none beyond the row. */
__device__ inline pp_attention_span seen_keys(const pp_attention &a, int query)
{
    return query < a.seq ? pp_attention_seen(a, query) : pp_attention_span{0, 0};
}

/* The softmax of one row as far as its keys are known: the largest scaled score, and this thread's part of the sum of
 * the exponentials of what all are below it. */
struct running {
    float most, sum;
};

/* Takes in the scores of four keys: they become their exponentials. Returns what all earlier ones are to be multiplied
 * by. */
__device__ inline float take_in(const pp_attention &a, pp_attention_span seen, int key, pp_quad &scores, running &r)
{
    float most = r.most;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++)
        if (seen.has(key + i)) most = fmaxf(most, scores.v[i] * a.scale);
    most = row_max(most);
    /* a row beyond the end has no scores at all, and one with a window may have none in the first tile */
    const float factor = most > -INFINITY ? expf(r.most - most) : 0;
    r.most = most;
    r.sum *= factor;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) {
        scores.v[i] = seen.has(key + i) ? expf(scores.v[i] * a.scale - most) : 0;
        r.sum += scores.v[i];
    }
    return factor;
}

/* ctx = drop(P) v, lse. Blocks: pair, N tiles of columns, query tile. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS) forward(pp_attention a, T *ctx, float *lse, const T *qkv)
{
    PP_SHARED_ONE(pp_tile::memory, m);
    PP_SHARED_ONE(held, p); /* [key][query] */
    const int pair = (int)blockIdx.x, i = query_tile(), row = i + pp_tile::row(), columns = first_column<N>();
    const pp_tile::matrix<T> queries = queries_of(a, qkv, pair), keys = keys_of(a, qkv, pair),
                             values = values_of(a, qkv, pair);
    const uint32_t vectors = pp_attention_vectors(a, pair);
    running r[PP_QUAD];
    pp_quad out[N][PP_QUAD] = {};
#pragma unroll
    for (int u = 0; u < PP_QUAD; u++) r[u] = {-INFINITY, 0};
    for (int j = first_key(a, i); j < last_key(a, i); j += SIDE) {
        const int key = j + pp_tile::column();
        pp_quad s[PP_QUAD] = {};
        pp_tile::multiply<false, false>(m, queries, keys, i, j, 0, a.dh, s);
#pragma unroll
        for (int u = 0; u < PP_QUAD; u++) {
            const float factor = take_in(a, seen_keys(a, row + u), key, s[u], r[u]);
            const uint32_t vector = vectors + (uint32_t)pp_attention_place(a, row + u);
            s[u] = pp_drop(a.drop, vector, (uint32_t)(key / PP_QUAD), s[u]);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int w = 0; w < PP_QUAD; w++) out[n][u].v[w] *= factor;
        }
#pragma unroll
        for (int w = 0; w < PP_QUAD; w++) {
            const pp_quad q = {{s[0].v[w], s[1].v[w], s[2].v[w], s[3].v[w]}};
            pp_store<true>(p.v[pp_tile::column() + w] + pp_tile::row(), PP_QUAD, q);
        }
#pragma unroll
        for (int n = 0; n < N; n++)
            pp_tile::multiply_held(m, p, values, columns + n * SIDE, j, min(a.keys, j + (int)SIDE), out[n]);
    }
#pragma unroll
    for (int u = 0; u < PP_QUAD; u++) {
        const float sum = row_sum(r[u].sum), norm = 1 / sum;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int w = 0; w < PP_QUAD; w++) out[n][u].v[w] *= norm;
        if (blockIdx.y == 0 && pp_tile::column() == 0 && row + u < a.seq)
            lse[(int64_t)pair * a.seq + row + u] = r[u].most + logf(sum);
    }
    T *to = pp_attention_context(a, ctx, pair);
#pragma unroll
    for (int n = 0; n < N; n++) pp_tile::write(to, a.d, a.seq, a.dv, a.whole_heads, i, columns + n * SIDE, out[n]);
}

/* What the backward has in scratch, of some whole groups. */
struct stage {
    int pair, pairs;
    int pitch;      /* of gradients: columns of a key or value, whichever is wider, in whole quads */
    float *queries; /* [pairs, seq, pitch] gradients; NULL: they take the place of the queries at once */
    float *keys;    /* [2, pairs / group, terms, keys, pitch] of keys and values; NULL: likewise */
    int terms;      /* parts of a group whose gradients of keys and values are made apart, then added */
    float *means;   /* [pairs, seq]: a query's ctx times its dctx */
};

template <typename T>
__global__ void __launch_bounds__(MEAN_THREADS) make_means(pp_attention a, stage s, const T *ctx, const T *dctx)
{
    const int64_t row = (int64_t)blockIdx.x * MEAN_WARPS + threadIdx.x / PP_WARP;
    if (row >= (int64_t)s.pairs * a.seq) return;
    const int pair = s.pair + (int)(row / a.seq), lane = (int)threadIdx.x % PP_WARP;
    const int64_t token = row % a.seq * a.d;
    const T *x = pp_attention_context(a, ctx, pair) + token, *y = pp_attention_context(a, dctx, pair) + token;
    float sum = 0;
    for (int column = lane * PP_QUAD; column < a.dv; column += PP_WARP * PP_QUAD) {
        const pp_quad p = pp_load_if(a.whole_heads, x + column, a.dv - column),
                      q = pp_load_if(a.whole_heads, y + column, a.dv - column);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) sum += p.v[i] * q.v[i];
    }
    sum = pp_warp_sum(sum);
    if (lane == 0) s.means[row] = sum;
}

/* What a query's P and its gradient are made from. */
struct known {
    float lse, mean;
};

__device__ inline known known_of(const pp_attention &a, const stage &s, const float *lse, int pair, int query)
{
    if (query >= a.seq) return {0, 0};
    return {lse[(int64_t)pair * a.seq + query], s.means[(int64_t)(pair - s.pair) * a.seq + query]};
}

/* P of a query and four keys, negative where it is dropped, from their scores. vectors: the pair's. */
__device__ inline pp_quad probabilities(const pp_attention &a, uint32_t vectors, int query, int key, pp_quad scores,
                                        float lse)
{
    const pp_attention_span seen = seen_keys(a, query);
    pp_quad p;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) p.v[i] = seen.has(key + i) ? expf(scores.v[i] * a.scale - lse) : 0;
    pp_attention_sign(a, vectors + (uint32_t)pp_attention_place(a, query), key / PP_QUAD, p);
    return p;
}

/* Gradients of queries. Blocks: pair, N tiles of columns, query tile. Threads have keys as rows. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS, N <= 2 ? 2 : 1)
    query_grad(pp_attention a, stage s, T *qkv, const float *lse, const T *dctx)
{
    PP_SHARED_ONE(pp_tile::memory, m);
    PP_SHARED_ONE(held, dscores); /* [key][query] */
    const int turn = (int)blockIdx.x, pair = s.pair + turn, i = query_tile(), columns = first_column<N>();
    const pp_tile::matrix<T> queries = queries_of<T>(a, qkv, pair), keys = keys_of<T>(a, qkv, pair),
                             values = values_of<T>(a, qkv, pair), grads = context_of(a, dctx, pair);
    const uint32_t vectors = pp_attention_vectors(a, pair);
    known of[PP_QUAD];
    pp_quad out[N][PP_QUAD] = {};
#pragma unroll
    for (int w = 0; w < PP_QUAD; w++) of[w] = known_of(a, s, lse, pair, i + pp_tile::column() + w);
    for (int j = first_key(a, i); j < last_key(a, i); j += SIDE) {
        const int key = j + pp_tile::row();
        pp_quad score[PP_QUAD] = {}, dkept[PP_QUAD] = {};
        pp_tile::multiply<false, false>(m, keys, queries, j, i, 0, a.dh, score);
        pp_tile::multiply<false, false>(m, values, grads, j, i, 0, a.dv, dkept);
#pragma unroll
        for (int w = 0; w < PP_QUAD; w++) {
            const pp_quad x = {{score[0].v[w], score[1].v[w], score[2].v[w], score[3].v[w]}},
                          y = {{dkept[0].v[w], dkept[1].v[w], dkept[2].v[w], dkept[3].v[w]}};
            const pp_quad p = probabilities(a, vectors, i + pp_tile::column() + w, key, x, of[w].lse),
                          ds = pp_attention_dscores(a, p, y, of[w].mean);
#pragma unroll
            for (int u = 0; u < PP_QUAD; u++) score[u].v[w] = ds.v[u];
        }
#pragma unroll
        for (int u = 0; u < PP_QUAD; u++)
            pp_store<true>(dscores.v[pp_tile::row() + u] + pp_tile::column(), PP_QUAD, score[u]);
#pragma unroll
        for (int n = 0; n < N; n++)
            pp_tile::multiply_held(m, dscores, keys, columns + n * SIDE, j, min(a.keys, j + (int)SIDE), out[n]);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int column = columns + n * SIDE;
        if (s.queries)
            pp_tile::write(s.queries + (int64_t)turn * a.seq * s.pitch, s.pitch, a.seq, a.dh, true, i, column, out[n]);
        else
            pp_tile::write(pp_attention_query(a, qkv, pair), a.width, a.seq, a.dh, a.whole_heads, i, column, out[n]);
    }
}

/* Gradients of keys and values. Blocks: terms of groups, N tiles of columns, key tile. Threads have queries as rows. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    key_value_grad(pp_attention a, stage s, T *qkv, const float *lse, const T *dctx)
{
    PP_SHARED_ONE(pp_tile::memory, m);
    PP_SHARED_ONE(held, kept);
    PP_SHARED_ONE(held, dscores); /* [query][key] */
    const int group = s.pair + (int)blockIdx.x / s.terms * a.group, some = pp_div_up(a.group, s.terms),
              first = group + (int)blockIdx.x % s.terms * some, last = min(first + some, group + a.group),
              j = key_tile(), columns = first_column<N>(), key = j + pp_tile::column();
    const pp_tile::matrix<T> keys = keys_of<T>(a, qkv, first), values = values_of<T>(a, qkv, first);
    pp_quad dk[N][PP_QUAD] = {}, dv[N][PP_QUAD] = {};
    for (int pair = first; pair < last; pair++) {
        const uint32_t vectors = pp_attention_vectors(a, pair);
        const pp_tile::matrix<T> queries = queries_of<T>(a, qkv, pair), grads = context_of(a, dctx, pair);
        for (int i = first_query(a, j); i < end_query(a, j); i += SIDE) {
            const int end = min(a.seq, i + (int)SIDE);
            pp_quad score[PP_QUAD] = {}, dkept[PP_QUAD] = {};
            pp_tile::multiply<false, false>(m, queries, keys, i, j, 0, a.dh, score);
            pp_tile::multiply<false, false>(m, grads, values, i, j, 0, a.dv, dkept);
#pragma unroll
            for (int u = 0; u < PP_QUAD; u++) {
                const int row = pp_tile::row() + u;
                const known of = known_of(a, s, lse, pair, i + row);
                const pp_quad p = probabilities(a, vectors, i + row, key, score[u], of.lse);
                pp_store<true>(kept.v[row] + pp_tile::column(), PP_QUAD, pp_attention_kept(a.drop.scale, p));
                pp_store<true>(dscores.v[row] + pp_tile::column(), PP_QUAD,
                               pp_attention_dscores(a, p, dkept[u], of.mean));
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                pp_tile::multiply_held(m, kept, grads, columns + n * SIDE, i, end, dv[n]);
                pp_tile::multiply_held(m, dscores, queries, columns + n * SIDE, i, end, dk[n]);
            }
        }
    }
    const int64_t matrix = (int64_t)a.keys * s.pitch;
    T *const key_grad = pp_attention_shared(a, qkv + a.to_grads, first, a.dh), *const value_grad = pp_attention_shared(
                                                                                   a, qkv + a.to_grads + a.apart, first,
                                                                                   a.dv);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int column = columns + n * SIDE;
        if (s.keys) {
            float *to = s.keys + blockIdx.x * matrix;
            pp_tile::write(to, s.pitch, a.keys, a.dh, true, j, column, dk[n]);
            pp_tile::write(to + gridDim.x * matrix, s.pitch, a.keys, a.dv, true, j, column, dv[n]);
        } else {
            pp_tile::write(key_grad, a.key_width, a.keys, a.dh, a.whole_heads, j, column, dk[n]);
            pp_tile::write(value_grad, a.key_width, a.keys, a.dv, a.whole_heads, j, column, dv[n]);
        }
    }
}

int tiles_of(const pp_attention &a) { return pp_flash_tiles(a.widest); }

/* Blocks that share the columns of a tile of tokens. */
int shares_of(const pp_attention &a) { return pp_div_up(a.widest, tiles_of(a) * SIDE); }

dim3 grid_of(const pp_attention &a, int pairs, int tokens)
{
    return dim3((unsigned)pairs, (unsigned)shares_of(a), (unsigned)pp_tile::tiles(tokens));
}

template <typename T> cudaError_t run_forward(const struct pp_cuda_call *c)
{
    const struct pp_flash_memory *at = &c->at.flash;
    T *ctx = static_cast<T *>(at->ctx), *qkv = static_cast<T *>(at->qkv);
    const pp_attention a = pp_attention_of<T>(c, NULL, qkv, ctx, at->keys);
    const int n = tiles_of(a);
    void (*const kernel)(pp_attention, T *, float *, const T *) = n == 1   ? forward<T, 1>
                                                                  : n == 2 ? forward<T, 2>
                                                                           : forward<T, MOST_TILES>;
    pp_tile::add_bias<T>(c, a, qkv, at->bias);
    PP_LAUNCH(kernel, grid_of(a, a.rows * a.heads, a.seq), THREADS, 0, c->stream, a, ctx, static_cast<float *>(at->lse),
              qkv);
    return cudaGetLastError();
}

/* The two kernels of a part, and then what waits. Whose gradients do not wait comes last. */
template <typename T>
void run_part(const struct pp_cuda_call *c, const pp_attention &a, const stage &s, T *qkv, const float *lse,
              const T *dctx)
{
    void (*const of_queries)(pp_attention, stage, T *, const float *, const T *) = tiles_of(a) == 1 ? query_grad<T, 1>
                                                                                   : tiles_of(a) == 2
                                                                                       ? query_grad<T, 2>
                                                                                       : query_grad<T, MOST_TILES>;
    void (*const of_keys)(pp_attention, stage, T *, const float *, const T *) = tiles_of(a) == 1 ? key_value_grad<T, 1>
                                                                                : tiles_of(a) == 2
                                                                                    ? key_value_grad<T, 2>
                                                                                    : key_value_grad<T, MOST_TILES>;
    const int groups = s.pairs / a.group;
    const bool keys_first = s.keys || a.key_grads_apart;
    const dim3 keys = grid_of(a, groups * s.terms, a.keys);
    if (keys_first) PP_LAUNCH(of_keys, keys, THREADS, 0, c->stream, a, s, qkv, lse, dctx);
    PP_LAUNCH(of_queries, grid_of(a, s.pairs, a.seq), THREADS, 0, c->stream, a, s, qkv, lse, dctx);
    if (!keys_first) PP_LAUNCH(of_keys, keys, THREADS, 0, c->stream, a, s, qkv, lse, dctx);
    if (s.queries) pp_tile::launch_settle<T>(c, a, {s.queries, s.pitch, s.pair, s.pairs, a.heads, 1}, 1, qkv);
    if (s.keys)
        pp_tile::launch_settle<T>(c, a, {s.keys, s.pitch, s.pair / a.group, groups, a.kv, s.terms}, 2,
                                  pp_attention_keys(a, qkv));
}

template <typename T> cudaError_t run_backward(const struct pp_cuda_call *c)
{
    const struct pp_flash_grad_memory *at = &c->at.flash_grad;
    T *qkv = static_cast<T *>(at->qkv);
    const float *lse = static_cast<const float *>(at->lse);
    const T *ctx = static_cast<const T *>(at->ctx), *dctx = static_cast<const T *>(at->dctx);
    pp_attention a = pp_attention_of<T>(c, NULL, qkv, ctx, at->keys, at->dkeys);
    a.whole_heads = a.whole_heads && pp_aligned(dctx);
    const int pairs = a.rows * a.heads;
    const struct pp_flash_parts parts = pp_flash_divide(c->call, false, c->scratch_bytes);
    if (parts.parts == 0) return cudaErrorInvalidValue;
    float *scratch = static_cast<float *>(c->scratch);
    stage s = {};
    s.pitch = parts.pitch;
    s.terms = parts.terms;
    for (s.pair = 0; s.pair < pairs; s.pair += s.pairs) {
        const int groups = std::min(parts.groups, (pairs - s.pair) / a.group);
        s.pairs = groups * a.group;
        s.queries = parts.queries ? scratch : NULL;
        s.keys = parts.keys ? scratch + groups * parts.queries : NULL;
        s.means = scratch + groups * (parts.queries + parts.keys);
        PP_LAUNCH(make_means<T>, pp_div_up((int64_t)s.pairs * a.seq, MEAN_WARPS), MEAN_THREADS, 0, c->stream, a, s, ctx,
                  dctx);
        run_part(c, a, s, qkv, lse, dctx);
    }
    return cudaGetLastError();
}

} // namespace

cudaError_t pp_cuda_flash(const struct pp_cuda_call *c)
{
    return pp_attention_mma_does(c) ? pp_attention_mma(c) : PP_BY_PRECISION(run_forward, c);
}

cudaError_t pp_cuda_flash_grad(const struct pp_cuda_call *c)
{
    return pp_attention_mma_does(c) ? pp_attention_mma_grad(c) : PP_BY_PRECISION(run_backward, c);
}

template <typename T> static cudaError_t prepare(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(forward<T, 1>),
                                   reinterpret_cast<const void *>(forward<T, 2>),
                                   reinterpret_cast<const void *>(forward<T, MOST_TILES>),
                                   reinterpret_cast<const void *>(make_means<T>),
                                   reinterpret_cast<const void *>(query_grad<T, 1>),
                                   reinterpret_cast<const void *>(query_grad<T, 2>),
                                   reinterpret_cast<const void *>(query_grad<T, MOST_TILES>),
                                   reinterpret_cast<const void *>(key_value_grad<T, 1>),
                                   reinterpret_cast<const void *>(key_value_grad<T, 2>),
                                   reinterpret_cast<const void *>(key_value_grad<T, MOST_TILES>)};
    const cudaError_t error = pp_tile::load_kernels<T>();
    return error == cudaSuccess ? pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]) : error;
}

cudaError_t pp_cuda_prepare_attention_flash(void)
{
    const cudaError_t error = prepare<float>();
    return error == cudaSuccess ? prepare<__nv_bfloat16>() : error;
}
