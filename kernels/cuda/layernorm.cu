/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a residual block in one kernel: bias, dropout, residual and layer normalisation of a row; or only the
 * layer normalisation (`plain`). RMSNorm (`rms`) is the same with a mean of 0 and without beta. A thread block has one
 * row. Each thread keeps `held` quads of the row in registers. Rows that are too long for that (held = 0) are computed
 * from memory again in each of the three passes: mean, variance, result.
 */
#include "kernels/cuda/columns.cuh"

/* The variants of the kernels: how many quads a thread holds. */
enum { VARIANTS = 4 };
static const int variant_held[VARIANTS] = {1, 2, 4, 0};

/* The most threads of a block of the variant. */
static __host__ __device__ constexpr int threads_of(int held) { return held == 1 ? 256 : held == 2 ? 512 : 1024; }

/* The first variant whose registers have room for a row, and the threads of its blocks. */
struct row_shape {
    int variant, threads;
};

static struct row_shape row_shape_of(int width)
{
    const int quads = pp_div_up(width, PP_QUAD);
    for (int i = 0; i + 1 < VARIANTS; i++)
        if (quads <= variant_held[i] * threads_of(variant_held[i]))
            return {i, pp_block_threads(pp_div_up(quads, variant_held[i]), threads_of(variant_held[i]))};
    return {VARIANTS - 1, threads_of(0)};
}

template <typename T> struct layer_norm {
    T *y, *z, *sum;                   /* [T, d]. z becomes xhat. sum: gets r; it may be x. y and sum may be NULL */
    float *rstd;                      /* [T] */
    const T *x;                       /* [T, d] */
    const float *bias, *gamma, *beta; /* [d]; bias and beta may be NULL */
    int d;
    bool plain, rms;
    float eps;
    uint32_t vector;
    pp_dropout drop;
};

/* Columns j .. j+3 of r, what is normalised: r = x + drop(z + bias), or r = x if the norm is plain. z, x: the row. */
template <typename T, bool aligned>
static __device__ pp_quad residual(const layer_norm<T> &n, const T *z, const T *x, uint32_t vector, int j)
{
    const pp_quad add = pp_load<aligned>(x + j, n.d - j);
    if (n.plain) return add;
    const pp_quad bias = pp_load_any<aligned>(n.bias, j, n.d - j);
    pp_quad r = pp_load<aligned>(z + j, n.d - j);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) r.v[k] += bias.v[k];
    r = pp_drop(n.drop, vector, (uint32_t)j / PP_QUAD, r);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) r.v[k] += add.v[k];
    return r;
}

template <typename T, bool aligned>
static __device__ void write_normal(const layer_norm<T> &n, int64_t at, int j, pp_quad r, float mean, float rstd)
{
    const int left = n.d - j;
    if (n.sum) pp_store<aligned>(n.sum + at + j, left, r);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) r.v[k] = (r.v[k] - mean) * rstd;
    pp_store<aligned>(n.z + at + j, left, r);
    if (!n.y) return;
    const pp_quad gamma = pp_load<aligned>(n.gamma + j, left), beta = pp_load_any<aligned>(n.beta, j, left);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) r.v[k] = r.v[k] * gamma.v[k] + beta.v[k];
    pp_store<aligned>(n.y + at + j, left, r);
}

template <typename T, bool aligned, int held>
static __global__ void __launch_bounds__(threads_of(held)) layernorm(layer_norm<T> n)
{
    PP_SHARED_ONE(pp_by_warp<float>, shared);
    const int64_t at = (int64_t)blockIdx.x * n.d;
    const uint32_t vector = n.vector + blockIdx.x;
    const int step = PP_QUAD * (int)blockDim.x, start = PP_QUAD * (int)threadIdx.x;
    const int turns = held ? held : pp_div_up(n.d, step);
    const auto element = [&](int j) { return residual<T, aligned>(n, n.z + at, n.x + at, vector, j); };
    pp_quad r[held ? held : 1];
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < turns; i++) {
        const int j = start + i * step;
        if (j >= n.d) break;
        const pp_quad q = element(j);
        if (held) r[i % (held ? held : 1)] = q;
        for (int k = 0; k < PP_QUAD; k++) sum += j + k < n.d ? q.v[k] : 0;
    }
    const float mean = n.rms ? 0 : pp_block_sum(sum, shared) / (float)n.d;
#pragma unroll
    for (int i = 0; i < turns; i++) {
        const int j = start + i * step;
        if (j >= n.d) break;
        const pp_quad q = held ? r[i % (held ? held : 1)] : element(j);
        for (int k = 0; k < PP_QUAD; k++) squares += j + k < n.d ? (q.v[k] - mean) * (q.v[k] - mean) : 0;
    }
    const float rstd = 1 / sqrtf(pp_block_sum(squares, shared) / (float)n.d + n.eps);
    if (threadIdx.x == 0) n.rstd[blockIdx.x] = rstd;
