/* SPDX-License-Identifier: Apache-2.0
 *
 * Norm, clip factor and optimizer step; sums of replicas; a kernel that only takes time.
 */
#include <algorithm>

#include "core/queue.h"
#include "kernels/cuda/gpu.cuh"

enum {
    THREADS = 256,
    NORM_THREADS = 512,
    NORM_BLOCKS = 1024,            /* at most: their sums are added by one block */
    NORM_BLOCK_ELEMENTS = 1 << 15, /* at least, so that small tensors take one block */
};

static_assert(NORM_BLOCKS * sizeof(double) <= PP_CUDA_SCRATCH_BYTES, "the sums of blocks lie in the scratch");

/* Sums of squares of `piece` elements per block, in double. */
template <bool aligned>
static __global__ void __launch_bounds__(NORM_THREADS) squares(const float *g, int64_t n, int64_t piece, double *sums)
{
    __shared__ double shared[PP_BLOCK_WARPS];
    const int64_t first = blockIdx.x * piece, end = first + piece < n ? first + piece : n;
    double sum = 0;
#pragma unroll 4
    for (int64_t i = first + PP_QUAD * threadIdx.x; i < end; i += PP_QUAD * NORM_THREADS) {
        const pp_quad q = pp_load<aligned>(g + i, end - i);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) sum += (double)q.v[k] * (double)q.v[k];
    }
    sum = pp_block_sum(sum, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(NORM_THREADS) add_squares(const double *sums, int n, double *total)
{
    __shared__ double shared[PP_BLOCK_WARPS];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += NORM_THREADS) sum += sums[i];
    sum = pp_block_sum(sum, shared);
    if (threadIdx.x == 0) *total = sum;
}

cudaError_t pp_cuda_sumsq(const struct pp_cuda_call *c)
{
    const int64_t n = (int64_t)c->call->n[0] * c->call->n[1];
    const float *g = static_cast<const float *>(c->p[0]);
    double *total = c->frame->sums + c->call->n[2], *partial = static_cast<double *>(c->scratch);
    const int64_t share = PP_QUAD * ((n + PP_QUAD * NORM_BLOCKS - 1) / (PP_QUAD * NORM_BLOCKS));
    const int64_t piece = std::max(share, (int64_t)NORM_BLOCK_ELEMENTS);
    const int blocks = (int)((n + piece - 1) / piece);
    const auto kernel = n % PP_QUAD == 0 && pp_aligned(g) ? squares<true> : squares<false>;
    PP_LAUNCH(kernel, blocks, NORM_THREADS, 0, c->stream, g, n, piece, blocks == 1 ? total : partial);
    if (blocks > 1) PP_LAUNCH(add_squares, 1, NORM_THREADS, 0, c->stream, partial, blocks, total);
    return cudaGetLastError();
}

struct sgd_tensor {
    float *w;
    const float *g;
    __nv_bfloat16 *copy; /* NULL: none */
    int64_t n;
    float rate, factor;
    const float *clip; /* the factor, instead of `factor`; or NULL */
};

template <bool aligned> static __global__ void __launch_bounds__(THREADS) sgd(sgd_tensor t)
{
    const int64_t i = PP_QUAD * ((int64_t)blockIdx.x * THREADS + threadIdx.x), left = t.n - i;
    if (left <= 0) return;
    const float rate = t.rate * (t.clip ? *t.clip : t.factor);
    const pp_quad g = pp_load<aligned>(t.g + i, left);
    pp_quad w = pp_load<aligned>(t.w + i, left);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) w.v[k] -= g.v[k] * rate;
    pp_store<aligned>(t.w + i, left, w);
    if (t.copy) pp_store<aligned>(t.copy + i, left, w);
}

cudaError_t pp_cuda_sgd(const struct pp_cuda_call *c)
{
    sgd_tensor t;
    t.w = static_cast<float *>(c->p[0]);
    t.g = static_cast<const float *>(c->p[1]);
    t.copy = static_cast<__nv_bfloat16 *>(c->p[2]);
    t.n = (int64_t)c->call->n[0] * c->call->n[1];
    t.rate = c->frame->learning_rate;
    t.factor = c->frame->clip_factor;
    t.clip = c->frame->clip;
    const bool aligned = t.n % PP_QUAD == 0 && pp_aligned(t.w) && pp_aligned(t.g) && pp_aligned(t.copy);
    const auto kernel = aligned ? sgd<true> : sgd<false>;
    PP_LAUNCH(kernel, pp_div_up(t.n, PP_QUAD * THREADS), THREADS, 0, c->stream, t);
    return cudaGetLastError();
}

