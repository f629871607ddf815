/* SPDX-License-Identifier: Apache-2.0
 *
 * A product of matrices of any size in tiles of 64x64, made by 256 threads of 4x4 elements each, 16 terms at a time:
 * the next 16 are on their way from memory while these are worked on.
 *
 * A factor fetches quads of a matrix as it lies in memory, zeros beyond its borders, and later makes numbers of them:
 * until then nobody waits for them.
 *
 * And what the kinds of attention that use it share.
 */
#ifndef PP_KERNELS_CUDA_ATTENTION_TILE_CUH
#define PP_KERNELS_CUDA_ATTENTION_TILE_CUH

#include <algorithm>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_tiles.h"

namespace pp_tile
{

enum { SIDE = PP_TILE_SIDE, DEPTH = PP_TILE_TERMS, EDGE = SIDE / PP_QUAD, THREADS = EDGE * EDGE };

/* Both factors' share of a tile; the quad at the end keeps writes of a column off each other's banks. */
struct memory {
    alignas(16) float a[DEPTH][SIDE + PP_QUAD];
    alignas(16) float b[DEPTH][SIDE + PP_QUAD];
};

/* Row-major, `pitch` elements apart. whole: quads may be moved at once. */
template <typename T> struct matrix {
    typedef pp_pack<T> raw;
    const T *at;
    int64_t pitch;
    int rows, columns;
    bool whole;

    __device__ inline raw fetch(int row, int column) const
    {
        const T *p = at + row * pitch + column;
        const int left = row < rows ? columns - column : 0;
        raw q;
        if (whole && left > 0) {
            q = *reinterpret_cast<const raw *>(p);
        } else {
#pragma unroll
            for (int i = 0; i < PP_QUAD; i++) q.v[i] = i < left ? p[i] : pp_from_float<T>(0);
        }
        return q;
    }

    __device__ inline pp_quad numbers(const raw &q) const
    {
        pp_quad out;
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) out.v[i] = pp_to_float(q.v[i]);
        return out;
    }
};

/* drop(P) from P's signs. */
template <typename T> struct kept {
    typedef pp_pack<T> raw;
    matrix<T> p;
    float scale;

    __device__ inline raw fetch(int row, int column) const { return p.fetch(row, column); }
    __device__ inline pp_quad numbers(const raw &q) const { return pp_attention_kept(scale, p.numbers(q)); }
};

/* by_terms: a row of the factor's memory holds one term of many sums, not many terms of one. */
template <bool by_terms, class M> static __device__ inline typename M::raw fetch(const M &m, int first, int term)
{
    const int t = (int)threadIdx.x;
    return by_terms ? m.fetch(term + t / EDGE, first + t % EDGE * PP_QUAD)
                    : m.fetch(first + t / (DEPTH / PP_QUAD), term + t % (DEPTH / PP_QUAD) * PP_QUAD);
}

template <bool by_terms> static __device__ inline void keep(float (*to)[SIDE + PP_QUAD], pp_quad q)
{
    const int t = (int)threadIdx.x;
    if (by_terms) {
        pp_store<true>(to[t / EDGE] + t % EDGE * PP_QUAD, PP_QUAD, q);
    } else {
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) to[t % (DEPTH / PP_QUAD) * PP_QUAD + i][t / (DEPTH / PP_QUAD)] = q.v[i];
    }
}

/* The thread's place in the tile: rows row() .. row() + 3, columns column() .. column() + 3. */
static __device__ inline int row() { return (int)threadIdx.x / EDGE * PP_QUAD; }
static __device__ inline int column() { return (int)threadIdx.x % EDGE * PP_QUAD; }

