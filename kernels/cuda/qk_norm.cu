/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides queries and keys by their root mean square, head by head, and adds in_proj's bias before. A thread block has
 * a token; each of its warps works on one head at a time. In the backward the gradients of the two weights come first,
 * as sums over the heads of all tokens, cut into slices: they need dy, which the gradients of queries and keys replace.
 */
#include "kernels/cuda/columns.cuh"

enum { THREADS = 256, WARPS = THREADS / PP_WARP, PIECE = PP_WARP * PP_QUAD /* columns that a warp has at a time */ };

template <typename T> struct heads_norm {
    T *x;              /* [T, width]: qkv, normalised in place; or, in the backward, its gradients */
    T *kept;           /* [T, heads * dh]: queries and keys before the norm */
    const float *bias; /* [width]; NULL: nothing is added */
    const float *queries_gamma, *keys_gamma; /* [dh] */
    int tokens, queries, heads, dh, width;   /* heads: of queries and keys, the first ones of a token */
    float eps;
};

template <typename T> static heads_norm<T> norm_of(const struct pp_cuda_call *c, void *qkv)
{
    const struct pp_attention_dims *n = &c->call->attention;
    heads_norm<T> q;
    q.x = static_cast<T *>(qkv);
    q.kept = NULL;
    q.bias = q.queries_gamma = q.keys_gamma = NULL;
    q.tokens = n->rows * n->seq;
    q.queries = n->heads;
    q.heads = n->heads + PP_KV_HEADS(n);
    q.dh = n->dh;
    q.width = PP_QKV_COLUMNS(n);
    q.eps = c->call->eps;
    return q;
}

/* Are the quads of all rows aligned? */
template <typename T> static bool is_whole(const heads_norm<T> &q)
{
    return q.dh % PP_QUAD == 0 && pp_aligned(q.x) && pp_aligned(q.kept) && pp_aligned(q.bias) &&
           pp_aligned(q.queries_gamma) && pp_aligned(q.keys_gamma);
}

template <bool whole, typename T>
static __device__ inline pp_quad biased(const heads_norm<T> &q, const T *token, int column, int left)
{
    pp_quad v = pp_load<whole>(token + column, left);
    const pp_quad bias = pp_load_any<whole>(q.bias, column, left);
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) v.v[i] += bias.v[i];
    return v;
}

/* 1 / the root mean square of a head, in all lanes. squares: the lane's sum of squares. */
static __device__ inline float scale_of(float squares, int dh, float eps)
{
    return 1 / sqrtf(pp_warp_sum(squares) / (float)dh + eps);
}

/* Grid: tokens. */
template <typename T, bool whole> static __global__ void __launch_bounds__(THREADS) qk_norm(heads_norm<T> q)
{
    T *const token = q.x + (int64_t)blockIdx.x * q.width;
    const int lane = (int)threadIdx.x % PP_WARP * PP_QUAD, columns = q.heads * q.dh;
    for (int h = (int)threadIdx.x / PP_WARP; h < q.heads; h += (int)blockDim.x / PP_WARP) {
        const float *const gamma = h < q.queries ? q.queries_gamma : q.keys_gamma;
        T *const kept = q.kept + (int64_t)blockIdx.x * columns + h * q.dh;
        float squares = 0;
        for (int j = lane; j < q.dh; j += PIECE) {
            const pp_quad v = biased<whole>(q, token, h * q.dh + j, q.dh - j);
            pp_store<whole>(kept + j, q.dh - j, v);
#pragma unroll
            for (int i = 0; i < PP_QUAD; i++) squares += whole || j + i < q.dh ? v.v[i] * v.v[i] : 0;
        }
        const float scale = scale_of(squares, q.dh, q.eps);
        for (int j = lane; j < q.dh; j += PIECE) {
            pp_quad v = biased<whole>(q, token, h * q.dh + j, q.dh - j);
            const pp_quad weight = pp_load<whole>(gamma + j, q.dh - j);
#pragma unroll
            for (int i = 0; i < PP_QUAD; i++) v.v[i] = v.v[i] * scale * weight.v[i];
            pp_store<whole>(token + h * q.dh + j, q.dh - j, v);
        }
    }
    for (int j = columns + (int)threadIdx.x * PP_QUAD; q.bias && j < q.width; j += (int)blockDim.x * PP_QUAD)
        pp_store<whole>(token + j, q.width - j, biased<whole>(q, token, j, q.width - j));
}

