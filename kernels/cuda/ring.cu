/* SPDX-License-Identifier: Apache-2.0
 *
 * What a ring of keys and values does beside flash: parts of attention, each of some keys, become one; columns of rows
 * are copied, or added, to where they belong.
 */
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256, HEADS = 32 /* of a token, in a block at most */ };

/* ---- parts of attention ---- */

template <typename T> struct parts {
    T *ctx; /* [tokens, heads * dv] */
    const T *part;
    float *lse; /* [heads, tokens] */
    const float *part_lse;
    int tokens, heads, dv;
};

/* By what the two are multiplied, for each head of the block. */
struct weights {
    float of[HEADS], of_part[HEADS];
};

/* Grid: (tokens, heads / HEADS). A thread first makes the weights of a head, then goes over columns of the block's
 * heads, which lie one behind the other: by quads if `whole`, for then no quad lies in two heads. */
template <typename T, bool whole> static __global__ void __launch_bounds__(THREADS) merge(parts<T> p)
{
    PP_SHARED_ONE(weights, w);
    const int token = (int)blockIdx.x, first = (int)blockIdx.y * HEADS, heads = min((int)HEADS, p.heads - first),
              step = whole ? PP_QUAD : 1;
    if ((int)threadIdx.x < heads) {
        const int64_t at = (int64_t)(first + (int)threadIdx.x) * p.tokens + token;
        const float a = p.lse[at], b = p.part_lse[at], less = expf(-fabsf(a - b)), more = 1 / (1 + less);
        p.lse[at] = (a >= b ? a : b) + log1pf(less);
        w.of[threadIdx.x] = a >= b ? more : less * more;
        w.of_part[threadIdx.x] = a >= b ? less * more : more;
    }
    __syncthreads();
    const int64_t row = ((int64_t)token * p.heads + first) * p.dv;
    T *const ctx = p.ctx + row;
    const T *const part = p.part + row;
    for (int j = step * (int)threadIdx.x; j < heads * p.dv; j += step * (int)blockDim.x) {
        const float of = w.of[j / p.dv], of_part = w.of_part[j / p.dv];
        pp_quad q = pp_load<whole>(ctx + j, step);
        const pp_quad other = pp_load<whole>(part + j, step);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) q.v[i] = q.v[i] * of + other.v[i] * of_part;
        pp_store<whole>(ctx + j, step, q);
    }
}

template <typename T> static cudaError_t run_merge(const struct pp_cuda_call *c)
{
    const struct pp_merge_dims *n = &c->call->merge;
    const struct pp_merge_memory *at = &c->at.merge;
    parts<T> p;
    p.ctx = static_cast<T *>(at->ctx);
    p.part = static_cast<const T *>(at->part);
    p.lse = static_cast<float *>(at->lse);
    p.part_lse = static_cast<const float *>(at->part_lse);
    p.tokens = n->tokens;
    p.heads = n->heads;
    p.dv = n->dv;
    const bool whole = p.dv % PP_QUAD == 0 && pp_aligned(p.ctx) && pp_aligned(p.part);
    const int heads = p.heads < HEADS ? p.heads : HEADS, steps = heads * p.dv / (whole ? PP_QUAD : 1);
    PP_LAUNCH((whole ? merge<T, true> : merge<T, false>),
              dim3((unsigned)p.tokens, (unsigned)pp_div_up(p.heads, HEADS)), pp_block_threads(steps, THREADS), 0,
              c->stream, p);
    return cudaGetLastError();
}

cudaError_t pp_cuda_merge(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_merge, c); }

/* ---- columns ---- */

/* Grid: (rows, quads of columns / threads). */
template <typename T, bool adds, bool whole>
static __global__ void __launch_bounds__(THREADS) add_columns(pp_columns_dims n, T *to, const T *from)
{
    const int j = PP_QUAD * (int)(blockIdx.y * blockDim.x + threadIdx.x), left = n.width - j;
    if (left <= 0) return;
    to += (int64_t)blockIdx.x * n.to_pitch + j;
    pp_quad q = pp_load<whole>(from + (int64_t)blockIdx.x * n.from_pitch + j, left);
    if (adds) {
        const pp_quad old = pp_load<whole>(to, left);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) q.v[i] = old.v[i] + q.v[i];
    }
    pp_store<whole>(to, left, q);
}

template <typename T> static cudaError_t run_add_columns(const struct pp_cuda_call *c)
{
    const struct pp_columns_dims n = c->call->columns;
    T *const to = static_cast<T *>(c->at.add_columns.to);
    const T *const from = static_cast<const T *>(c->at.add_columns.from);
    const bool whole = (n.width | n.to_pitch | n.from_pitch) % PP_QUAD == 0 && pp_aligned(to) && pp_aligned(from);
    const int quads = pp_div_up(n.width, PP_QUAD), threads = pp_block_threads(quads, THREADS);
    const auto kernel = n.adds ? (whole ? add_columns<T, true, true> : add_columns<T, true, false>)
                               : (whole ? add_columns<T, false, true> : add_columns<T, false, false>);
    PP_LAUNCH(kernel, dim3((unsigned)n.rows, (unsigned)pp_div_up(quads, threads)), threads, 0, c->stream, n, to, from);
    return cudaGetLastError();
}

cudaError_t pp_cuda_add_columns(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_add_columns, c); }

template <typename T> static cudaError_t prepare(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(merge<T, true>),
                                   reinterpret_cast<const void *>(merge<T, false>),
                                   reinterpret_cast<const void *>(add_columns<T, true, true>),
                                   reinterpret_cast<const void *>(add_columns<T, true, false>),
                                   reinterpret_cast<const void *>(add_columns<T, false, true>),
                                   reinterpret_cast<const void *>(add_columns<T, false, false>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}

cudaError_t pp_cuda_prepare_ring(void)
{
    const cudaError_t error = prepare<float>();
    return error == cudaSuccess ? prepare<__nv_bfloat16>() : error;
}
