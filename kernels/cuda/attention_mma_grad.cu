/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of attention that stores no scores, on tensor cores: see attention_mma.cu.
 */
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/flash.h"

namespace
{

using namespace pp_warp;

/* Tokens of a block, and of a tile of the other side: what they make of each other has room in registers. */
enum { OVER = PP_MMA_OVER, TOKENS = PP_MMA_GRAD_WARPS * PP_MMA_TOKENS, THREADS = PP_MMA_GRAD_WARPS * PP_WARP };

/* What the backward has in scratch, of some whole groups. */
struct stage {
    int pair, pairs;
    int pitch;       /* of these gradients: columns of a key or value, whichever is wider */
    number *queries; /* [pairs, seq, pitch] gradients; NULL: they take the place of the queries at once */
    number *keys;    /* [2, pairs / group, keys, pitch] of keys and values; NULL: likewise */
    float *means;    /* [pairs, seq]: a query's ctx times its dctx */
};

/* This lane's part of a query's mean. */
__device__ inline float part_of_mean(const pp_attention &a, const number *ctx, const number *dctx, int token)
{
    float sum = 0;
#pragma unroll
    for (int part = 0; part < PP_FLASH_WIDEST; part += PP_WARP * PP_QUAD) {
        const int column = part + lane() * PP_QUAD;
        const int64_t at = (int64_t)token * a.d + (column < a.dv ? column : 0);
        const pp_quad x = pp_load<true>(ctx + at, PP_QUAD), y = pp_load<true>(dctx + at, PP_QUAD);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) sum += column < a.dv ? x.v[i] * y.v[i] : 0;
    }
    return sum;
}

/* The means of the warp's queries, into scratch; those of the lane's two come back. What eight queries need is on its
 * way before the first sum is made. */
__device__ inline void make_means(const pp_attention &a, const number *ctx, const number *dctx, int first, float *to,
                                  float (&mine)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum[8];
#pragma unroll
        for (int row = 0; row < 8; row++) sum[row] = part_of_mean(a, ctx, dctx, min(first + half * 8 + row, a.seq - 1));
#pragma unroll
        for (int row = 0; row < 8; row++) {
            const float mean = pp_warp_sum(sum[row]);
            if (row == g()) mine[half] = mean;
        }
        if (t() == 0 && first + half * 8 + g() < a.seq) to[first + half * 8 + g()] = mine[half];
    }
}

/* The same alone, where those of keys and values come before gradients of queries. Blocks: pair, query tile. */
__global__ void __launch_bounds__(THREADS) means(pp_attention a, stage s, const number *ctx, const number *dctx)
{
    const int turn = (int)blockIdx.x, pair = s.pair + turn;
    float mine[2];
    make_means(a, pp_attention_context(a, ctx, pair), pp_attention_context(a, dctx, pair),
               (int)blockIdx.y * TOKENS + first_row(), s.means + (int64_t)turn * a.seq, mine);
}

/* Gradient of a score before its scaling. */
__device__ inline float gradient_of(const pp_attention &a, float p, float dkept, float mean, bool kept)
{
    return p * ((kept ? dkept * a.drop.scale : 0) - mean);
}

template <int W> constexpr bool is_wide = W > PP_MMA_NARROW;

/* Rows of a warp that do not change: of wide heads, there is no room for them in registers. */
template <int W> using own_rows = std::conditional_t<is_wide<W>, lying_rows<W>, held_rows<W>>;

