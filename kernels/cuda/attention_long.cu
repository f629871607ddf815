/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of rows of any length: products in tiles, and a warp for each row of scores between them.
 *
 * Scores before softmax, and their gradients, are float in the worker's scratch (of fp32: in P itself, as long as they
 * become P). What does not fit into it is done part by part: some pairs, backward whole groups of them, or some queries
 * of one pair. Masked tiles are skipped. Gradients of queries and keys wait in scratch until nobody needs the queries
 * and keys any more, whose place they take. What a group's pairs give its keys and values is added pair by pair.
 *
 * Two products forward, four backward, in float arithmetic. At 1024 tokens and 64 columns a pair has 268 MFLOP forward
 * and 537 backward (causal: half), against 4 MB of P (2 in bf16) that are written once and read once or thrice. The
 * products decide: they stay below 67 TFLOP/s whatever the precision, where a layer's matrix products reach many times
 * that in bf16.
 */
#include "kernels/cuda/attention_tile.cuh"

namespace
{

using pp_tile::add_bias;
using pp_tile::bias_kernel;
using pp_tile::context_of;
using pp_tile::end_query;
using pp_tile::first_key;
using pp_tile::first_query;
using pp_tile::keys_of;
using pp_tile::last_key;
using pp_tile::loop_blocks;
using pp_tile::queries_of;
using pp_tile::tiles;
using pp_tile::tokens_of;

enum { SOFTMAX_THREADS = 128, SOFTMAX_WARPS = SOFTMAX_THREADS / PP_WARP, WARP_COLUMNS = PP_WARP * PP_QUAD };
enum { MOST_PAIRS = 32767 }; /* two blocks for each in the third dimension of a grid */
static const int64_t scratch_floats = PP_CUDA_SCRATCH_BYTES / (int64_t)sizeof(float);

/* What is worked on at a time: all queries of some pairs, or some queries (whole tiles, but for the end) of one. */
struct part {
    int pair, pairs, query, queries;
    float *scores; /* [pairs, queries, pitch] */
    int pitch;
    bool whole; /* quads of scores may be moved at once */
};

__device__ inline float *score_row(const part &s, int pair, int query)
{
    return s.scores + ((int64_t)(pair - s.pair) * s.queries + query - s.query) * s.pitch;
}

template <typename T> __device__ inline pp_tile::matrix<T> probabilities(const pp_attention &a, const T *p, int pair)
{
    return {pp_attention_row(a, p, pair, 0), a.seq, a.seq, a.seq, a.whole_scores};
}

/* scores = x y': queries and keys, or gradients of ctx and values. x, y: where those begin, of so many columns each;
 * tokens of x lie x_pitch apart. Blocks: key tile, query tile, pair. */
template <typename T>
__global__ void __launch_bounds__(pp_tile::THREADS)
    make_scores(pp_attention a, part s, const T *x, int x_pitch, const T *y, int columns)
{
    PP_SHARED_ONE(pp_tile::memory, m);
    const int pair = s.pair + (int)blockIdx.z, i = s.query + (int)blockIdx.y * pp_tile::SIDE,
              j = (int)blockIdx.x * pp_tile::SIDE;
    if (j >= last_key(a, i) || j < first_key(a, i)) return;
    const T *head = x + (int64_t)(pair / a.heads) * a.seq * x_pitch + pair % a.heads * columns;
    pp_quad sum[PP_QUAD] = {};
    pp_tile::multiply<false, false>(m, tokens_of(a, head, x_pitch, columns),
                                    tokens_of(a, pp_attention_shared(a, y, pair, columns), a.width, columns), i, j, 0,
                                    columns, sum);
    pp_tile::write(score_row(s, pair, s.query), s.pitch, s.queries, a.seq, s.whole, i - s.query, j, sum);
}

/* The row that this warp has, counted over the part; false behind its end. */
__device__ inline bool my_row(const part &s, int *pair, int *query)
{
    const int64_t row = (int64_t)blockIdx.x * SOFTMAX_WARPS + threadIdx.x / PP_WARP;
    *pair = s.pair + (int)(row / s.queries);
    *query = s.query + (int)(row % s.queries);
    return row < (int64_t)s.pairs * s.queries;
}

/* P from scores, which may lie in its place: a lane reads what it writes. */
template <typename T> __global__ void __launch_bounds__(SOFTMAX_THREADS) softmax(pp_attention a, part s, T *p)
{
    int pair, query;
    if (!my_row(s, &pair, &query)) return;
    const int lane = (int)threadIdx.x % PP_WARP,
              first = pp_attention_begin(a, query) / WARP_COLUMNS * WARP_COLUMNS + lane * PP_QUAD;
    const pp_attention_span seen = pp_attention_seen(a, query);
    const float *scores = score_row(s, pair, query);
    T *to = pp_attention_row(a, p, pair, query);
    float most = -INFINITY, sum = 0;
    for (int column = first; column < seen.end; column += WARP_COLUMNS) {
        const pp_quad q = pp_load_if(s.whole, scores + column, a.seq - column);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++)
            if (seen.has(column + i)) most = fmaxf(most, q.v[i]);
    }
    const float shift = pp_warp_max(most) * a.scale;
    for (int column = first; column < seen.end; column += WARP_COLUMNS) {
        const pp_quad q = pp_load_if(s.whole, scores + column, a.seq - column);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++)
            if (seen.has(column + i)) sum += expf(q.v[i] * a.scale - shift);
    }
    const float norm = 1 / pp_warp_sum(sum);
    const uint32_t vector = pp_attention_vectors(a, pair) + (uint32_t)query;
    for (int column = lane * PP_QUAD; column < a.seq; column += WARP_COLUMNS) {
        pp_quad q = {};
        if (column >= first && column < seen.end) q = pp_load_if(s.whole, scores + column, a.seq - column);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) q.v[i] = seen.has(column + i) ? expf(q.v[i] * a.scale - shift) * norm : 0;
        pp_attention_sign(a, vector, column / PP_QUAD, q);
        pp_store_if(a.whole_scores, to + column, a.seq - column, q);
    }
}

