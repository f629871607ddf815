/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of short rows on tensor cores: bfloat16, heads whose columns are a multiple of 16.
 *
 * As in attention_short.cu a thread block has one pair, and reads and writes everything once. All matrices of the pair
 * are on their way to shared memory at the same time, and stay bfloat16 there. A warp makes tiles of 16x16 of a
 * product; what tiles have beyond the last token repeats that token, or is multiplied by zeros. Scores, and backward
 * gradients of P, are float in shared memory; what softmax makes of them takes their place, as bfloat16, a factor of
 * the next products: P as it is stored, zero where dropout drops it, and the gradient of scores.
 *
 * A pair of the tutorial (35 tokens, 256 columns) takes 67 KiB forward and 69 backward, so three blocks share a
 * multiprocessor. Measured on an H200: 15 and 16 us for the 48 pairs of its microbatch, 28 and 31 for 320. In float
 * arithmetic, as these calls were made before, it was 30 and 33 us for 48 pairs, 67 and 70 for 320.
 */
#include "kernels/cuda/attention_short_mma.cuh"

namespace
{

using namespace pp_short;

typedef __nv_bfloat16 number;

enum { CHUNK = chunk<number> };
enum { MMA_BLOCKS = 3 /* a multiprocessor shall have registers for so many blocks */ };
enum { P_BATCH = 4 /* quads of P that a thread has on their way from memory at a time */ };
static_assert((int)SIDE == (int)PP_MMA_TERMS, "terms are whole tiles");

/* Matrices in shared memory. */
struct space {
    int side;                     /* tokens, in whole tiles */
    int pitch, p_pitch, s_pitch;  /* numbers from row to row: of tokens, P, scores (floats) */
    int matrix, p, scores, bytes; /* bytes of each, and of a block */
};

__host__ __device__ inline space space_of(int seq, int widest, bool backward)
{
    space s;
    s.side = pp_div_up(seq, SIDE) * SIDE;
    s.pitch = widest + CHUNK;
    s.p_pitch = s.side + CHUNK;
    s.s_pitch = s.side + CHUNK / 2;
    s.matrix = seq * s.pitch * (int)sizeof(number);
    s.p = s.side * s.p_pitch * (int)sizeof(number);
    s.scores = s.side * s.s_pitch * (int)sizeof(float);
    s.bytes = 3 * s.matrix + s.scores + (backward ? s.p : 3 * widest * (int)sizeof(float) /* bias */);
    return s;
}

/* ---- factors: fragments of 16x16 of a matrix in shared memory ---- */

typedef rows_of<number> matrix;

/* Left factor: the matrix, or transposed. i: the product's row; k: the term. */
struct left_as_is {
    matrix m;
    __device__ inline void get(uint32_t (&to)[4], int i, int k) const
    {
        pp_ldmatrix(to, m.row(i + lane() % 16) + k + lane() / 16 * 8);
    }
};
struct left_turned {
    matrix m;
    __device__ inline void get(uint32_t (&to)[4], int i, int k) const
    {
        pp_ldmatrix_transposed(to, m.row(k + lane() % 8 + lane() / 16 * 8) + i + lane() / 8 % 2 * 8);
    }
};

/* Right factor, j: the product's column. */
struct right_as_is {
    matrix m;
    __device__ inline void get(uint32_t (&to)[4], int j, int k) const
    {
        pp_ldmatrix_transposed(to, m.row(k + lane() % 16) + j + lane() / 16 * 8);
    }
};
struct right_turned {
    matrix m;
    __device__ inline void get(uint32_t (&to)[4], int j, int k) const
    {
        pp_ldmatrix(to, m.row(j + lane() % 8 + lane() / 16 * 8) + k + lane() / 8 % 2 * 8);
    }
};

/* Sums of a tile: of its two halves, columns 0 to 7 and 8 to 15. */
typedef float tile_sums[2][PP_MMA_SUMS];

template <class L, class R>
__device__ inline void add_terms(const L &left, const R &right, int i, int j, int k, tile_sums &sum)
{
    uint32_t rows[4], columns[4];
    left.get(rows, i, k);
    right.get(columns, j, k);
    pp_mma(sum[0], rows, columns[0], columns[1]);
    pp_mma(sum[1], rows, columns[2], columns[3]);
}

/* put(row, column, two sums) for all of left right, of rows x columns, which are whole tiles. Even and odd sixteens of
 * the terms have sums of their own, so that fewer wait for each other. */
template <class L, class R, class P>
__device__ inline void multiply(const L &left, const R &right, int rows, int columns, int terms, const P &put)
{
    for (walk at(warp(), WARPS, columns / SIDE); at.row < rows / SIDE; at.next()) {
        const int i = at.row * SIDE, j = at.part * SIDE;
        tile_sums even = {}, odd = {};
        int k = 0;
#pragma unroll 2
        for (; k + 2 * SIDE <= terms; k += 2 * SIDE) {
            add_terms(left, right, i, j, k, even);
            add_terms(left, right, i, j, k + SIDE, odd);
        }
        if (k < terms) add_terms(left, right, i, j, k, even);
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int e = 0; e < PP_MMA_SUMS; e += 2)
                put(i + lane() / 4 + e / 2 * 8, j + half * PP_MMA_COLUMNS + lane() % 4 * 2,
                    even[half][e] + odd[half][e], even[half][e + 1] + odd[half][e + 1]);
    }
}