/* Grid: tokens. x: dy becomes dx. */
template <typename T, bool whole> static __global__ void __launch_bounds__(THREADS) qk_norm_grad(heads_norm<T> q)
{
    const int lane = (int)threadIdx.x % PP_WARP * PP_QUAD;
    for (int h = (int)threadIdx.x / PP_WARP; h < q.heads; h += (int)blockDim.x / PP_WARP) {
        const float *const gamma = h < q.queries ? q.queries_gamma : q.keys_gamma;
        T *const dy = q.x + (int64_t)blockIdx.x * q.width + h * q.dh;
        const T *const kept = q.kept + ((int64_t)blockIdx.x * q.heads + h) * q.dh;
        pp_pair sum = {}; /* a: of x * x; b: of dy * gamma * x */
        for (int j = lane; j < q.dh; j += PIECE) {
            const pp_quad x = pp_load<whole>(kept + j, q.dh - j), d = pp_load<whole>(dy + j, q.dh - j),
                          weight = pp_load<whole>(gamma + j, q.dh - j);
#pragma unroll
            for (int i = 0; i < PP_QUAD; i++) {
                sum.a += x.v[i] * x.v[i];
                sum.b += d.v[i] * weight.v[i] * x.v[i];
            }
        }
        const float scale = scale_of(sum.a, q.dh, q.eps);
        const float mean = pp_warp_sum(sum.b) * scale / (float)q.dh;
        for (int j = lane; j < q.dh; j += PIECE) {
            const pp_quad x = pp_load<whole>(kept + j, q.dh - j), weight = pp_load<whole>(gamma + j, q.dh - j);
            pp_quad d = pp_load<whole>(dy + j, q.dh - j);
#pragma unroll
            for (int i = 0; i < PP_QUAD; i++) d.v[i] = (d.v[i] * weight.v[i] - x.v[i] * scale * mean) * scale;
            pp_store<whole>(dy + j, q.dh - j, d);
        }
    }
}

/* The gradients of the weights: sums of dy * xhat over the heads of all tokens, [0] of queries and [1] of keys. */
struct weight_sums {
    float *sum[2]; /* [slices, dh] */
    int slices;
    bool accumulate;
};

using piece_sums = float[WARPS * PIECE];

/* Grid: (columns / PIECE, slices, 2). A slice is a run of successive heads, of which each warp has every WARPS-th. */
template <typename T, bool whole>
static __global__ void __launch_bounds__(THREADS) qk_norm_weights(heads_norm<T> q, weight_sums sums)
{
    PP_SHARED_ONE(piece_sums, shared);
    const int first_head = blockIdx.z ? q.queries : 0, heads = blockIdx.z ? q.heads - q.queries : q.queries;
    const int64_t rows = (int64_t)q.tokens * heads, slice = (rows + sums.slices - 1) / sums.slices;
    const int64_t begin = blockIdx.y * slice, end = begin + slice < rows ? begin + slice : rows;
    const int warp = (int)threadIdx.x / PP_WARP, lane = (int)threadIdx.x % PP_WARP * PP_QUAD;
    const int mine = (int)blockIdx.x * PIECE + lane;
    pp_quad total = {};
    for (int64_t row = begin + warp; row < end; row += WARPS) {
        const int64_t token = row / heads, head = first_head + row % heads;
        const T *const kept = q.kept + (token * q.heads + head) * q.dh, *const dy = q.x + token * q.width + head * q.dh;
        float squares = 0;
        for (int j = lane; j < q.dh; j += PIECE) {
            const pp_quad x = pp_load<whole>(kept + j, q.dh - j);
#pragma unroll
            for (int i = 0; i < PP_QUAD; i++) squares += x.v[i] * x.v[i];
        }
        const float scale = scale_of(squares, q.dh, q.eps);
        if (mine >= q.dh) continue;
        const pp_quad x = pp_load<whole>(kept + mine, q.dh - mine), d = pp_load<whole>(dy + mine, q.dh - mine);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) total.v[i] += d.v[i] * (x.v[i] * scale);
    }
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) shared[warp * PIECE + lane + i] = total.v[i];
    __syncthreads();
    const int column = (int)blockIdx.x * PIECE + (int)threadIdx.x;
    if (threadIdx.x >= PIECE || column >= q.dh) return;
    float sum = shared[threadIdx.x];
    for (int i = 1; i < WARPS; i++) sum += shared[i * PIECE + threadIdx.x];
    float *const to = sums.sum[blockIdx.z] + (int64_t)blockIdx.y * q.dh + column;
    *to = sums.accumulate ? *to + sum : sum;
}