/* Gradients of drop(P) -> those of scores, in place. */
template <typename T>
__global__ void __launch_bounds__(SOFTMAX_THREADS) softmax_grad(pp_attention a, part s, const T *p)
{
    int pair, query;
    if (!my_row(s, &pair, &query)) return;
    /* In a tile that is masked in part all of it is read later. */
    const int lane = (int)threadIdx.x % PP_WARP, tile = query / pp_tile::SIDE * pp_tile::SIDE, end = last_key(a, tile),
              first = first_key(a, tile) + lane * PP_QUAD;
    const T *from = pp_attention_row(a, p, pair, query);
    float *scores = score_row(s, pair, query), sum = 0;
    for (int column = first; column < end; column += WARP_COLUMNS) {
        const pp_quad q = pp_load_if(a.whole_scores, from + column, a.seq - column),
                      weights = pp_attention_kept(a.drop.scale, q),
                      grad = pp_load_if(s.whole, scores + column, a.seq - column);
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) sum += weights.v[i] * grad.v[i];
    }
    const float mean = pp_warp_sum(sum);
    for (int column = first; column < end; column += WARP_COLUMNS) {
        const pp_quad q = pp_load_if(a.whole_scores, from + column, a.seq - column),
                      grad = pp_load_if(s.whole, scores + column, a.seq - column);
        pp_store_if(s.whole, scores + column, a.seq - column, pp_attention_dscores(a, q, grad, mean));
    }
}

/* ctx = drop(P) v. Blocks: tile of columns, query tile, pair. */
template <typename T>
__global__ void __launch_bounds__(pp_tile::THREADS)
    make_context(pp_attention a, int first_pair, T *ctx, const T *p, const T *qkv)
{
    PP_SHARED_ONE(pp_tile::memory, m);
    const int pair = first_pair + (int)blockIdx.z, i = (int)blockIdx.y * pp_tile::SIDE,
              j = (int)blockIdx.x * pp_tile::SIDE;
    const pp_tile::kept<T> weights = {probabilities(a, p, pair), a.drop.scale};
    pp_quad sum[PP_QUAD] = {};
    pp_tile::multiply<false, true>(m, weights, pp_tile::values_of(a, qkv, pair), i, j, first_key(a, i), last_key(a, i),
                                   sum);
    pp_tile::write(pp_attention_context(a, ctx, pair), a.d, a.seq, a.dv, a.whole_heads, i, j, sum);
}

