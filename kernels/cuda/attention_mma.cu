/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention that stores no scores, on tensor cores: bfloat16, heads of up to 256 columns in steps of 16, rows of any
 * length (Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023).
 *
 * A warp has 16 queries, or 32 (pp_mma_groups()), or backward 16 keys, and all columns of their sums in registers, as
 * float; its block goes over the other side in tiles. While one is worked on, the next is on its way to shared memory,
 * or that matrix of it which is needed first. Scores never leave registers: rounded, they are a factor of the next
 * product as they lie (kernels/cuda/mma.cuh). Backward makes P again in two kernels, so that no two blocks add to one
 * place: gradients of queries, which also make the means, wait in scratch, in bfloat16, until those of keys and values,
 * which need the queries, lie in their place. Where heads share keys and values it is the other way round, as there are
 * fewer of these: a block goes over the queries of all heads of its group, in their order, adds what they give in
 * registers, and the sums wait until those of queries, which need the keys and values, are there.
 *
 * Not all of wide heads, of more than 128 columns, has room in registers: forward a tile has half as many keys;
 * backward the warp's own rows are read where they lie, and gradients of keys and values are made by two blocks, of
 * half of the columns each, which both make all scores. Backward a block then has 101 (192 columns) or 133 KiB of
 * shared memory. A GPU that has less (compute capability 8.6, 8.9, 12.0) does it in float arithmetic.
 *
 * Blocks of pairs run beside each other, tiles one after another, those first that have most to do behind a mask; so
 * many pairs at a time that their keys and values may stay in the cache.
 *
 * Speed, by arithmetic: an ldmatrix of four matrices occupies shared memory for four cycles and feeds two products for
 * each 16 rows of a warp, which take as long on an A100 and half as long at an H100's dense peak, which mma.sync does
 * not reach (about 60 %). With dropout Philox takes as long as the products. Figures: docs/results/h200-findings.md.
 */
#include <algorithm>

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/flash.h"

namespace
{

using namespace pp_warp;

enum { QUERIES = PP_MMA_WARPS * PP_MMA_TOKENS, THREADS = PP_MMA_WARPS * PP_WARP };
static_assert((int)PP_MMA_TOKENS == (int)PP_MMA_ROWS, "a warp has the rows of one product");
static_assert(QUERIES <= 4 * (int)PP_MMA_WIDE_KEYS, "queries have room where two tiles of keys and values come");

template <int W> constexpr int keys = W <= PP_MMA_NARROW ? PP_MMA_KEYS : PP_MMA_WIDE_KEYS; /* of a tile */

/* Rows of 16 queries that a warp has, and threads of a block. */
template <int W> constexpr int groups = pp_mma_groups(W);
template <int W> constexpr int threads = THREADS / groups<W>;

enum { BATCH_BYTES = 16 << 20 /* of keys and values of pairs that run beside each other */ };

/* Over the lanes that have a row together. */
__device__ inline float row_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ inline float row_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

/* The softmax of a row as far as its keys are known: the largest score, and this lane's part of the sum of the
 * exponentials of what all are below it. */
struct running {
    float most, sum;
};

/* Takes in a tile's scores of the lane's row `half`: they become exponentials. Returns what all earlier ones are to be
 * multiplied by. scale2: of exponents of 2. */
template <int N> __device__ inline float take_in(float scale2, int half, float (&score)[N][PP_MMA_SUMS], running &r)
{
    float most = r.most;
#pragma unroll
    for (int n = 0; n < N; n++) most = fmaxf(most, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
    most = row_max(most);
    const bool any = most > -INFINITY; /* with a window a row may see nothing of its first tiles */
    const float factor = any ? pp_exp2((r.most - most) * scale2) : 0, offset = any ? most * scale2 : 0;
    r.most = most;
    r.sum *= factor;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
            score[n][e] = pp_exp2(score[n][e] * scale2 - offset);
            r.sum += score[n][e];
        }
    return factor;
}

/* What a warp knows of its queries. */
template <int W> struct query_rows {
    int first; /* query */
    uint32_t vectors;
    float scale2;
    running r[groups<W>][2];
    sums<W> out[groups<W>];
};

/* Of a warp that begins with query `first`. */
template <int W> __device__ inline void begin_rows(const pp_attention &a, int pair, int first, query_rows<W> &q)
{
    q.first = first;
    q.vectors = pp_attention_vectors(a, pair);
    q.scale2 = a.scale * LOG2E;
#pragma unroll
    for (int i = 0; i < groups<W>; i++) {
        q.r[i][0] = q.r[i][1] = {-INFINITY, 0};
#pragma unroll
        for (int n = 0; n < W / PP_MMA_COLUMNS; n++)
#pragma unroll
            for (int e = 0; e < PP_MMA_SUMS; e++) q.out[i][n][e] = 0;
    }
}

/* Takes in the scores of a tile that begins with key j: they become what its values are multiplied by.
 * drops: a.drop.on. */
template <int W, bool drops>
__device__ inline void take_in(const pp_attention &a, int j, query_rows<W> &q, sums<keys<W>> (&score)[groups<W>])
{
#pragma unroll
    for (int i = 0; i < groups<W>; i++) {
        const int first = q.first + i * PP_MMA_ROWS;
        hide(a, first, j, score[i]);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float factor = take_in(q.scale2, half, score[i], q.r[i][half]);
#pragma unroll
            for (int n = 0; n < W / PP_MMA_COLUMNS; n++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) q.out[i][n][e] *= factor;
        }
        if (drops)
#pragma unroll
            for (int n = 0; n < keys<W> / PP_MMA_COLUMNS; n++) {
                const uint32_t kept = kept_by_queries(a, q.vectors, first, j + n * PP_MMA_COLUMNS);
#pragma unroll
                for (int e = 0; e < PP_MMA_SUMS; e++) score[i][n][e] *= kept >> e & 1 ? 1.0f : 0.0f;
            }
    }
}

