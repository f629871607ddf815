/* SPDX-License-Identifier: Apache-2.0
 *
 * Layouts around attention where workers have parts of the tokens (context parallelism). Before an exchange, rows of
 * tokens with all heads become pieces, each with some of the heads of all tokens; behind it the other way round. Or
 * only keys and values are gathered, and their gradients added up.
 */
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256 };

template <typename T> struct rearrangement {
    T *to;
    const T *from;
    const float *bias; /* [row]; may be NULL */
    int tokens;
    int width, shared; /* of a token in a piece: numbers of queries; of keys */
    int values;        /* of values */
    int row;           /* numbers of a token in all pieces */
    int parts;         /* pieces */
};

/* In a piece a token has its queries, keys and values one behind another. Returns the column of the token's row where
 * number j of these stands: the row has the queries of all pieces, then all keys, then all values. */
template <typename T> static __device__ inline int64_t column_of(const rearrangement<T> &r, int piece, int j)
{
    if (j < r.width) return (int64_t)piece * r.width + j;
    const int key = j - r.width, value = key - r.shared;
    if (value < 0) return (int64_t)r.parts * r.width + (int64_t)piece * r.shared + key;
    return (int64_t)r.parts * (r.width + r.shared) + (int64_t)piece * r.values + value;
}

/* Copies rows to pieces, or pieces to rows. Grid: (tokens, steps of a row / threads). A step is a quad if `whole`: no
 * quad lies in two pieces then, or in queries and keys. Otherwise a step is one number. */
template <typename T, bool to_pieces, bool whole>
static __global__ void __launch_bounds__(THREADS) rearrange(rearrangement<T> r)
{
    const int step = whole ? PP_QUAD : 1, part = r.row / r.parts;
    const int i = step * (int)(blockIdx.y * blockDim.x + threadIdx.x), piece = i / part, j = i % part;
    if (i >= r.row) return;
    const int64_t column = column_of(r, piece, j);
    const int64_t in_row = (int64_t)blockIdx.x * r.row + column,
                  in_piece = ((int64_t)piece * r.tokens + blockIdx.x) * part + j;
    const T *const from = r.from + (to_pieces ? in_row : in_piece);
    pp_quad q = pp_load<whole>(from, step);
    if (to_pieces && r.bias) {
        const pp_quad bias = pp_load<whole>(r.bias + column, step);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) q.v[k] += bias.v[k];
    }
    pp_store<whole>(r.to + (to_pieces ? in_piece : in_row), step, q);
}

template <typename T, bool to_pieces> static cudaError_t run(const struct pp_cuda_call *c)
{
    const struct pp_pieces_dims *n = &c->call->pieces;
    rearrangement<T> r;
    r.to = static_cast<T *>(c->at.pieces.to);
    r.from = static_cast<const T *>(c->at.pieces.from);
    r.bias = to_pieces ? static_cast<const float *>(c->at.pieces.bias) : NULL;
    r.tokens = n->tokens;
    r.parts = n->parts;
    r.width = n->width / r.parts;
    r.shared = n->shared / r.parts;
    r.values = PP_PIECE_VALUES(n) / r.parts;
    r.row = PP_PIECE_ROW(n);
    const bool whole = r.width % PP_QUAD == 0 && r.shared % PP_QUAD == 0 && r.values % PP_QUAD == 0 &&
                       pp_aligned(r.to) && pp_aligned(r.from) && pp_aligned(r.bias);
    const int steps = whole ? r.row / PP_QUAD : r.row, threads = pp_block_threads(steps, THREADS);
    const auto kernel = whole ? rearrange<T, to_pieces, true> : rearrange<T, to_pieces, false>;
    PP_LAUNCH(kernel, dim3((unsigned)r.tokens, (unsigned)pp_div_up(steps, threads)), threads, 0, c->stream, r);
    return cudaGetLastError();
}

template <typename T> static cudaError_t run_to(const struct pp_cuda_call *c) { return run<T, true>(c); }
template <typename T> static cudaError_t run_from(const struct pp_cuda_call *c) { return run<T, false>(c); }

cudaError_t pp_cuda_to_pieces(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_to, c); }
cudaError_t pp_cuda_from_pieces(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_from, c); }

/* Keys and values in tokens' rows of qkv [tokens, width], and alone: keys [parts, tokens, width - first]. */
template <typename T> struct key_rows {
    T *qkv, *keys;
    const float *bias; /* [width]; may be NULL */
    int first, width;  /* column of the first key; columns of a row of qkv */
    int quads;         /* quads of columns before the first key, if there is a bias; else 0 */
    int parts;         /* that are added up */
    int64_t part;      /* numbers of one part */
};