/* dv = drop(P)' dctx of a group, in place of v. Blocks: tile of columns, key tile, group. */
template <typename T>
__global__ void __launch_bounds__(pp_tile::THREADS)
    value_grad(pp_attention a, int first_group, T *qkv, const T *p, const T *dctx)
{
    PP_SHARED_ONE(pp_tile::memory, m);
    const int first = (first_group + (int)blockIdx.z) * a.group, i = (int)blockIdx.y * pp_tile::SIDE,
              j = (int)blockIdx.x * pp_tile::SIDE;
    pp_quad sum[PP_QUAD] = {};
    for (int pair = first; pair < first + a.group; pair++) {
        const pp_tile::kept<T> weights = {probabilities(a, p, pair), a.drop.scale};
        pp_tile::multiply<true, true>(m, weights, context_of(a, dctx, pair), i, j, first_query(a, i), end_query(a, i),
                                      sum);
    }
    pp_tile::write(pp_attention_value(a, qkv, first), a.width, a.seq, a.dv, a.whole_heads, i, j, sum);
}

/* Gradients of a part's queries, and what its queries give those of their groups' keys. */
struct grads {
    float *query; /* [pairs, queries, dh] */
    float *key;   /* [groups, seq, dh] */
    bool whole;   /* quads may be moved at once */
};

/* Groups of a part: whole ones, or the one that its pair is of. */
__host__ __device__ inline int groups_of(const pp_attention &a, const part &s) { return pp_div_up(s.pairs, a.group); }

/* What query_key_grad does of the keys: dk = the sum over the group's pairs of dscores' q, from what earlier parts have
 * added up on. */
template <typename T>
__device__ inline void add_key_grad(pp_tile::memory &m, const pp_attention &a, const part &s, const T *qkv,
                                    const grads &out, int turn, int i, int j)
{
    float *to = out.key + (int64_t)turn * a.seq * a.dh;
    const bool begun = s.query > 0 || s.pair % a.group > 0;
    const pp_tile::matrix<float> before = {to, a.dh, begun ? a.seq : 0, a.dh, out.whole};
    const int first = s.pair + turn * a.group, end = min(first + a.group, s.pair + s.pairs);
    pp_quad sum[PP_QUAD];
#pragma unroll
    for (int u = 0; u < PP_QUAD; u++)
        sum[u] = before.numbers(before.fetch(i + pp_tile::row() + u, j + pp_tile::column()));
    for (int pair = first; pair < end; pair++) {
        const pp_tile::matrix<float> dscores = {score_row(s, pair, s.query), s.pitch, s.queries, a.seq, s.whole};
        pp_tile::matrix<T> queries = queries_of(a, qkv, pair);
        queries.at += (int64_t)s.query * a.width;
        queries.rows = s.queries;
        pp_tile::multiply<true, true>(m, dscores, queries, i, j, max(0, first_query(a, i) - s.query),
                                      min(s.queries, end_query(a, i) - s.query), sum);
    }
    pp_tile::write(to, a.dh, a.seq, a.dh, out.whole, i, j, sum);
}

/* dq = dscores k, dk += dscores' q. Blocks: tile of columns, query or key tile, pairs and behind them groups. */
template <typename T>
__global__ void __launch_bounds__(pp_tile::THREADS) query_key_grad(pp_attention a, part s, const T *qkv, grads out)
{
    PP_SHARED_ONE(pp_tile::memory, m);
    const int turn = (int)blockIdx.z, pair = s.pair + turn, i = (int)blockIdx.y * pp_tile::SIDE,
              j = (int)blockIdx.x * pp_tile::SIDE;
    if (turn >= s.pairs) {
        add_key_grad(m, a, s, qkv, out, turn - s.pairs, i, j);
        return;
    }
    if (i >= s.queries) return;
    const pp_tile::matrix<float> dscores = {score_row(s, pair, s.query), s.pitch, s.queries, a.seq, s.whole};
    pp_quad sum[PP_QUAD] = {};
    pp_tile::multiply<false, true>(m, dscores, keys_of(a, qkv, pair), i, j, first_key(a, s.query + i),
                                   last_key(a, s.query + i), sum);
    pp_tile::write(out.query + (int64_t)turn * s.queries * a.dh, a.dh, s.queries, a.dh, out.whole, i, j, sum);
}

