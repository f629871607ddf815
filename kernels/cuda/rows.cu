/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes over matrices of activations: copies; relu, gelu and swiglu with their gradients; residuals without a norm;
 * and column sums. Matrices are row-major; four successive columns are worked on together (a quad, gpu.cuh).
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
    PP_LAUNCH(copy<T>, pp_div_up(n, THREADS), THREADS, 0, c->stream, static_cast<T *>(c->at.copy.to),
              static_cast<const T *>(c->at.copy.from), n);
    return cudaGetLastError();
}

cudaError_t pp_cuda_copy(const struct pp_cuda_call *c)
{
    const struct pp_copy_memory *at = &c->at.copy;
    if (!at->to || !at->from) return cudaSuccess;
    const int64_t bytes = (int64_t)c->call->matrix.rows * c->call->matrix.width * pp_element_bytes(c->call->precision);
    if (((uintptr_t)at->to | (uintptr_t)at->from | (uintptr_t)bytes) % sizeof(uint4) == 0)
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

/* u = drop(relu(u + bias)) in place. Grid: (rows, quads of a row / threads). */
template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) relu(relu_rows<T> r)
{
    const int64_t j = PP_QUAD * ((int64_t)blockIdx.y * blockDim.x + threadIdx.x), left = r.width - j;
    if (left <= 0) return;
    T *u = r.u + (int64_t)blockIdx.x * r.width + j;
    const pp_quad bias = pp_load_any<aligned>(r.bias, j, left);
    pp_quad q = pp_load<aligned>(u, left);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) {
        const float sum = q.v[k] + bias.v[k];
        q.v[k] = sum <= 0 ? 0 : sum; /* NaN stays NaN; fmaxf would make it 0 */
    }
    pp_store<aligned>(u, left, pp_drop(r.drop, r.vector + blockIdx.x, (uint32_t)(j / PP_QUAD), q));
}

template <typename T> static cudaError_t run_relu(const struct pp_cuda_call *c)
{
    const struct pp_activation_dims *n = &c->call->activation;
    const int width = n->width;
    relu_rows<T> r;
    r.u = static_cast<T *>(c->at.relu.u);
    r.bias = static_cast<const float *>(c->at.relu.bias);
    r.width = width;
    r.vector = pp_first_vector(c, n->seq);
    r.drop = pp_dropout_of_part(c);
    const bool aligned = width % PP_QUAD == 0 && pp_aligned(r.u) && pp_aligned(r.bias);
    const auto kernel = aligned ? relu<T, true> : relu<T, false>;
    const int quads = pp_div_up(width, PP_QUAD), threads = pp_block_threads(quads, THREADS);
    PP_LAUNCH(kernel, dim3(n->rows * n->seq, pp_div_up(quads, threads)), threads, 0, c->stream, r);
    return cudaGetLastError();
}

cudaError_t pp_cuda_relu(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_relu, c); }

/* du *= scale where relu's result u is above 0, else du = 0: u is above 0 exactly where neither relu nor dropout made
 * it 0. n: elements. scale: dropout's 1 / (1 - p). */
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
    const int64_t n = (int64_t)c->call->activation.rows * c->call->activation.seq * c->call->activation.width;
    T *du = static_cast<T *>(c->at.relu_grad.du);
    const T *u = static_cast<const T *>(c->at.relu_grad.u);
    const bool aligned = n % PP_QUAD == 0 && pp_aligned(du) && pp_aligned(u);
    const auto kernel = aligned ? relu_grad<T, true> : relu_grad<T, false>;
    PP_LAUNCH(kernel, pp_div_up(n, PP_QUAD * THREADS), THREADS, 0, c->stream, du, u, n, pp_dropout_of(c, 0).scale);
    return cudaGetLastError();
}

cudaError_t pp_cuda_relu_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_relu_grad, c); }

/* The rows that a pass goes over: n rows of `width` columns. vector: number of the first row in the whole batch, by
 * which dropout's random numbers are drawn. */
struct pass_rows {
    int64_t n;
    int width;
    uint32_t vector;
    pp_dropout drop;
};

/* The operands of a pass over activations: [n, width], bias [width]. A pass uses some; the others are NULL. */
template <typename T> struct row_pass : pass_rows {
    T *out, *in; /* out may be x */
    const T *x;
    const float *bias;
};

/* The quad of this thread. Grid: (rows, quads of a row / threads). */
struct quad_place {
    int64_t at, j, left; /* index in the matrix; first column; columns from there to the row's end, 0 or less if none */
    uint32_t vector;
};

