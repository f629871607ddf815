/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels of attention_mma.cu are made of: tiles of tokens in shared memory, the products of a warp with them,
 * dropout's bits where a warp has its probabilities.
 *
 * A warp has 16 rows of each product, or G times as many: what it reads of the other factor then serves all G products.
 * A block has several warps. W: columns of a tile, those of a head and zeros behind.
 * Lanes are called by the g and t of kernels/cuda/mma.cuh.
 */
#ifndef PP_KERNELS_CUDA_ATTENTION_MMA_CUH
#define PP_KERNELS_CUDA_ATTENTION_MMA_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

namespace pp_warp
{

typedef __nv_bfloat16 number;

/* Numbers that are copied at once; and as many lie behind each row, so that eight rows begin in different banks: W is a
 * multiple of 16, and a row an odd number of 16 bytes. */
enum { CHUNK = PP_COPY_BYTES / (int)sizeof(number) };

template <int W> constexpr int pitch = W + CHUNK;

static __device__ inline int lane() { return (int)threadIdx.x % PP_WARP; }
static __device__ inline int g() { return lane() / 4; }
static __device__ inline int t() { return lane() % 4; }
/* First of the warp's rows in the block's. */
template <int G = 1> static __device__ inline int first_row() { return (int)threadIdx.x / PP_WARP * G * PP_MMA_ROWS; }

/* 16 rows of sums, of N columns. */
template <int N> using sums = float[N / PP_MMA_COLUMNS][PP_MMA_SUMS];

constexpr float LOG2E = 1.44269504088896340736f;

/* The first token's query of a pair, and the key and value that the pair shares with its group. */
template <typename T> struct heads {
    T *query, *key, *value;
};
template <typename T> static __device__ inline heads<T> heads_of(const pp_attention &a, T *qkv, int pair)
{
    return {pp_attention_query(a, qkv, pair), pp_attention_key(a, qkv, pair), pp_attention_value(a, qkv, pair)};
}

/* The keys that a query sees are those from begin_keys() to open_keys() - 1. A query beyond the row counts as the last
 * query of the row; its results are not written. */
static __device__ inline int open_keys(const pp_attention &a, int query)
{
    return pp_attention_open(a, min(query, a.seq - 1));
}

static __device__ inline int begin_keys(const pp_attention &a, int query)
{
    return pp_attention_begin(a, min(query, a.seq - 1));
}

/* Do all queries of the warp, which begins with `first`, lie beyond the row, or see none of the N keys from `key` on?
 */
template <int N, int G = 1> static __device__ inline bool is_blind(const pp_attention &a, int first, int key)
{
    return first >= a.seq || key >= open_keys(a, first + G * PP_MMA_ROWS - 1) || key + N <= begin_keys(a, first);
}

/* Hides the scores of keys that are not seen, of a tile that begins with `key`. */
template <int N>
static __device__ inline void hide(const pp_attention &a, int first, int key, float (&score)[N][PP_MMA_SUMS])
{
    if (key + N * PP_MMA_COLUMNS <= open_keys(a, first) && key >= begin_keys(a, first + PP_MMA_ROWS - 1)) return;
    const int mine = key + 2 * t(), open[2] = {open_keys(a, first + g()) - mine, open_keys(a, first + 8 + g()) - mine},
              begin[2] = {begin_keys(a, first + g()) - mine, begin_keys(a, first + 8 + g()) - mine};
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < PP_MMA_SUMS; e++) {
            const int at = n * PP_MMA_COLUMNS + e % 2;
            if (at >= open[e / 2] || at < begin[e / 2]) score[n][e] = -INFINITY;
        }
}

/* A matrix of one head in global memory: `columns` numbers for each of `tokens` tokens, which lie `step` numbers apart.
 */
template <typename T> struct token_rows {
    T *at;
    int tokens, step, columns;
};
static __device__ inline token_rows<const number> queries_at(const pp_attention &a, const number *head)
{
    return {head, a.seq, a.width, a.dh};
}
static __device__ inline token_rows<const number> keys_at(const pp_attention &a, const number *head)
{
    return {head, a.keys, a.key_width, a.dh};
}
static __device__ inline token_rows<const number> values_at(const pp_attention &a, const number *head)
{
    return {head, a.keys, a.key_width, a.dv};
}
static __device__ inline token_rows<const number> context_at(const pp_attention &a, const number *head)
{
    return {head, a.seq, a.d, a.dv};
}