template <int W>
__device__ inline void end_rows(const pp_attention &a, int pair, const query_rows<W> &q, number *ctx, float *lse)
{
#pragma unroll
    for (int i = 0; i < groups<W>; i++) {
        const int first = q.first + i * PP_MMA_ROWS;
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = row_sum(q.r[i][half].sum);
            const int query = first + half * 8 + g();
            factor[half] = a.drop.scale / sum;
            if (t() == 0 && query < a.seq) lse[(int64_t)pair * a.seq + query] = q.r[i][half].most * a.scale + logf(sum);
        }
        write<W>({pp_attention_context(a, ctx, pair), a.seq, a.d, a.dv}, first, factor, q.out[i]);
    }
}

/* A block's work: a pair, queries from i on, and the keys that these see, in whole tiles. */
template <int W> struct block_work {
    int pair, i, begin, end;

    __device__ inline block_work(const pp_attention &a, int batch)
        : pair((int)blockIdx.z * batch + (int)blockIdx.x), i((int)(gridDim.y - 1 - blockIdx.y) * QUERIES),
          begin(begin_keys(a, i) / keys<W> * keys<W>), end(open_keys(a, i + QUERIES - 1))
    {
    }
};

/* ctx = drop(P) v, lse. Blocks: pair of a batch, query tile, batch of pairs. Queries are in registers,
 * and keys and values of the next tile are on their way while this one's are multiplied. */
template <int W, bool drops>
__global__ void __launch_bounds__(threads<W>, W <= 64 ? 2 : 1)
    forward_held(pp_attention a, int batch, number *ctx, float *lse, const number *qkv)
{
    constexpr int KEYS = keys<W>, TILE = 2 * KEYS * pitch<W>;
    PP_SHARED(number, shared); /* keys and values of two tiles; before that, queries */
    const block_work<W> work(a, batch);
    if (work.pair >= a.rows * a.heads) return;
    const heads<const number> at = heads_of(a, qkv, work.pair);
    held_rows<W> queries[1];
    query_rows<W> q;
    begin_rows(a, work.pair, work.i + first_row(), q);
    fetch<W, QUERIES, threads<W>>(shared, queries_at(a, at.query), work.i);
    pp_copy_wait();
    __syncthreads();
    queries[0].take(shared + first_row() * pitch<W>);
    __syncthreads();
    fetch_keys<W, KEYS, threads<W>>(a, shared + work.begin / KEYS % 2 * TILE, at, work.begin);
    for (int j = work.begin; j < work.end; j += KEYS) {
        number *const tile = shared + j / KEYS % 2 * TILE;
        pp_copy_wait();
        __syncthreads(); /* this tile is there, and the other one, which the next replaces, is done with */
        if (j + KEYS < work.end) fetch_keys<W, KEYS, threads<W>>(a, shared + (j / KEYS + 1) % 2 * TILE, at, j + KEYS);
        if (is_blind<KEYS>(a, q.first, j)) continue;
        sums<KEYS> score[1];
        multiply<W, KEYS>(queries, tile, score);
        take_in<W, drops>(a, j, q, score);
        add_product<W, KEYS>(score, tile + KEYS * pitch<W>, q.out);
    }
    end_rows(a, work.pair, q, ctx, lse);
}

/* The same where a warp has twice as many queries, which are read where they lie. A tile's values are on their way
 * while its keys are multiplied, and the next one's keys while its values are. So there is room for two blocks beside
 * each other: one multiplies while another takes exponentials. */