template <typename T> static __device__ inline quad_place place_of(const row_pass<T> &r)
{
    quad_place q;
    q.j = PP_QUAD * ((int64_t)blockIdx.y * blockDim.x + threadIdx.x);
    q.left = r.width - q.j;
    q.at = (int64_t)blockIdx.x * r.width + q.j;
    q.vector = r.vector + blockIdx.x;
    return q;
}

template <typename T> static __device__ inline pp_quad drop_at(const row_pass<T> &r, const quad_place &p, pp_quad q)
{
    return pp_drop(r.drop, p.vector, (uint32_t)(p.j / PP_QUAD), q);
}

/* The quad of in + bias. */
template <bool aligned, typename T> static __device__ inline pp_quad biased(const row_pass<T> &r, const quad_place &p)
{
    const pp_quad bias = pp_load_any<aligned>(r.bias, p.j, p.left);
    pp_quad q = pp_load<aligned>(r.in + p.at, p.left);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) q.v[k] += bias.v[k];
    return q;
}

/* The distribution function of the normal distribution, Phi(a). */
static __device__ inline float normal_below(float a) { return 0.5f * erfcf(a * -0.707106781f); }

/* With gelu(a) = a f(a): factor = f(a), rise = a f'(a). Their sum is the derivative of gelu. */
struct gelu_parts {
    float factor, rise;
};

/* by_tanh: the approximation of kernels/cpu/simd/gelu.c, where a NaN in `a` may be lost; the caller multiplies by a. */
template <bool by_tanh> static __device__ inline gelu_parts gelu_of(float a)
{
    if (!by_tanh) return {normal_below(a), a * 0.398942280f * expf(-0.5f * a * a)};
    const float linear = 1.59576912f, cubic = 0.0713548163f, t = fminf(fabsf(a), 10.0f), square = t * t;
    const float e = expf(-t * (linear + cubic * square)), w = 1 / (1 + e), small = e * w;
    return {a > 0 ? w : small, a * small * w * (linear + 3 * cubic * square)};
}

/* The numbers as memory of type T holds them: so the backward, which reads them, computes with the same numbers. */
template <typename T> static __device__ inline pp_quad rounded(pp_quad q)
{
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) q.v[k] = pp_to_float(pp_from_float<T>(q.v[k]));
    return q;
}

template <typename T, bool aligned, bool by_tanh> static __global__ void __launch_bounds__(THREADS) gelu(row_pass<T> r)
{
    const quad_place p = place_of(r);
    if (p.left <= 0) return;
    pp_quad q = rounded<T>(biased<aligned>(r, p));
    if (r.bias) pp_store<aligned>(r.in + p.at, p.left, q);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) q.v[k] *= gelu_of<by_tanh>(q.v[k]).factor;
    pp_store<aligned>(r.out + p.at, p.left, drop_at(r, p, q));
}

/* out: du becomes the gradient of a. in: a, with its bias. Dropout's numbers are drawn again, because u = 0 does not
 * tell whether it was dropped: gelu(a) may be 0, too. */
template <typename T, bool aligned, bool by_tanh>
static __global__ void __launch_bounds__(THREADS) gelu_grad(row_pass<T> r)
{
    const quad_place p = place_of(r);
    if (p.left <= 0) return;
    const pp_quad a = pp_load<aligned>(r.in + p.at, p.left);
    pp_quad q = drop_at(r, p, pp_load<aligned>(r.out + p.at, p.left));
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) {
        const gelu_parts g = gelu_of<by_tanh>(a.v[k]);
        q.v[k] *= g.factor + g.rise;
    }
    pp_store<aligned>(r.out + p.at, p.left, q);
}

static __device__ inline float logistic(float g) { return 1 / (1 + expf(-g)); }

/* The thread's quad of gates g in swiglu's operand a [n, 2 * width], whose rows have g and behind them h. */
template <typename T> static __device__ inline T *gate_at(const row_pass<T> &r, const quad_place &p, T *a)
{
    return a + p.at + (int64_t)blockIdx.x * r.width;
}