#pragma unroll
    for (int i = 0; i < turns; i++) {
        const int j = start + i * step;
        if (j >= n.d) break;
        write_normal<T, aligned>(n, at, j, held ? r[i % (held ? held : 1)] : element(j), mean, rstd);
    }
}

template <typename T> using norm_kernel = void (*)(layer_norm<T>);
template <typename T>
static const norm_kernel<T> norm_kernels[VARIANTS][2] = {{layernorm<T, false, 1>, layernorm<T, true, 1>},
                                                         {layernorm<T, false, 2>, layernorm<T, true, 2>},
                                                         {layernorm<T, false, 4>, layernorm<T, true, 4>},
                                                         {layernorm<T, false, 0>, layernorm<T, true, 0>}};

template <typename T> static cudaError_t run_norm(const struct pp_cuda_call *c)
{
    const struct pp_norm_memory *at = &c->at.norm;
    const int d = c->call->norm.d;
    const struct pp_tokens tokens = pp_call_tokens(c->call, c->frame);
    if (tokens.n == 0) return cudaSuccess;
    layer_norm<T> n;
    n.y = static_cast<T *>(at->y);
    n.z = static_cast<T *>(at->z);
    n.rstd = static_cast<float *>(at->rstd);
    n.x = static_cast<const T *>(at->x);
    n.bias = static_cast<const float *>(at->bias);
    n.gamma = static_cast<const float *>(at->gamma);
    n.beta = static_cast<const float *>(at->beta);
    n.sum = static_cast<T *>(at->sum);
    n.d = d;
    n.plain = c->call->norm.plain;
    n.rms = c->call->kernel == PP_KERNEL_RMSNORM;
    n.eps = c->call->eps;
    n.vector = (uint32_t)tokens.first;
    n.drop = pp_dropout_of_tokens(c, &tokens);
    const bool aligned = d % PP_QUAD == 0 && pp_aligned(n.y) && pp_aligned(n.z) && pp_aligned(n.x) &&
                         pp_aligned(n.bias) && pp_aligned(n.gamma) && pp_aligned(n.beta) && pp_aligned(n.sum);
    const struct row_shape shape = row_shape_of(d);
    const norm_kernel<T> kernel = norm_kernels<T>[shape.variant][aligned];
    PP_LAUNCH(kernel, (unsigned)tokens.n, shape.threads, 0, c->stream, n);
    return cudaGetLastError();
}

cudaError_t pp_cuda_layernorm(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_norm, c); }
cudaError_t pp_cuda_rmsnorm(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_norm, c); }

template <typename T> struct layer_norm_grad {
    T *dr, *xhat;       /* [T, d]. dz replaces xhat, unless the norm is plain; dr may lie where dy or add does */
    const float *rstd;  /* [T] */
    const T *dy, *add;  /* [T, d]. add: added to dr; may be NULL */
    const float *gamma; /* [d] */
    int d;
    bool plain, rms;
    uint32_t vector;
    pp_dropout drop;
};

/* *g = dy * gamma and *xhat of columns j .. j+3; 0 beyond the row's end. at: index of the row's first element. */
template <typename T, bool aligned>
static __device__ void gradient_at(const layer_norm_grad<T> &n, int64_t at, int j, pp_quad *g, pp_quad *xhat)
{
    const int left = n.d - j;
    const pp_quad gamma = pp_load<aligned>(n.gamma + j, left);
    *g = pp_load<aligned>(n.dy + at + j, left);
    *xhat = pp_load<aligned>(n.xhat + at + j, left);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) g->v[k] *= gamma.v[k];
}