struct to_scores {
    float *at;
    int pitch;
    __device__ inline void operator()(int row, int column, float a, float b) const
    {
        *reinterpret_cast<couple *>(at + row * pitch + column) = {a, b};
    }
};

/* Tokens in global memory, `stride` numbers apart; sums are multiplied by a factor. */
template <typename T> struct to_tokens {
    T *at;
    int64_t stride;
    int seq;
    float factor;
    __device__ inline void operator()(int row, int column, float a, float b) const
    {
        if (row < seq) write(at + row * stride + column, a * factor, b * factor);
    }
    __device__ static inline void write(float *to, float a, float b) { *reinterpret_cast<couple *>(to) = {a, b}; }
    __device__ static inline void write(number *to, float a, float b)
    {
        *reinterpret_cast<uint32_t *>(to) = pp_pair_of(a, b);
    }
};

/* biased: bias is added to qkv; a pair has keys and values of its own. */
template <bool biased>
__global__ void __launch_bounds__(THREADS, MMA_BLOCKS)
    forward(pp_attention a, number *ctx, number *p, number *qkv, const float *bias)
{
    PP_SHARED(number, shared);
    const space s = space_of(a.seq, a.widest, false);
    const int pair = (int)blockIdx.x, head = pair % a.heads, step = s.matrix / (int)sizeof(number), last = a.seq - 1;
    number *const x = shared, *const y = x + step, *const z = y + step;
    float *const scores = reinterpret_cast<float *>(z + step), *const add = scores + s.side * s.s_pitch;
    number *const query = pp_attention_query(a, qkv, pair), *const key = pp_attention_key(a, qkv, pair),
                  *const value = pp_attention_value(a, qkv, pair);
    if (biased) {
        fetch_bias(add, bias + head * a.dh, a.dh);
        fetch_bias(add + a.dh, bias + a.queries + head * a.dh, a.dh);
        fetch_bias(add + 2 * a.dh, bias + 2 * a.queries + head * a.dv, a.dv);
    }
    fetch(x, s.pitch, query, a.width, a.seq, a.dh);
    fetch(y, s.pitch, key, a.width, a.seq, a.dh);
    fetch(z, s.pitch, value, a.width, a.seq, a.dv);
    pp_copy_wait();
    __syncthreads();
    if (biased) {
        renew(x, s.pitch, query, a.width, a.seq, a.dh, add);
        renew(y, s.pitch, key, a.width, a.seq, a.dh, add + a.dh);
        renew(z, s.pitch, value, a.width, a.seq, a.dv, add + 2 * a.dh);
        __syncthreads();
    }
    multiply(left_as_is{{x, s.pitch, last}}, right_turned{{y, s.pitch, last}}, s.side, s.side, a.dh,
             to_scores{scores, s.s_pitch});
    __syncthreads();
    softmax_rows(
        a, s.side, pair, p, [&](int i, int j) { return quad_at(scores + i * s.s_pitch + j); },
        [&](int i, int j, pp_quad q) {
            pp_store<true>(reinterpret_cast<number *>(scores + i * s.s_pitch) + j, PP_QUAD, q);
        });
    __syncthreads();
    const matrix kept = {reinterpret_cast<const number *>(scores), 2 * s.s_pitch, last};
    multiply(left_as_is{kept}, right_as_is{{z, s.pitch, last}}, s.side, a.dv, s.side,
             to_tokens<number>{pp_attention_context(a, ctx, pair), a.d, a.seq, a.drop.scale});
}

/* P of a pair to shared memory, and zeros beyond it, in whole tiles. */
template <bool whole> __device__ inline void take_p(const pp_attention &a, const space &s, number *to, const number *p)
{
    walk at = walk_of_thread(s.side / PP_QUAD), next = at;
    while (at.row < s.side) {
        pp_quad q[P_BATCH];
#pragma unroll
        for (int b = 0; b < P_BATCH; b++, next.next()) {
            const int column = next.part * PP_QUAD, left = next.row < a.seq ? a.seq - column : 0;
            q[b] = pp_quad{};
            if (left > 0 || !whole) q[b] = pp_load<whole>(p + next.row * a.seq + column, left);
        }
#pragma unroll
        for (int b = 0; b < P_BATCH; b++, at.next())
            if (at.row < s.side) pp_store<true>(to + at.row * s.p_pitch + at.part * PP_QUAD, PP_QUAD, q[b]);
    }
}