/* Takes the gradients to the place of queries and, after a group's last part, keys. */
template <typename T> __global__ void settle(pp_attention a, part s, T *qkv, grads from)
{
    const int quads = pp_div_up(a.dh, PP_QUAD);
    const bool last = s.query + s.queries == a.seq && (s.pair + s.pairs) % a.group == 0;
    const int64_t queries = (int64_t)s.pairs * s.queries * quads,
                  keys = last ? (int64_t)groups_of(a, s) * a.seq * quads : 0, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < queries + keys; t += stride) {
        const bool key = t >= queries;
        const int64_t row = (key ? t - queries : t) / quads;
        const int rows = key ? a.seq : s.queries, token = (int)(row % rows), turn = (int)(row / rows);
        const int column = (int)(t % quads) * PP_QUAD, left = a.dh - column;
        const float *at = (key ? from.key : from.query) + row * a.dh + column;
        T *to = key ? pp_attention_key(a, qkv, s.pair + turn * a.group) : pp_attention_query(a, qkv, s.pair + turn);
        to += (int64_t)(key ? token : s.query + token) * a.width + column;
        pp_store_if(a.whole_heads, to, left, pp_load_if(from.whole, at, left));
    }
}

/* How much fits into scratch, where a query takes `row` floats and `group` pairs, to be worked on together, `fixed`
 * more. pairs = 0: nothing. */
struct part part_of(const pp_attention &a, int group, int64_t row, int64_t fixed)
{
    struct part s = {};
    const int64_t whole = group * a.seq * row + fixed, room = scratch_floats / whole;
    if (room > 0 && group <= MOST_PAIRS) {
        s.pairs = group * (int)std::min((int64_t)std::min(a.rows * a.heads, (int)MOST_PAIRS) / group, room);
        s.queries = a.seq;
    } else if (scratch_floats - fixed >= row * pp_tile::SIDE) {
        const int most = (int)((scratch_floats - fixed) / row / pp_tile::SIDE);
        s.pairs = 1;
        s.queries = pp_div_up(tiles(a.seq), pp_div_up(tiles(a.seq), most)) * pp_tile::SIDE;
    }
    return s;
}

/* Goes through all parts, as long as `run` succeeds. */
template <class Run> cudaError_t for_each_part(const pp_attention &a, const part &size, Run run)
{
    if (size.pairs == 0) return cudaErrorInvalidValue;
    cudaError_t error = cudaSuccess;
    part s = size;
    for (s.pair = 0; s.pair < a.rows * a.heads; s.pair += size.pairs)
        for (s.query = 0; s.query < a.seq; s.query += size.queries) {
            s.pairs = std::min(size.pairs, a.rows * a.heads - s.pair);
            s.queries = std::min(size.queries, a.seq - s.query);
            if (error == cudaSuccess) error = run(s);
        }
    return error;
}

/* Of n pairs or groups: run(first, grid of [seq, dv]). */
template <class Run> cudaError_t for_each_head(const pp_attention &a, int n, Run run)
{
    for (int first = 0; first < n; first += MOST_PAIRS) {
        const int some = std::min(n - first, (int)MOST_PAIRS);
        run(first, dim3((unsigned)tiles(a.dv), (unsigned)tiles(a.seq), (unsigned)some));
    }
    return cudaGetLastError();
}

dim3 score_tiles(const pp_attention &a, const part &s)
{
    return dim3((unsigned)tiles(a.seq), (unsigned)tiles(s.queries), (unsigned)s.pairs);
}

int softmax_blocks(const part &s) { return pp_div_up((int64_t)s.pairs * s.queries, SOFTMAX_WARPS); }

/* P where scores may lie in its place. */
float *place_of_scores(float *p) { return p; }
float *place_of_scores(__nv_bfloat16 *) { return NULL; }

template <typename T> cudaError_t scores_and_softmax(const struct pp_cuda_call *c, const pp_attention &a)
{
    T *p = static_cast<T *>(c->at.attention.probabilities);
    const T *qkv = static_cast<const T *>(c->at.attention.qkv);
    float *const place = place_of_scores(p);
    const int pitch = place ? a.seq : pp_div_up(a.seq, PP_QUAD) * PP_QUAD;
    part size = part_of(a, 1, pitch, 0);
    if (place) {
        size.pairs = std::min(a.rows * a.heads, (int)MOST_PAIRS);
        size.queries = a.seq;
    }
    return for_each_part(a, size, [&](part s) {
        s.scores = place ? place + (int64_t)s.pair * a.seq * a.seq : static_cast<float *>(c->scratch);
        s.pitch = pitch;
        s.whole = place ? a.whole_scores : true;
        PP_LAUNCH(make_scores<T>, score_tiles(a, s), pp_tile::THREADS, 0, c->stream, a, s, qkv, a.width,
                  pp_attention_keys(a, qkv), a.dh);
        PP_LAUNCH(softmax<T>, softmax_blocks(s), SOFTMAX_THREADS, 0, c->stream, a, s, p);
        return cudaGetLastError();
    });
}