struct parts {
    const void *at[PP_SUM_PARTS];
    int n;
};

template <typename T> static __global__ void __launch_bounds__(THREADS) sum_parts(T *to, parts p, int64_t elements)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= elements) return;
    T sum = static_cast<const T *>(p.at[0])[i];
    for (int k = 1; k < p.n; k++) sum += static_cast<const T *>(p.at[k])[i];
    to[i] = sum;
}

/* float, whole quads */
static __global__ void __launch_bounds__(THREADS) sum_quads(float *to, parts p, int64_t elements)
{
    const int64_t i = PP_QUAD * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (i >= elements) return;
    pp_quad sum = pp_load<true>(static_cast<const float *>(p.at[0]) + i, PP_QUAD);
    for (int k = 1; k < p.n; k++) {
        const pp_quad q = pp_load<true>(static_cast<const float *>(p.at[k]) + i, PP_QUAD);
#pragma unroll
        for (int l = 0; l < PP_QUAD; l++) sum.v[l] += q.v[l];
    }
    pp_store<true>(to + i, PP_QUAD, sum);
}

cudaError_t pp_cuda_sum(cudaStream_t stream, void *to, const void *const *from, int nparts, int64_t elements, int type)
{
    if (nparts < 1 || nparts > PP_SUM_PARTS) return cudaErrorInvalidValue;
    if (elements == 0) return cudaSuccess;
    parts p = {};
    p.n = nparts;
    bool aligned = elements % PP_QUAD == 0 && pp_aligned(static_cast<float *>(to));
    for (int i = 0; i < nparts; i++) {
        p.at[i] = from[i];
        aligned = aligned && pp_aligned(static_cast<const float *>(from[i]));
    }
    const int blocks = pp_div_up(elements, THREADS);
    if (type == PP_SUM_DOUBLE)
        PP_LAUNCH(sum_parts<double>, blocks, THREADS, 0, stream, static_cast<double *>(to), p, elements);
    else if (aligned)
        PP_LAUNCH(sum_quads, pp_div_up(elements, PP_QUAD * THREADS), THREADS, 0, stream, static_cast<float *>(to), p,
                  elements);
    else
        PP_LAUNCH(sum_parts<float>, blocks, THREADS, 0, stream, static_cast<float *>(to), p, elements);
    return cudaGetLastError();
}

/* One thread: the sum must not depend on anything but the order of the tensors. */
static __global__ void clip_factor(const double *sums, int n, double most, float *factor)
{
    double sum = 0;
#pragma unroll 8
    for (int i = 0; i < n; i++) sum += sums[i];
    const double f = most / (sqrt(sum) + 1e-6);
    *factor = f > 1 ? 1.0f : (float)f; /* not a number stays that */
}

cudaError_t pp_cuda_clip_factor(cudaStream_t stream, const double *sums, int n, double most, float *factor)
{
    PP_LAUNCH(clip_factor, 1, 1, 0, stream, sums, n, most, factor);
    return cudaGetLastError();
}

static __global__ void spin(int64_t cycles)
{
    const int64_t start = clock64();
    while (clock64() - start < cycles) continue;
}

cudaError_t pp_cuda_spin(cudaStream_t stream, int blocks, int64_t cycles)
{
    PP_LAUNCH(spin, blocks, 1, 0, stream, cycles);
    return cudaGetLastError();
}

cudaError_t pp_cuda_prepare_update(void)
{
    const void *const kernels[] = {
        reinterpret_cast<const void *>(squares<true>),     reinterpret_cast<const void *>(squares<false>),
        reinterpret_cast<const void *>(add_squares),       reinterpret_cast<const void *>(sgd<true>),
        reinterpret_cast<const void *>(sgd<false>),        reinterpret_cast<const void *>(sum_parts<float>),
        reinterpret_cast<const void *>(sum_parts<double>), reinterpret_cast<const void *>(sum_quads),
        reinterpret_cast<const void *>(clip_factor),       reinterpret_cast<const void *>(spin)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
