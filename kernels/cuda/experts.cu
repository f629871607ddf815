/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts: copies tokens to the places of their experts (dispatch), adds up what the experts have made of each token
 * (combine), and multiplies by gates (weigh). Also the logistic function, for the gate of a shared expert.
 *
 * When ppprof times a call alone, no other call has written its indices, so memory holds arbitrary numbers. A number
 * that is out of range is then treated as a choice that has no place.
 */
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256 };

/* The grid for kernels in which a thread block works on one row and each thread on one quad of it, or on one word:
 * blockIdx.x is the row, and blockIdx.y says which part of a row that has more quads than a block has threads. */
struct row_grid {
    dim3 grid;
    int threads;
};

static row_grid grid_of(int rows, int quads)
{
    row_grid g;
    g.threads = pp_block_threads(quads, THREADS);
    g.grid = dim3((unsigned)rows, (unsigned)pp_div_up(quads, g.threads));
    return g;
}

/* The number of the thread's quad, or word, in its row. */
static __device__ inline int64_t column(void) { return (int64_t)blockIdx.y * blockDim.x + threadIdx.x; }

/* Copies to each place the row of the token that it holds, and writes zeros where it holds none. W: the type in which
 * rows are copied; `words` of them are a row. */
template <typename W>
static __global__ void __launch_bounds__(THREADS)
    dispatch(W *to, const W *from, const int32_t *holds, int words, int tokens, int chosen)
{
    const int64_t j = column();
    if (j >= words) return;
    const int held = holds[blockIdx.x], token = held < 0 ? tokens : held / chosen;
    to[(int64_t)blockIdx.x * words + j] = token < tokens ? from[(int64_t)token * words + j] : W();
}

template <typename W> static cudaError_t run_dispatch(const struct pp_cuda_call *c, int row_bytes)
{
    const struct pp_places_dims *n = &c->call->places;
    const int words = row_bytes / (int)sizeof(W);
    const row_grid g = grid_of(n->places, words);
    PP_LAUNCH(dispatch<W>, g.grid, g.threads, 0, c->stream, static_cast<W *>(c->at.dispatch.to),
              static_cast<const W *>(c->at.dispatch.from), static_cast<const int32_t *>(c->at.dispatch.holds), words,
              n->tokens, n->chosen);
    return cudaGetLastError();
}

cudaError_t pp_cuda_dispatch(const struct pp_cuda_call *c)
{
    const int row_bytes = c->call->places.width * pp_element_bytes(c->call->precision);
    if (((uintptr_t)c->at.dispatch.to | (uintptr_t)c->at.dispatch.from | (uintptr_t)row_bytes) % sizeof(uint4) == 0)
        return run_dispatch<uint4>(c, row_bytes);
    return run_dispatch<uint16_t>(c, row_bytes);
}

template <typename T> struct combination {
    T *to;                 /* [tokens, width] */
    const T *from;         /* [places, width] */
    const int32_t *places; /* [tokens, chosen] */
    int width, nplaces, chosen;
    bool adds;
};

static __device__ inline void add(pp_quad *sum, pp_quad q)
{
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) sum->v[k] += q.v[k];
}

/* Adds up the rows of a token's places in the order of its choices. A thread block works on one token. */
template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) combine(combination<T> r)
{
    const int64_t j = PP_QUAD * column(), left = r.width - j;
    if (left <= 0) return;
    const int32_t *const places = r.places + (int64_t)blockIdx.x * r.chosen;
    T *const to = r.to + (int64_t)blockIdx.x * r.width + j;
    pp_quad sum = {};
#pragma unroll 4
    for (int i = 0; i < r.chosen; i++) {
        const unsigned place = (unsigned)places[i];
        if (place < (unsigned)r.nplaces) add(&sum, pp_load<aligned>(r.from + (int64_t)place * r.width + j, left));
    }
    if (r.adds) add(&sum, pp_load<aligned>(to, left));
    pp_store<aligned>(to, left, sum);
}

