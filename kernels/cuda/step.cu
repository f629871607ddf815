/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimizer step: for each optimizer a kernel, which updates many tensors of a stage in one launch.
 */
#include <cfloat>

#include "kernels/cuda/gpu.cuh"
#include "kernels/cuda/group.cuh"

enum {
    THREADS = 256,
    SGD_QUADS = 4, /* of each thread, which loads all of them before it uses any */
    SGD_BLOCK_ELEMENTS = THREADS * SGD_QUADS * PP_QUAD,
    ADAMW_QUADS = 2, /* the same; a quad is loaded from each of four arrays (w, g, m, v) */
    ADAMW_BLOCK_ELEMENTS = THREADS * ADAMW_QUADS * PP_QUAD
};

/* ---- sgd ---- */

struct sgd_tensor {
    float *w;
    const float *g;
    __nv_bfloat16 *copy; /* w as bfloat16, for products; NULL: there is none */
    int64_t n;
    int first_block;
    bool aligned, sparse; /* sparse: most gradients are zero (an embedding's) */
};

struct sgd_rate {
    float rate, factor;
    const float *clip; /* in device memory, used in place of `factor`; or NULL */
};

typedef pp_group<sgd_tensor, sgd_rate, PP_CUDA_GROUP> sgd_group;
static_assert(sizeof(sgd_group) <= PP_PARAMETER_BYTES, "a group is passed by value");

