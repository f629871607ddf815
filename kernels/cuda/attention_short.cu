/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of short rows: a thread block takes one pair into shared memory and reads and writes everything once.
 * Where pairs share keys and values, the bias is added before, and what each gives their gradients waits in scratch.
 * What tensor cores can do, attention_short_mma.cu and attention_short_tf32.cu do; this file launches it, too, and has
 * the rest, in float.
 *
 * Two matrices (of queries, keys, values, or gradients of ctx) and the scores are there at a time, as float, with sides
 * that zeros round up to quads. Each thread makes 4x4 elements of a product. Of very short rows the scores have fewer
 * tiles than the block has threads, and their sums over columns are split.
 *
 * The tutorial's pair (35 tokens, 256 columns) takes 92 KB, so two blocks share a multiprocessor. Measured on an H200,
 * in bf16, with a warp for each row of softmax: 30 us forward and 33 us backward for 48 pairs, 67 and 70 us for 320.
 * Rows of up to 64 tokens now share warps there, which saves some of it.
 */
#include <algorithm>

#include "kernels/cuda/attention_short.cuh"
#include "kernels/cuda/attention_tile.cuh"

namespace
{

using namespace pp_short;

/* One matrix of a pair, of so many columns, into shared memory. renew: bias is added, and the sum goes to `renewed`,
 * too. */
template <bool whole, bool renew, typename T>
__device__ inline void take_quads(const pp_attention &a, const room &r, float *to, const T *from, int64_t stride,
                                  int columns, const float *bias, T *renewed)
{
    walk at = walk_of_thread(pp_div_up(columns, PP_QUAD)), next = at;
    while (at.row < r.seq) {
        pp_quad q[BATCH], add[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++, next.next()) {
            const int column = next.part * PP_QUAD, left = columns - column;
            q[b] = add[b] = pp_quad{};
            if (next.row >= a.seq) continue;
            q[b] = pp_load<whole>(from + next.row * stride + column, left);
            if (renew) add[b] = pp_load<whole>(bias + column, left);
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++, at.next()) {
            const int column = at.part * PP_QUAD;
            if (renew && at.row < a.seq) {
#pragma unroll
                for (int i = 0; i < PP_QUAD; i++) q[b].v[i] = pp_round<T>(q[b].v[i] + add[b].v[i]);
                pp_store<whole>(renewed + at.row * stride + column, columns - column, q[b]);
            }
            if (at.row < r.seq) pp_store<true>(to + at.row * r.pitch + column, PP_QUAD, q[b]);
        }
    }
}

template <bool renew, typename T>
__device__ inline void take_matrix(const pp_attention &a, const room &r, float *to, const T *from, int64_t stride,
                                   int columns, const float *bias, T *renewed)
{
    if (a.whole_heads)
        take_quads<true, renew>(a, r, to, from, stride, columns, bias, renewed);
    else
        take_quads<false, renew>(a, r, to, from, stride, columns, bias, renewed);
}

template <typename T>
__device__ inline void take(const pp_attention &a, const room &r, float *to, const T *from, int64_t stride, int columns)
{
    take_matrix<false>(a, r, to, from, stride, columns, NULL, static_cast<T *>(NULL));
}

/* The same of queries, keys or values; biased: and the bias, from `column` on, is added to them where they lie. */
template <bool biased, typename T>
__device__ inline void take_part(const pp_attention &a, const room &r, float *to, T *from, int columns,
                                 const float *bias, int column)
{
    take_matrix<biased>(a, r, to, from, a.width, columns, biased ? bias + column : NULL, from);
}

/* scores = x y', of so many columns, in r.splits parts that lie r.scores apart. Rows of a thread lie a quarter of the
 * matrix apart, so that neighbours read neighbouring rows. */
__device__ inline void multiply_nt(const room &r, int columns, const float *x, const float *y, float *scores)
{
    const int side = r.seq / TILE, all = whole_quads(columns), quads = pp_div_up(all / PP_QUAD, r.splits);
    for (int t = (int)threadIdx.x; t < side * side * r.splits; t += THREADS) {
        const int i = t / side % side, j = t % side, split = t / (side * side);
        const int first = split * quads * PP_QUAD, end = min(all, first + quads * PP_QUAD);
        float sum[TILE][TILE] = {};
        for (int k = first; k < end; k += PP_QUAD) {
            pp_quad xs[TILE], ys[TILE];
#pragma unroll
            for (int u = 0; u < TILE; u++) {
                xs[u] = quad_at(x + (i + u * side) * r.pitch + k);
                ys[u] = quad_at(y + (j + u * side) * r.pitch + k);
            }
#pragma unroll
            for (int u = 0; u < TILE; u++)
#pragma unroll
                for (int v = 0; v < TILE; v++)
#pragma unroll
                    for (int w = 0; w < PP_QUAD; w++) sum[u][v] += xs[u].v[w] * ys[v].v[w];
        }
        float *to = scores + split * r.scores + i * r.score_pitch + j;
#pragma unroll
        for (int u = 0; u < TILE; u++)
#pragma unroll
            for (int v = 0; v < TILE; v++) to[u * side * r.score_pitch + v * side] = sum[u][v];
    }
}

/* A quad of scores from its parts. */
__device__ inline pp_quad add_parts(const room &r, const float *scores)
{
    pp_quad sum = quad_at(scores);
    for (int split = 1; split < r.splits; split++) add_product(sum, 1, quad_at(scores + split * r.scores));
    return sum;
}

/* Where a product goes in global memory: rows that lie `stride` apart, of so many columns. whole: quads may be moved at
 * once. */
template <typename T> struct target {
    T *to;
    int64_t stride;
    int columns;
    bool whole;
};
template <typename T> __device__ inline target<T> target_of(const pp_attention &a, T *to, int64_t stride, int columns)
{
    return {to, stride, columns, a.whole_heads};
}

template <typename T>
__device__ inline void put(const pp_attention &a, const target<T> &t, int row, int column, pp_quad q)
{
    if (row < a.seq) pp_store_if(t.whole, t.to + row * t.stride + column, t.columns - column, q);
}

/* to = scores y. Columns of scores beyond the row's end are zero. */
template <typename T>
__device__ inline void multiply_nn(const pp_attention &a, const room &r, const float *scores, const float *y,
                                   const target<T> &to)
{
    const int side = r.seq / TILE, quads = pp_div_up(to.columns, PP_QUAD);
    for (int t = (int)threadIdx.x; t < side * quads; t += THREADS) {
        const int i = t / quads, column = t % quads * PP_QUAD;
        pp_quad sum[TILE] = {};
        for (int k = 0; k < r.seq; k += PP_QUAD) {
            pp_quad weights[TILE];
#pragma unroll
            for (int u = 0; u < TILE; u++) weights[u] = quad_at(scores + (i + u * side) * r.score_pitch + k);
#pragma unroll
            for (int w = 0; w < PP_QUAD; w++) {
                const pp_quad q = quad_at(y + (k + w) * r.pitch + column);
#pragma unroll
                for (int u = 0; u < TILE; u++) add_product(sum[u], weights[u].v[w], q);
            }
        }
#pragma unroll
        for (int u = 0; u < TILE; u++) put(a, to, i + u * side, column, sum[u]);
    }
}

/* to = scores' y */
template <typename T>
__device__ inline void multiply_tn(const pp_attention &a, const room &r, const float *scores, const float *y,
                                   const target<T> &to)
{
    const int side = r.seq / TILE, quads = pp_div_up(to.columns, PP_QUAD);
    for (int t = (int)threadIdx.x; t < side * quads; t += THREADS) {
        const int row = t / quads * TILE, column = t % quads * PP_QUAD;
        pp_quad sum[TILE] = {};
        for (int k = 0; k < a.seq; k++) {
            const pp_quad weights = quad_at(scores + k * r.score_pitch + row), q = quad_at(y + k * r.pitch + column);
#pragma unroll
            for (int u = 0; u < TILE; u++) add_product(sum[u], weights.v[u], q);
        }
#pragma unroll
        for (int u = 0; u < TILE; u++) put(a, to, row + u, column, sum[u]);
    }
}

/* Scores -> P in global memory, and drop(P) in place. */
template <typename T>
__device__ inline void softmax_rows(const pp_attention &a, const room &r, int pair, float *scores, T *p)
{
    const row_lanes mine(a.seq);
    for (int first = (int)threadIdx.x / PP_WARP * mine.rows; first < a.seq; first += THREADS / PP_WARP * mine.rows) {
        const int query = first + mine.row;
        const bool real = query < a.seq && mine.column < a.seq;
        float *const at = scores + query * r.score_pitch + mine.column;
        const pp_quad q = softmax<T>(a, mine, pair, query, real ? add_parts(r, at) : pp_quad{});
        if (!real) continue;
        pp_store_if(a.whole_scores, pp_attention_row(a, p, pair, query) + mine.column, a.seq - mine.column, q);
        pp_store<true>(at, PP_QUAD, pp_attention_kept(a.drop.scale, q));
    }
}

/* Gradients of drop(P) -> those of scores, in place; drop(P) behind them. */
template <typename T>
__device__ inline void softmax_grad_rows(const pp_attention &a, const room &r, int pair, const T *p, float *dscores)
{
    const row_lanes mine(a.seq);
    for (int first = (int)threadIdx.x / PP_WARP * mine.rows; first < a.seq; first += THREADS / PP_WARP * mine.rows) {
        const int query = first + mine.row;
        const bool real = query < a.seq && mine.column < a.seq;
        float *const at = dscores + query * r.score_pitch + mine.column;
        pp_quad q = {};
        if (real)
            q = pp_load_if(a.whole_scores, pp_attention_row(a, p, pair, query) + mine.column, a.seq - mine.column);
        const pp_quad out = softmax_grad(a, mine, q, real ? add_parts(r, at) : pp_quad{});
        if (!real) continue;
        pp_store<true>(at + r.scores, PP_QUAD, pp_attention_kept(a.drop.scale, q));
        pp_store<true>(at, PP_QUAD, out);
    }
}

/* biased: bias is added to qkv; a pair has keys and values of its own. */
template <typename T, bool biased>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    forward(pp_attention a, T *ctx, T *p, T *qkv, const float *bias)
{
    PP_SHARED(float, shared);
    const room r = room_of(a.seq, a.widest);
    const int pair = (int)blockIdx.x, head = pair % a.heads;
    float *x = shared, *y = x + r.matrix, *scores = y + r.matrix;
    T *query = pp_attention_query(a, qkv, pair), *key = pp_attention_key(a, qkv, pair),
      *value = pp_attention_value(a, qkv, pair);
    take_part<biased>(a, r, x, query, a.dh, bias, head * a.dh);
    take_part<biased>(a, r, y, key, a.dh, bias, a.queries + head * a.dh);
    __syncthreads();
    multiply_nt(r, a.dh, x, y, scores);
    __syncthreads();
    take_part<biased>(a, r, x, value, a.dv, bias, 2 * a.queries + head * a.dv);
    softmax_rows(a, r, pair, scores, p);
    __syncthreads();
    multiply_nn(a, r, scores, x, target_of(a, pp_attention_context(a, ctx, pair), a.d, a.dv));
}

/* The gradient of a key or value of a pair, of so many columns: to its place, or into scratch. */
template <bool shares, typename T>
__device__ inline void multiply_shared(const pp_attention &a, const room &r, const float *scores, const float *y, T *to,
                                       float *waiting, int columns)
{
    if (shares)
        multiply_tn(a, r, scores, y, target<float>{waiting, r.columns, whole_quads(columns), true});
    else
        multiply_tn(a, r, scores, y, target_of(a, to, a.width, columns));
}

/* Blocks: pairs from first_pair on. shares: gradients of keys and values go to `waiting` [2, pairs, seq, r.columns]. */
template <typename T, bool shares>
__global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    backward(pp_attention a, int first_pair, T *qkv, const T *p, const T *dctx, float *waiting)
{
    PP_SHARED(float, shared);
    const room r = room_of(a.seq, a.widest);
    const int pair = first_pair + (int)blockIdx.x;
    const int64_t stride = a.width, matrix = (int64_t)a.seq * r.columns;
    float *x = shared, *y = x + r.matrix, *dscores = y + r.matrix, *kept = dscores + r.scores;
    float *dkey = waiting + blockIdx.x * matrix, *dvalue = dkey + gridDim.x * matrix;
    T *query = pp_attention_query(a, qkv, pair), *key = pp_attention_key(a, qkv, pair),
      *value = pp_attention_value(a, qkv, pair);
    take(a, r, x, pp_attention_context(a, dctx, pair), a.d, a.dv);
    take(a, r, y, value, stride, a.dv);
    __syncthreads();
    multiply_nt(r, a.dv, x, y, dscores);
    __syncthreads();
    take(a, r, y, key, stride, a.dh);
    softmax_grad_rows(a, r, pair, p, dscores);
    __syncthreads();
    multiply_shared<shares>(a, r, kept, x, value, dvalue, a.dv);
    __syncthreads();
    take(a, r, x, query, stride, a.dh);
    __syncthreads();
    multiply_nn(a, r, dscores, y, target_of(a, query, stride, a.dh));
    multiply_shared<shares>(a, r, dscores, x, key, dkey, a.dh);
}

/* scores: matrices of them that the kernel has beside each other. */
int64_t shared_bytes(int seq, int widest, int scores)
{
    const room r = room_of(seq, widest);
    return (2 * (int64_t)r.matrix + std::max(scores, r.splits) * (int64_t)r.scores) * (int64_t)sizeof(float);
}

/* What the gradients of a group's keys and values take in scratch, pair by pair. */
int64_t waiting_bytes(int seq, int widest, int group)
{
    return 2 * (int64_t)sizeof(float) * group * seq * room_of(seq, widest).columns;
}

template <typename T> kernels<T> in_float(const pp_attention &a, bool biased)
{
    return {biased ? forward<T, true> : forward<T, false>, shared_bytes(a.seq, a.widest, 1),
            a.group > 1 ? backward<T, true> : backward<T, false>, shared_bytes(a.seq, a.widest, 2)};
}

/* The kernels of a call. biased: of its forward, which adds the bias, if there is one, unless heads share it. */
kernels<float> kernels_of(const struct pp_cuda_call *c, const pp_attention &a, const float *qkv, const float *ctx,
                          const float *bias)
{
    const bool biased = a.group == 1 && bias;
    return c->call->precision == PP_TF32 && pp_short_tf32_does(a, qkv, ctx, bias) ? pp_short_tf32_kernels(a, biased)
                                                                                  : in_float<float>(a, biased);
}
kernels<__nv_bfloat16> kernels_of(const struct pp_cuda_call *, const pp_attention &a, const __nv_bfloat16 *qkv,
                                  const __nv_bfloat16 *ctx, const float *bias)
{
    const bool biased = a.group == 1 && bias;
    return pp_short_mma_does(a, qkv, ctx, bias) ? pp_short_mma_kernels(a, biased) : in_float<__nv_bfloat16>(a, biased);
}

template <typename T> cudaError_t run_forward(const struct pp_cuda_call *c)
{
    const struct pp_attention_memory *at = &c->at.attention;
    const float *bias = static_cast<const float *>(at->bias);
    T *qkv = static_cast<T *>(at->qkv), *ctx = static_cast<T *>(at->ctx), *p = static_cast<T *>(at->probabilities);
    pp_attention a = pp_attention_of<T>(c, p, qkv, ctx);
    a.whole_heads = a.whole_heads && pp_aligned(bias);
    const kernels<T> k = kernels_of(c, a, qkv, ctx, bias);
    if (a.group > 1) pp_tile::add_bias<T>(c, a, qkv, bias);
    PP_LAUNCH(k.forward, a.rows * a.heads, THREADS, (size_t)k.forward_bytes, c->stream, a, ctx, p, qkv, bias);
    return cudaGetLastError();
}

template <typename T> cudaError_t run_backward(const struct pp_cuda_call *c)
{
    const struct pp_attention_grad_memory *at = &c->at.attention_grad;
    const pp_attention a = pp_attention_of<T>(c, at->probabilities, at->qkv, at->dctx);
    T *qkv = static_cast<T *>(at->qkv);
    const T *p = static_cast<const T *>(at->probabilities), *dctx = static_cast<const T *>(at->dctx);
    float *waiting = static_cast<float *>(c->scratch);
    const kernels<T> k = kernels_of(c, a, qkv, dctx, NULL);
    const int groups = a.rows * a.kv,
              most = a.group > 1 ? (int)(PP_CUDA_SCRATCH_BYTES / waiting_bytes(a.seq, a.widest, a.group)) : groups;
    for (int first = 0; first < groups; first += most) {
        const int n = std::min(most, groups - first);
        PP_LAUNCH(k.backward, n * a.group, THREADS, (size_t)k.backward_bytes, c->stream, a, first * a.group, qkv, p,
                  dctx, waiting);
        if (a.group > 1)
            pp_tile::launch_settle<T>(c, a, {waiting, room_of(a.seq, a.widest).columns, first, n, a.kv, a.group}, 2,
                                      pp_attention_keys(a, qkv));
    }
    return cudaGetLastError();
}

} // namespace