/* Copies keys and values from qkv. A bias is added to all columns of qkv before, queries too. Grid: (tokens, quads /
 * threads), where quads are those of queries, if there is a bias, and those of keys and values. */
template <typename T, bool whole> static __global__ void __launch_bounds__(THREADS) copy_keys(key_rows<T> r)
{
    const int i = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    const bool key = i >= r.quads;
    const int j = key ? r.first + PP_QUAD * (i - r.quads) : PP_QUAD * i, left = (key ? r.width : r.first) - j;
    if (left <= 0) return;
    T *at = r.qkv + (int64_t)blockIdx.x * r.width + j;
    pp_quad q = pp_load<whole>(at, left);
    if (r.bias) {
        const pp_quad bias = pp_load<whole>(r.bias + j, left);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) q.v[k] += bias.v[k];
        pp_store<whole>(at, left, q);
    }
    if (key) pp_store<whole>(r.keys + (int64_t)blockIdx.x * (r.width - r.first) + j - r.first, left, q);
}

/* Writes the sums of all parts, added in their order, to the columns of keys and values of qkv. Grid: (tokens, quads of
 * keys and values / threads). */
template <typename T, bool whole> static __global__ void __launch_bounds__(THREADS) sum_keys(key_rows<T> r)
{
    const int shared = r.width - r.first, j = PP_QUAD * (int)(blockIdx.y * blockDim.x + threadIdx.x), left = shared - j;
    if (left <= 0) return;
    const T *from = r.keys + (int64_t)blockIdx.x * shared + j;
    pp_quad sum = pp_load<whole>(from, left);
    for (int i = 1; i < r.parts; i++) {
        const pp_quad q = pp_load<whole>(from + i * r.part, left);
#pragma unroll
        for (int k = 0; k < PP_QUAD; k++) sum.v[k] += q.v[k];
    }
    pp_store<whole>(r.qkv + (int64_t)blockIdx.x * r.width + r.first + j, left, sum);
}

template <typename T, bool sums> static cudaError_t run_keys(const struct pp_cuda_call *c)
{
    const struct pp_pieces_dims *n = &c->call->pieces;
    key_rows<T> r;
    r.qkv = static_cast<T *>(sums ? c->at.sum_keys.qkv : c->at.copy_keys.qkv);
    r.keys = static_cast<T *>(sums ? c->at.sum_keys.from : c->at.copy_keys.to);
    r.bias = sums ? NULL : static_cast<const float *>(c->at.copy_keys.bias);
    r.first = n->width;
    const int keys = PP_PIECE_KEYS(n);
    r.width = n->width + keys;
    r.parts = n->parts;
    r.part = (int64_t)n->tokens * keys;
    const bool whole =
        n->width % PP_QUAD == 0 && keys % PP_QUAD == 0 && pp_aligned(r.qkv) && pp_aligned(r.keys) && pp_aligned(r.bias);
    r.quads = r.bias ? pp_div_up(r.first, PP_QUAD) : 0;
    const int quads = r.quads + pp_div_up(keys, PP_QUAD), threads = pp_block_threads(quads, THREADS);
    const auto kernel =
        sums ? (whole ? sum_keys<T, true> : sum_keys<T, false>) : (whole ? copy_keys<T, true> : copy_keys<T, false>);
    PP_LAUNCH(kernel, dim3((unsigned)n->tokens, (unsigned)pp_div_up(quads, threads)), threads, 0, c->stream, r);
    return cudaGetLastError();
}

template <typename T> static cudaError_t run_copy_keys(const struct pp_cuda_call *c) { return run_keys<T, false>(c); }
template <typename T> static cudaError_t run_sum_keys(const struct pp_cuda_call *c) { return run_keys<T, true>(c); }

cudaError_t pp_cuda_copy_keys(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_copy_keys, c); }
cudaError_t pp_cuda_sum_keys(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_sum_keys, c); }

template <typename T> static cudaError_t prepare(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(rearrange<T, true, true>),
                                   reinterpret_cast<const void *>(rearrange<T, true, false>),
                                   reinterpret_cast<const void *>(rearrange<T, false, true>),
                                   reinterpret_cast<const void *>(rearrange<T, false, false>),
                                   reinterpret_cast<const void *>(copy_keys<T, true>),
                                   reinterpret_cast<const void *>(copy_keys<T, false>),
                                   reinterpret_cast<const void *>(sum_keys<T, true>),
                                   reinterpret_cast<const void *>(sum_keys<T, false>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}

cudaError_t pp_cuda_prepare_pieces(void)
{
    const cudaError_t error = prepare<float>();
    return error == cudaSuccess ? prepare<__nv_bfloat16>() : error;
}