/* A thread's SGD_QUADS quads: the first begins with element `first`, the others THREADS quads apart. */
template <bool aligned> static __device__ inline void sgd_step(const sgd_tensor &t, int64_t first, float rate)
{
    pp_quad g[SGD_QUADS], w[SGD_QUADS];
#pragma unroll
    for (int q = 0; q < SGD_QUADS; q++) {
        const int64_t i = first + q * THREADS * PP_QUAD, left = t.n - i;
        if (left <= 0) continue;
        g[q] = pp_load<aligned>(t.g + i, left);
        w[q] = pp_load<aligned>(t.w + i, left);
    }
#pragma unroll
    for (int q = 0; q < SGD_QUADS; q++) {
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

/* The same, with the same bits, but weights whose gradients are all +0 are neither read nor written: w - (+0) * rate is
 * w if rate is finite and not negative. */
template <bool aligned> static __device__ inline void sgd_sparse(const sgd_tensor &t, int64_t first, float rate)
{
    pp_quad g[SGD_QUADS];
#pragma unroll
    for (int q = 0; q < SGD_QUADS; q++) {
        const int64_t i = first + q * THREADS * PP_QUAD, left = t.n - i;
        g[q] = pp_quad{};
        if (left > 0) g[q] = pp_load<aligned>(t.g + i, left);
    }
#pragma unroll
    for (int q = 0; q < SGD_QUADS; q++) {
        const int64_t i = first + q * THREADS * PP_QUAD, left = t.n - i;
        if (all_plus_zero(g[q])) continue;
        pp_quad w = pp_load<aligned>(t.w + i, left);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) w.v[k] -= g[q].v[k] * rate;
        pp_store<aligned>(t.w + i, left, w);
    }
}

static __global__ void __launch_bounds__(THREADS) sgd(sgd_group group)
{
    const sgd_tensor &t = group.of[pp_tensor_of(group, (int)blockIdx.x)];
    const int64_t first = ((int)blockIdx.x - t.first_block) * (int64_t)SGD_BLOCK_ELEMENTS + PP_QUAD * threadIdx.x;
    const float rate = group.all.rate * (group.all.clip ? *group.all.clip : group.all.factor);
    const bool sparse =
        t.sparse && __float_as_uint(rate) <= __float_as_uint(FLT_MAX); /* not negative, -0, infinite or NaN */
    if (sparse && t.aligned)
        sgd_sparse<true>(t, first, rate);
    else if (sparse)
        sgd_sparse<false>(t, first, rate);
    else if (t.aligned)
        sgd_step<true>(t, first, rate);
    else
        sgd_step<false>(t, first, rate);
}

static sgd_tensor sgd_tensor_of(const struct pp_cuda_call *c, int first_block)
{
    const struct pp_step_dims *n = &c->call->step;
    sgd_tensor t;
    t.w = static_cast<float *>(c->at.step.w);
    t.g = static_cast<const float *>(c->at.step.g);
    t.copy = static_cast<__nv_bfloat16 *>(c->at.step.copy);
    t.n = (int64_t)n->rows * n->width;
    t.first_block = first_block;
    t.aligned = t.n % PP_QUAD == 0 && pp_aligned(t.w) && pp_aligned(t.g) && pp_aligned(t.copy);
    t.sparse = n->sparse && !t.copy; /* a copy must be written whole */
    return t;
}

cudaError_t pp_cuda_sgd_group(const struct pp_cuda_call *c, int n)
{
    sgd_group group;
    int blocks = 0;
    group.all.rate = c->frame->learning_rate;
    group.all.factor = c->frame->clip_factor;
    group.all.clip = c->frame->clip;
    group.n = n;
    for (int i = 0; i < n; i++) {
        group.of[i] = sgd_tensor_of(&c[i], blocks);
        blocks += pp_div_up(group.of[i].n, SGD_BLOCK_ELEMENTS);
    }
    PP_LAUNCH(sgd, blocks, THREADS, 0, c->stream, group);
    return cudaGetLastError();
}

cudaError_t pp_cuda_sgd(const struct pp_cuda_call *c) { return pp_cuda_sgd_group(c, 1); }

/* ---- adamw ---- */

/* Moment: what the moments m and v are kept in, float or bfloat16; they are computed in float. */
template <typename Moment> struct adamw_tensor {
    float *w;
    Moment *m, *v;
    const float *g;
    __nv_bfloat16 *copy; /* w as bfloat16, for products; NULL: there is none */
    int64_t n;
    int first_block;
    bool aligned;
};

struct adamw_numbers {
    struct pp_adamw a;
    float factor;
    const float *clip; /* in device memory, used in place of `factor`; or NULL */
};

template <typename Moment> using adamw_group = pp_group<adamw_tensor<Moment>, adamw_numbers, PP_CUDA_GROUP>;
static_assert(sizeof(adamw_group<float>) <= PP_PARAMETER_BYTES, "a group is passed by value");

struct adamw_quads {
    pp_quad w, g, m, v;
};

static __device__ inline void adamw_quad(const pp_adamw &a, float factor, adamw_quads *q)
{
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) {
        const float g = q->g.v[k] * factor;
        q->m.v[k] += a.mean_gain * (g - q->m.v[k]);
        q->v.v[k] = q->v.v[k] * a.square_keep + a.square_gain * g * g;
        q->w.v[k] = q->w.v[k] * a.keep - a.rate * q->m.v[k] / (sqrtf(q->v.v[k]) / a.square_root + a.epsilon);
    }
}

/* A thread's ADAMW_QUADS quads: the first begins with element `first`, the others THREADS quads apart. */
template <bool aligned, typename Moment>
static __device__ inline void adamw_step(const adamw_tensor<Moment> &t, int64_t first, const pp_adamw &a, float factor)
{
    adamw_quads quads[ADAMW_QUADS];
#pragma unroll
    for (int q = 0; q < ADAMW_QUADS; q++) {
        const int64_t i = first + q * THREADS * PP_QUAD, left = t.n - i;
        if (left <= 0) continue;
        quads[q].g = pp_load<aligned>(t.g + i, left);
        quads[q].w = pp_load<aligned>(t.w + i, left);
        quads[q].m = pp_load<aligned>(t.m + i, left);
        quads[q].v = pp_load<aligned>(t.v + i, left);
    }
#pragma unroll
    for (int q = 0; q < ADAMW_QUADS; q++) {
        const int64_t i = first + q * THREADS * PP_QUAD, left = t.n - i;
        if (left <= 0) continue;
        adamw_quad(a, factor, &quads[q]);
        pp_store<aligned>(t.w + i, left, quads[q].w);
        pp_store<aligned>(t.m + i, left, quads[q].m);
        pp_store<aligned>(t.v + i, left, quads[q].v);
        if (t.copy) pp_store<aligned>(t.copy + i, left, quads[q].w);
    }
}

