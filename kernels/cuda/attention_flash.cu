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
 * shared memory, in float whatever the precision. Gradients of queries wait in the worker's scratch until nobody needs
 * the queries any more, whose place they take; a block is the only one that needs its keys and values, unless heads are
 * so wide that several share the columns of their gradients: then these wait, too. What does not fit into scratch is
 * done part by part, some pairs at a time; rows of which not even one pair does are refused.
 *
 * In bf16 most heads go to tensor cores instead (attention_mma.cu).
 */
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/flash.h"

namespace
{

using pp_tile::held;
using pp_tile::last_key;
using pp_tile::SIDE;
using pp_tile::THREADS;
using pp_tile::tokens_of;

enum { MOST_TILES = 4 };
enum { MEAN_THREADS = 128, MEAN_WARPS = MEAN_THREADS / PP_WARP };

/* First column of this block's N tiles of columns. */
template <int N> __device__ inline int first_column() { return (int)blockIdx.y * N * SIDE; }

/* With a mask the last queries, and the first keys, have most to do: they begin, those of all pairs. */
__device__ inline int query_tile() { return (int)(gridDim.z - 1 - blockIdx.z) * SIDE; }
__device__ inline int key_tile() { return (int)blockIdx.z * SIDE; }

/* Over the threads that have the same rows of a tile. */
__device__ inline float row_max(float v)
{
#pragma unroll
    for (int step = pp_tile::EDGE / 2; step; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}
__device__ inline float row_sum(float v)
{
#pragma unroll
    for (int step = pp_tile::EDGE / 2; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* Keys that a query sees; none beyond the row. */
__device__ inline int open_keys(const pp_attention &a, int query)
{
    return query < a.seq ? pp_attention_open(a, query) : 0;
}

__device__ inline uint32_t vector_of(const pp_attention &a, int pair, int query)
{
    return a.first_vector + (uint32_t)pair * (uint32_t)a.seq + (uint32_t)query;
}

/* The softmax of one row as far as its keys are known: the largest scaled score, and this thread's part of the sum of
 * the exponentials of what all are below it. */
struct running {
    float most, sum;
};

/* Takes in the scores of four keys: they become their exponentials. Returns what all earlier ones are to be multiplied
 * by. */
__device__ inline float take_in(const pp_attention &a, int open, int key, pp_quad &scores, running &r)
{
    float most = r.most;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++)
        if (key + i < open) most = fmaxf(most, scores.v[i] * a.scale);
    most = row_max(most);
    /* a row beyond the end has no scores at all */
    const float factor = open > 0 ? expf(r.most - most) : 0;
    r.most = most;
    r.sum *= factor;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) {
        scores.v[i] = key + i < open ? expf(scores.v[i] * a.scale - most) : 0;
        r.sum += scores.v[i];
    }
    return factor;
}

/* ctx = drop(P) v, lse. Blocks: pair, N tiles of columns, query tile. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS) forward(pp_attention a, T *ctx, float *lse, const T *qkv)
{
    __shared__ pp_tile::memory m;
    __shared__ held p; /* [key][query] */
    const int pair = (int)blockIdx.x, i = query_tile(), row = i + pp_tile::row(), columns = first_column<N>();
    const T *head = pp_attention_head(a, qkv, pair);
    const pp_tile::matrix<T> queries = tokens_of(a, head, 3 * a.d), keys = tokens_of(a, head + a.d, 3 * a.d),
                             values = tokens_of(a, head + 2 * a.d, 3 * a.d);
    running r[PP_QUAD];
    pp_quad out[N][PP_QUAD] = {};
#pragma unroll
    for (int u = 0; u < PP_QUAD; u++) r[u] = {-INFINITY, 0};
    for (int j = 0; j < last_key(a, i); j += SIDE) {
        const int key = j + pp_tile::column();
        pp_quad s[PP_QUAD] = {};
        pp_tile::multiply<false, false>(m, queries, keys, i, j, 0, a.dh, s);
#pragma unroll
        for (int u = 0; u < PP_QUAD; u++) {
            const float factor = take_in(a, open_keys(a, row + u), key, s[u], r[u]);
            s[u] = pp_drop(a.drop, vector_of(a, pair, row + u), (uint32_t)(key / PP_QUAD), s[u]);
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
            pp_tile::multiply_held(m, p, values, columns + n * SIDE, j, min(a.seq, j + (int)SIDE), out[n]);
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
    for (int n = 0; n < N; n++) pp_tile::write(to, a.d, a.seq, a.dh, a.whole_heads, i, columns + n * SIDE, out[n]);
}

/* What the backward has in scratch, of some pairs. */
struct stage {
    int pair, pairs;
    int pitch;    /* of gradients: dh in whole quads */
    float *grads; /* [pp_flash_roles(), pairs, seq, pitch]: of queries, or all */
    float *means; /* [pairs, seq]: a query's ctx times its dctx */
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
    for (int column = lane * PP_QUAD; column < a.dh; column += PP_WARP * PP_QUAD) {
        const pp_quad p = pp_load_if(a.whole_heads, x + column, a.dh - column),
                      q = pp_load_if(a.whole_heads, y + column, a.dh - column);
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

/* P of a query and four keys, negative where it is dropped, from their scores. */
__device__ inline pp_quad probabilities(const pp_attention &a, int pair, int query, int key, pp_quad scores, float lse)
{
    const int open = open_keys(a, query);
    pp_quad p;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) p.v[i] = key + i < open ? expf(scores.v[i] * a.scale - lse) : 0;
    pp_attention_sign(a, pair, query, key / PP_QUAD, p);
    return p;
}

/* Gradients of queries into scratch. Blocks: pair, N tiles of columns, query tile. Threads have keys as rows. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS)
    query_grad(pp_attention a, stage s, const T *qkv, const float *lse, const T *dctx)
{
    __shared__ pp_tile::memory m;
    __shared__ held dscores; /* [key][query] */
    const int turn = (int)blockIdx.x, pair = s.pair + turn, i = query_tile(), columns = first_column<N>();
    const T *head = pp_attention_head(a, qkv, pair);
    const pp_tile::matrix<T> queries = tokens_of(a, head, 3 * a.d), keys = tokens_of(a, head + a.d, 3 * a.d),
                             values = tokens_of(a, head + 2 * a.d, 3 * a.d),
                             grads = tokens_of(a, pp_attention_context(a, dctx, pair), a.d);
    known of[PP_QUAD];
    pp_quad out[N][PP_QUAD] = {};
#pragma unroll
    for (int w = 0; w < PP_QUAD; w++) of[w] = known_of(a, s, lse, pair, i + pp_tile::column() + w);
    for (int j = 0; j < last_key(a, i); j += SIDE) {
        const int key = j + pp_tile::row();
        pp_quad score[PP_QUAD] = {}, dkept[PP_QUAD] = {};
        pp_tile::multiply<false, false>(m, keys, queries, j, i, 0, a.dh, score);
        pp_tile::multiply<false, false>(m, values, grads, j, i, 0, a.dh, dkept);
#pragma unroll
        for (int w = 0; w < PP_QUAD; w++) {
            const pp_quad x = {{score[0].v[w], score[1].v[w], score[2].v[w], score[3].v[w]}},
                          y = {{dkept[0].v[w], dkept[1].v[w], dkept[2].v[w], dkept[3].v[w]}};
            const pp_quad p = probabilities(a, pair, i + pp_tile::column() + w, key, x, of[w].lse),
                          ds = pp_attention_dscores(a, p, y, of[w].mean);
#pragma unroll
            for (int u = 0; u < PP_QUAD; u++) score[u].v[w] = ds.v[u];
        }
#pragma unroll
        for (int u = 0; u < PP_QUAD; u++)
            pp_store<true>(dscores.v[pp_tile::row() + u] + pp_tile::column(), PP_QUAD, score[u]);
#pragma unroll
        for (int n = 0; n < N; n++)
            pp_tile::multiply_held(m, dscores, keys, columns + n * SIDE, j, min(a.seq, j + (int)SIDE), out[n]);
    }
    float *to = s.grads + (int64_t)turn * a.seq * s.pitch;
#pragma unroll
    for (int n = 0; n < N; n++) pp_tile::write(to, s.pitch, a.seq, a.dh, true, i, columns + n * SIDE, out[n]);
}

/* Gradients of keys and values: into scratch, or where nobody else needs the block's keys and values in their place.
 * Blocks: pair, N tiles of columns, key tile. Threads have queries as rows. */
template <typename T, int N, bool staged>
__global__ void __launch_bounds__(THREADS)
    key_value_grad(pp_attention a, stage s, T *qkv, const float *lse, const T *dctx)
{
    __shared__ pp_tile::memory m;
    __shared__ held kept, dscores; /* [query][key] */
    const int turn = (int)blockIdx.x, pair = s.pair + turn, j = key_tile(), columns = first_column<N>();
    T *head = pp_attention_head(a, qkv, pair);
    const pp_tile::matrix<T> queries = tokens_of<T>(a, head, 3 * a.d), keys = tokens_of<T>(a, head + a.d, 3 * a.d),
                             values = tokens_of<T>(a, head + 2 * a.d, 3 * a.d),
                             grads = tokens_of(a, pp_attention_context(a, dctx, pair), a.d);
    pp_quad dk[N][PP_QUAD] = {}, dv[N][PP_QUAD] = {};
    for (int i = pp_tile::first_query(a, j); i < a.seq; i += SIDE) {
        const int end = min(a.seq, i + (int)SIDE), key = j + pp_tile::column();
        pp_quad score[PP_QUAD] = {}, dkept[PP_QUAD] = {};
        pp_tile::multiply<false, false>(m, queries, keys, i, j, 0, a.dh, score);
        pp_tile::multiply<false, false>(m, grads, values, i, j, 0, a.dh, dkept);
#pragma unroll
        for (int u = 0; u < PP_QUAD; u++) {
            const int query = i + pp_tile::row() + u;
            const known of = known_of(a, s, lse, pair, query);
            const pp_quad p = probabilities(a, pair, query, key, score[u], of.lse);
            pp_store<true>(kept.v[pp_tile::row() + u] + pp_tile::column(), PP_QUAD, pp_attention_kept(a.drop.scale, p));
            pp_store<true>(dscores.v[pp_tile::row() + u] + pp_tile::column(), PP_QUAD,
                           pp_attention_dscores(a, p, dkept[u], of.mean));
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            pp_tile::multiply_held(m, kept, grads, columns + n * SIDE, i, end, dv[n]);
            pp_tile::multiply_held(m, dscores, queries, columns + n * SIDE, i, end, dk[n]);
        }
    }
    float *to = s.grads + (int64_t)(s.pairs + turn) * a.seq * s.pitch,
          *behind = to + (int64_t)s.pairs * a.seq * s.pitch;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int column = columns + n * SIDE;
        if (staged) {
            pp_tile::write(to, s.pitch, a.seq, a.dh, true, j, column, dk[n]);
            pp_tile::write(behind, s.pitch, a.seq, a.dh, true, j, column, dv[n]);
        } else {
            pp_tile::write(head + a.d, 3 * a.d, a.seq, a.dh, a.whole_heads, j, column, dk[n]);
            pp_tile::write(head + 2 * a.d, 3 * a.d, a.seq, a.dh, a.whole_heads, j, column, dv[n]);
        }
    }
}

/* Takes the gradients in scratch to their place. */
template <typename T> __global__ void settle(pp_attention a, stage s, int roles, T *qkv)
{
    const int quads = s.pitch / PP_QUAD;
    const int64_t rows = (int64_t)s.pairs * a.seq, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < roles * rows * quads; t += stride) {
        const int64_t row = t / quads % rows;
        const int role = (int)(t / quads / rows), column = (int)(t % quads) * PP_QUAD;
        T *to = pp_attention_head(a, qkv, s.pair + (int)(row / a.seq)) + row % a.seq * 3 * a.d + role * a.d + column;
        pp_store_if(a.whole_heads, to, a.dh - column, pp_load<true>(s.grads + t * PP_QUAD, PP_QUAD));
    }
}

/* Tiles of columns that a block has: as few as hold a head. */
int tiles_of(const pp_attention &a) { return a.dh <= SIDE ? 1 : a.dh <= 2 * SIDE ? 2 : MOST_TILES; }

/* Blocks that share the columns of a tile of tokens. */
int shares_of(const pp_attention &a) { return pp_div_up(a.dh, tiles_of(a) * SIDE); }

dim3 grid_of(const pp_attention &a, int pairs)
{
    return dim3((unsigned)pairs, (unsigned)shares_of(a), (unsigned)pp_tile::tiles(a.seq));
}

template <typename T> cudaError_t run_forward(const struct pp_cuda_call *c)
{
    T *ctx = static_cast<T *>(c->p[0]), *qkv = static_cast<T *>(c->p[2]);
    const pp_attention a = pp_attention_of<T>(c, NULL, qkv, ctx);
    const int n = tiles_of(a);
    void (*const kernel)(pp_attention, T *, float *, const T *) = n == 1   ? forward<T, 1>
                                                                  : n == 2 ? forward<T, 2>
                                                                           : forward<T, MOST_TILES>;
    pp_tile::add_bias<T>(c, a, qkv);
    PP_LAUNCH(kernel, grid_of(a, a.rows * a.heads), THREADS, 0, c->stream, a, ctx, static_cast<float *>(c->p[1]), qkv);
    return cudaGetLastError();
}

template <typename T> cudaError_t run_backward(const struct pp_cuda_call *c)
{
    T *qkv = static_cast<T *>(c->p[0]);
    const float *lse = static_cast<const float *>(c->p[1]);
    const T *ctx = static_cast<const T *>(c->p[2]), *dctx = static_cast<const T *>(c->p[3]);
    pp_attention a = pp_attention_of<T>(c, NULL, qkv, ctx);
    a.whole_heads = a.whole_heads && pp_aligned(dctx);
    const int pairs = a.rows * a.heads, n = tiles_of(a), roles = pp_flash_roles(c->call);
    void (*const of_queries)(pp_attention, stage, const T *, const float *, const T *) =
        n == 1   ? query_grad<T, 1>
        : n == 2 ? query_grad<T, 2>
                 : query_grad<T, MOST_TILES>;
    void (*const of_keys)(pp_attention, stage, T *, const float *, const T *) =
        roles > 1 ? key_value_grad<T, MOST_TILES, true>
        : n == 1  ? key_value_grad<T, 1, false>
        : n == 2  ? key_value_grad<T, 2, false>
                  : key_value_grad<T, MOST_TILES, false>;
    stage s = {};
    s.pitch = pp_div_up(a.dh, PP_QUAD) * PP_QUAD;
    const struct pp_flash_parts parts = pp_flash_divide(c->call, false, c->scratch_bytes);
    if (parts.parts == 0) return cudaErrorInvalidValue;
    for (s.pair = 0; s.pair < pairs; s.pair += parts.pairs) {
        s.pairs = std::min(parts.pairs, pairs - s.pair);
        s.grads = static_cast<float *>(c->scratch);
        s.means = s.grads + (int64_t)roles * s.pairs * a.seq * s.pitch;
        const int64_t rows = (int64_t)s.pairs * a.seq;
        PP_LAUNCH(make_means<T>, pp_div_up(rows, MEAN_WARPS), MEAN_THREADS, 0, c->stream, a, s, ctx, dctx);
        PP_LAUNCH(of_queries, grid_of(a, s.pairs), THREADS, 0, c->stream, a, s, qkv, lse, dctx);
        PP_LAUNCH(of_keys, grid_of(a, s.pairs), THREADS, 0, c->stream, a, s, qkv, lse, dctx);
        PP_LAUNCH(settle<T>, pp_tile::loop_blocks(roles * rows * s.pitch / PP_QUAD), THREADS, 0, c->stream, a, s, roles,
                  qkv);
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
    const void *const kernels[] = {reinterpret_cast<const void *>(pp_tile::bias_kernel<T>),
                                   reinterpret_cast<const void *>(forward<T, 1>),
                                   reinterpret_cast<const void *>(forward<T, 2>),
                                   reinterpret_cast<const void *>(forward<T, MOST_TILES>),
                                   reinterpret_cast<const void *>(make_means<T>),
                                   reinterpret_cast<const void *>(query_grad<T, 1>),
                                   reinterpret_cast<const void *>(query_grad<T, 2>),
                                   reinterpret_cast<const void *>(query_grad<T, MOST_TILES>),
                                   reinterpret_cast<const void *>(key_value_grad<T, 1, false>),
                                   reinterpret_cast<const void *>(key_value_grad<T, 2, false>),
                                   reinterpret_cast<const void *>(key_value_grad<T, MOST_TILES, false>),
                                   reinterpret_cast<const void *>(key_value_grad<T, MOST_TILES, true>),
                                   reinterpret_cast<const void *>(settle<T>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}

cudaError_t pp_cuda_prepare_attention_flash(void)
{
    const cudaError_t error = prepare<float>();
    return error == cudaSuccess ? prepare<__nv_bfloat16>() : error;
}
