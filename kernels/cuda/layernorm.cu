/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a residual block in one kernel: bias, dropout, residual and layer normalisation of a row; or only the
 * layer normalisation (`plain`). RMSNorm (`rms`) is the same with a mean of 0 and without beta. A thread block has one
 * row. Each thread keeps `held` quads of the row in registers. Rows that are too long for that (held = 0) are computed
 * from memory again in each of the three passes: mean, variance, result.
 *
 * Measured on an H200, in bf16, 4096 columns: 18 us for 700 rows (8 for 105), backward 30 us (13). When a thread waited
 * for each of its quads before it asked for the next, and column sums had a second kernel, it was 16 us (9), backward
 * 29 us (18): few rows gained.
 */
#include "kernels/cuda/columns.cuh"

/* The variants of the kernels: how many quads a thread holds, and the most threads of a block. */
struct variant {
    int held, threads;
};
enum { VARIANTS = 5, FEW = 256, SOME = 384, MANY = 1024 };
static const struct variant variants[VARIANTS] = {{1, FEW}, {2, FEW}, {4, SOME}, {4, MANY}, {0, MANY}};

/* Both ways to load, of a kernel's variants, in their order. */
#define BY_VARIANT(kernel)                                                                                             \
    {                                                                                                                  \
        {kernel<T, false, 1, FEW>, kernel<T, true, 1, FEW>}, {kernel<T, false, 2, FEW>, kernel<T, true, 2, FEW>},      \
            {kernel<T, false, 4, SOME>, kernel<T, true, 4, SOME>},                                                     \
            {kernel<T, false, 4, MANY>, kernel<T, true, 4, MANY>},                                                     \
            {kernel<T, false, 0, MANY>, kernel<T, true, 0, MANY>},                                                     \
    }

/* So many blocks of that size shall find registers on a multiprocessor. */
static constexpr int blocks_of(int threads) { return threads == SOME ? 2 : 1; }

/* Quads that a thread has on their way from memory at a time: all, or as many as there are registers for. */
static __host__ __device__ constexpr int batch_of(int held, int threads)
{
    return held == 0 ? 1 : held > 2 && threads == MANY ? 2 : held;
}

/* The first variant whose registers have room for a row, and the threads of its blocks. */
struct row_shape {
    int variant, threads;
};

static struct row_shape row_shape_of(int width)
{
    const int quads = pp_div_up(width, PP_QUAD);
    for (int i = 0; i + 1 < VARIANTS; i++)
        if (quads <= variants[i].held * variants[i].threads)
            return {i, pp_block_threads(pp_div_up(quads, variants[i].held), variants[i].threads)};
    return {VARIANTS - 1, variants[VARIANTS - 1].threads};
}

/* N quads of a row, as they lie in memory, of columns j, j + step, ...; zeros beyond the row's end, and if p is NULL.
 * All are on their way from memory at the same time, so nothing may stand between these loads that waits for one. */
template <bool aligned, int N, typename T>
static __device__ inline void load_row(pp_pack<T> (&to)[N], const T *p, int d, int j, int step)
{
    if (!p) d = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int column = j + i * step;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) to[i].v[k] = pp_from_float<T>(0);
        if (aligned) {
            if (column < d) to[i] = *reinterpret_cast<const pp_pack<T> *>(p + column);
        } else {
#pragma unroll
            for (int k = 0; k < PP_QUAD; k++)
                if (column + k < d) to[i].v[k] = p[column + k];
        }
    }
}

/* Asks for these quads, so that they are near when they are loaded. */
template <int N, typename T> static __device__ inline void want_row(const T *p, int d, int j, int step)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (p && j + i * step < d) pp_prefetch(p + j + i * step);
}

template <typename T> static __device__ inline pp_quad numbers(const pp_pack<T> &pack)
{
    pp_quad q;
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) q.v[k] = pp_to_float(pack.v[k]);
    return q;
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

/* N quads of r, what is normalised, from column j on: r = x + drop(z + bias), or r = x if the norm is plain. at: index
 * of the row's first element. */
