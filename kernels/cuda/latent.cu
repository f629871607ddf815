/* SPDX-License-Identifier: Apache-2.0
 *
 * Latent attention: norms of latent vectors, a warp for each; and how queries, keys and values of all heads are joined
 * and split, a thread block for each token.
 *
 * In the backward of the norm the gradient of the weight comes first, as sums over slices of the tokens: it needs the
 * latent vectors, whose place their gradients take.
 */
#include "kernels/cuda/columns.cuh"

enum { THREADS = 256, WARPS = THREADS / PP_WARP, PIECE = PP_WARP * PP_QUAD /* columns that a warp has at a time */ };

/* ---- norms ---- */

template <typename T> struct latent {
    T *x; /* [tokens, rank + shared]: latent vectors; or, in the backward, what their gradients take the place of */
    T *y; /* [tokens, rank]: the same after the norm, or the gradient there */
    float *rstd;        /* [tokens] */
    const T *dshared;   /* [tokens, shared] */
    const float *gamma; /* [rank] */
    int tokens, rank, shared;
    float eps;
    __device__ inline T *vector(int token) const { return x + (int64_t)token * (rank + shared); }
};

template <typename T>
static latent<T> latent_of(const struct pp_cuda_call *c, void *x, void *y, void *rstd, void *gamma)
{
    const struct pp_latent_dims *n = &c->call->latent;
    latent<T> v;
    v.x = static_cast<T *>(x);
    v.y = static_cast<T *>(y);
    v.rstd = static_cast<float *>(rstd);
    v.dshared = NULL;
    v.gamma = static_cast<const float *>(gamma);
    v.tokens = n->rows * n->seq;
    v.rank = n->rank;
    v.shared = n->shared;
    v.eps = c->call->eps;
    return v;
}

/* Are the quads of all rows aligned? */
template <typename T> static bool is_whole(const latent<T> &v)
{
    return v.rank % PP_QUAD == 0 && v.shared % PP_QUAD == 0 && pp_aligned(v.x) && pp_aligned(v.y) &&
           pp_aligned(v.gamma) && pp_aligned(v.dshared);
}

/* The token of this warp; behind the last one there may be warps without. */
static __device__ inline int my_token() { return (int)blockIdx.x * WARPS + (int)threadIdx.x / PP_WARP; }
static __device__ inline int my_column() { return (int)threadIdx.x % PP_WARP * PP_QUAD; }

template <typename T, bool whole> static __global__ void __launch_bounds__(THREADS) norm(latent<T> v)
{
    const int token = my_token();
    if (token >= v.tokens) return;
    const T *const x = v.vector(token);
    float squares = 0;
    for (int j = my_column(); j < v.rank; j += PIECE) {
        const pp_quad q = pp_load<whole>(x + j, v.rank - j);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) squares += q.v[i] * q.v[i];
    }
    const float rstd = 1 / sqrtf(pp_warp_sum(squares) / (float)v.rank + v.eps);
    if (my_column() == 0) v.rstd[token] = rstd;
    for (int j = my_column(); j < v.rank; j += PIECE) {
        pp_quad q = pp_load<whole>(x + j, v.rank - j);
        const pp_quad weight = pp_load<whole>(v.gamma + j, v.rank - j);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) q.v[i] = q.v[i] * rstd * weight.v[i];
        pp_store<whole>(v.y + (int64_t)token * v.rank + j, v.rank - j, q);
    }
}