template <int W, bool drops>
__global__ void __launch_bounds__(threads<W>, 2)
    forward_lying(pp_attention a, int batch, number *ctx, float *lse, const number *qkv)
{
    constexpr int KEYS = keys<W>, G = groups<W>, SOME = 2;
    PP_SHARED(number, shared); /* queries; keys and values of a tile */
    number *const keys = shared + QUERIES * pitch<W>, *const values = keys + KEYS * pitch<W>;
    const block_work<W> work(a, batch);
    if (work.pair >= a.rows * a.heads) return;
    const heads<const number> at = heads_of(a, qkv, work.pair);
    lying_rows<W> queries[G];
    query_rows<W> q;
    begin_rows(a, work.pair, work.i + first_row<G>(), q);
#pragma unroll
    for (int i = 0; i < G; i++) queries[i].take(shared + (first_row<G>() + i * PP_MMA_ROWS) * pitch<W>);
    fetch<W, QUERIES, threads<W>, SOME>(shared, queries_at(a, at.query), work.i);
    fetch<W, KEYS, threads<W>, SOME>(keys, keys_at(a, at.key), work.begin);
    for (int j = work.begin; j < work.end; j += KEYS) {
        const bool blind = is_blind<KEYS, G>(a, q.first, j);
        sums<KEYS> score[G];
        pp_copy_wait();
        __syncthreads(); /* the keys are there, and the values before, which the next replace, are done with */
        fetch<W, KEYS, threads<W>, SOME>(values, values_at(a, at.value), j);
        if (!blind) {
            multiply<W, KEYS>(queries, keys, score);
            take_in<W, drops>(a, j, q, score);
        }
        pp_copy_wait();
        __syncthreads(); /* the other way round */
        if (j + KEYS < work.end) fetch<W, KEYS, threads<W>, SOME>(keys, keys_at(a, at.key), j + KEYS);
        if (!blind) add_product<W, KEYS>(score, values, q.out);
    }
    end_rows(a, work.pair, q, ctx, lse);
}

/* The kernel for keys and values of up to `width` columns. */
struct kind {
    int width, bytes, threads;
    void (*forward[2])(pp_attention, int, number *, float *, const number *); /* without dropout, and with it */
};

template <int W> constexpr kind kind_of()
{
    if constexpr (groups<W> == 1)
        return {W, bytes_of<W>(4 * keys<W>), threads<W>, {forward_held<W, false>, forward_held<W, true>}};
    else
        return {W, bytes_of<W>(QUERIES + 2 * keys<W>), threads<W>, {forward_lying<W, false>, forward_lying<W, true>}};
}

const kind kinds[] = {kind_of<32>(),  kind_of<64>(),  kind_of<96>(),
                      kind_of<128>(), kind_of<192>(), kind_of<PP_FLASH_WIDEST>()};

bool is_aligned(const void *p) { return (uintptr_t)p % PP_COPY_BYTES == 0; }

} // namespace

bool pp_attention_mma_does(const struct pp_cuda_call *c)
{
    const struct pp_flash_memory *f = &c->at.flash;
    const struct pp_flash_grad_memory *g = &c->at.flash_grad;
    int most = 0;
    if (!pp_flash_multiplies(c->call)) return false;
    if (c->call->kernel == PP_KERNEL_FLASH) return is_aligned(f->ctx) && is_aligned(f->qkv) && is_aligned(f->keys);
    return is_aligned(g->qkv) && is_aligned(g->ctx) && is_aligned(g->dctx) && is_aligned(g->keys) &&
           is_aligned(g->dkeys) && pp_attention_shared_bytes(&most) == cudaSuccess &&
           pp_attention_mma_grad_bytes(PP_WIDEST_COLUMNS(&c->call->attention)) <= most;
}

cudaError_t pp_attention_mma(const struct pp_cuda_call *c)
{
    const struct pp_flash_memory *at = &c->at.flash;
    number *ctx = static_cast<number *>(at->ctx), *qkv = static_cast<number *>(at->qkv);
    const pp_attention a = pp_attention_of<number>(c, NULL, qkv, ctx, at->keys);
    const int64_t room = BATCH_BYTES / ((int64_t)a.keys * (a.dh + a.dv) * (int64_t)sizeof(number));
    const int groups = a.rows * a.kv, most = (int)std::max(std::min(room, (int64_t)groups), (int64_t)1),
              batches = pp_div_up(groups, most), batch = a.group * pp_div_up(groups, batches);
    const dim3 grid((unsigned)batch, (unsigned)pp_div_up(a.seq, QUERIES), (unsigned)batches);
    const kind *k = kinds;
    while (k->width < a.widest) k++;
    pp_tile::add_bias<number>(c, a, qkv, at->bias);
    PP_LAUNCH(k->forward[a.drop.on], grid, k->threads, k->bytes, c->stream, a, batch, ctx,
              static_cast<float *>(at->lse), qkv);
    return cudaGetLastError();
}

cudaError_t pp_cuda_prepare_attention_mma(void)
{
    const void *const bias = reinterpret_cast<const void *>(pp_tile::bias_kernel<number>);
    cudaError_t error = pp_load_kernels(&bias, 1);
    for (const kind &k : kinds)
        for (const auto forward : k.forward)
            if (error == cudaSuccess) error = prepare(reinterpret_cast<const void *>(forward), k.bytes);
    return error;
}