/* left' right, gradients of a key or value of a pair, of so many columns: to its place, or into scratch. */
template <bool shares>
__device__ inline void multiply_shared(const pp_attention &a, const space &s, const matrix &left, const matrix &right,
                                       number *to, float *waiting, int columns, float factor)
{
    if (shares)
        multiply(left_turned{left}, right_as_is{right}, s.side, columns, s.side,
                 to_tokens<float>{waiting, a.widest, a.seq, factor});
    else
        multiply(left_turned{left}, right_as_is{right}, s.side, columns, s.side,
                 to_tokens<number>{to, a.width, a.seq, factor});
}

/* Blocks: pairs from first_pair on. shares: gradients of keys and values go to `waiting` [2, pairs, seq, a.widest]. */
template <bool shares>
__global__ void __launch_bounds__(THREADS, MMA_BLOCKS)
    backward(pp_attention a, int first_pair, number *qkv, const number *p, const number *dctx, float *waiting)
{
    PP_SHARED(number, shared);
    const space s = space_of(a.seq, a.widest, true);
    const int pair = first_pair + (int)blockIdx.x, step = s.matrix / (int)sizeof(number), last = a.seq - 1;
    number *const x = shared, *const y = x + step, *const z = y + step, *const kept = z + step;
    float *const grads = reinterpret_cast<float *>(kept + s.side * s.p_pitch);
    const int64_t floats = (int64_t)a.seq * a.widest;
    float *const dkey = waiting + blockIdx.x * floats, *const dvalue = dkey + gridDim.x * floats;
    number *const query = pp_attention_query(a, qkv, pair), *const key = pp_attention_key(a, qkv, pair),
                  *const value = pp_attention_value(a, qkv, pair);
    fetch(x, s.pitch, pp_attention_context(a, dctx, pair), a.d, a.seq, a.dv);
    fetch(y, s.pitch, value, a.width, a.seq, a.dv);
    fetch(z, s.pitch, key, a.width, a.seq, a.dh);
    if (a.whole_scores)
        take_p<true>(a, s, kept, pp_attention_row(a, p, pair, 0));
    else
        take_p<false>(a, s, kept, pp_attention_row(a, p, pair, 0));
    pp_copy_wait();
    __syncthreads();
    multiply(left_as_is{{x, s.pitch, last}}, right_turned{{y, s.pitch, last}}, s.side, s.side, a.dv,
             to_scores{grads, s.s_pitch});
    __syncthreads();
    fetch(y, s.pitch, query, a.width, a.seq, a.dh);
    softmax_grad_rows(
        a, s.side, [&](int i, int j) { return pp_load<true>(kept + i * s.p_pitch + j, PP_QUAD); },
        [&](int i, int j) { return quad_at(grads + i * s.s_pitch + j); },
        [&](int i, int j, pp_quad dscores, pp_quad weights) {
            pp_store<true>(reinterpret_cast<number *>(grads + i * s.s_pitch) + j, PP_QUAD, dscores);
            pp_store<true>(kept + i * s.p_pitch + j, PP_QUAD, weights);
        });
    __syncthreads();
    const matrix weights = {kept, s.p_pitch, s.side - 1},
                 dscores = {reinterpret_cast<const number *>(grads), 2 * s.s_pitch, s.side - 1};
    multiply_shared<shares>(a, s, weights, {x, s.pitch, last}, value, dvalue, a.dv, a.drop.scale);
    pp_copy_wait();
    __syncthreads();
    multiply(left_as_is{dscores}, right_as_is{{z, s.pitch, last}}, s.side, a.dh, s.side,
             to_tokens<number>{query, a.width, a.seq, 1});
    multiply_shared<shares>(a, s, dscores, {y, s.pitch, last}, key, dkey, a.dh, 1);
}

} // namespace

bool pp_short_mma_does(const pp_attention &a, const void *qkv, const void *ctx, const void *bias)
{
    return is_whole(a, qkv, ctx, bias, space_of(a.seq, a.widest, false).bytes, space_of(a.seq, a.widest, true).bytes);
}

pp_short::kernels<number> pp_short_mma_kernels(const pp_attention &a, bool biased)
{
    return {biased ? forward<true> : forward<false>, space_of(a.seq, a.widest, false).bytes,
            a.group > 1 ? backward<true> : backward<false>, space_of(a.seq, a.widest, true).bytes};
}

cudaError_t pp_short_mma_prepare(int most_shared_bytes)
{
    const void *const kernels[] = {
        reinterpret_cast<const void *>(forward<true>), reinterpret_cast<const void *>(forward<false>),
        reinterpret_cast<const void *>(backward<true>), reinterpret_cast<const void *>(backward<false>)};
    return pp_short::prepare(kernels, sizeof kernels / sizeof kernels[0], most_shared_bytes);
}