template <typename Moment> static __global__ void __launch_bounds__(THREADS) adamw(adamw_group<Moment> group)
{
    const adamw_tensor<Moment> &t = group.of[pp_tensor_of(group, (int)blockIdx.x)];
    const int64_t first = ((int)blockIdx.x - t.first_block) * (int64_t)ADAMW_BLOCK_ELEMENTS + PP_QUAD * threadIdx.x;
    const float factor = group.all.clip ? *group.all.clip : group.all.factor;
    if (t.aligned)
        adamw_step<true>(t, first, group.all.a, factor);
    else
        adamw_step<false>(t, first, group.all.a, factor);
}

template <typename Moment> static adamw_tensor<Moment> adamw_tensor_of(const struct pp_cuda_call *c, int first_block)
{
    const struct pp_step_memory *at = &c->at.step;
    adamw_tensor<Moment> t;
    t.w = static_cast<float *>(at->w);
    t.g = static_cast<const float *>(at->g);
    t.copy = static_cast<__nv_bfloat16 *>(at->copy);
    t.m = static_cast<Moment *>(at->m);
    t.v = static_cast<Moment *>(at->v);
    t.n = (int64_t)c->call->step.rows * c->call->step.width;
    t.first_block = first_block;
    t.aligned = t.n % PP_QUAD == 0 && pp_aligned(t.w) && pp_aligned(t.g) && pp_aligned(t.copy) && pp_aligned(t.m) &&
                pp_aligned(t.v);
    return t;
}

template <typename Moment> static cudaError_t launch_adamw(const struct pp_cuda_call *c, int n)
{
    adamw_group<Moment> group;
    int blocks = 0;
    group.all.a = c->frame->adamw;
    group.all.factor = c->frame->clip_factor;
    group.all.clip = c->frame->clip;
    group.n = n;
    for (int i = 0; i < n; i++) {
        group.of[i] = adamw_tensor_of<Moment>(&c[i], blocks);
        blocks += pp_div_up(group.of[i].n, ADAMW_BLOCK_ELEMENTS);
    }
    PP_LAUNCH(adamw<Moment>, blocks, THREADS, 0, c->stream, group);
    return cudaGetLastError();
}

cudaError_t pp_cuda_adamw_group(const struct pp_cuda_call *c, int n) { return launch_adamw<float>(c, n); }
cudaError_t pp_cuda_adamw(const struct pp_cuda_call *c) { return pp_cuda_adamw_group(c, 1); }

cudaError_t pp_cuda_adamw_bf16_group(const struct pp_cuda_call *c, int n) { return launch_adamw<__nv_bfloat16>(c, n); }
cudaError_t pp_cuda_adamw_bf16(const struct pp_cuda_call *c) { return pp_cuda_adamw_bf16_group(c, 1); }

/* Loads, and products of whole numbers, are compared exactly. all: choices of all tokens of the batch. */
static __global__ void __launch_bounds__(THREADS)
    balance(float *bias, const float *loads, int n, int experts, double all, float rate)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i >= n) return;
    const double load = (double)loads[i] * experts;
    bias[i] += rate * (float)((load < all) - (load > all));
}

cudaError_t pp_cuda_balance(const struct pp_cuda_call *c)
{
    const struct pp_balance_dims *dims = &c->call->balance;
    const int n = dims->rows * dims->width; /* experts at most, and what fills up a share */
    PP_LAUNCH(balance, pp_div_up(n, THREADS), THREADS, 0, c->stream, static_cast<float *>(c->at.balance.bias),
              static_cast<const float *>(c->at.balance.loads), n, dims->experts,
              (double)c->frame->tokens * dims->chosen, c->call->scale);
    return cudaGetLastError();
}

cudaError_t pp_cuda_prepare_step(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(sgd), reinterpret_cast<const void *>(adamw<float>),
                                   reinterpret_cast<const void *>(adamw<__nv_bfloat16>),
                                   reinterpret_cast<const void *>(balance)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