/* Over the threads that have the same rows of a tile. */
static __device__ inline float row_max(float v)
{
#pragma unroll
    for (int step = EDGE / 2; step; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}
static __device__ inline float row_sum(float v)
{
#pragma unroll
    for (int step = EDGE / 2; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

/* Adds DEPTH terms of both factors. */
static __device__ inline void add_terms(const float (*a)[SIDE + PP_QUAD], const float (*b)[SIDE + PP_QUAD],
                                        pp_quad sum[PP_QUAD])
{
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        const pp_quad x = pp_load<true>(a[k] + row(), PP_QUAD), y = pp_load<true>(b[k] + column(), PP_QUAD);
#pragma unroll
        for (int u = 0; u < PP_QUAD; u++)
#pragma unroll
            for (int w = 0; w < PP_QUAD; w++) sum[u].v[w] += x.v[u] * y.v[w];
    }
}

/* sum[u].v[w] += a(i + row() + u, terms) * b(j + column() + w, terms), over terms first .. end - 1, and on to the next
 * multiple of DEPTH or the matrices' border, where one factor must be 0. first is a multiple of DEPTH. All threads of
 * the block. */
template <bool a_by_terms, bool b_by_terms, class A, class B>
static __device__ inline void multiply(memory &m, const A &a, const B &b, int i, int j, int first, int end,
                                       pp_quad sum[PP_QUAD])
{
    typename A::raw next_a = fetch<a_by_terms>(a, i, first);
    typename B::raw next_b = fetch<b_by_terms>(b, j, first);
    for (int term = first; term < end; term += DEPTH) {
        keep<a_by_terms>(m.a, a.numbers(next_a));
        keep<b_by_terms>(m.b, b.numbers(next_b));
        __syncthreads();
        if (term + DEPTH < end) {
            next_a = fetch<a_by_terms>(a, i, term + DEPTH);
            next_b = fetch<b_by_terms>(b, j, term + DEPTH);
        }
        add_terms(m.a, m.b, sum);
        __syncthreads();
    }
}

/* Writes the tile at (i, j) of a matrix of rows x columns. */
template <typename T>
static __device__ inline void write(T *to, int64_t pitch, int rows, int columns, bool whole, int i, int j,
                                    const pp_quad sum[PP_QUAD])
{
    const int at = j + column();
    if (at >= columns) return;
#pragma unroll
    for (int u = 0; u < PP_QUAD; u++)
        if (i + row() + u < rows) pp_store_if(whole, to + (i + row() + u) * pitch + at, columns - at, sum[u]);
}

/* Numbers of 64 terms, each for 64 rows of a product: a factor that is in shared memory already. */
struct held {
    alignas(16) float v[SIDE][SIDE + PP_QUAD];
};

/* sum[u].v[w] += h(term - first, row() + u) * b(j + column() + w, term), over terms first .. end - 1, 64 at most; a row
 * of b's memory holds one term of many sums. first and end as above. What threads wrote to h before is seen. */
template <class B>
static __device__ inline void multiply_held(memory &m, const held &h, const B &b, int j, int first, int end,
                                            pp_quad sum[PP_QUAD])
{
    typename B::raw next = fetch<true>(b, j, first);
    for (int term = first; term < end; term += DEPTH) {
        keep<true>(m.b, b.numbers(next));
        __syncthreads();
        if (term + DEPTH < end) next = fetch<true>(b, j, term + DEPTH);
        add_terms(h.v + (term - first), m.b, sum);
        __syncthreads();
    }
}

/* ---- attention's matrices ---- */

template <typename T>
static __device__ inline matrix<T> tokens_of(const pp_attention &a, const T *head, int64_t pitch, int columns)
{
    return {head, pitch, a.seq, columns, a.whole_heads};
}

/* Queries of a pair [seq, dh]; ctx, or its gradient [seq, dv]; the keys [keys, dh] and values [keys, dv] that it shares
 * with its group. */
template <typename T> static __device__ inline matrix<T> queries_of(const pp_attention &a, const T *qkv, int pair)
{
    return tokens_of(a, pp_attention_query(a, qkv, pair), a.width, a.dh);
}
template <typename T> static __device__ inline matrix<T> context_of(const pp_attention &a, const T *ctx, int pair)
{
    return tokens_of(a, pp_attention_context(a, ctx, pair), a.d, a.dv);
}
template <typename T> static __device__ inline matrix<T> keys_of(const pp_attention &a, const T *qkv, int pair)
{
    return {pp_attention_key(a, qkv, pair), a.key_width, a.keys, a.dh, a.whole_heads};
}
template <typename T> static __device__ inline matrix<T> values_of(const pp_attention &a, const T *qkv, int pair)
{
    return {pp_attention_value(a, qkv, pair), a.key_width, a.keys, a.dv, a.whole_heads};
}

/* End of the terms that queries of the tile from i on need. */
static __device__ inline int last_key(const pp_attention &a, int i)
{
    return pp_attention_open(a, min(a.seq, i + (int)SIDE) - 1);
}

/* Begin of these terms, in whole tiles. */
static __device__ inline int first_key(const pp_attention &a, int i) { return pp_attention_begin(a, i) / SIDE * SIDE; }

/* First query that sees keys of the tile from j on; one behind the last one. (Queries from there to the end of their
 * tile see none of these keys: P and its gradient are 0 for them.) */
static __device__ inline int first_query(const pp_attention &a, int j) { return pp_attention_first(a, j); }
static __device__ inline int end_query(const pp_attention &a, int j) { return pp_attention_end(a, j + SIDE - 1); }

static inline int tiles(int n) { return pp_div_up(n, SIDE); }

/* Blocks of a loop over quads that has enough to do for any device. */
static inline int loop_blocks(int64_t items) { return std::min(pp_div_up(items, THREADS), 4096); }

template <typename T>
static __global__ void bias_kernel(T *qkv, const float *bias, int64_t tokens, int width, bool whole)
{
    const int quads = pp_div_up(width, PP_QUAD);
    const int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < tokens * quads; t += stride) {
        const int column = (int)(t % quads) * PP_QUAD, left = width - column;
        T *at = qkv + t / quads * width + column;
        pp_quad q = pp_load_if(whole, at, left);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) q.v[i] = i < left ? q.v[i] + bias[column + i] : 0;
        pp_store_if(whole, at, left, q);
    }
}