template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) swiglu(row_pass<T> r)
{
    const quad_place p = place_of(r);
    if (p.left <= 0) return;
    T *const gate = gate_at(r, p, r.in);
    pp_quad g = pp_load<aligned>(gate, p.left), h = pp_load<aligned>(gate + r.width, p.left);
    if (r.bias) {
        const pp_quad of_g = pp_load<aligned>(r.bias + p.j, p.left);
        const pp_quad of_h = pp_load<aligned>(r.bias + r.width + p.j, p.left);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) {
            g.v[k] += of_g.v[k];
            h.v[k] += of_h.v[k];
        }
        g = rounded<T>(g);
        h = rounded<T>(h);
        pp_store<aligned>(gate, p.left, g);
        pp_store<aligned>(gate + r.width, p.left, h);
    }
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) g.v[k] *= logistic(g.v[k]) * h.v[k];
    pp_store<aligned>(r.out + p.at, p.left, drop_at(r, p, g));
}

/* out: a, which its gradient replaces. in: du. */
template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) swiglu_grad(row_pass<T> r)
{
    const quad_place p = place_of(r);
    if (p.left <= 0) return;
    T *const gate = gate_at(r, p, r.out);
    const pp_quad d = drop_at(r, p, pp_load<aligned>(r.in + p.at, p.left));
    pp_quad g = pp_load<aligned>(gate, p.left), h = pp_load<aligned>(gate + r.width, p.left);
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) {
        const float s = logistic(g.v[k]), of_gate = d.v[k] * h.v[k] * s * (1 + g.v[k] * (1 - s));
        h.v[k] = d.v[k] * g.v[k] * s;
        g.v[k] = of_gate;
    }
    pp_store<aligned>(gate, p.left, g);
    pp_store<aligned>(gate + r.width, p.left, h);
}

template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) residual(row_pass<T> r)
{
    const quad_place p = place_of(r);
    if (p.left <= 0) return;
    const pp_quad x = pp_load<aligned>(r.x + p.at, p.left);
    pp_quad q = drop_at(r, p, biased<aligned>(r, p));
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) q.v[k] += x.v[k];
    pp_store<aligned>(r.out + p.at, p.left, q);
}

template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) residual_grad(row_pass<T> r)
{
    const quad_place p = place_of(r);
    if (p.left <= 0) return;
    pp_store<aligned>(r.out + p.at, p.left, drop_at(r, p, pp_load<aligned>(r.in + p.at, p.left)));
}

/* Kernels of a pass by whether quads are aligned, [aligned]; gelu's by [by_tanh][aligned]. */
template <typename T> using pass_kernel = void (*)(row_pass<T>);
template <typename T>
static const pass_kernel<T> gelu_kernels[][2] = {{gelu<T, false, false>, gelu<T, true, false>},
                                                 {gelu<T, false, true>, gelu<T, true, true>}};
template <typename T>
static const pass_kernel<T> gelu_grad_kernels[][2] = {{gelu_grad<T, false, false>, gelu_grad<T, true, false>},
                                                      {gelu_grad<T, false, true>, gelu_grad<T, true, true>}};
template <typename T> static const pass_kernel<T> swiglu_kernels[] = {swiglu<T, false>, swiglu<T, true>};
template <typename T> static const pass_kernel<T> swiglu_grad_kernels[] = {swiglu_grad<T, false>, swiglu_grad<T, true>};
template <typename T> static const pass_kernel<T> residual_kernels[] = {residual<T, false>, residual<T, true>};
template <typename T>
static const pass_kernel<T> residual_grad_kernels[] = {residual_grad<T, false>, residual_grad<T, true>};

/* The rows of an activation function's call; the workers of a tensor-parallel rank have a part of the columns each. */
static pass_rows inner_rows(const struct pp_cuda_call *c)
{
    const struct pp_activation_dims *n = &c->call->activation;
    return {(int64_t)n->rows * n->seq, n->width, pp_first_vector(c, n->seq), pp_dropout_of_part(c)};
}

/* The rows of a call on the residual stream. */
static pass_rows stream_rows(const struct pp_cuda_call *c)
{
    const struct pp_tokens tokens = pp_call_tokens(c->call, c->frame);
    return {tokens.n, c->call->norm.d, (uint32_t)tokens.first, pp_dropout_of_tokens(c, &tokens)};
}

