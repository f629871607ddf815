/* SPDX-License-Identifier: Apache-2.0
 *
 * Norm, clip factor and optimizer step; sums of replicas; a kernel that only takes time.
 */
#include <cfloat>

#include <algorithm>

#include "core/queue.h"
#include "kernels/cuda/gpu.cuh"

enum {
    THREADS = 256,
    STEP_QUADS = 4, /* of each thread, all on their way from memory at a time */
    STEP_BLOCK_ELEMENTS = THREADS * STEP_QUADS * PP_QUAD,
    NORM_THREADS = 512,
    NORM_BLOCKS = 1024,            /* of a tensor, at most: their sums are added by one block */
    NORM_BLOCK_ELEMENTS = 1 << 15, /* at least, so that small tensors take one block */
    PARAMETER_BYTES = 4096         /* of a launch, on every device */
};

static_assert(PP_CUDA_GROUP * NORM_BLOCKS * sizeof(double) <= PP_CUDA_SCRATCH_BYTES, "blocks' sums lie in the scratch");

/* The tensors of a launch: its blocks are dealt out in their order. */
template <typename tensor, typename common> struct group {
    common all;
    int n;
    tensor of[PP_CUDA_GROUP];
};

/* The tensor of a block: the last one whose first block is not behind it. */
template <typename group> static __device__ inline int tensor_of(const group &g, int block)
{
    int low = 0, high = g.n - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (g.of[middle].first_block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* ---- norm ---- */

struct norm_tensor {
    const float *g;
    int64_t n, piece; /* elements: of the tensor, of a block */
    int first_block, blocks;
    int index; /* of its sum */
    bool aligned;
};

struct norm_sums {
    double *total;   /* [index] */
    double *partial; /* of blocks, of tensors that have several */
};

typedef group<norm_tensor, norm_sums> norm_group;
static_assert(sizeof(norm_group) <= PARAMETER_BYTES, "a group is passed by value");

template <bool aligned> static __device__ inline double sum_squares(const float *g, int64_t first, int64_t end)
{
    double sum = 0;
#pragma unroll 4
    for (int64_t i = first + PP_QUAD * threadIdx.x; i < end; i += PP_QUAD * NORM_THREADS) {
        const pp_quad q = pp_load<aligned>(g + i, end - i);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) sum += (double)q.v[k] * (double)q.v[k];
    }
    return sum;
}

/* Sums of squares of `piece` elements per block, in double. */
static __global__ void __launch_bounds__(NORM_THREADS) squares(norm_group group)
{
    __shared__ double shared[PP_BLOCK_WARPS];
    const norm_tensor &t = group.of[tensor_of(group, (int)blockIdx.x)];
    const int64_t first = ((int)blockIdx.x - t.first_block) * t.piece;
    const int64_t end = first + t.piece < t.n ? first + t.piece : t.n;
    double sum = t.aligned ? sum_squares<true>(t.g, first, end) : sum_squares<false>(t.g, first, end);
    sum = pp_block_sum(sum, shared);
    if (threadIdx.x == 0) *(t.blocks == 1 ? group.all.total + t.index : group.all.partial + blockIdx.x) = sum;
}

/* A block for each tensor. */
static __global__ void __launch_bounds__(NORM_THREADS) add_squares(norm_group group)
{
    __shared__ double shared[PP_BLOCK_WARPS];
    const norm_tensor &t = group.of[blockIdx.x];
    if (t.blocks == 1) return;
    double sum = 0;
    for (int i = threadIdx.x; i < t.blocks; i += NORM_THREADS) sum += group.all.partial[t.first_block + i];
    sum = pp_block_sum(sum, shared);
    if (threadIdx.x == 0) group.all.total[t.index] = sum;
}

static norm_tensor norm_tensor_of(const struct pp_cuda_call *c, int first_block)
{
    norm_tensor t;
    t.g = static_cast<const float *>(c->p[0]);
    t.n = (int64_t)c->call->n[0] * c->call->n[1];
    const int64_t share = PP_QUAD * ((t.n + PP_QUAD * NORM_BLOCKS - 1) / (PP_QUAD * NORM_BLOCKS));
    t.piece = std::max(share, (int64_t)NORM_BLOCK_ELEMENTS);
    t.first_block = first_block;
    t.blocks = (int)((t.n + t.piece - 1) / t.piece);
    t.index = c->call->n[2];
    t.aligned = t.n % PP_QUAD == 0 && pp_aligned(t.g);
    return t;
}

cudaError_t pp_cuda_sumsq_group(const struct pp_cuda_call *c, int n)
{
    norm_group group;
    int blocks = 0;
    bool pieces = false;
    group.all.total = c->frame->sums;
    group.all.partial = static_cast<double *>(c->scratch);
    group.n = n;
    for (int i = 0; i < n; i++) {
        group.of[i] = norm_tensor_of(&c[i], blocks);
        blocks += group.of[i].blocks;
        pieces = pieces || group.of[i].blocks > 1;
    }
    PP_LAUNCH(squares, blocks, NORM_THREADS, 0, c->stream, group);
    if (pieces) PP_LAUNCH(add_squares, n, NORM_THREADS, 0, c->stream, group);
    return cudaGetLastError();
}

cudaError_t pp_cuda_sumsq(const struct pp_cuda_call *c) { return pp_cuda_sumsq_group(c, 1); }

/* ---- step ---- */

struct step_tensor {
    float *w;
    const float *g;
    __nv_bfloat16 *copy; /* NULL: none */
    int64_t n;
    int first_block;
    bool aligned, sparse;
};

struct step_rate {
    float rate, factor;
    const float *clip; /* the factor, instead of `factor`; or NULL */
};

typedef group<step_tensor, step_rate> step_group;
static_assert(sizeof(step_group) <= PARAMETER_BYTES, "a group is passed by value");

/* The quads first, first + THREADS quads, ... of a thread. */
template <bool aligned> static __device__ inline void step(const step_tensor &t, int64_t first, float rate)
{
    pp_quad g[STEP_QUADS], w[STEP_QUADS];
#pragma unroll
    for (int q = 0; q < STEP_QUADS; q++) {
        const int64_t i = first + q * THREADS * PP_QUAD, left = t.n - i;
        if (left <= 0) continue;
        g[q] = pp_load<aligned>(t.g + i, left);
        w[q] = pp_load<aligned>(t.w + i, left);
    }
#pragma unroll
    for (int q = 0; q < STEP_QUADS; q++) {
        const int64_t i = first + q * THREADS * PP_QUAD, left = t.n - i;
        if (left <= 0) continue;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) w[q].v[k] -= g[q].v[k] * rate;
        pp_store<aligned>(t.w + i, left, w[q]);
        if (t.copy) pp_store<aligned>(t.copy + i, left, w[q]);
    }
}

