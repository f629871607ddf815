/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes over matrices of activations: copy, relu and its gradient, column sums.
 */
#include "kernels/cuda/columns.cuh"

enum { THREADS = 256 };

template <typename T> static __global__ void __launch_bounds__(THREADS) copy(T *to, const T *from, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) to[i] = from[i];
}

template <typename T> static cudaError_t run_copy(const struct pp_cuda_call *c, int64_t bytes)
{
    const int64_t n = bytes / (int64_t)sizeof(T);
    PP_LAUNCH(copy<T>, pp_div_up(n, THREADS), THREADS, 0, c->stream, static_cast<T *>(c->p[0]),
              static_cast<const T *>(c->p[1]), n);
    return cudaGetLastError();
}

cudaError_t pp_cuda_copy(const struct pp_cuda_call *c)
{
    if (!c->p[0] || !c->p[1]) return cudaSuccess;
    const int64_t bytes = (int64_t)c->call->n[0] * c->call->n[1] * pp_element_bytes(c->call->precision);
    if (((uintptr_t)c->p[0] | (uintptr_t)c->p[1] | (uintptr_t)bytes) % sizeof(uint4) == 0)
        return run_copy<uint4>(c, bytes);
    return run_copy<uint16_t>(c, bytes);
}

template <typename T> struct relu_rows {
    T *u;
    const float *bias;
    int width;
    uint32_t vector;
    pp_dropout drop;
};

/* Grid (rows, quads of a row / THREADS). */
template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) relu(relu_rows<T> r)
{
    const int64_t j = PP_QUAD * ((int64_t)blockIdx.y * blockDim.x + threadIdx.x), left = r.width - j;
    if (left <= 0) return;
    T *u = r.u + (int64_t)blockIdx.x * r.width + j;
    const pp_quad bias = pp_load<aligned>(r.bias + j, left);
    pp_quad q = pp_load<aligned>(u, left);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) {
        const float sum = q.v[k] + bias.v[k];
        q.v[k] = sum <= 0 ? 0 : sum; /* fmaxf would hide what is not a number */
    }
    pp_store<aligned>(u, left, pp_drop(r.drop, r.vector + blockIdx.x, (uint32_t)(j / PP_QUAD), q));
}

template <typename T> static cudaError_t run_relu(const struct pp_cuda_call *c)
{
    const int seq = c->call->n[1], width = c->call->n[2];
    relu_rows<T> r;
    r.u = static_cast<T *>(c->p[0]);
    r.bias = static_cast<const float *>(c->p[1]);
    r.width = width;
    r.vector = pp_first_vector(c, seq);
    r.drop = pp_dropout_of(c, c->call->f[0]);
    const bool aligned = width % PP_QUAD == 0 && pp_aligned(r.u) && pp_aligned(r.bias);
    const auto kernel = aligned ? relu<T, true> : relu<T, false>;
    const int quads = pp_div_up(width, PP_QUAD), threads = pp_block_threads(quads, THREADS);
    PP_LAUNCH(kernel, dim3(c->call->n[0] * seq, pp_div_up(quads, threads)), threads, 0, c->stream, r);
    return cudaGetLastError();
}

cudaError_t pp_cuda_relu(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_relu, c); }

/* u > 0 exactly where neither the relu nor dropout cut it off. */
template <typename T, bool aligned>
static __global__ void __launch_bounds__(THREADS) relu_grad(T *du, const T *u, int64_t n, float scale)
{
    const int64_t i = PP_QUAD * ((int64_t)blockIdx.x * THREADS + threadIdx.x), left = n - i;
    if (left <= 0) return;
    const pp_quad passed = pp_load<aligned>(u + i, left);
    pp_quad q = pp_load<aligned>(du + i, left);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) q.v[k] = passed.v[k] > 0 ? q.v[k] * scale : 0;
    pp_store<aligned>(du + i, left, q);
}

template <typename T> static cudaError_t run_relu_grad(const struct pp_cuda_call *c)
{
    const int64_t n = (int64_t)c->call->n[0] * c->call->n[1] * c->call->n[2];
    T *du = static_cast<T *>(c->p[0]);
    const T *u = static_cast<const T *>(c->p[1]);
    const bool aligned = n % PP_QUAD == 0 && pp_aligned(du) && pp_aligned(u);
    const auto kernel = aligned ? relu_grad<T, true> : relu_grad<T, false>;
    PP_LAUNCH(kernel, pp_div_up(n, PP_QUAD * THREADS), THREADS, 0, c->stream, du, u, n,
              pp_dropout_of(c, c->call->f[0]).scale);
    return cudaGetLastError();
}

cudaError_t pp_cuda_relu_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_relu_grad, c); }

template <typename T> static cudaError_t run_colsum(const struct pp_cuda_call *c)
{
    pp_columns<T> columns;
    columns.in = static_cast<const T *>(c->p[1]);
    columns.by = NULL;
    columns.rows = c->call->n[0];
    columns.width = c->call->n[1];
    columns.sum[0] = static_cast<float *>(c->p[0]);
    columns.sum[1] = NULL;
    columns.accumulate = c->frame->accumulate;
    return pp_sum_columns<T, false>(c, columns);
}

cudaError_t pp_cuda_colsum(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_colsum, c); }

template <typename T> static cudaError_t prepare(void)
{
    const void *const kernels[] = {
        reinterpret_cast<const void *>(relu<T, true>), reinterpret_cast<const void *>(relu<T, false>),
        reinterpret_cast<const void *>(relu_grad<T, true>), reinterpret_cast<const void *>(relu_grad<T, false>)};
    const cudaError_t error = pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
    return error != cudaSuccess ? error : pp_prepare_columns<T, false>();
}

cudaError_t pp_cuda_prepare_rows(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(copy<uint4>),
                                   reinterpret_cast<const void *>(copy<uint16_t>)};
    cudaError_t error = pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
    if (error == cudaSuccess) error = prepare<float>();
    return error != cudaSuccess ? error : prepare<__nv_bfloat16>();
}
