/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of attention that stores no scores, on tensor cores: see attention_mma.cu.
 */
#include <algorithm>

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/flash.h"

namespace
{

using namespace pp_warp;

/* Tokens of a block, and of a tile of the other side: what they make of each other has room in registers. */
enum { TOKENS = 64, OVER = 32, THREADS = TOKENS / PP_MMA_ROWS * PP_WARP };

/* What the backward has in scratch, of some pairs. */
struct stage {
    int pair, pairs;
    number *grads; /* [pairs, seq, dh]: of queries */
    float *means;  /* [pairs, seq]: a query's ctx times its dctx */
};

/* The means of the warp's queries, into scratch; those of the lane's two come back. */
__device__ inline void make_means(const pp_attention &a, const number *ctx, const number *dctx, int first, float *to,
                                  float (&mine)[2])
{
    for (int row = 0; row < PP_MMA_ROWS; row++) {
        const int token = first + row, column = lane() * PP_QUAD;
        const int64_t at = (int64_t)token * a.d + column;
        float sum = 0;
        if (token < a.seq && column < a.dh) {
            const pp_quad x = pp_load<true>(ctx + at, PP_QUAD), y = pp_load<true>(dctx + at, PP_QUAD);
#pragma unroll
            for (int i = 0; i < PP_QUAD; i++) sum += x.v[i] * y.v[i];
        }
        sum = pp_warp_sum(sum);
        if (lane() == 0 && token < a.seq) to[token] = sum;
        if (row == g()) mine[0] = sum;
        if (row == g() + 8) mine[1] = sum;
    }
}

/* Gradient of a score before its scaling. */
__device__ inline float gradient_of(const pp_attention &a, float p, float dkept, float mean, bool kept)
{
    return p * ((kept ? dkept * a.drop.scale : 0) - mean);
}

/* Means and gradients of queries into scratch. Blocks: pair, query tile. */
template <int W>
__global__ void __launch_bounds__(THREADS)
    query_grad(pp_attention a, stage s, const number *qkv, const float *lse, const number *ctx, const number *dctx)
{
    constexpr int N = OVER, TILE = 2 * N * pitch<W>;
    PP_SHARED(number, shared); /* keys and values of two tiles; before that, queries and gradients of ctx */
    const int turn = (int)blockIdx.x, pair = s.pair + turn, i = (int)(gridDim.y - 1 - blockIdx.y) * TOKENS,
              first = i + first_row(), end = open_keys(a, i + TOKENS - 1);
    const number *keys = key_of(a, qkv, pair), *grad = pp_attention_context(a, dctx, pair);
    const int step = a.width, apart = apart_of(a);
    const float scale2 = a.scale * LOG2E;
    held_rows<W> queries, grads;
    float out[W / PP_MMA_COLUMNS][PP_MMA_SUMS] = {}, mean[2], lse2[2];
    fetch<W, TOKENS, THREADS>(a, shared, pp_attention_query(a, qkv, pair), step, i);
    fetch<W, TOKENS, THREADS>(a, shared + TOKENS * pitch<W>, grad, a.d, i);
    make_means(a, pp_attention_context(a, ctx, pair), grad, first, s.means + (int64_t)turn * a.seq, mean);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = min(first + half * 8 + g(), a.seq - 1);
        lse2[half] = lse[(int64_t)pair * a.seq + query] * LOG2E;
    }
    pp_copy_wait();
    __syncthreads();
    queries.take(shared + first_row() * pitch<W>);
    grads.take(shared + (TOKENS + first_row()) * pitch<W>);
    __syncthreads();
    fetch<W, N, THREADS, 2>(a, shared, keys, step, 0, apart);
    for (int j = 0; j < end; j += N) {
        number *const tile = shared + j / N % 2 * TILE;
        pp_copy_wait();
        __syncthreads();
        if (j + N < end) fetch<W, N, THREADS, 2>(a, shared + (j / N + 1) % 2 * TILE, keys, step, j + N, apart);
        if (is_blind(a, first, j)) continue;
        float score[N / PP_MMA_COLUMNS][PP_MMA_SUMS], dkept[N / PP_MMA_COLUMNS][PP_MMA_SUMS];
        multiply<W, N>(queries, tile, score);
        multiply<W, N>(grads, tile + N * pitch<W>, dkept);
        hide(a, first, j, score);
#pragma unroll
        for (int n = 0; n < N / PP_MMA_COLUMNS; n++) {
            const uint32_t kept = a.drop.on ? kept_by_queries(a, pair, first, j + n * PP_MMA_COLUMNS) : ~0u;
#pragma unroll
            for (int e = 0; e < PP_MMA_SUMS; e++)
                score[n][e] =
                    gradient_of(a, exp2f(score[n][e] * scale2 - lse2[e / 2]), dkept[n][e], mean[e / 2], kept >> e & 1);
        }
        add_product<W, N>(score, tile, out);
    }
    write<W>(a, s.grads + (int64_t)turn * a.seq * a.dh, a.dh, first, {a.scale, a.scale}, out);
}