static __device__ inline bool all_plus_zero(pp_quad q)
{
    unsigned bits = 0;
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) bits |= __float_as_uint(q.v[k]);
    return bits == 0;
}

/* The same bits, where w - (+0) * rate is w: weights without a gradient are neither read nor written. */
template <bool aligned> static __device__ inline void step_sparse(const step_tensor &t, int64_t first, float rate)
{
    pp_quad g[STEP_QUADS];
#pragma unroll
    for (int q = 0; q < STEP_QUADS; q++) {
        const int64_t i = first + q * THREADS * PP_QUAD, left = t.n - i;
        g[q] = pp_quad{};
        if (left > 0) g[q] = pp_load<aligned>(t.g + i, left);
    }
#pragma unroll
    for (int q = 0; q < STEP_QUADS; q++) {
        const int64_t i = first + q * THREADS * PP_QUAD, left = t.n - i;
        if (all_plus_zero(g[q])) continue;
        pp_quad w = pp_load<aligned>(t.w + i, left);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) w.v[k] -= g[q].v[k] * rate;
        pp_store<aligned>(t.w + i, left, w);
    }
}

static __global__ void __launch_bounds__(THREADS) sgd(step_group group)
{
    const step_tensor &t = group.of[tensor_of(group, (int)blockIdx.x)];
    const int64_t first = ((int)blockIdx.x - t.first_block) * (int64_t)STEP_BLOCK_ELEMENTS + PP_QUAD * threadIdx.x;
    const float rate = group.all.rate * (group.all.clip ? *group.all.clip : group.all.factor);
    const bool sparse =
        t.sparse && __float_as_uint(rate) <= __float_as_uint(FLT_MAX); /* not -0, infinite or no number */
    if (sparse && t.aligned)
        step_sparse<true>(t, first, rate);
    else if (sparse)
        step_sparse<false>(t, first, rate);
    else if (t.aligned)
        step<true>(t, first, rate);
    else
        step<false>(t, first, rate);
}

static step_tensor step_tensor_of(const struct pp_cuda_call *c, int first_block)
{
    step_tensor t;
    t.w = static_cast<float *>(c->p[0]);
    t.g = static_cast<const float *>(c->p[1]);
    t.copy = static_cast<__nv_bfloat16 *>(c->p[2]);
    t.n = (int64_t)c->call->n[0] * c->call->n[1];
    t.first_block = first_block;
    t.aligned = t.n % PP_QUAD == 0 && pp_aligned(t.w) && pp_aligned(t.g) && pp_aligned(t.copy);
    t.sparse = c->call->n[2] && !t.copy; /* a copy is written in any case */
    return t;
}

cudaError_t pp_cuda_sgd_group(const struct pp_cuda_call *c, int n)
{
    step_group group;
    int blocks = 0;
    group.all.rate = c->frame->learning_rate;
    group.all.factor = c->frame->clip_factor;
    group.all.clip = c->frame->clip;
    group.n = n;
    for (int i = 0; i < n; i++) {
        group.of[i] = step_tensor_of(&c[i], blocks);
        blocks += pp_div_up(group.of[i].n, STEP_BLOCK_ELEMENTS);
    }
    PP_LAUNCH(sgd, blocks, THREADS, 0, c->stream, group);
    return cudaGetLastError();
}

cudaError_t pp_cuda_sgd(const struct pp_cuda_call *c) { return pp_cuda_sgd_group(c, 1); }

/* ---- sums of replicas, the clip factor ---- */

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
    const void *const kernels[] = {reinterpret_cast<const void *>(squares),
                                   reinterpret_cast<const void *>(add_squares),
                                   reinterpret_cast<const void *>(sgd),
                                   reinterpret_cast<const void *>(sum_parts<float>),
                                   reinterpret_cast<const void *>(sum_parts<double>),
                                   reinterpret_cast<const void *>(sum_quads),
                                   reinterpret_cast<const void *>(clip_factor),
                                   reinterpret_cast<const void *>(spin)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