/* Means, and gradients of queries. Blocks: pair, query tile. */
template <int W>
__global__ void __launch_bounds__(THREADS)
    query_grad(pp_attention a, stage s, number *qkv, const float *lse, const number *ctx, const number *dctx)
{
    constexpr int N = OVER, TILE = 2 * N * pitch<W>;
    PP_SHARED(number, shared); /* queries and gradients of ctx; then, or behind, keys and values of two tiles */
    number *const tiles = shared + (is_wide<W> ? 2 * TOKENS * pitch<W> : 0);
    const int turn = (int)blockIdx.x, pair = s.pair + turn, i = (int)(gridDim.y - 1 - blockIdx.y) * TOKENS,
              first = i + first_row(), begin = begin_keys(a, i) / N * N, end = open_keys(a, i + TOKENS - 1);
    const heads<number> at = heads_of(a, qkv, pair);
    const number *grad = pp_attention_context(a, dctx, pair);
    const uint32_t vectors = pp_attention_vectors(a, pair);
    const float scale2 = a.scale * LOG2E;
    own_rows<W> queries[1], grads[1];
    sums<W> out[1] = {};
    float mean[2], lse2[2];
    fetch<W, TOKENS, THREADS>(shared, queries_at(a, at.query), i);
    fetch<W, TOKENS, THREADS>(shared + TOKENS * pitch<W>, context_at(a, grad), i);
    make_means(a, pp_attention_context(a, ctx, pair), grad, first, s.means + (int64_t)turn * a.seq, mean);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = min(first + half * 8 + g(), a.seq - 1);
        lse2[half] = lse[(int64_t)pair * a.seq + query] * LOG2E;
    }
    pp_copy_wait();
    __syncthreads();
    queries[0].take(shared + first_row() * pitch<W>);
    grads[0].take(shared + (TOKENS + first_row()) * pitch<W>);
    __syncthreads();
    fetch_keys<W, N, THREADS>(a, tiles + begin / N % 2 * TILE, {at.query, at.key, at.value}, begin);
    for (int j = begin; j < end; j += N) {
        number *const tile = tiles + j / N % 2 * TILE;
        pp_copy_wait();
        __syncthreads();
        if (j + N < end)
            fetch_keys<W, N, THREADS>(a, tiles + (j / N + 1) % 2 * TILE, {at.query, at.key, at.value}, j + N);
        if (is_blind<N>(a, first, j)) continue;
        sums<N> score[1], dkept[1];
        multiply<W, N>(queries, tile, score);
        multiply<W, N>(grads, tile + N * pitch<W>, dkept);
        hide(a, first, j, score[0]);
#pragma unroll
        for (int n = 0; n < N / PP_MMA_COLUMNS; n++) {
            const uint32_t kept = a.drop.on ? kept_by_queries(a, vectors, first, j + n * PP_MMA_COLUMNS) : ~0u;
#pragma unroll
            for (int e = 0; e < PP_MMA_SUMS; e++)
                score[0][n][e] = gradient_of(a, pp_exp2(score[0][n][e] * scale2 - lse2[e / 2]), dkept[0][n][e],
                                             mean[e / 2], kept >> e & 1);
        }
        add_product<W, N>(score, tile, out);
    }
    number *const waiting = s.queries ? s.queries + (int64_t)turn * a.seq * s.pitch : NULL;
    const token_rows<number> to = waiting ? token_rows<number>{waiting, a.seq, s.pitch, a.dh}
                                          : token_rows<number>{pp_attention_query(a, qkv, pair), a.seq, a.width, a.dh};
    write<W>(to, first, {a.scale, a.scale}, out[0]);
}

/* Where a tile of queries begins. */
struct place {
    int pair, query;
};

/* Queries of each pair. */
struct range {
    int begin, end;
};

/* The one behind it: of the same pair, or with the first query of the next. */
__device__ inline place behind(place p, range queries)
{
    if (p.query + OVER < queries.end) return {p.pair, p.query + OVER};
    return {p.pair + 1, queries.begin};
}

/* Those that see some of the keys of a block, from `key` on: at least one, whether it sees any or not. */
__device__ inline range seeing(const pp_attention &a, int key)
{
    return {min(pp_attention_first(a, key), a.seq - 1), pp_attention_end(a, key + TOKENS - 1)};
}

/* Do all keys of the warp, which begins with `first`, or all of the N queries from `query` on, lie beyond the row, or
 * does none of these see any of the keys? */
template <int N> __device__ inline bool is_unseen(const pp_attention &a, int first, int query)
{
    return first >= a.keys || query >= a.seq || first >= pp_attention_open(a, query + N - 1) ||
           first + PP_MMA_ROWS <= pp_attention_begin(a, query);
}