template <typename T> static cudaError_t run_combine(const struct pp_cuda_call *c)
{
    const struct pp_combine_dims *n = &c->call->combine;
    combination<T> r;
    r.to = static_cast<T *>(c->at.combine.to);
    r.from = static_cast<const T *>(c->at.combine.from);
    r.places = static_cast<const int32_t *>(c->at.combine.places);
    r.width = n->width;
    r.nplaces = n->places;
    r.chosen = n->chosen;
    r.adds = pp_gemm_adds(c->call, n->mode, c->frame);
    const bool aligned = r.width % PP_QUAD == 0 && pp_aligned(r.to) && pp_aligned(r.from);
    const auto kernel = aligned ? combine<T, true> : combine<T, false>;
    const row_grid g = grid_of(n->tokens, pp_div_up(r.width, PP_QUAD));
    PP_LAUNCH(kernel, g.grid, g.threads, 0, c->stream, r);
    return cudaGetLastError();
}

cudaError_t pp_cuda_combine(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_combine, c); }

template <typename T> struct weighing {
    T *rows;     /* [places, width]: u of weigh, du of weigh_grad; multiplied in place */
    const T *by; /* weigh_grad: u, as weigh has left it */
    const float *gates;
    const int32_t
        *index; /* weigh: the choice in each place; weigh_grad: the place of each choice; NULL: its own number */
    float *dgates;
    int width, most; /* columns of a row; an index is below `most`, or there is no such choice or place */
};

static __device__ inline pp_quad times(pp_quad q, float factor)
{
#pragma unroll
    for (int k = 0; k < PP_QUAD; k++) q.v[k] *= factor;
    return q;
}

/* Multiplies the row of each place by the gate of the choice that it holds. A thread block works on one place. */
template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) weigh(weighing<T> r)
{
    const int64_t j = PP_QUAD * column(), left = r.width - j;
    const unsigned held = r.index ? (unsigned)r.index[blockIdx.x] : blockIdx.x;
    if (left <= 0 || held >= (unsigned)r.most) return;
    T *const u = r.rows + (int64_t)blockIdx.x * r.width + j;
    pp_store<aligned>(u, left, times(pp_load<aligned>(u, left), r.gates[held]));
}

/* Makes the gradient of the gate of each choice, and multiplies the row of du in its place by the gate. u is multiplied
 * by the gate already, so the gradient is the sum of du u, divided by the gate. A thread block works on one choice. */
template <typename T, bool aligned> static __global__ void __launch_bounds__(THREADS) weigh_grad(weighing<T> r)
{
    PP_SHARED_ONE(pp_by_warp<float>, shared);
    const unsigned place = r.index ? (unsigned)r.index[blockIdx.x] : blockIdx.x;
    const float gate = r.gates[blockIdx.x];
    const int width = place < (unsigned)r.most ? r.width : 0;
    float sum = 0;
    for (int j = PP_QUAD * (int)threadIdx.x; j < width; j += PP_QUAD * (int)blockDim.x) {
        const int64_t at = (int64_t)place * r.width + j;
        const pp_quad d = pp_load<aligned>(r.rows + at, width - j), u = pp_load<aligned>(r.by + at, width - j);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) sum += d.v[k] * u.v[k];
        pp_store<aligned>(r.rows + at, width - j, times(d, gate));
    }
    if (width) sum = pp_block_sum(sum, shared);
    if (threadIdx.x == 0) r.dgates[blockIdx.x] = gate != 0 ? sum / gate : 0;
}