/* Starts to copy a tile of the other side's: queries, gradients of ctx, and lse and means of N of them. */
template <int W, int N>
__device__ inline void fetch_queries(const pp_attention &a, number *to, float *known, const number *queries,
                                     const number *grads, const float *lse, const float *means, int i)
{
    fetch<W, N, THREADS>(a, to, queries, a.width, i);
    fetch<W, N, THREADS>(a, to + N * pitch<W>, grads, a.d, i);
    if ((int)threadIdx.x < 2 * N) {
        const float *from = (int)threadIdx.x < N ? lse : means;
        const int query = i + (int)threadIdx.x % N;
        pp_copy_start<sizeof(float)>(known + threadIdx.x, from + min(query, a.seq - 1), query < a.seq);
    }
}

/* Gradients of keys and values in their place: the block is the only one that needs them. Blocks: pair, key tile. The
 * scores are transposed: rows are keys. Queries beyond the row have lse, mean and dctx of zero, and add nothing. */
template <int W>
__global__ void __launch_bounds__(THREADS)
    key_value_grad(pp_attention a, stage s, number *qkv, const float *lse, const number *dctx)
{
    constexpr int N = OVER, TILE = 2 * N * pitch<W>;
    PP_SHARED(number, shared); /* keys, values; queries and gradients of ctx of two tiles; lse and means of these */
    number *const tiles = shared + 2 * TOKENS * pitch<W>;
    float *const known = reinterpret_cast<float *>(tiles + 2 * TILE);
    const int turn = (int)blockIdx.x, pair = s.pair + turn, j = (int)blockIdx.y * TOKENS, first = j + first_row();
    const number *queries = pp_attention_query(a, qkv, pair), *grads = pp_attention_context(a, dctx, pair);
    const float *lse_of = lse + (int64_t)pair * a.seq, *means = s.means + (int64_t)turn * a.seq;
    const float scale2 = a.scale * LOG2E;
    lying_rows<W> keys, values;
    float dk[W / PP_MMA_COLUMNS][PP_MMA_SUMS] = {}, dv[W / PP_MMA_COLUMNS][PP_MMA_SUMS] = {};
    fetch<W, TOKENS, THREADS, 2>(a, shared, key_of(a, qkv, pair), a.width, j, apart_of(a));
    const int begin = a.causal ? j : 0; /* an even number of tiles */
    fetch_queries<W, N>(a, tiles, known, queries, grads, lse_of, means, begin);
    pp_copy_wait();
    __syncthreads();
    keys.take(shared + first_row() * pitch<W>);
    values.take(shared + (TOKENS + first_row()) * pitch<W>);
    for (int i = begin; i < a.seq; i += N) {
        const number *tile = tiles + i / N % 2 * TILE;
        const float *of = known + i / N % 2 * 2 * N;
        pp_copy_wait();
        __syncthreads();
        if (i + N < a.seq)
            fetch_queries<W, N>(a, tiles + (i / N + 1) % 2 * TILE, known + (i / N + 1) % 2 * 2 * N, queries, grads,
                                lse_of, means, i + N);
        if (first >= a.seq || (a.causal && first >= i + N)) continue;
        float score[N / PP_MMA_COLUMNS][PP_MMA_SUMS], dkept[N / PP_MMA_COLUMNS][PP_MMA_SUMS];
        multiply<W, N>(keys, tile, score);
        multiply<W, N>(values, tile + N * pitch<W>, dkept);
#pragma unroll
        for (int n = 0; n < N / PP_MMA_COLUMNS; n++) {
            const int column = n * PP_MMA_COLUMNS + 2 * t();
            const uint32_t kept = a.drop.on ? kept_by_keys(a, pair, i + n * PP_MMA_COLUMNS, first) : ~0u;
#pragma unroll
            for (int e = 0; e < PP_MMA_SUMS; e++) {
                const bool seen = !a.causal || first + e / 2 * 8 + g() <= i + column + e % 2, keeps = kept >> e & 1;
                const float p = seen ? exp2f(score[n][e] * scale2 - of[column + e % 2] * LOG2E) : 0;
                score[n][e] = p * (keeps ? 1.0f : 0.0f); /* what is not a number stays so */
                dkept[n][e] = gradient_of(a, p, dkept[n][e], of[N + column + e % 2], keeps);
            }
        }
        add_product<W, N>(score, tile + N * pitch<W>, dv);
        add_product<W, N>(dkept, tile, dk);
    }
    write<W>(a, key_of(a, qkv, pair), a.width, first, {a.scale, a.scale}, dk);
    write<W>(a, key_of(a, qkv, pair) + apart_of(a), a.width, first, {a.drop.scale, a.drop.scale}, dv);
}