/* Starts to copy a tile of the other side's: queries, gradients of ctx, and lse and means of N of them. */
template <int W, int N>
__device__ inline void fetch_queries(const pp_attention &a, const stage &s, number *to, float *known, const number *qkv,
                                     const number *dctx, const float *lse, place at)
{
    fetch<W, N, THREADS>(to, queries_at(a, pp_attention_query(a, qkv, at.pair)), at.query);
    fetch<W, N, THREADS>(to + N * pitch<W>, context_at(a, pp_attention_context(a, dctx, at.pair)), at.query);
    if ((int)threadIdx.x < 2 * N) {
        const float *from =
            (int)threadIdx.x < N ? lse + (int64_t)at.pair * a.seq : s.means + (int64_t)(at.pair - s.pair) * a.seq;
        const int query = at.query + (int)threadIdx.x % N;
        pp_copy_start<sizeof(float)>(known + threadIdx.x, from + min(query, a.seq - 1), query < a.seq);
    }
}

/* Columns of gradients of keys and values that a block makes: of wide heads half of them. */
template <int W> constexpr int made = is_wide<W> ? W / 2 : W;

/* Queries that a warp takes at a time: of narrow heads few, so that its keys and values have room in registers. */
template <int W> constexpr int taken = is_wide<W> ? OVER : PP_MMA_ROWS;

/* From scores of Q queries, from `query` on, with the warp's keys, and gradients of their P: what P keeps, and
 * gradients of scores. of: lse of the queries; OVER further, their means. */
template <int Q>
__device__ inline void make_gradients(const pp_attention &a, uint32_t vectors, int query, int first, const float *of,
                                      float scale2, sums<Q> &score, sums<Q> &dkept)
{
#pragma unroll
    for (int n = 0; n < Q / PP_MMA_COLUMNS; n++) {
        const int column = n * PP_MMA_COLUMNS + 2 * t();
        const uint32_t kept = a.drop.on ? kept_by_keys(a, vectors, query + n * PP_MMA_COLUMNS, first) : ~0u;
#pragma unroll
        for (int e = 0; e < PP_MMA_SUMS; e++) {
            const bool seen = pp_attention_seen(a, query + column + e % 2).has(first + e / 2 * 8 + g()),
                       keeps = kept >> e & 1;
            const float p = seen ? pp_exp2(score[n][e] * scale2 - of[column + e % 2] * LOG2E) : 0;
            score[n][e] = p * (keeps ? 1.0f : 0.0f); /* what is not a number stays so */
            dkept[n][e] = gradient_of(a, p, dkept[n][e], of[OVER + column + e % 2], keeps);
        }
    }
}

/* Gradients of keys and values: in their place where nobody needs what is there. Blocks: group, key tile, part of the
 * columns; each goes over the queries of the group's heads. The scores are transposed: rows are keys. Queries beyond
 * the row have lse, mean and dctx of zero, and add nothing. */
