/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients that are taken over from another place; the norm of all gradients and the clip factor; sums over replicas,
 * and conversions for them; and a kernel that only takes time.
 */
#include <algorithm>

#include "core/model/queue.h"
#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/group.cuh"

enum {
    THREADS = 256,
    NORM_THREADS = 512,
    NORM_BLOCKS = 1024,           /* of one tensor, at most; a single block then adds their sums */
    NORM_BLOCK_ELEMENTS = 1 << 15 /* of one block, at least: a small tensor takes one block */
};

static_assert(PP_CUDA_GROUP * NORM_BLOCKS * sizeof(double) <= PP_CUDA_SCRATCH_BYTES, "blocks' sums lie in the scratch");

/* ---- take ---- */

/* grad [n] = in, or grad += in if accumulate. in: NULL stands for zeros. */
template <bool aligned>
static __global__ void __launch_bounds__(THREADS) take(float *grad, const float *in, int64_t n, bool accumulate)
{
    const int64_t i = PP_QUAD * ((int64_t)blockIdx.x * THREADS + threadIdx.x), left = n - i;
    if (left <= 0) return;
    pp_quad q = {};
    if (in) q = pp_load<aligned>(in + i, left);
    if (accumulate) {
        const pp_quad before = pp_load<aligned>(grad + i, left);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) q.v[k] = before.v[k] + q.v[k];
    }
    pp_store<aligned>(grad + i, left, q);
}

cudaError_t pp_cuda_take(const struct pp_cuda_call *c)
{
    const int64_t n = (int64_t)c->call->matrix.rows * c->call->matrix.width;
    float *grad = static_cast<float *>(c->at.take.grad);
    const float *in = static_cast<const float *>(c->at.take.in);
    const bool aligned = n % PP_QUAD == 0 && pp_aligned(grad) && (!in || pp_aligned(in));
    const auto kernel = aligned ? take<true> : take<false>;
    PP_LAUNCH(kernel, pp_div_up(n, PP_QUAD * THREADS), THREADS, 0, c->stream, grad, in, n, c->call->adds);
    return cudaGetLastError();
}

/* ---- norm ---- */

struct norm_tensor {
    const float *g;
    int64_t n, piece; /* elements of the tensor, and of one block */
    int first_block, blocks;
    int index; /* of its sum in norm_sums.total */
    bool aligned;
};

struct norm_sums {
    double *total;   /* the sum of squares of each tensor */
    double *partial; /* [blocks of the launch] sums of blocks, of tensors that have several blocks */
};

typedef pp_group<norm_tensor, norm_sums, PP_CUDA_GROUP> norm_group;
static_assert(sizeof(norm_group) <= PP_PARAMETER_BYTES, "a group is passed by value");

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

/* The sum of squares of `piece` elements of a tensor in each block, in double. */
static __global__ void __launch_bounds__(NORM_THREADS) squares(norm_group group)
{
    PP_SHARED_ONE(pp_by_warp<double>, shared);
    const norm_tensor &t = group.of[pp_tensor_of(group, (int)blockIdx.x)];
    const int64_t first = ((int)blockIdx.x - t.first_block) * t.piece;
    const int64_t end = first + t.piece < t.n ? first + t.piece : t.n;
    double sum = t.aligned ? sum_squares<true>(t.g, first, end) : sum_squares<false>(t.g, first, end);
    sum = pp_block_sum(sum, shared);
    if (threadIdx.x == 0) *(t.blocks == 1 ? group.all.total + t.index : group.all.partial + blockIdx.x) = sum;
}

/* Adds the blocks' sums of each tensor that has several. Grid: tensors. */
static __global__ void __launch_bounds__(NORM_THREADS) add_squares(norm_group group)
{
    PP_SHARED_ONE(pp_by_warp<double>, shared);
    const norm_tensor &t = group.of[blockIdx.x];
    if (t.blocks == 1) return;
    double sum = 0;
    for (int i = threadIdx.x; i < t.blocks; i += NORM_THREADS) sum += group.all.partial[t.first_block + i];
    sum = pp_block_sum(sum, shared);
    if (threadIdx.x == 0) group.all.total[t.index] = sum;
}

static norm_tensor norm_tensor_of(const struct pp_cuda_call *c, int first_block)
{
    const struct pp_sumsq_dims *n = &c->call->sumsq;
    norm_tensor t;
    const bool others = pp_counts_elsewhere(n->once, c->frame); /* another worker counts it: its sum here is 0 */
    t.g = static_cast<const float *>(c->at.sumsq.gradient);
    t.n = others ? 0 : (int64_t)n->rows * n->width;
    const int64_t share = PP_QUAD * ((t.n + PP_QUAD * NORM_BLOCKS - 1) / (PP_QUAD * NORM_BLOCKS));
    t.piece = std::max(share, (int64_t)NORM_BLOCK_ELEMENTS);
    t.first_block = first_block;
    t.blocks = std::max((int)((t.n + t.piece - 1) / t.piece), 1);
    t.index = pp_sum_index(c->call, c->frame);
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

/* ---- sums of replicas, the clip factor ---- */

struct parts {
    const void *at[PP_SUM_PARTS];
    int n;
};

static __global__ void __launch_bounds__(THREADS) sum_doubles(double *to, parts p, int64_t elements)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= elements) return;
    double sum = static_cast<const double *>(p.at[0])[i];
    for (int k = 1; k < p.n; k++) sum += static_cast<const double *>(p.at[k])[i];
    to[i] = sum;
}