/* qkv += bias, if there is one */
template <typename T>
static inline void add_bias(const struct pp_cuda_call *c, const pp_attention &a, T *qkv, const void *operand)
{
    const int64_t tokens = (int64_t)a.rows * a.seq;
    const float *bias = static_cast<const float *>(operand);
    if (!bias) return;
    PP_LAUNCH(bias_kernel<T>, loop_blocks(tokens * pp_div_up(a.width, PP_QUAD)), THREADS, 0, c->stream, qkv, bias,
              tokens, a.width, a.whole_heads);
}

/* Gradients in scratch: they wait until nobody needs any more what they take the place of. */
struct waiting {
    const float *grads; /* [roles, heads, terms, seq, pitch] */
    int pitch;          /* the widest of the roles' columns, in whole quads */
    int first, heads;   /* of those in all rows, in each of which there are `of_row` */
    int of_row;
    int terms; /* that are added, in their order */
};

/* to: where the first role begins, queries or keys; the second, values, is as many heads of those further. Grid: any
 * number of blocks, roles. */
template <typename T> static __global__ void settle(pp_attention a, waiting w, T *to)
{
    const int columns = blockIdx.y ? a.dv : a.dh, quads = pp_div_up(columns, PP_QUAD);
    const int64_t matrix = (int64_t)a.seq * w.pitch, items = (int64_t)w.heads * a.seq * quads,
                  stride = (int64_t)gridDim.x * blockDim.x;
    const float *grads = w.grads + (int64_t)blockIdx.y * w.heads * w.terms * matrix;
    to += (int64_t)blockIdx.y * w.of_row * a.dh;
    for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < items; t += stride) {
        const int column = (int)(t % quads) * PP_QUAD, token = (int)(t / quads % a.seq),
                  head = (int)(t / quads / a.seq), place = w.first + head;
        const float *from = grads + head * w.terms * matrix + (int64_t)token * w.pitch + column;
        pp_quad sum = pp_load<true>(from, PP_QUAD);
        for (int i = 1; i < w.terms; i++) {
            const pp_quad q = pp_load<true>(from + i * matrix, PP_QUAD);
#pragma unroll
            for (int k = 0; k < PP_QUAD; k++) sum.v[k] += q.v[k];
        }
        T *at = to + ((int64_t)(place / w.of_row) * a.seq + token) * a.width + place % w.of_row * columns + column;
        pp_store_if(a.whole_heads, at, columns - column, sum);
    }
}

template <typename T>
static inline void launch_settle(const struct pp_cuda_call *c, const pp_attention &a, const waiting &w, int roles,
                                 T *to)
{
    const dim3 grid((unsigned)loop_blocks((int64_t)w.heads * a.seq * w.pitch / PP_QUAD), (unsigned)roles);
    PP_LAUNCH(settle<T>, grid, THREADS, 0, c->stream, a, w, to);
}

/* The two kernels above: each file that launches them has copies of its own. */
template <typename T> static inline cudaError_t load_kernels(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(bias_kernel<T>),
                                   reinterpret_cast<const void *>(settle<T>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}

} // namespace pp_tile

#endif