template <typename T> static cudaError_t run_norm(const struct pp_cuda_call *c)
{
    const struct pp_qk_norm_memory *at = &c->at.qk_norm;
    heads_norm<T> q = norm_of<T>(c, at->qkv);
    q.bias = static_cast<const float *>(at->bias);
    q.kept = static_cast<T *>(at->kept);
    q.queries_gamma = static_cast<const float *>(at->q_gamma);
    q.keys_gamma = static_cast<const float *>(at->k_gamma);
    const auto kernel = is_whole(q) ? qk_norm<T, true> : qk_norm<T, false>;
    PP_LAUNCH(kernel, q.tokens, pp_block_threads((int64_t)q.heads * PP_WARP, THREADS), 0, c->stream, q);
    return cudaGetLastError();
}

/* Launches the sums of both weights; if there are several slices, one launch more adds them. */
template <typename T> static cudaError_t sum_weights(const struct pp_cuda_call *c, const heads_norm<T> &q, bool whole)
{
    float *const to[2] = {static_cast<float *>(c->at.qk_norm_grad.q_gamma_grad),
                          static_cast<float *>(c->at.qk_norm_grad.k_gamma_grad)};
    const bool accumulate = c->call->adds;
    const int64_t rows = (int64_t)q.tokens * q.queries, most = 1 << 30;
    const int slices = pp_column_slice_count((int)std::min(rows, most), q.dh, 2);
    const dim3 grid(pp_div_up(q.dh, PIECE), slices, 2);
    const auto kernel = whole ? qk_norm_weights<T, true> : qk_norm_weights<T, false>;
    if (slices == 1) {
        PP_LAUNCH(kernel, grid, THREADS, 0, c->stream, q, weight_sums{{to[0], to[1]}, 1, accumulate});
        return cudaGetLastError();
    }
    float *const partial = static_cast<float *>(c->scratch);
    const weight_sums parts = {{partial, partial + (int64_t)slices * q.dh}, slices, false};
    PP_LAUNCH(kernel, grid, THREADS, 0, c->stream, q, parts);
    const auto add = q.dh % PP_QUAD == 0 ? pp_column_partials<true> : pp_column_partials<false>;
    PP_LAUNCH(add, dim3(pp_div_up(q.dh, PP_QUAD * PP_PARTIAL_LANES), 2), PP_COLUMN_THREADS, 0, c->stream, partial,
              slices, q.dh, to[0], to[1], accumulate);
    return cudaGetLastError();
}

template <typename T> static cudaError_t run_norm_grad(const struct pp_cuda_call *c)
{
    heads_norm<T> q = norm_of<T>(c, c->at.qk_norm_grad.dqkv);
    q.kept = static_cast<T *>(c->at.qk_norm_grad.kept);
    q.queries_gamma = static_cast<const float *>(c->at.qk_norm_grad.q_gamma);
    q.keys_gamma = static_cast<const float *>(c->at.qk_norm_grad.k_gamma);
    const bool whole = is_whole(q);
    const cudaError_t error = sum_weights<T>(c, q, whole);
    if (error != cudaSuccess) return error;
    const auto kernel = whole ? qk_norm_grad<T, true> : qk_norm_grad<T, false>;
    PP_LAUNCH(kernel, q.tokens, pp_block_threads((int64_t)q.heads * PP_WARP, THREADS), 0, c->stream, q);
    return cudaGetLastError();
}

cudaError_t pp_cuda_qk_norm(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_norm, c); }
cudaError_t pp_cuda_qk_norm_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_norm_grad, c); }

template <typename T> static cudaError_t prepare(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(qk_norm<T, true>),
                                   reinterpret_cast<const void *>(qk_norm<T, false>),
                                   reinterpret_cast<const void *>(qk_norm_grad<T, true>),
                                   reinterpret_cast<const void *>(qk_norm_grad<T, false>),
                                   reinterpret_cast<const void *>(qk_norm_weights<T, true>),
                                   reinterpret_cast<const void *>(qk_norm_weights<T, false>),
                                   reinterpret_cast<const void *>(pp_column_partials<true>),
                                   reinterpret_cast<const void *>(pp_column_partials<false>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}

cudaError_t pp_cuda_prepare_qk_norm(void)
{
    const cudaError_t error = prepare<float>();
    return error != cudaSuccess ? error : prepare<__nv_bfloat16>();
}