template <typename T> cudaError_t run_forward(const struct pp_cuda_call *c)
{
    const struct pp_attention_memory *at = &c->at.attention;
    const pp_attention a = pp_attention_of<T>(c, at->probabilities, at->qkv, at->ctx);
    T *ctx = static_cast<T *>(at->ctx), *p = static_cast<T *>(at->probabilities), *qkv = static_cast<T *>(at->qkv);
    add_bias<T>(c, a, qkv, at->bias);
    const cudaError_t error = scores_and_softmax<T>(c, a);
    if (error != cudaSuccess) return error;
    return for_each_head(a, a.rows * a.heads, [&](int first, dim3 grid) {
        PP_LAUNCH(make_context<T>, grid, pp_tile::THREADS, 0, c->stream, a, first, ctx, p, qkv);
    });
}

template <typename T> cudaError_t run_backward(const struct pp_cuda_call *c)
{
    const struct pp_attention_grad_memory *at = &c->at.attention_grad;
    const pp_attention a = pp_attention_of<T>(c, at->probabilities, at->qkv, at->dctx);
    T *qkv = static_cast<T *>(at->qkv);
    const T *p = static_cast<const T *>(at->probabilities), *dctx = static_cast<const T *>(at->dctx);
    const int pitch = pp_div_up(a.seq, PP_QUAD) * PP_QUAD, wide = pp_div_up(a.dh, PP_QUAD) * PP_QUAD;
    const part size = part_of(a, a.group, pitch + wide, (int64_t)a.seq * wide);
    const cudaError_t error = for_each_part(a, size, [&](part s) {
        const grads out = {static_cast<float *>(c->scratch),
                           static_cast<float *>(c->scratch) + (int64_t)size.pairs * size.queries * wide,
                           a.dh % PP_QUAD == 0};
        s.scores = out.key + (int64_t)groups_of(a, size) * a.seq * wide;
        s.pitch = pitch;
        s.whole = true;
        PP_LAUNCH(make_scores<T>, score_tiles(a, s), pp_tile::THREADS, 0, c->stream, a, s, dctx, a.d,
                  pp_attention_values(a, qkv), a.dv);
        PP_LAUNCH(softmax_grad<T>, softmax_blocks(s), SOFTMAX_THREADS, 0, c->stream, a, s, p);
        PP_LAUNCH(query_key_grad<T>,
                  dim3((unsigned)tiles(a.dh), (unsigned)tiles(a.seq), (unsigned)(s.pairs + groups_of(a, s))),
                  pp_tile::THREADS, 0, c->stream, a, s, qkv, out);
        PP_LAUNCH(settle<T>, loop_blocks((int64_t)s.pairs * (s.queries + a.seq) * wide / PP_QUAD), pp_tile::THREADS, 0,
                  c->stream, a, s, qkv, out);
        return cudaGetLastError();
    });
    if (error != cudaSuccess) return error;
    return for_each_head(a, a.rows * a.kv, [&](int first, dim3 grid) {
        PP_LAUNCH(value_grad<T>, grid, pp_tile::THREADS, 0, c->stream, a, first, qkv, p, dctx);
    });
}

} // namespace

cudaError_t pp_attention_long(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_forward, c); }
cudaError_t pp_attention_long_grad(const struct pp_cuda_call *c) { return PP_BY_PRECISION(run_backward, c); }

#define OF_BOTH(kernel)                                                                                                \
    reinterpret_cast<const void *>(kernel<float>), reinterpret_cast<const void *>(kernel<__nv_bfloat16>)

cudaError_t pp_attention_long_prepare(void)
{
    const void *const kernels[] = {OF_BOTH(bias_kernel),    OF_BOTH(make_scores),  OF_BOTH(softmax),
                                   OF_BOTH(softmax_grad),   OF_BOTH(make_context), OF_BOTH(value_grad),
                                   OF_BOTH(query_key_grad), OF_BOTH(settle)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