int64_t pp_attention_short_bytes(int seq, int widest, int group)
{
    const bool fits = group == 1 || waiting_bytes(seq, widest, group) <= PP_CUDA_SCRATCH_BYTES;
    return seq <= MOST_SEQ && fits ? shared_bytes(seq, widest, 2) : INT64_MAX;
}

cudaError_t pp_attention_short(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_forward, c); }
cudaError_t pp_attention_short_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_backward, c); }

#define OF_BOTH(kernel, way)                                                                                           \
    reinterpret_cast<const void *>(kernel<float, way>), reinterpret_cast<const void *>(kernel<__nv_bfloat16, way>)

cudaError_t pp_attention_short_prepare(int most_shared_bytes)
{
    const void *const kernels[] = {OF_BOTH(forward, true), OF_BOTH(forward, false), OF_BOTH(backward, true),
                                   OF_BOTH(backward, false)};
    const int n = sizeof kernels / sizeof kernels[0];
    cudaError_t error = pp_tile::load_kernels<float>();
    if (error == cudaSuccess) error = pp_tile::load_kernels<__nv_bfloat16>();
    if (error == cudaSuccess) error = pp_short_mma_prepare(most_shared_bytes);
    if (error == cudaSuccess) error = pp_short_tf32_prepare(most_shared_bytes);
    return error == cudaSuccess ? prepare(kernels, n, most_shared_bytes) : error;
}