/* Launches a pass. out, in, x, bias: its operands; NULL if it has none. */
template <typename T>
static cudaError_t run_pass(const struct pp_cuda_call *c, const pass_kernel<T> *kernels, const pass_rows &rows,
                            void *out, void *in, const void *x, const void *bias)
{
    if (rows.n == 0) return cudaSuccess;
    row_pass<T> r;
    static_cast<pass_rows &>(r) = rows;
    r.out = static_cast<T *>(out);
    r.in = static_cast<T *>(in);
    r.x = static_cast<const T *>(x);
    r.bias = static_cast<const float *>(bias);
    const bool aligned =
        r.width % PP_QUAD == 0 && pp_aligned(r.out) && pp_aligned(r.in) && pp_aligned(r.x) && pp_aligned(r.bias);
    const int quads = pp_div_up(r.width, PP_QUAD), threads = pp_block_threads(quads, THREADS);
    const pass_kernel<T> kernel = kernels[aligned];
    PP_LAUNCH(kernel, dim3((unsigned)rows.n, pp_div_up(quads, threads)), threads, 0, c->stream, r);
    return cudaGetLastError();
}

template <typename T> static cudaError_t run_gelu(const struct pp_cuda_call *c)
{
    const pass_kernel<T> *kernels = gelu_kernels<T>[c->call->activation.tanh];
    return run_pass<T>(c, kernels, inner_rows(c), c->at.gelu.u, c->at.gelu.a, NULL, c->at.gelu.bias);
}
cudaError_t pp_cuda_gelu(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_gelu, c); }

template <typename T> static cudaError_t run_gelu_grad(const struct pp_cuda_call *c)
{
    const pass_kernel<T> *kernels = gelu_grad_kernels<T>[c->call->activation.tanh];
    return run_pass<T>(c, kernels, inner_rows(c), c->at.gelu_grad.du, c->at.gelu_grad.a, NULL, NULL);
}
cudaError_t pp_cuda_gelu_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_gelu_grad, c); }

template <typename T> static cudaError_t run_swiglu(const struct pp_cuda_call *c)
{
    return run_pass<T>(c, swiglu_kernels<T>, inner_rows(c), c->at.swiglu.u, c->at.swiglu.a, NULL, c->at.swiglu.bias);
}
cudaError_t pp_cuda_swiglu(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_swiglu, c); }

template <typename T> static cudaError_t run_swiglu_grad(const struct pp_cuda_call *c)
{
    return run_pass<T>(c, swiglu_grad_kernels<T>, inner_rows(c), c->at.swiglu_grad.a, c->at.swiglu_grad.du, NULL, NULL);
}
cudaError_t pp_cuda_swiglu_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_swiglu_grad, c); }

template <typename T> static cudaError_t run_residual(const struct pp_cuda_call *c)
{
    const struct pp_residual_memory *at = &c->at.residual;
    return run_pass<T>(c, residual_kernels<T>, stream_rows(c), at->y, at->z, at->x, at->bias);
}
cudaError_t pp_cuda_residual(const struct pp_cuda_call *c)
{
    return c->at.residual.y ? PP_BY_PRECISION(run_residual, c) : cudaSuccess;
}

template <typename T> static cudaError_t run_residual_grad(const struct pp_cuda_call *c)
{
    return run_pass<T>(c, residual_grad_kernels<T>, stream_rows(c), c->at.residual_grad.dz, c->at.residual_grad.dy,
                       NULL, NULL);
}
cudaError_t pp_cuda_residual_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_residual_grad, c); }

template <typename T> static cudaError_t run_colsum(const struct pp_cuda_call *c)
{
    pp_columns<T> columns;
    columns.in = static_cast<const T *>(c->at.colsum.in);
    columns.by = NULL;
    columns.rows = c->call->matrix.rows;
    columns.width = c->call->matrix.width;
    columns.sum[0] = static_cast<float *>(c->at.colsum.grad);
    columns.sum[1] = NULL;
    columns.accumulate = c->call->adds;
    return pp_sum_columns<T, false>(c, columns);
}

cudaError_t pp_cuda_colsum(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_colsum, c); }

template <typename T> static cudaError_t prepare(void)
{
    enum { RELU = 4, PASSES = 16 };
    const void *kernels[RELU + PASSES] = {
        reinterpret_cast<const void *>(relu<T, true>), reinterpret_cast<const void *>(relu<T, false>),
        reinterpret_cast<const void *>(relu_grad<T, true>), reinterpret_cast<const void *>(relu_grad<T, false>)};
    const pass_kernel<T> *const passes[] = {gelu_kernels<T>[0],      gelu_kernels<T>[1],      gelu_grad_kernels<T>[0],
                                            gelu_grad_kernels<T>[1], swiglu_kernels<T>,       swiglu_grad_kernels<T>,
                                            residual_kernels<T>,     residual_grad_kernels<T>};
    for (int i = 0; i < PASSES; i++) kernels[RELU + i] = reinterpret_cast<const void *>(passes[i / 2][i % 2]);
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