template <typename T, bool whole> static __global__ void __launch_bounds__(THREADS) norm_grad(latent<T> v)
{
    const int token = my_token();
    if (token >= v.tokens) return;
    T *const vector = v.vector(token);
    const T *const dy = v.y + (int64_t)token * v.rank;
    const float rstd = v.rstd[token];
    float sum = 0;
    for (int j = my_column(); j < v.rank; j += PIECE) {
        const pp_quad x = pp_load<whole>(vector + j, v.rank - j), d = pp_load<whole>(dy + j, v.rank - j),
                      weight = pp_load<whole>(v.gamma + j, v.rank - j);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) sum += d.v[i] * weight.v[i] * (x.v[i] * rstd);
    }
    const float mean = pp_warp_sum(sum) / (float)v.rank;
    for (int j = my_column(); j < v.rank; j += PIECE) {
        const pp_quad d = pp_load<whole>(dy + j, v.rank - j), weight = pp_load<whole>(v.gamma + j, v.rank - j);
        pp_quad x = pp_load<whole>(vector + j, v.rank - j);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) x.v[i] = (d.v[i] * weight.v[i] - x.v[i] * rstd * mean) * rstd;
        pp_store<whole>(vector + j, v.rank - j, x);
    }
    for (int j = my_column(); j < v.shared; j += PIECE)
        pp_store<whole>(vector + v.rank + j, v.shared - j,
                        pp_load<whole>(v.dshared + (int64_t)token * v.shared + j, v.shared - j));
}

using piece_sums = float[WARPS * PIECE];

/* sum[slice] = the sum of dy * x * rstd over the tokens of the slice. Grid: (columns / PIECE, slices). Of a slice's
 * tokens each warp has every WARPS-th. */
template <typename T, bool whole>
static __global__ void __launch_bounds__(THREADS) norm_weights(latent<T> v, float *sums, bool accumulate)
{
    PP_SHARED_ONE(piece_sums, shared);
    const int slice = pp_div_up(v.tokens, (int)gridDim.y), begin = (int)blockIdx.y * slice,
              end = min(begin + slice, v.tokens), warp = (int)threadIdx.x / PP_WARP,
              mine = (int)blockIdx.x * PIECE + my_column();
    pp_quad total = {};
    for (int token = begin + warp; token < end && mine < v.rank; token += WARPS) {
        const pp_quad x = pp_load<whole>(v.vector(token) + mine, v.rank - mine),
                      d = pp_load<whole>(v.y + (int64_t)token * v.rank + mine, v.rank - mine);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) total.v[i] += d.v[i] * (x.v[i] * v.rstd[token]);
    }
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) shared[warp * PIECE + my_column() + i] = total.v[i];
    __syncthreads();
    const int column = (int)blockIdx.x * PIECE + (int)threadIdx.x;
    if (threadIdx.x >= PIECE || column >= v.rank) return;
    float sum = shared[threadIdx.x];
    for (int i = 1; i < WARPS; i++) sum += shared[i * PIECE + threadIdx.x];
    float *const to = sums + (int64_t)blockIdx.y * v.rank + column;
    *to = accumulate ? *to + sum : sum;
}

template <typename T> static cudaError_t run_norm(const struct pp_cuda_call *c)
{
    const struct pp_latent_norm_memory *at = &c->at.latent_norm;
    const latent<T> v = latent_of<T>(c, at->x, at->y, at->rstd, at->gamma);
    const auto kernel = is_whole(v) ? norm<T, true> : norm<T, false>;
    PP_LAUNCH(kernel, pp_div_up(v.tokens, WARPS), THREADS, 0, c->stream, v);
    return cudaGetLastError();
}

/* Launches the sums of the weight's gradient; if there are several slices, one launch more adds them. */
template <typename T> static cudaError_t sum_weights(const struct pp_cuda_call *c, const latent<T> &v)
{
    float *const to = static_cast<float *>(c->at.latent_norm_grad.gamma_grad), *const parts =
                                                                                   static_cast<float *>(c->scratch);
    const int slices = pp_column_slice_count(v.tokens, v.rank, 1);
    const bool accumulate = c->call->adds, several = slices > 1;
    const auto kernel = is_whole(v) ? norm_weights<T, true> : norm_weights<T, false>;
    PP_LAUNCH(kernel, dim3((unsigned)pp_div_up(v.rank, PIECE), (unsigned)slices), THREADS, 0, c->stream, v,
              several ? parts : to, accumulate && !several);
    if (!several) return cudaGetLastError();
    const auto add = v.rank % PP_QUAD == 0 ? pp_column_partials<true> : pp_column_partials<false>;
    PP_LAUNCH(add, dim3((unsigned)pp_div_up(v.rank, PP_QUAD * PP_PARTIAL_LANES), 1), PP_COLUMN_THREADS, 0, c->stream,
              parts, slices, v.rank, to, static_cast<float *>(NULL), accumulate);
    return cudaGetLastError();
}