template <typename T> static cudaError_t run_weigh(const struct pp_cuda_call *c)
{
    const struct pp_places_dims *n = &c->call->places;
    weighing<T> r = {};
    r.rows = static_cast<T *>(c->at.weigh.u);
    r.gates = static_cast<const float *>(c->at.weigh.gates);
    r.index = static_cast<const int32_t *>(c->at.weigh.holds);
    r.width = n->width;
    r.most = n->tokens * n->chosen;
    const auto kernel = r.width % PP_QUAD == 0 && pp_aligned(r.rows) ? weigh<T, true> : weigh<T, false>;
    const row_grid g = grid_of(n->places, pp_div_up(r.width, PP_QUAD));
    PP_LAUNCH(kernel, g.grid, g.threads, 0, c->stream, r);
    return cudaGetLastError();
}

cudaError_t pp_cuda_weigh(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_weigh, c); }

template <typename T> static cudaError_t run_weigh_grad(const struct pp_cuda_call *c)
{
    const struct pp_weigh_grad_memory *at = &c->at.weigh_grad;
    const struct pp_places_dims *n = &c->call->places;
    weighing<T> r;
    r.rows = static_cast<T *>(at->du);
    r.dgates = static_cast<float *>(at->dgates);
    r.by = static_cast<const T *>(at->u);
    r.gates = static_cast<const float *>(at->gates);
    r.index = static_cast<const int32_t *>(at->places);
    r.width = n->width;
    r.most = n->places;
    const bool aligned = r.width % PP_QUAD == 0 && pp_aligned(r.rows) && pp_aligned(r.by);
    const auto kernel = aligned ? weigh_grad<T, true> : weigh_grad<T, false>;
    PP_LAUNCH(kernel, n->tokens * n->chosen, pp_block_threads(pp_div_up(r.width, PP_QUAD), THREADS), 0, c->stream, r);
    return cudaGetLastError();
}

cudaError_t pp_cuda_weigh_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_weigh_grad, c); }

static __global__ void __launch_bounds__(THREADS) sigmoid(float *x, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) x[i] = 1 / (1 + expf(-x[i]));
}

cudaError_t pp_cuda_sigmoid(const struct pp_cuda_call *c)
{
    const int n = c->call->sigmoid.tokens;
    PP_LAUNCH(sigmoid, pp_div_up(n, THREADS), THREADS, 0, c->stream, static_cast<float *>(c->at.sigmoid.x), n);
    return cudaGetLastError();
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) sigmoid_grad(T *dx, const float *dy, const float *y, int n)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) dx[i] = pp_from_float<T>(dy[i] * y[i] * (1 - y[i]));
}

template <typename T> static cudaError_t run_sigmoid_grad(const struct pp_cuda_call *c)
{
    const int n = c->call->sigmoid.tokens;
    PP_LAUNCH(sigmoid_grad<T>, pp_div_up(n, THREADS), THREADS, 0, c->stream, static_cast<T *>(c->at.sigmoid_grad.dx),
              static_cast<const float *>(c->at.sigmoid_grad.dy), static_cast<const float *>(c->at.sigmoid_grad.y), n);
    return cudaGetLastError();
}

cudaError_t pp_cuda_sigmoid_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_sigmoid_grad, c); }

template <typename T> static cudaError_t prepare(void)
{
    const void *const kernels[] = {
        reinterpret_cast<const void *>(combine<T, true>),    reinterpret_cast<const void *>(combine<T, false>),
        reinterpret_cast<const void *>(weigh<T, true>),      reinterpret_cast<const void *>(weigh<T, false>),
        reinterpret_cast<const void *>(weigh_grad<T, true>), reinterpret_cast<const void *>(weigh_grad<T, false>),
        reinterpret_cast<const void *>(sigmoid_grad<T>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}

cudaError_t pp_cuda_prepare_experts(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(dispatch<uint4>),
                                   reinterpret_cast<const void *>(dispatch<uint16_t>),
                                   reinterpret_cast<const void *>(sigmoid)};
    cudaError_t error = pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
    if (error == cudaSuccess) error = prepare<float>();
    return error == cudaSuccess ? prepare<__nv_bfloat16>() : error;
}