/* Takes the gradients of queries to their place. */
__global__ void settle(pp_attention a, stage s, number *qkv)
{
    const int chunks = a.dh / CHUNK;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x, end = (int64_t)s.pairs * a.seq * chunks;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < end; at += stride) {
        const int64_t row = at / chunks;
        number *to =
            pp_attention_query(a, qkv, s.pair + (int)(row / a.seq)) + row % a.seq * a.width + at % chunks * CHUNK;
        *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(s.grads + at * CHUNK);
    }
}

/* The kernels for heads of up to `width` columns. */
struct kind {
    int width, query_bytes, key_bytes;
    void (*query_grad)(pp_attention, stage, const number *, const float *, const number *, const number *);
    void (*key_value_grad)(pp_attention, stage, number *, const float *, const number *);
};

template <int W> constexpr kind kind_of()
{
    static_assert(2 * TOKENS <= 4 * OVER, "queries and gradients have room where two tiles of keys and values come");
    return {W, bytes_of<W>(4 * OVER), bytes_of<W>(2 * TOKENS + 4 * OVER) + 4 * OVER * (int)sizeof(float), query_grad<W>,
            key_value_grad<W>};
}

const kind kinds[] = {kind_of<32>(), kind_of<64>(), kind_of<96>(), kind_of<PP_FLASH_WIDEST>()};

} // namespace

cudaError_t pp_attention_mma_grad(const struct pp_cuda_call *c)
{
    number *qkv = static_cast<number *>(c->p[0]);
    const float *lse = static_cast<const float *>(c->p[1]);
    const number *ctx = static_cast<const number *>(c->p[2]), *dctx = static_cast<const number *>(c->p[3]);
    const pp_attention a = pp_attention_of<number>(c, NULL, qkv, ctx);
    const int pairs = a.rows * a.heads;
    const struct pp_flash_parts parts = pp_flash_divide(c->call, true, c->scratch_bytes);
    const kind *k = kinds;
    while (k->width < a.dh) k++;
    if (parts.parts == 0) return cudaErrorInvalidValue;
    stage s = {};
    s.grads = static_cast<number *>(c->scratch);
    for (s.pair = 0; s.pair < pairs; s.pair += parts.groups) {
        s.pairs = std::min(parts.groups, pairs - s.pair);
        s.means = reinterpret_cast<float *>(s.grads + (int64_t)s.pairs * a.seq * a.dh);
        const dim3 grid((unsigned)s.pairs, (unsigned)pp_div_up(a.seq, TOKENS));
        const int blocks = pp_tile::loop_blocks((int64_t)s.pairs * a.seq * a.dh / CHUNK);
        PP_LAUNCH(k->query_grad, grid, THREADS, k->query_bytes, c->stream, a, s, qkv, lse, ctx, dctx);
        PP_LAUNCH(k->key_value_grad, grid, THREADS, k->key_bytes, c->stream, a, s, qkv, lse, dctx);
        PP_LAUNCH(settle, blocks, pp_tile::THREADS, 0, c->stream, a, s, qkv);
    }
    return cudaGetLastError();
}

cudaError_t pp_cuda_prepare_attention_mma_grad(void)
{
    const void *const other = reinterpret_cast<const void *>(settle);
    cudaError_t error = pp_load_kernels(&other, 1);
    for (const kind &k : kinds) {
        if (error == cudaSuccess) error = prepare(reinterpret_cast<const void *>(k.query_grad), k.query_bytes);
        if (error == cudaSuccess) error = prepare(reinterpret_cast<const void *>(k.key_value_grad), k.key_bytes);
    }
    return error;
}