template <typename T, bool aligned, int N>
static __device__ inline void residual(const layer_norm<T> &n, int64_t at, int j, int step, pp_quad (&r)[N])
{
    pp_pack<T> x[N], z[N];
    pp_pack<float> bias[N];
    load_row<aligned>(x, n.x + at, n.d, j, step);
    if (!n.plain) {
        load_row<aligned>(z, n.z + at, n.d, j, step);
        load_row<aligned>(bias, n.bias, n.d, j, step);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        const pp_quad add = numbers(x[i]);
        r[i] = add;
        if (n.plain) continue;
        r[i] = numbers(z[i]);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) r[i].v[k] += bias[i].v[k];
        r[i] = pp_drop(n.drop, n.vector + blockIdx.x, (uint32_t)(j + i * step) / PP_QUAD, r[i]);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) r[i].v[k] += add.v[k];
    }
}

template <typename T, bool aligned, int N>
static __device__ inline void write_normal(const layer_norm<T> &n, int64_t at, int j, int step, const pp_quad (&r)[N],
                                           float mean, float rstd)
{
    pp_pack<float> gamma[N], beta[N];
    if (n.y) load_row<aligned>(gamma, n.gamma, n.d, j, step);
    if (n.y) load_row<aligned>(beta, n.beta, n.d, j, step);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int column = j + i * step, left = n.d - column;
        if (left <= 0) return;
        if (n.sum) pp_store<aligned>(n.sum + at + column, left, r[i]);
        pp_quad q;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) q.v[k] = (r[i].v[k] - mean) * rstd;
        pp_store<aligned>(n.z + at + column, left, q);
        if (!n.y) continue;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) q.v[k] = q.v[k] * gamma[i].v[k] + beta[i].v[k];
        pp_store<aligned>(n.y + at + column, left, q);
    }
}

/* A thread goes over its quads in turns of N. Of long rows, which registers have no room for, it holds one turn. */
template <typename T, bool aligned, int held, int threads>
static __global__ void __launch_bounds__(threads, blocks_of(threads)) layernorm(layer_norm<T> n)
{
    PP_SHARED_ONE(pp_by_warp<float>, shared);
    constexpr int N = batch_of(held, threads), TURNS = held ? held / N : 1;
    const int64_t at = (int64_t)blockIdx.x * n.d;
    const int step = PP_QUAD * (int)blockDim.x, start = PP_QUAD * (int)threadIdx.x;
    const int turns = held ? TURNS : pp_div_up(n.d, step);
    pp_quad r[TURNS][N];
    float sum = 0, squares = 0;
    if (held && n.y) {
        want_row<N * TURNS>(n.gamma, n.d, start, step);
        want_row<N * TURNS>(n.beta, n.d, start, step);
    }
#pragma unroll
    for (int turn = 0; turn < turns; turn++) {
        const int j = start + turn * N * step;
        residual<T, aligned>(n, at, j, step, r[turn % TURNS]);
#pragma unroll
        for (int i = 0; i < N * PP_QUAD; i++)
            sum += j + i / PP_QUAD * step + i % PP_QUAD < n.d ? r[turn % TURNS][i / PP_QUAD].v[i % PP_QUAD] : 0;
    }
    const float mean = n.rms ? 0 : pp_block_sum(sum, shared) / (float)n.d;
#pragma unroll
    for (int turn = 0; turn < turns; turn++) {
        const int j = start + turn * N * step;
        if (!held) residual<T, aligned>(n, at, j, step, r[turn % TURNS]);
#pragma unroll
        for (int i = 0; i < N * PP_QUAD; i++) {
            const float x = r[turn % TURNS][i / PP_QUAD].v[i % PP_QUAD] - mean;
            squares += j + i / PP_QUAD * step + i % PP_QUAD < n.d ? x * x : 0;
        }
    }
    const float rstd = 1 / sqrtf(pp_block_sum(squares, shared) / (float)n.d + n.eps);
    if (threadIdx.x == 0) n.rstd[blockIdx.x] = rstd;
#pragma unroll
    for (int turn = 0; turn < turns; turn++) {
        const int j = start + turn * N * step;
        if (!held) residual<T, aligned>(n, at, j, step, r[turn % TURNS]);
        write_normal<T, aligned>(n, at, j, step, r[turn % TURNS], mean, rstd);
    }
}

template <typename T> using norm_kernel = void (*)(layer_norm<T>);
template <typename T> static const norm_kernel<T> norm_kernels[VARIANTS][2] = BY_VARIANT(layernorm);

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