template <typename T> static cudaError_t run_norm_grad(const struct pp_cuda_call *c)
{
    const struct pp_latent_norm_grad_memory *at = &c->at.latent_norm_grad;
    latent<T> v = latent_of<T>(c, at->x, at->dy, at->rstd, at->gamma);
    v.dshared = static_cast<const T *>(at->dshared);
    const cudaError_t error = sum_weights<T>(c, v);
    if (error != cudaSuccess) return error;
    const auto kernel = is_whole(v) ? norm_grad<T, true> : norm_grad<T, false>;
    PP_LAUNCH(kernel, pp_div_up(v.tokens, WARPS), THREADS, 0, c->stream, v);
    return cudaGetLastError();
}

/* ---- heads ---- */

/* Columns in units of what is moved at once. */
struct columns {
    int still, shared, values, rank; /* as struct pp_heads_dims */
    int queries, kv, all;            /* of a token's queries; of its own keys and values; of qkv */
};

/* `unit` elements are moved at once; it divides all columns. */
static columns columns_of(const struct pp_heads_dims *n, int unit)
{
    columns k;
    k.still = n->still / unit;
    k.shared = n->shared / unit;
    k.values = n->values / unit;
    k.rank = n->rank / unit;
    k.queries = PP_JOINED_QUERIES(n) / unit;
    k.kv = PP_JOINED_KV(n) / unit;
    k.all = PP_JOINED_QKV(n) / unit;
    return k;
}

/* Where column j of qkv's keys and values, counted from the first key on, lies in what a token has of kv; -1 - i: it is
 * the i-th of the columns that all heads share. */
static __device__ inline int source_of(const columns &k, int j)
{
    const int of_head = k.still + k.shared, own = k.still + k.values;
    if (j >= k.queries) {
        const int value = j - k.queries;
        return value / k.values * own + k.still + value % k.values;
    }
    const int column = j % of_head;
    return column < k.still ? j / of_head * own + column : k.still - column - 1;
}

/* Grid: tokens. E: what is moved at once. */
template <typename E>
static __global__ void __launch_bounds__(THREADS) join_heads(columns k, E *qkv, const E *q, const E *kv, const E *x)
{
    const int64_t token = blockIdx.x;
    qkv += token * k.all;
    q += token * k.queries;
    kv += token * k.kv;
    x += token * (k.rank + k.shared) + k.rank;
    for (int j = (int)threadIdx.x; j < k.queries; j += (int)blockDim.x) qkv[j] = q[j];
    for (int j = (int)threadIdx.x; j < k.all - k.queries; j += (int)blockDim.x) {
        const int from = source_of(k, j);
        qkv[k.queries + j] = from >= 0 ? kv[from] : x[-1 - from];
    }
}

/* Grid: tokens. */
template <typename E>
static __global__ void __launch_bounds__(THREADS) split_heads(columns k, const E *dqkv, E *dq, E *dkv)
{
    const int64_t token = blockIdx.x;
    dqkv += token * k.all;
    dq += token * k.queries;
    dkv += token * k.kv;
    for (int j = (int)threadIdx.x; j < k.queries; j += (int)blockDim.x) dq[j] = dqkv[j];
    for (int j = (int)threadIdx.x; j < k.all - k.queries; j += (int)blockDim.x) {
        const int to = source_of(k, j);
        if (to >= 0) dkv[to] = dqkv[k.queries + j];
    }
}

/* dshared = the sum over the heads of the columns that they share, in their order. k: in elements. A thread has one
 * number. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    sum_shared(columns k, int heads, int64_t numbers, const T *dqkv, T *dshared)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= numbers) return;
    const T *from = dqkv + at / k.shared * k.all + k.queries + k.still + at % k.shared;
    float sum = 0;
    for (int h = 0; h < heads; h++) sum += pp_to_float(from[(int64_t)h * (k.still + k.shared)]);
    dshared[at] = pp_from_float<T>(sum);
}

/* May quads be moved at once? */
template <typename T> static bool moves_quads(const struct pp_heads_dims *n, const void *const *memory, int operands)
{
    bool whole =
        n->still % PP_QUAD == 0 && n->shared % PP_QUAD == 0 && n->values % PP_QUAD == 0 && n->rank % PP_QUAD == 0;
    for (int i = 0; i < operands; i++) whole = whole && pp_aligned(static_cast<const T *>(memory[i]));
    return whole;
}

