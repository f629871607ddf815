/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of short rows on tensor cores, in TF32: heads whose columns are a multiple of 16. Numbers are float in
 * memory; factors are rounded to TF32 when they become fragments, what softmax makes when it is written.
 *
 * As in attention_short.cu a thread block has one pair, and two matrices of it at a time, each of which serves once or
 * twice. Scores, and backward gradients of P, take the place of one that has been read, if all of them can wait in
 * registers until then (in rows of up to 64 tokens); else they have memory of their own. The gradients of queries and
 * keys are made at the end, some columns after the other: for each overwrites what the other is made from, queries and
 * keys of the same columns must be there together, and all columns of both have no room. What is fetched late is asked
 * for at the beginning, so that it waits in the GPU's cache.
 *
 * A warp makes a unit of a product: up to three tiles of 16x16 below each other, so that what it reads of the right
 * factor serves all of them. Where a product has few units, and so scores have, the sum over columns is split.
 *
 * No GPU has run this yet: nothing here is measured. A pair of the tutorial (35 tokens, 256 columns) takes 74.1 KiB
 * forward and 71.1 backward. Three blocks share a multiprocessor where each takes 75 at most, so all 320 pairs of the
 * tutorial run at once on 132. A pair reads and writes 256 KB, backward as well (without a bias 148 KB forward): at 4
 * TB/s 320 of them take 20 us. Its fragments take 2800 clocks of shared memory forward and 5400 backward, 128 bytes
 * each, and its 1056 and 2016 mma one clock or two. Of three pairs that is 4 and 8 us at 1.98 GHz, beside other blocks'
 * copies. In float arithmetic (attention_short.cu) these calls took 67 and 70 us.
 */
#include "kernels/cuda/attention_short_tf32.cuh"

