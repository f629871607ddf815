/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of short rows on tensor cores: what its two kinds of numbers share (attention_short_mma.cu: bfloat16,
 * attention_short_tf32.cu: float, rounded to TF32). T: numbers as they lie in memory.
 */
#ifndef PP_KERNELS_CUDA_ATTENTION_SHORT_MMA_CUH
#define PP_KERNELS_CUDA_ATTENTION_SHORT_MMA_CUH

#include "kernels/cuda/attention_short.cuh"
#include "kernels/cuda/mma.cuh"

namespace pp_short
{

enum { SIDE = PP_MMA_ROWS, WARPS = THREADS / PP_WARP };
static_assert((int)PP_SHORT_STEP == (int)SIDE && (int)PP_SHORT_SIDE == (int)SIDE, "what predictions count");
static_assert((int)SIDE == 2 * (int)PP_MMA_COLUMNS, "tiles are square");

/* Numbers that are copied at once. Rows in shared memory are longer by as many, and then an odd number of 16 bytes:
 * eight of them begin in different banks. */
template <typename T> constexpr int chunk = PP_COPY_BYTES / (int)sizeof(T);

static __device__ inline int lane() { return (int)threadIdx.x % PP_WARP; }
static __device__ inline int warp() { return (int)threadIdx.x / PP_WARP; }

/* Begins to copy the tokens of a head, of so many columns, which lie `stride` apart, to shared memory. */
template <typename T>
static __device__ inline void fetch(T *to, int pitch, const T *from, int64_t stride, int seq, int columns)
{
    for (walk at = walk_of_thread(columns / chunk<T>); at.row < seq; at.next()) {
        const int column = at.part * chunk<T>;
        pp_copy_start<PP_COPY_BYTES>(to + at.row * pitch + column, from + at.row * stride + column, true);
    }
}

/* The same of a bias. */
static __device__ inline void fetch_bias(float *to, const float *from, int columns)
{
    for (int i = (int)threadIdx.x * PP_QUAD; i < columns; i += THREADS * PP_QUAD)
        pp_copy_start<PP_COPY_BYTES>(to + i, from + i, true);
}

/* Adds the bias to tokens that have come, and writes them back to where they came from. A thread renews what it has
 * fetched itself. */
template <typename T>
static __device__ inline void renew(T *from, int pitch, T *to, int64_t stride, int seq, int columns, const float *bias)
{
    struct alignas(PP_COPY_BYTES) numbers {
        T v[chunk<T>];
    };
    for (walk at = walk_of_thread(columns / chunk<T>); at.row < seq; at.next()) {
        const int column = at.part * chunk<T>;
        numbers *const here = reinterpret_cast<numbers *>(from + at.row * pitch + column);
        pp_quad add[chunk<T> / PP_QUAD];
#pragma unroll
        for (int k = 0; k < chunk<T> / PP_QUAD; k++) add[k] = quad_at(bias + column + k * PP_QUAD);
        numbers c = *here;
#pragma unroll
        for (int k = 0; k < chunk<T>; k++)
            c.v[k] = pp_from_float<T>(pp_to_float(c.v[k]) + add[k / PP_QUAD].v[k % PP_QUAD]);
        *here = c;
        *reinterpret_cast<numbers *>(to + at.row * stride + column) = c;
    }
}

/* A matrix in shared memory, whose row `last` stands for all behind it. */
template <typename T> struct rows_of {
    const T *at;
    int pitch, last;

    __device__ inline const T *row(int i) const { return at + min(i, last) * pitch; }
};

/* Two floats beside each other. */
struct couple {
    alignas(2 * sizeof(float)) float a;
    float b;
};

/* P as a factor: dropout's scale comes behind the product. */
static __device__ inline pp_quad factor_of(pp_quad p) { return pp_attention_kept(1, p); }

/* Scores -> P in global memory, and what dropout keeps of it as a factor in place of the same rows' scores, zeros up to
 * column `end`. scores(query, column): a quad of them; put(query, column, quad): a factor's. */
template <typename T, class S, class P>
static __device__ inline void softmax_rows(const pp_attention &a, int end, int pair, T *p, const S &scores,
                                           const P &put)
{
    const row_lanes mine(a.seq);
    for (int first = warp() * mine.rows; first < a.seq; first += WARPS * mine.rows) {
        const int query = first + mine.row;
        const bool is_row = query < a.seq, real = is_row && mine.column < a.seq;
        pp_quad q = softmax<T>(a, mine, pair, query, real ? scores(query, mine.column) : pp_quad{});
        __syncwarp(); /* all scores of the row have been read */
        if (real) {
            T *const to = pp_attention_row(a, p, pair, query) + mine.column;
            pp_store_if(a.whole_scores, to, a.seq - mine.column, q);
        } else {
            q = {};
        }
        if (is_row && mine.column < end) put(query, mine.column, factor_of(q));
    }
}

/* Gradients of drop(P) -> those of scores, in place of the same rows; and what dropout keeps of P. Zeros up to row and
 * column `end`. p(query, column), grads(query, column): a quad of each; put(query, column, gradients of scores, P): of
 * two factors. */
template <class Q, class G, class P>
static __device__ inline void softmax_grad_rows(const pp_attention &a, int end, const Q &p, const G &grads,
                                                const P &put)
{
    const row_lanes mine(a.seq);
    for (int first = warp() * mine.rows; first < end; first += WARPS * mine.rows) {
        const int query = first + mine.row;
        const bool inside = query < end && mine.column < end, real = query < a.seq && mine.column < a.seq;
        const pp_quad q = real ? p(query, mine.column) : pp_quad{};
        pp_quad out = softmax_grad(a, mine, q, real ? grads(query, mine.column) : pp_quad{});
        __syncwarp(); /* all gradients of the row have been read */
        if (!real) out = {};
        if (inside) put(query, mine.column, out, factor_of(q));
    }
}

/* Can blocks of so many bytes do the call? Columns are whole tiles, and all is copied by 16 bytes. */
static inline bool is_whole(const pp_attention &a, const void *qkv, const void *ctx, const void *bias,
                            int64_t forward_bytes, int64_t backward_bytes)
{
    const auto is_aligned = [](const void *p) { return (uintptr_t)p % PP_COPY_BYTES == 0; };
    int most = 0;
    return a.dh % PP_SHORT_STEP == 0 && a.dv % PP_SHORT_STEP == 0 && is_aligned(qkv) && is_aligned(ctx) &&
           is_aligned(bias) && pp_attention_shared_bytes(&most) == cudaSuccess && forward_bytes <= most &&
           backward_bytes <= most;
}

} // namespace pp_short

#endif