/* to [elements] = the sum of the parts, in their order. T: float or bfloat16; each sum of two numbers is rounded to T,
 * as if it had been stored. */
template <typename T, bool aligned>
static __global__ void __launch_bounds__(THREADS) sum_quads(T *to, parts p, int64_t elements)
{
    const int64_t i = PP_QUAD * ((int64_t)blockIdx.x * THREADS + threadIdx.x), left = elements - i;
    if (left <= 0) return;
    pp_quad sum = pp_load<aligned>(static_cast<const T *>(p.at[0]) + i, left);
    for (int k = 1; k < p.n; k++) {
        const pp_quad q = pp_load<aligned>(static_cast<const T *>(p.at[k]) + i, left);
#pragma unroll
        for (int l = 0; l < PP_QUAD; l++) sum.v[l] = pp_to_float(pp_from_float<T>(sum.v[l] + q.v[l]));
    }
    pp_store<aligned>(to + i, left, sum);
}

template <typename T> static void launch_quads(cudaStream_t stream, void *to, const parts &p, int64_t elements)
{
    bool aligned = elements % PP_QUAD == 0 && pp_aligned(static_cast<T *>(to));
    for (int i = 0; i < p.n; i++) aligned = aligned && pp_aligned(static_cast<const T *>(p.at[i]));
    const auto kernel = aligned ? sum_quads<T, true> : sum_quads<T, false>;
    PP_LAUNCH(kernel, pp_div_up(elements, PP_QUAD * THREADS), THREADS, 0, stream, static_cast<T *>(to), p, elements);
}

cudaError_t pp_cuda_sum(cudaStream_t stream, void *to, const void *const *from, int nparts, int64_t elements, int type)
{
    if (nparts < 1 || nparts > PP_SUM_PARTS) return cudaErrorInvalidValue;
    if (elements == 0) return cudaSuccess;
    parts p = {};
    p.n = nparts;
    for (int i = 0; i < nparts; i++) p.at[i] = from[i];
    if (type == PP_SUM_DOUBLE)
        PP_LAUNCH(sum_doubles, pp_div_up(elements, THREADS), THREADS, 0, stream, static_cast<double *>(to), p,
                  elements);
    else if (type == PP_SUM_BF16)
        launch_quads<__nv_bfloat16>(stream, to, p, elements);
    else
        launch_quads<float>(stream, to, p, elements);
    return cudaGetLastError();
}

/* to [n] = from [n], converted from float to bfloat16 or back. */
template <typename To, typename From, bool aligned>
static __global__ void __launch_bounds__(THREADS) convert_quads(To *to, const From *from, int64_t n)
{
    const int64_t i = PP_QUAD * ((int64_t)blockIdx.x * THREADS + threadIdx.x), left = n - i;
    if (left > 0) pp_store<aligned>(to + i, left, pp_load<aligned>(from + i, left));
}

template <typename To, typename From>
static cudaError_t convert(cudaStream_t stream, void *to, const void *from, int64_t n)
{
    const bool aligned =
        n % PP_QUAD == 0 && pp_aligned(static_cast<To *>(to)) && pp_aligned(static_cast<const From *>(from));
    const auto kernel = aligned ? convert_quads<To, From, true> : convert_quads<To, From, false>;
    if (n == 0) return cudaSuccess;
    PP_LAUNCH(kernel, pp_div_up(n, PP_QUAD * THREADS), THREADS, 0, stream, static_cast<To *>(to),
              static_cast<const From *>(from), n);
    return cudaGetLastError();
}

cudaError_t pp_cuda_narrow(cudaStream_t stream, void *to, const void *from, int64_t n)
{
    return convert<__nv_bfloat16, float>(stream, to, from, n);
}

cudaError_t pp_cuda_widen(cudaStream_t stream, void *to, const void *from, int64_t n)
{
    return convert<float, __nv_bfloat16>(stream, to, from, n);
}

/* *factor = min(1, most / (norm + 1e-6)), where norm is the root of the sum of sums[0 .. n-1]. One thread adds, in the
 * order of the tensors, so that the sum depends on nothing else. */
static __global__ void clip_factor(const double *sums, int n, double most, float *factor)
{
    double sum = 0;
#pragma unroll 8
    for (int i = 0; i < n; i++) sum += sums[i];
    const double f = most / (sqrt(sum) + 1e-6);
    *factor = f > 1 ? 1.0f : (float)f; /* NaN stays NaN */
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
    const void *const kernels[] = {reinterpret_cast<const void *>(take<true>),
                                   reinterpret_cast<const void *>(take<false>),
                                   reinterpret_cast<const void *>(squares),
                                   reinterpret_cast<const void *>(add_squares),
                                   reinterpret_cast<const void *>(sum_doubles),
                                   reinterpret_cast<const void *>(sum_quads<float, true>),
                                   reinterpret_cast<const void *>(sum_quads<float, false>),
                                   reinterpret_cast<const void *>(sum_quads<__nv_bfloat16, true>),
                                   reinterpret_cast<const void *>(sum_quads<__nv_bfloat16, false>),
                                   reinterpret_cast<const void *>(convert_quads<__nv_bfloat16, float, true>),
                                   reinterpret_cast<const void *>(convert_quads<__nv_bfloat16, float, false>),
                                   reinterpret_cast<const void *>(convert_quads<float, __nv_bfloat16, true>),
                                   reinterpret_cast<const void *>(convert_quads<float, __nv_bfloat16, false>),
                                   reinterpret_cast<const void *>(clip_factor),
                                   reinterpret_cast<const void *>(spin)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