namespace
{

using namespace pp_short_tf32;

enum { TF32_BLOCKS = 3 /* a multiprocessor shall have registers for so many blocks */ };
enum { MOST_TILES = 3 /* of a unit */ };

/* What a block has in shared memory, in floats. */
struct space {
    int tiles, of_unit; /* of 16 tokens: of a row, and of a unit at most */
    int side, terms;    /* tokens, in whole tiles; in whole steps of a sum */
    int pitch, s_pitch; /* from row to row: of tokens, of scores */
    int matrix, scores; /* a matrix of each */
    int units, parts;   /* of scores, and in so many parts each, to be added */
    bool over;          /* scores take the place of the first matrix; else they lie before it */
    int second, bias;   /* where the second matrix begins, and what is behind it */
};

/* Begins of the first matrix, scores and, backward, P: 0, or behind what is named. */
__host__ __device__ inline space space_of(int seq, int widest, bool backward)
{
    space s;
    s.tiles = pp_div_up(seq, SIDE);
    s.side = s.tiles * SIDE;
    s.terms = pp_div_up(seq, STEP) * STEP;
    s.pitch = widest + chunk<float>;
    s.s_pitch = s.side + chunk<float>;
    s.matrix = seq * s.pitch;
    s.scores = s.side * s.s_pitch;
    const int groups = pp_div_up(s.tiles, MOST_TILES);
    s.of_unit = pp_div_up(s.tiles, groups);
    s.units = groups * s.tiles;
    s.over = s.units <= WARPS;
    s.parts = !s.over ? 1 : WARPS / s.units < MOST_SPLITS ? WARPS / s.units : MOST_SPLITS;
    const int made = s.over ? (backward && s.parts < 2 ? 2 : s.parts) : backward, all = made * s.scores;
    const int front = all > s.matrix ? all : s.matrix;
    s.second = s.over ? front : s.scores + front;
    s.bias = s.second + s.matrix;
    return s;
}
__host__ __device__ inline int first_of(const space &s) { return s.over ? 0 : s.scores; }

int64_t bytes_of(const pp_attention &a, bool backward)
{
    const int bias = backward ? 0 : 3 * a.widest;
    return (int64_t)sizeof(float) * (space_of(a.seq, a.widest, backward).bias + bias);
}

/* Asks for tokens of a head, which lie `stride` apart. */
__device__ inline void ask_for(const float *from, int64_t stride, int seq, int columns)
{
    enum { LINE = 128 / sizeof(float) };
    for (walk at = walk_of_thread(pp_div_up(columns, LINE)); at.row < seq; at.next())
        pp_prefetch(from + at.row * stride + at.part * LINE);
}

/* ---- products ---- */

/* Sums of a unit: of its tiles, each in two halves of eight columns. */
typedef float unit_sums[MOST_TILES][2][PP_MMA_SUMS];

template <int tiles, class L, class R>
__device__ inline void add_terms(const L &left, const R &right, int i, int j, int begin, int end, unit_sums &sum)
{
#pragma unroll 2
    for (int k = begin; k < end; k += STEP) {
        uint32_t columns[4];
        right.get(columns, j, k);
#pragma unroll
        for (int u = 0; u < tiles; u++) {
            uint32_t rows[4];
            left.get(rows, i + u * SIDE, k);
            pp_mma_tf32(sum[u][0], rows, columns[0], columns[1]);
            pp_mma_tf32(sum[u][1], rows, columns[2], columns[3]);
        }
    }
}

/* Terms begin .. end - 1 of left right, of so many tiles from row i on, and 16 columns from column j on. */
template <class L, class R>
__device__ inline void make_unit(int tiles, const L &left, const R &right, int i, int j, int begin, int end,
                                 unit_sums &sum)
{
    if (tiles == 1)
        add_terms<1>(left, right, i, j, begin, end, sum);
    else if (tiles == 2)
        add_terms<2>(left, right, i, j, begin, end, sum);
    else
        add_terms<3>(left, right, i, j, begin, end, sum);
}

__device__ inline int tiles_of_unit(const space &s, int group) { return min(s.of_unit, s.tiles - group * s.of_unit); }

__device__ inline void put_scores(const space &s, int tiles, float *to, const unit_sums &sum)
{
#pragma unroll
    for (int u = 0; u < MOST_TILES; u++)
#pragma unroll
        for (int e = 0; e < 2 * PP_MMA_SUMS; e += 2) {
            const int half = e / PP_MMA_SUMS, in_half = e % PP_MMA_SUMS;
            float *const at = to + (u * SIDE + g() + in_half / 2 * 8) * s.s_pitch + half * 8 + 2 * t();
            if (u < tiles) *reinterpret_cast<couple *>(at) = {sum[u][half][in_half], sum[u][half][in_half + 1]};
        }
}

/* scores = x y', of so many columns. read(): called when both have been read, before scores are written over x. All
 * threads; behind a barrier scores are there. */
template <class F>
__device__ inline void make_scores(const space &s, const matrix &x, const matrix &y, int columns, float *scores,
                                   const F &read)
{
    const left_as_is<false> left = {x};
    const right_turned right = {y};
    const int steps = columns / STEP;
    if (!s.over) {
        for (walk at(warp(), WARPS, s.tiles); at.row < s.units / s.tiles; at.next()) {
            const int i = at.row * s.of_unit * SIDE, j = at.part * SIDE, tiles = tiles_of_unit(s, at.row);
            unit_sums sum = {};
            make_unit(tiles, left, right, i, j, 0, columns, sum);
            put_scores(s, tiles, scores + i * s.s_pitch + j, sum);
        }
        __syncthreads();
        read();
        return;
    }
    const int part = warp() / s.units, group = warp() % s.units / s.tiles, i = group * s.of_unit * SIDE,
              j = warp() % s.tiles * SIDE, tiles = part < s.parts ? tiles_of_unit(s, group) : 0;
    unit_sums sum = {};
    if (tiles > 0)
        make_unit(tiles, left, right, i, j, steps * part / s.parts * STEP, steps * (part + 1) / s.parts * STEP, sum);
    __syncthreads();
    read();
    put_scores(s, tiles, scores + part * s.scores + i * s.s_pitch + j, sum);
    __syncthreads();
}

/* A quad of scores from its parts. */
__device__ inline pp_quad add_parts(const space &s, const float *scores)
{
    pp_quad sum = quad_at(scores);
    for (int part = 1; part < s.parts; part++) add_product(sum, 1, quad_at(scores + part * s.scores));
    return sum;
}

/* Where a product goes: tokens in global memory, `stride` numbers apart, of so many columns; sums are multiplied by a
 * factor. */
struct tokens {
    float *at;
    int64_t stride;
    int columns;
    float factor;
};

/* to = left right, of s.side rows and s.terms terms. first_warp: has the first unit. */
template <class L>
__device__ inline void multiply(const pp_attention &a, const space &s, const L &left, const matrix &y, const tokens &to,
                                int first_warp)
{
    const right_as_is right = {y};
    const int parts = to.columns / SIDE, groups = s.units / s.tiles;
    for (walk at((warp() + WARPS - first_warp) % WARPS, WARPS, parts); at.row < groups; at.next()) {
        const int i = at.row * s.of_unit * SIDE, j = at.part * SIDE, tiles = tiles_of_unit(s, at.row);
        unit_sums sum = {};
        make_unit(tiles, left, right, i, j, 0, s.terms, sum);
#pragma unroll
        for (int u = 0; u < MOST_TILES; u++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = left.row(i + u * SIDE, half), e = 2 * half;
                pp_quad q = {sum[u][0][e], sum[u][1][e], sum[u][0][e + 1], sum[u][1][e + 1]};
#pragma unroll
                for (int k = 0; k < PP_QUAD; k++) q.v[k] *= to.factor;
                if (u < tiles && row < a.seq) pp_store<true>(to.at + row * to.stride + j + PP_QUAD * t(), PP_QUAD, q);
            }
    }
}

/* ---- kernels ---- */

/* biased: bias is added to qkv; a pair has keys and values of its own. */
template <bool biased>
__global__ void __launch_bounds__(THREADS, TF32_BLOCKS)
    forward(pp_attention a, float *ctx, float *p, float *qkv, const float *bias)
{
    PP_SHARED(float, shared);
    const space s = space_of(a.seq, a.widest, false);
    const int pair = (int)blockIdx.x, head = pair % a.heads, last = a.seq - 1;
    float *const scores = shared, *const x = shared + first_of(s), *const y = shared + s.second;
    float *const add = shared + s.bias, *const add_keys = add + a.dh, *const add_values = add_keys + a.dh;
    float *const query = pp_attention_query(a, qkv, pair), *const key = pp_attention_key(a, qkv, pair),
                 *const value = pp_attention_value(a, qkv, pair);
    if (biased) {
        fetch_bias(add, bias + head * a.dh, a.dh);
        fetch_bias(add_keys, bias + a.queries + head * a.dh, a.dh);
        fetch_bias(add_values, bias + 2 * a.queries + head * a.dv, a.dv);
    }
    fetch(x, s.pitch, query, a.width, a.seq, a.dh);
    fetch(y, s.pitch, key, a.width, a.seq, a.dh);
    ask_for(value, a.width, a.seq, a.dv);
    pp_copy_wait();
    __syncthreads();
    if (biased) {
        renew(x, s.pitch, query, a.width, a.seq, a.dh, add);
        renew(y, s.pitch, key, a.width, a.seq, a.dh, add_keys);
        __syncthreads();
    }
    make_scores(s, {x, s.pitch, last}, {y, s.pitch, last}, a.dh, scores,
                [&] { fetch(y, s.pitch, value, a.width, a.seq, a.dv); });
    softmax_rows(
        a, s.terms, pair, p, [&](int i, int j) { return add_parts(s, scores + i * s.s_pitch + j); },
        [&](int i, int j, pp_quad q) { put_factor(scores + i * s.s_pitch, j, q); });
    pp_copy_wait();
    if (biased) renew(y, s.pitch, value, a.width, a.seq, a.dv, add_values);
    __syncthreads();
    multiply(a, s, left_as_is<true>{{scores, s.s_pitch, last}}, {y, s.pitch, last},
             {pp_attention_context(a, ctx, pair), a.d, a.dv, a.drop.scale}, 0);
}

/* The gradients of a pair's queries, in place, and of its keys, at dkey, from those of scores. room: of so many floats
 * of shared memory. */
__device__ inline void make_both(const pp_attention &a, const space &s, const matrix &dscores, float *query,
                                 const float *key, const tokens &dkey, float *room, int floats)
{
    const int last = a.seq - 1, most = (floats / (2 * a.seq) - chunk<float>) / SIDE, all = a.dh / SIDE,
              span = pp_div_up(all, pp_div_up(all, most)) * SIDE, pitch = span + chunk<float>;
    float *const keys = room, *const queries = room + a.seq * pitch;
    for (int first = 0; first < a.dh; first += span) {
        const int columns = min(span, a.dh - first);
        if (first > 0) __syncthreads();
        fetch(keys, pitch, key + first, a.width, a.seq, columns);
        fetch(queries, pitch, query + first, a.width, a.seq, columns);
        pp_copy_wait();
        __syncthreads();
        multiply(a, s, left_as_is<true>{dscores}, {keys, pitch, last}, {query + first, a.width, columns, 1}, 0);
        multiply(a, s, left_turned{dscores}, {queries, pitch, last}, {dkey.at + first, dkey.stride, columns, 1},
                 s.units / s.tiles * columns / SIDE % WARPS);
    }
}

/* Blocks: pairs from first_pair on. shares: gradients of keys and values go to `waiting` [2, pairs, seq, a.widest]. */
template <bool shares>
__global__ void __launch_bounds__(THREADS, TF32_BLOCKS)
    backward(pp_attention a, int first_pair, float *qkv, const float *p, const float *dctx, float *waiting)
{
    PP_SHARED(float, shared);
    const space s = space_of(a.seq, a.widest, true);
    const int pair = first_pair + (int)blockIdx.x, last = a.seq - 1;
    const int64_t floats = (int64_t)a.seq * a.widest;
    float *const grads = shared, *const kept = shared + s.scores, *const x = shared + first_of(s),
                 *const y = shared + s.second;
    const float *const weights = pp_attention_row(a, p, pair, 0);
    float *const query = pp_attention_query(a, qkv, pair), *const key = pp_attention_key(a, qkv, pair),
                 *const value = pp_attention_value(a, qkv, pair);
    fetch(x, s.pitch, value, a.width, a.seq, a.dv);
    fetch(y, s.pitch, pp_attention_context(a, dctx, pair), a.d, a.seq, a.dv);
    ask_for(weights, 0, 1, a.seq * a.seq);
    ask_for(key, a.width, a.seq, a.dh);
    ask_for(query, a.width, a.seq, a.dh);
    pp_copy_wait();
    __syncthreads();
    make_scores(s, {y, s.pitch, last}, {x, s.pitch, last}, a.dv, grads, [] {});
    softmax_grad_rows(
        a, s.terms, [&](int i, int j) { return pp_load_if(a.whole_scores, weights + i * a.seq + j, a.seq - j); },
        [&](int i, int j) { return add_parts(s, grads + i * s.s_pitch + j); },
        [&](int i, int j, pp_quad dscores, pp_quad q) {
            put_factor(grads + i * s.s_pitch, j, dscores);
            put_factor(kept + i * s.s_pitch, j, q);
        });
    __syncthreads();
    float *const dkey = waiting + blockIdx.x * floats, *const dvalue = dkey + gridDim.x * floats;
    const int64_t stride = shares ? a.widest : a.width;
    multiply(a, s, left_turned{{kept, s.s_pitch, s.terms - 1}}, {y, s.pitch, last},
             {shares ? dvalue : value, stride, a.dv, a.drop.scale}, 0);
    __syncthreads();
    make_both(a, s, {grads, s.s_pitch, s.terms - 1}, query, key, {shares ? dkey : key, stride, a.dh, 1},
              shared + s.scores, s.bias - s.scores);
}

} // namespace

bool pp_short_tf32_does(const pp_attention &a, const void *qkv, const void *ctx, const void *bias)
{
    return is_whole(a, qkv, ctx, bias, bytes_of(a, false), bytes_of(a, true));
}

pp_short::kernels<float> pp_short_tf32_kernels(const pp_attention &a, bool biased)
{
    return {biased ? forward<true> : forward<false>, bytes_of(a, false), a.group > 1 ? backward<true> : backward<false>,
            bytes_of(a, true)};
}

cudaError_t pp_short_tf32_prepare(int most_shared_bytes)
{
    const void *const kernels[] = {
        reinterpret_cast<const void *>(forward<true>), reinterpret_cast<const void *>(forward<false>),
        reinterpret_cast<const void *>(backward<true>), reinterpret_cast<const void *>(backward<false>)};
    return pp_short::prepare(kernels, sizeof kernels / sizeof kernels[0], most_shared_bytes);
}