/* N quads, from column j on: dy * gamma, xhat. */
template <typename T, int N> struct gradient_row {
    pp_quad g[N];
    pp_pack<T> xhat[N];
};

/* at: index of the row's first element. */
template <typename T, bool aligned, int N>
static __device__ inline void take_row(const layer_norm_grad<T> &n, int64_t at, int j, int step, gradient_row<T, N> &q)
{
    pp_pack<T> dy[N];
    pp_pack<float> gamma[N];
    load_row<aligned>(dy, n.dy + at, n.d, j, step);
    load_row<aligned>(q.xhat, n.xhat + at, n.d, j, step);
    load_row<aligned>(gamma, n.gamma, n.d, j, step);
#pragma unroll
    for (int i = 0; i < N; i++) {
        q.g[i] = numbers(dy[i]);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) q.g[i].v[k] *= gamma[i].v[k];
    }
}

/* mean: of g, and of g * xhat. */
template <typename T, bool aligned, int N>
static __device__ inline void write_gradient(const layer_norm_grad<T> &n, int64_t at, int j, int step,
                                             const gradient_row<T, N> &q, pp_pair mean, float rstd)
{
    pp_pack<T> adds[N];
    load_row<aligned>(adds, n.add ? n.add + at : NULL, n.d, j, step);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int column = j + i * step, left = n.d - column;
        if (left <= 0) return;
        const pp_quad xhat = numbers(q.xhat[i]), add = numbers(adds[i]);
        pp_quad v;
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) {
            v.v[k] = (q.g[i].v[k] - mean.a - xhat.v[k] * mean.b) * rstd;
            if (n.add) v.v[k] += add.v[k];
        }
        pp_store<aligned>(n.dr + at + column, left, v);
        if (n.plain) continue;
        v = pp_drop(n.drop, n.vector + blockIdx.x, (uint32_t)column / PP_QUAD, v);
        pp_store<aligned>(n.xhat + at + column, left, v);
    }
}

template <typename T, bool aligned, int held, int threads>
static __global__ void __launch_bounds__(threads, blocks_of(threads)) layernorm_grad(layer_norm_grad<T> n)
{
    PP_SHARED_ONE(pp_by_warp<pp_pair>, shared);
    constexpr int N = batch_of(held, threads), TURNS = held ? held / N : 1;
    const int64_t at = (int64_t)blockIdx.x * n.d;
    const float rstd = n.rstd[blockIdx.x];
    const int step = PP_QUAD * (int)blockDim.x, start = PP_QUAD * (int)threadIdx.x;
    const int turns = held ? TURNS : pp_div_up(n.d, step);
    gradient_row<T, N> q[TURNS];
    if (held && n.add) want_row<N * TURNS>(n.add + at, n.d, start, step);
    pp_pair sum = {}; /* a: of g; b: of g * xhat. Both are 0 beyond the row's end */
#pragma unroll
    for (int turn = 0; turn < turns; turn++) {
        take_row<T, aligned>(n, at, start + turn * N * step, step, q[turn % TURNS]);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const pp_quad xhat = numbers(q[turn % TURNS].xhat[i]);
#pragma unroll
            for (int k = 0; k < PP_QUAD; k++) {
                sum.a += q[turn % TURNS].g[i].v[k];
                sum.b += q[turn % TURNS].g[i].v[k] * xhat.v[k];
            }
        }
    }
    sum = pp_block_sum(sum, shared);
    const pp_pair mean = {n.rms ? 0 : sum.a / (float)n.d, sum.b / (float)n.d};
#pragma unroll
    for (int turn = 0; turn < turns; turn++) {
        const int j = start + turn * N * step;
        if (!held) take_row<T, aligned>(n, at, j, step, q[turn % TURNS]);
        write_gradient<T, aligned>(n, at, j, step, q[turn % TURNS], mean, rstd);
    }
}

template <typename T> using norm_grad_kernel = void (*)(layer_norm_grad<T>);
template <typename T> static const norm_grad_kernel<T> norm_grad_kernels[VARIANTS][2] = BY_VARIANT(layernorm_grad);

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
    columns.accumulate = c->call->adds;
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
