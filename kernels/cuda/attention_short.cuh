/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of short rows: what its kinds share, in float arithmetic (attention_short.cu) and on tensor cores
 * (attention_short_mma.cu, attention_short_tf32.cu); and what a block of the first has in shared memory: two matrices
 * and the scores.
 */
#ifndef PP_KERNELS_CUDA_ATTENTION_SHORT_CUH
#define PP_KERNELS_CUDA_ATTENTION_SHORT_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_tiles.h"

namespace pp_short
{

enum { MOST_SEQ = PP_SHORT_SEQ, THREADS = 256, BLOCKS_PER_SM = 2, TILE = 4, MOST_SPLITS = 4 /* of a sum over dh */ };
static_assert(MOST_SEQ == PP_WARP * PP_QUAD && (int)PP_SHORT_QUAD == (int)PP_QUAD, "a lane has a quad of a row");
enum { BATCH = 9 }; /* quads that a thread has on their way from memory at a time: all of 36 rows of 256 */

/* Matrices in shared memory, in floats. The quad between rows keeps lanes that read a column off each other's banks. */
struct room {
    int seq, columns; /* rounded up; columns of a key or value, whichever is wider */
    int pitch, score_pitch;
    int matrix, scores;
    int splits; /* scores come in so many parts, to be added */
};

static __host__ __device__ inline int whole_quads(int n) { return pp_div_up(n, PP_QUAD) * PP_QUAD; }

static __host__ __device__ inline room room_of(int seq, int widest)
{
    room r;
    r.seq = whole_quads(seq);
    r.columns = whole_quads(widest);
    r.pitch = r.columns + PP_QUAD;
    r.score_pitch = r.seq + PP_QUAD;
    r.matrix = r.seq * r.pitch;
    r.scores = r.seq * r.score_pitch;
    const int tiles = (r.seq / TILE) * (r.seq / TILE), fit = THREADS / tiles, most = r.columns / PP_QUAD;
    r.splits = fit < 1 ? 1 : fit < MOST_SPLITS ? fit : MOST_SPLITS;
    if (r.splits > most) r.splits = most;
    return r;
}

/* Goes over the parts of rows, all of which have equally many, one after another: from number `first` on, `by` further
 * each time. */
struct walk {
    int row, part, parts, rows_on, parts_on;

    __device__ inline walk(int first, int by, int parts_of_row)
        : row(first / parts_of_row), part(first % parts_of_row), parts(parts_of_row), rows_on(by / parts_of_row),
          parts_on(by % parts_of_row)
    {
    }
    __device__ inline void next()
    {
        row += rows_on;
        part += parts_on;
        if (part < parts) return;
        part -= parts;
        row++;
    }
};

/* The same by all threads of a block. */
static __device__ inline walk walk_of_thread(int parts) { return walk((int)threadIdx.x, THREADS, parts); }

static __device__ inline pp_quad quad_at(const float *p) { return pp_load<true>(p, PP_QUAD); }

static __device__ inline void add_product(pp_quad &sum, float weight, pp_quad q)
{
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) sum.v[i] += weight * q.v[i];
}

/* ---- softmax: a row of scores has as many lanes of a warp as it needs, a quad each, and a warp several rows ---- */

struct row_lanes {
    int lanes, rows; /* of a row; of a warp */
    int row, column; /* of this lane: which of these rows, and where its quad begins */

    __device__ inline explicit row_lanes(int seq)
    {
        const int lane = (int)threadIdx.x % PP_WARP;
        lanes = seq <= PP_WARP ? PP_WARP / 4 : seq <= 2 * PP_WARP ? PP_WARP / 2 : PP_WARP;
        rows = PP_WARP / lanes;
        row = lane / lanes;
        column = lane % lanes * PP_QUAD;
    }
    __device__ inline float max_of(float v) const
    {
        for (int step = lanes / 2; step; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
        return v;
    }
    __device__ inline float sum_of(float v) const
    {
        for (int step = lanes / 2; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
        return v;
    }
};

/* Scores of a query -> P, as T holds it, with dropout in its signs. All lanes of the warp call it. */
template <typename T>
static __device__ inline pp_quad softmax(const pp_attention &a, const row_lanes &mine, int pair, int query, pp_quad q)
{
    const pp_attention_span seen = pp_attention_seen(a, query);
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++)
        if (seen.has(mine.column + i)) most = fmaxf(most, q.v[i]);
    const float shift = mine.max_of(most) * a.scale;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) {
        q.v[i] = seen.has(mine.column + i) ? expf(q.v[i] * a.scale - shift) : 0;
        sum += q.v[i];
    }
    const float norm = 1 / mine.sum_of(sum);
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) q.v[i] = pp_round<T>(q.v[i] * norm);
    pp_attention_sign(a, pp_attention_vectors(a, pair) + (uint32_t)query, mine.column / PP_QUAD, q);
    return q;
}

/* P of a query, and the gradient of drop(P) -> that of its scores. All lanes of the warp call it. */
static __device__ inline pp_quad softmax_grad(const pp_attention &a, const row_lanes &mine, pp_quad p, pp_quad grad)
{
    const pp_quad weights = pp_attention_kept(a.drop.scale, p);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) sum += weights.v[i] * grad.v[i];
    return pp_attention_dscores(a, p, grad, mine.sum_of(sum));
}

/* ---- the kernels of a call, and the shared memory of their blocks, which have THREADS threads ---- */

template <typename T> struct kernels {
    void (*forward)(pp_attention, T *ctx, T *p, T *qkv, const float *bias);
    int64_t forward_bytes;
    void (*backward)(pp_attention, int first_pair, T *qkv, const T *p, const T *dctx, float *waiting);
    int64_t backward_bytes;
};

/* Loads kernels, which may have all shared memory. */
static inline cudaError_t prepare(const void *const *kernels, int n, int most_shared_bytes)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < n && error == cudaSuccess; i++)
        error = cudaFuncSetAttribute(kernels[i], cudaFuncAttributeMaxDynamicSharedMemorySize, most_shared_bytes);
    return error == cudaSuccess ? pp_load_kernels(kernels, n) : error;
}

} // namespace pp_short

/* On tensor cores, in bf16 and in TF32: can they do the call, and its kernels. ctx: or its gradient; bias: NULL if
 * there is none. biased: the kernel adds the bias. */
bool pp_short_mma_does(const pp_attention &a, const void *qkv, const void *ctx, const void *bias);
pp_short::kernels<__nv_bfloat16> pp_short_mma_kernels(const pp_attention &a, bool biased);
cudaError_t pp_short_mma_prepare(int most_shared_bytes);
bool pp_short_tf32_does(const pp_attention &a, const void *qkv, const void *ctx, const void *bias);
pp_short::kernels<float> pp_short_tf32_kernels(const pp_attention &a, bool biased);
cudaError_t pp_short_tf32_prepare(int most_shared_bytes);

#endif