template <typename T, bool aligned, int held>
static __global__ void __launch_bounds__(threads_of(held)) layernorm_grad(layer_norm_grad<T> n)
{
    PP_SHARED_ONE(pp_by_warp<pp_pair>, shared);
    const int64_t at = (int64_t)blockIdx.x * n.d;
    const uint32_t vector = n.vector + blockIdx.x;
    const int step = PP_QUAD * (int)blockDim.x, start = PP_QUAD * (int)threadIdx.x;
    const int turns = held ? held : pp_div_up(n.d, step);
    pp_quad g[held ? held : 1], xhat[held ? held : 1];
    pp_pair sum = {}; /* a: of g; b: of g * xhat */
#pragma unroll
    for (int i = 0; i < turns; i++) {
        const int j = start + i * step, h = i % (held ? held : 1);
        if (j >= n.d) break;
        gradient_at<T, aligned>(n, at, j, &g[h], &xhat[h]);
        for (int k = 0; k < PP_QUAD; k++) {
            sum.a += g[h].v[k];
            sum.b += g[h].v[k] * xhat[h].v[k];
        }
    }
    sum = pp_block_sum(sum, shared);
    const float mean_g = n.rms ? 0 : sum.a / (float)n.d, mean_gx = sum.b / (float)n.d;
    const float rstd = n.rstd[blockIdx.x];
#pragma unroll
    for (int i = 0; i < turns; i++) {
        const int j = start + i * step, h = i % (held ? held : 1);
        if (j >= n.d) break;
        if (!held) gradient_at<T, aligned>(n, at, j, &g[h], &xhat[h]);
        pp_quad v;
        for (int k = 0; k < PP_QUAD; k++) v.v[k] = (g[h].v[k] - mean_g - xhat[h].v[k] * mean_gx) * rstd;
        if (n.add) {
            const pp_quad add = pp_load<aligned>(n.add + at + j, n.d - j);
            for (int k = 0; k < PP_QUAD; k++) v.v[k] += add.v[k];
        }
        pp_store<aligned>(n.dr + at + j, n.d - j, v);
        if (n.plain) continue;
        pp_store<aligned>(n.xhat + at + j, n.d - j, pp_drop(n.drop, vector, (uint32_t)j / PP_QUAD, v));
    }
}

template <typename T> using norm_grad_kernel = void (*)(layer_norm_grad<T>);
template <typename T>
static const norm_grad_kernel<T> norm_grad_kernels[VARIANTS][2] = {
    {layernorm_grad<T, false, 1>, layernorm_grad<T, true, 1>},
    {layernorm_grad<T, false, 2>, layernorm_grad<T, true, 2>},
    {layernorm_grad<T, false, 4>, layernorm_grad<T, true, 4>},
    {layernorm_grad<T, false, 0>, layernorm_grad<T, true, 0>}};

/* The gradients of gamma and, if there is one, beta come first: they read xhat and dy, which the kernel of the rows
 * replaces. */
template <typename T> static cudaError_t run_norm_grad(const struct pp_cuda_call *c)
{
    const struct pp_norm_grad_memory *at = &c->at.norm_grad;
    const int d = c->call->norm.d;
    const struct pp_tokens tokens = pp_call_tokens(c->call, c->frame);
    layer_norm_grad<T> n;
    n.dr = static_cast<T *>(at->dr);
    n.xhat = static_cast<T *>(at->xhat);
    n.rstd = static_cast<const float *>(at->rstd);
    n.dy = static_cast<const T *>(at->dy);
    n.gamma = static_cast<const float *>(at->gamma);
    n.add = static_cast<const T *>(at->add);
    n.d = d;
    n.plain = c->call->norm.plain;
    n.rms = c->call->kernel == PP_KERNEL_RMSNORM_GRAD;
    n.vector = (uint32_t)tokens.first;
    n.drop = pp_dropout_of_tokens(c, &tokens);
    pp_columns<T> columns;
    columns.in = n.dy;
    columns.by = n.xhat;
    columns.rows = (int)tokens.n;
    columns.width = d;
    columns.sum[0] = static_cast<float *>(at->beta_grad);
    columns.sum[1] = static_cast<float *>(at->gamma_grad);
    columns.accumulate = c->frame->accumulate;
    const cudaError_t error = pp_sum_columns<T, true>(c, columns);
    if (error != cudaSuccess || tokens.n == 0) return error;
    const bool aligned = d % PP_QUAD == 0 && pp_aligned(n.dr) && pp_aligned(n.xhat) && pp_aligned(n.dy) &&
                         pp_aligned(n.gamma) && pp_aligned(n.add);
    const struct row_shape shape = row_shape_of(d);
    const norm_grad_kernel<T> kernel = norm_grad_kernels<T>[shape.variant][aligned];
    PP_LAUNCH(kernel, (unsigned)tokens.n, shape.threads, 0, c->stream, n);
    return cudaGetLastError();
}

cudaError_t pp_cuda_layernorm_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_norm_grad, c); }
cudaError_t pp_cuda_rmsnorm_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_norm_grad, c); }

template <typename T> static cudaError_t prepare(void)
{
    const void *kernels[4 * VARIANTS];
    int n = 0;
    for (int i = 0; i < 2 * VARIANTS; i++) {
        kernels[n++] = reinterpret_cast<const void *>(norm_kernels<T>[i / 2][i % 2]);
        kernels[n++] = reinterpret_cast<const void *>(norm_grad_kernels<T>[i / 2][i % 2]);
    }
    const cudaError_t error = pp_load_kernels(kernels, n);
    return error != cudaSuccess ? error : pp_prepare_columns<T, true>();
}

cudaError_t pp_cuda_prepare_layernorm(void)
{
    const cudaError_t error = prepare<float>();
    return error != cudaSuccess ? error : prepare<__nv_bfloat16>();
}