/* Starts to copy tokens first .. first + ROWS - 1 of a head to shared memory, zeros beyond the last one and beyond the
 * head's columns. All threads of the block. AT_ONCE: copies of a thread whose addresses have registers at the same
 * time. */
template <int W, int ROWS, int THREADS, int AT_ONCE = pp_div_up(ROWS *(W / CHUNK), THREADS)>
static __device__ inline void fetch(number *to, token_rows<const number> head, int first)
{
    constexpr int CHUNKS = W / CHUNK;
    const number *tile = head.at + (int64_t)first * head.step;
#pragma unroll AT_ONCE
    for (int i = 0; i < pp_div_up(ROWS * CHUNKS, THREADS); i++) {
        const int at = i * THREADS + (int)threadIdx.x, row = at / CHUNKS, column = at % CHUNKS * CHUNK;
        if (ROWS * CHUNKS % THREADS && row >= ROWS) break;
        const bool real = first + row < head.tokens && column < head.columns;
        const number *from = tile + (real ? row * head.step + column : 0);
        pp_copy_start<PP_COPY_BYTES>(to + row * pitch<W> + column, from, real);
    }
}

/* Starts to copy a pair's keys, and its values to the shared memory behind them: tokens as in fetch(). */
template <int W, int ROWS, int THREADS>
static __device__ inline void fetch_keys(const pp_attention &a, number *to, const heads<const number> &of, int first)
{
    fetch<W, ROWS, THREADS>(to, keys_at(a, of.key), first);
    fetch<W, ROWS, THREADS>(to + ROWS * pitch<W>, values_at(a, of.value), first);
}

/* 16 rows of a tile as the left factor: in registers, or, if there is no room, where they lie. */
template <int W> struct held_rows {
    uint32_t v[W / PP_MMA_TERMS][4];

    __device__ inline void take(const number *tile)
    {
#pragma unroll
        for (int k = 0; k < W / PP_MMA_TERMS; k++)
            pp_ldmatrix(v[k], tile + lane() % 16 * pitch<W> + k * PP_MMA_TERMS + lane() / 16 * 8);
    }
    __device__ inline void get(uint32_t (&to)[4], int k) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) to[i] = v[k][i];
    }
};

template <int W> struct lying_rows {
    const number *at;

    __device__ inline void take(const number *tile) { at = tile + lane() % 16 * pitch<W> + lane() / 16 * 8; }
    __device__ inline void get(uint32_t (&to)[4], int k) const { pp_ldmatrix(to, at + k * PP_MMA_TERMS); }
};

/* sum = a x (N rows of a tile, transposed) */
template <int W, int N, int G, class A>
static __device__ inline void multiply(const A (&a)[G], const number *tile, sums<N> (&sum)[G])
{
    const number *at = tile + (lane() % 8 + lane() / 16 * 8) * pitch<W> + lane() / 8 % 2 * 8;
#pragma unroll
    for (int i = 0; i < G * N / PP_MMA_COLUMNS; i++)
#pragma unroll
        for (int e = 0; e < PP_MMA_SUMS; e++) sum[i % G][i / G][e] = 0;
#pragma unroll
    for (int k = 0; k < W / PP_MMA_TERMS; k++) {
        uint32_t rows[G][4], columns[4];
#pragma unroll
        for (int i = 0; i < G; i++) a[i].get(rows[i], k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            pp_ldmatrix(columns, at + n * 16 * pitch<W> + k * PP_MMA_TERMS);
#pragma unroll
            for (int i = 0; i < G; i++) {
                pp_mma(sum[i][2 * n], rows[i], columns[0], columns[1]);
                pp_mma(sum[i][2 * n + 1], rows[i], columns[2], columns[3]);
            }
        }
    }
}