static int threads_of(const columns &k) { return pp_block_threads(k.all - k.queries, THREADS); }

template <typename E> static void launch_join(const struct pp_cuda_call *c, int unit)
{
    const struct pp_heads_dims *n = &c->call->heads;
    const struct pp_join_heads_memory *at = &c->at.join_heads;
    const columns k = columns_of(n, unit);
    PP_LAUNCH(join_heads<E>, n->rows * n->seq, threads_of(k), 0, c->stream, k, static_cast<E *>(at->qkv),
              static_cast<const E *>(at->q), static_cast<const E *>(at->kv), static_cast<const E *>(at->x));
}

template <typename E> static void launch_split(const struct pp_cuda_call *c, int unit)
{
    const struct pp_heads_dims *n = &c->call->heads;
    const struct pp_split_heads_memory *at = &c->at.split_heads;
    const columns k = columns_of(n, unit);
    PP_LAUNCH(split_heads<E>, n->rows * n->seq, threads_of(k), 0, c->stream, k, static_cast<const E *>(at->dqkv),
              static_cast<E *>(at->dq), static_cast<E *>(at->dkv));
}

template <typename T> static cudaError_t run_join(const struct pp_cuda_call *c)
{
    const struct pp_join_heads_memory *at = &c->at.join_heads;
    const void *const memory[] = {at->qkv, at->q, at->kv, at->x};
    if (moves_quads<T>(&c->call->heads, memory, 4))
        launch_join<pp_pack<T>>(c, PP_QUAD);
    else
        launch_join<T>(c, 1);
    return cudaGetLastError();
}

template <typename T> static cudaError_t run_split(const struct pp_cuda_call *c)
{
    const struct pp_heads_dims *n = &c->call->heads;
    const struct pp_split_heads_memory *at = &c->at.split_heads;
    const void *const memory[] = {at->dqkv, at->dq, at->dkv};
    const int64_t numbers = (int64_t)n->rows * n->seq * n->shared;
    if (moves_quads<T>(n, memory, 3))
        launch_split<pp_pack<T>>(c, PP_QUAD);
    else
        launch_split<T>(c, 1);
    PP_LAUNCH(sum_shared<T>, pp_div_up(numbers, THREADS), THREADS, 0, c->stream, columns_of(n, 1), n->heads, numbers,
              static_cast<const T *>(at->dqkv), static_cast<T *>(at->dshared));
    return cudaGetLastError();
}

cudaError_t pp_cuda_latent_norm(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_norm, c); }
cudaError_t pp_cuda_latent_norm_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_norm_grad, c); }
cudaError_t pp_cuda_join_heads(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_join, c); }
cudaError_t pp_cuda_split_heads(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_split, c); }

template <typename T> static cudaError_t prepare(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(norm<T, true>),
                                   reinterpret_cast<const void *>(norm<T, false>),
                                   reinterpret_cast<const void *>(norm_grad<T, true>),
                                   reinterpret_cast<const void *>(norm_grad<T, false>),
                                   reinterpret_cast<const void *>(norm_weights<T, true>),
                                   reinterpret_cast<const void *>(norm_weights<T, false>),
                                   reinterpret_cast<const void *>(join_heads<T>),
                                   reinterpret_cast<const void *>(join_heads<pp_pack<T>>),
                                   reinterpret_cast<const void *>(split_heads<T>),
                                   reinterpret_cast<const void *>(split_heads<pp_pack<T>>),
                                   reinterpret_cast<const void *>(sum_shared<T>),
                                   reinterpret_cast<const void *>(pp_column_partials<true>),
                                   reinterpret_cast<const void *>(pp_column_partials<false>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}

cudaError_t pp_cuda_prepare_latent(void)
{
    const cudaError_t error = prepare<float>();
    return error == cudaSuccess ? prepare<__nv_bfloat16>() : error;
}