template <int W>
__global__ void __launch_bounds__(THREADS)
    key_value_grad(pp_attention a, stage s, number *qkv, const float *lse, const number *dctx)
{
    constexpr int N = OVER, TILE = 2 * N * pitch<W>, C = made<W>, Q = taken<W>;
    PP_SHARED(number, shared); /* keys, values; queries and gradients of ctx of two tiles; lse and means of these */
    number *const tiles = shared + 2 * TOKENS * pitch<W>;
    float *const known = reinterpret_cast<float *>(tiles + 2 * TILE);
    const int group = s.pair + (int)blockIdx.x * a.group, end = group + a.group, j = (int)blockIdx.y * TOKENS,
              first = j + first_row(), column0 = (int)blockIdx.z * C;
    const range queries = seeing(a, j);
    const float scale2 = a.scale * LOG2E;
    own_rows<W> keys[1], values[1];
    sums<C> dk[1] = {}, dv[1] = {};
    fetch_keys<W, TOKENS, THREADS>(a, shared, heads_of<const number>(a, qkv, group), j);
    fetch_queries<W, N>(a, s, tiles, known, qkv, dctx, lse, {group, queries.begin});
    pp_copy_wait();
    __syncthreads();
    keys[0].take(shared + first_row() * pitch<W>);
    values[0].take(shared + (TOKENS + first_row()) * pitch<W>);
    place next = {group, queries.begin};
    for (int odd = 0; next.pair < end; odd ^= 1) {
        const number *tile = tiles + odd * TILE;
        const float *of = known + odd * 2 * N;
        const uint32_t vectors = pp_attention_vectors(a, next.pair);
        const int i = next.query;
        next = behind(next, queries);
        pp_copy_wait();
        __syncthreads();
        if (next.pair < end)
            fetch_queries<W, N>(a, s, tiles + (odd ^ 1) * TILE, known + (odd ^ 1) * 2 * N, qkv, dctx, lse, next);
#pragma unroll 1
        for (int q = 0; q < N; q += Q) {
            const number *const mine = tile + q * pitch<W>, *const theirs = mine + N * pitch<W>;
            if (is_unseen<Q>(a, first, i + q)) continue;
            sums<Q> score[1], dkept[1];
            multiply<W, Q>(keys, mine, score);
            multiply<W, Q>(values, theirs, dkept);
            make_gradients<Q>(a, vectors, i + q, first, of + q, scale2, score[0], dkept[0]);
            add_product<W, Q, C>(score, theirs + column0, dv);
            add_product<W, Q, C>(dkept, mine + column0, dk);
        }
    }
    const int64_t matrix = (int64_t)a.keys * s.pitch;
    number *const grads = qkv + a.to_grads, *const waiting = s.keys ? s.keys + blockIdx.x * matrix : NULL,
                  *const key = waiting ? waiting : pp_attention_shared(a, grads, group, a.dh),
                  *const value =
                      waiting ? waiting + gridDim.x * matrix : pp_attention_shared(a, grads + a.apart, group, a.dv);
    const int step = waiting ? s.pitch : a.key_width;
    write<C>({key + column0, a.keys, step, a.dh - column0}, first, {a.scale, a.scale}, dk[0]);
    write<C>({value + column0, a.keys, step, a.dv - column0}, first, {a.drop.scale, a.drop.scale}, dv[0]);
}

/* Gradients in scratch, [roles, heads, seq, pitch], of heads from `first` on, of which a row of tokens has of_row. */
struct waiting {
    const number *grads;
    int pitch, first, heads, of_row;
};

/* Takes them to their place. to: where the first role begins, queries or keys; the second, values, is as many heads of
 * those further. Grid: any number of blocks, roles. */
__global__ void settle(pp_attention a, waiting w, number *to)
{
    const int columns = blockIdx.y ? a.dv : a.dh, chunks = columns / CHUNK;
    const int64_t stride = (int64_t)gridDim.x * blockDim.x, end = (int64_t)w.heads * a.seq * chunks;
    const number *grads = w.grads + (int64_t)blockIdx.y * w.heads * a.seq * w.pitch;
    to += (int64_t)blockIdx.y * w.of_row * a.dh;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < end; at += stride) {
        const int64_t row = at / chunks;
        const int place = w.first + (int)(row / a.seq);
        number *token = to + (place / w.of_row * (int64_t)a.seq + row % a.seq) * a.width + place % w.of_row * columns;
        const int column = (int)(at % chunks) * CHUNK;
        *reinterpret_cast<uint4 *>(token + column) = *reinterpret_cast<const uint4 *>(grads + row * w.pitch + column);
    }
}

void launch_settle(const struct pp_cuda_call *c, const pp_attention &a, const waiting &w, int roles, number *to)
{
    const dim3 grid((unsigned)pp_tile::loop_blocks((int64_t)w.heads * a.seq * w.pitch / CHUNK), (unsigned)roles);
    PP_LAUNCH(settle, grid, pp_tile::THREADS, 0, c->stream, a, w, to);
}

/* The kernels for keys and values of up to `width` columns. */
struct kind {
    int width, key_parts, query_bytes, key_bytes; /* key_parts: blocks that share the columns of a key tile */
    void (*query_grad)(pp_attention, stage, number *, const float *, const number *, const number *);
    void (*key_value_grad)(pp_attention, stage, number *, const float *, const number *);
};

template <int W> constexpr kind kind_of()
{
    static_assert(2 * TOKENS <= 4 * OVER, "queries and gradients have room where two tiles of keys and values come");
    constexpr int own = 2 * TOKENS, tiles = 4 * OVER;
    return {W,
            W / made<W>,
            bytes_of<W>(is_wide<W> ? own + tiles : tiles),
            bytes_of<W>(own + tiles) + 4 * OVER * (int)sizeof(float),
            query_grad<W>,
            key_value_grad<W>};
}