/* sum += p, rounded, x (C columns, from where it begins, of N rows of a tile) */
template <int W, int N, int C = W, int G>
static __device__ inline void add_product(const sums<N> (&p)[G], const number *tile, sums<C> (&sum)[G])
{
    const number *at = tile + lane() % 16 * pitch<W> + lane() / 16 * 8;
#pragma unroll
    for (int k = 0; k < N / PP_MMA_TERMS; k++) {
        uint32_t rows[G][4], columns[4];
#pragma unroll
        for (int i = 0; i < 4 * G; i++)
            rows[i / 4][i % 4] =
                pp_pair_of(p[i / 4][2 * k + i % 4 / 2][i % 2 * 2], p[i / 4][2 * k + i % 4 / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < C / 16; n++) {
            pp_ldmatrix_transposed(columns, at + k * PP_MMA_TERMS * pitch<W> + n * 16);
#pragma unroll
            for (int i = 0; i < G; i++) {
                pp_mma(sum[i][2 * n], rows[i], columns[0], columns[1]);
                pp_mma(sum[i][2 * n + 1], rows[i], columns[2], columns[3]);
            }
        }
    }
}

/* Writes sums times their row's factor: of C columns, of which there are to.columns. first: the first of the warp's
 * tokens. */
template <int C>
static __device__ inline void write(token_rows<number> to, int first, const float (&factor)[2], const sums<C> &sum)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int token = first + half * 8 + g();
        if (token >= to.tokens) continue;
        number *row = to.at + token * (int64_t)to.step + 2 * t();
#pragma unroll
        for (int n = 0; n < C / PP_MMA_COLUMNS; n++)
            if (n * PP_MMA_COLUMNS < to.columns)
                *reinterpret_cast<uint32_t *>(row + n * PP_MMA_COLUMNS) =
                    pp_pair_of(sum[n][2 * half] * factor[half], sum[n][2 * half + 1] * factor[half]);
    }
}

/* Which of four keys a query keeps, as bits. vectors: the pair's. */
static __device__ inline uint32_t kept_keys(const pp_attention &a, uint32_t vectors, int query, int quad)
{
    const uint4 random = pp_random(a.drop, vectors + (uint32_t)pp_attention_place(a, query), (uint32_t)quad);
    return (uint32_t)(random.x >= a.drop.threshold) | (uint32_t)(random.y >= a.drop.threshold) << 1 |
           (uint32_t)(random.z >= a.drop.threshold) << 2 | (uint32_t)(random.w >= a.drop.threshold) << 3;
}

/* Bit e: is this lane's element e of a tile of 16 queries x 8 keys kept? Two lanes share a quad of two queries: each
 * asks for one. */
static __device__ inline uint32_t kept_by_queries(const pp_attention &a, uint32_t vectors, int query, int key)
{
    const int odd = lane() & 1;
    const uint32_t mine = kept_keys(a, vectors, query + g() + odd * 8, key / PP_QUAD + t() / 2),
                   other = __shfl_xor_sync(0xffffffffu, mine, 1), low = odd ? other : mine, high = odd ? mine : other;
    return (low >> 2 * odd & 3) | (high >> 2 * odd & 3) << 2;
}

/* The same of 16 keys x 8 queries. Four lanes share two quads of two queries: each asks for one of the four, and all
 * get them as four bits each. */
static __device__ inline uint32_t kept_by_keys(const pp_attention &a, uint32_t vectors, int query, int key)
{
    const int which = g() % PP_QUAD;
    uint32_t all = kept_keys(a, vectors, query + 2 * t() + which % 2, key / PP_QUAD + which / 2 * 2 + g() / PP_QUAD)
                   << which * PP_QUAD;
    all |= __shfl_xor_sync(0xffffffffu, all, 4);
    all |= __shfl_xor_sync(0xffffffffu, all, 8);
    all >>= which;
    return (all & 1) | (all >> 3 & 2) | (all >> 6 & 4) | (all >> 9 & 8);
}

template <int W> constexpr int bytes_of(int rows) { return rows * pitch<W> * (int)sizeof(number); }

/* Loads a kernel, and lets it have so much shared memory, if there is so much. */
static inline cudaError_t prepare(const void *kernel, int shared_bytes)
{
    int most = 0;
    cudaError_t error = pp_load_kernels(&kernel, 1);
    if (error == cudaSuccess) error = pp_attention_shared_bytes(&most);
    return error == cudaSuccess && shared_bytes <= most
               ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes)
               : error;
}

} // namespace pp_warp

#endif