const kind kinds[] = {kind_of<32>(),  kind_of<64>(),  kind_of<96>(),
                      kind_of<128>(), kind_of<192>(), kind_of<PP_FLASH_WIDEST>()};

const kind &kind_for(int widest)
{
    const kind *k = kinds;
    while (k->width < widest) k++;
    return *k;
}

/* The kernels of a part. Whose gradients do not wait comes last. */
void run_part(const struct pp_cuda_call *c, const pp_attention &a, const stage &s, const kind &k)
{
    const struct pp_flash_grad_memory *at = &c->at.flash_grad;
    number *qkv = static_cast<number *>(at->qkv);
    const float *lse = static_cast<const float *>(at->lse);
    const number *ctx = static_cast<const number *>(at->ctx), *dctx = static_cast<const number *>(at->dctx);
    const int groups = s.pairs / a.group;
    const dim3 pairs((unsigned)s.pairs, (unsigned)pp_div_up(a.seq, TOKENS)),
        shared((unsigned)groups, (unsigned)pp_div_up(a.keys, TOKENS), (unsigned)k.key_parts);
    if (s.keys || a.key_grads_apart) {
        PP_LAUNCH(means, pairs, THREADS, 0, c->stream, a, s, ctx, dctx);
        PP_LAUNCH(k.key_value_grad, shared, THREADS, k.key_bytes, c->stream, a, s, qkv, lse, dctx);
        PP_LAUNCH(k.query_grad, pairs, THREADS, k.query_bytes, c->stream, a, s, qkv, lse, ctx, dctx);
        if (s.keys)
            launch_settle(c, a, {s.keys, s.pitch, s.pair / a.group, groups, a.kv}, 2, pp_attention_keys(a, qkv));
    } else {
        PP_LAUNCH(k.query_grad, pairs, THREADS, k.query_bytes, c->stream, a, s, qkv, lse, ctx, dctx);
        PP_LAUNCH(k.key_value_grad, shared, THREADS, k.key_bytes, c->stream, a, s, qkv, lse, dctx);
        launch_settle(c, a, {s.queries, s.pitch, s.pair, s.pairs, a.heads}, 1, qkv);
    }
}

} // namespace

int pp_attention_mma_grad_bytes(int widest)
{
    const kind &k = kind_for(widest);
    return std::max(k.query_bytes, k.key_bytes);
}

cudaError_t pp_attention_mma_grad(const struct pp_cuda_call *c)
{
    const struct pp_flash_grad_memory *at = &c->at.flash_grad;
    const pp_attention a = pp_attention_of<number>(c, NULL, at->qkv, at->ctx, at->keys, at->dkeys);
    const int pairs = a.rows * a.heads;
    const struct pp_flash_parts parts = pp_flash_divide(c->call, true, c->scratch_bytes);
    number *const scratch = static_cast<number *>(c->scratch);
    if (parts.parts == 0) return cudaErrorInvalidValue;
    stage s = {};
    s.pitch = parts.pitch;
    for (s.pair = 0; s.pair < pairs; s.pair += s.pairs) {
        const int groups = std::min(parts.groups, (pairs - s.pair) / a.group);
        s.pairs = groups * a.group;
        s.queries = parts.queries ? scratch : NULL;
        s.keys = parts.keys ? scratch : NULL;
        s.means = reinterpret_cast<float *>(scratch + groups * (parts.queries + parts.keys));
        run_part(c, a, s, kind_for(a.widest));
    }
    return cudaGetLastError();
}

cudaError_t pp_cuda_prepare_attention_mma_grad(void)
{
    const void *const others[] = {reinterpret_cast<const void *>(means), reinterpret_cast<const void *>(settle)};
    cudaError_t error = pp_load_kernels(others, 2);
    for (const kind &k : kinds) {
        if (error == cudaSuccess) error = prepare(reinterpret_cast<const void *>(k.query_grad), k.query_bytes);
        if (error == cudaSuccess) error = prepare(reinterpret_cast<const void *>(k.key_value_grad), k.key_bytes);
    }
    return error;
}
