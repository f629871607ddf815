/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention that stores no scores, on tensor cores: bfloat16, heads of up to 256 columns in steps of 16, rows of any
 * length (Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023).
 *
 * A warp has 16 queries, or backward 16 keys, and all columns of their sums in registers, as float; its block goes over
 * the other side in tiles, of which the next is on its way to shared memory while one is worked on. Scores never leave
 * registers: rounded, they are a factor of the next product as they lie (kernels/cuda/mma.cuh). Backward makes P again
 * in two kernels, so that no two blocks add to one place: gradients of queries, which also make the means, wait in
 * scratch, in bfloat16, until those of keys and values, which need the queries, lie in their place. Where heads share
 * keys and values it is the other way round, as there are fewer of these: a block goes over the queries of all heads
 * of its group, in their order, adds what they give in registers, and the sums wait until those of queries, which need
 * the keys and values, are there.
 *
 * Not all of wide heads, of more than 128 columns, has room in registers: forward a tile has half as many keys;
 * backward the warp's own rows are read where they lie, and gradients of keys and values are made by two blocks, of
 * half of the columns each, which both make all scores. Backward a block then has 101 (192 columns) or 133 KiB of
 * shared memory. A GPU that has less (compute capability 8.6, 8.9, 12.0) does it in float arithmetic.
 *
 * Blocks of pairs run beside each other, tiles one after another, those first that have most to do behind a mask; so
 * many pairs at a time that their keys and values may stay in the cache.
 *
 * Speed, by arithmetic (results were checked on an H200, times were not measured): an ldmatrix of four matrices
 * occupies shared memory for four cycles and feeds two products, which take as long on an A100 and half as long at an
 * H100's dense peak, which mma.sync does not reach (about 60 %). So some 300 to 400 TFLOP/s forward on an H100 with 128
 * columns, where the float kernels have 67 at the very most; backward less, for seven products are made where five
 * would do, with a quarter to half as much shared memory traffic again. With dropout Philox takes as long as the
 * products.
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
    const float factor = any ? exp2f((r.most - most) * scale2) : 0, offset = any ? most * scale2 : 0;
    r.most = most;
    r.sum *= factor;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++) {
            score[n][e] = exp2f(score[n][e] * scale2 - offset);
            r.sum += score[n][e];
        }
    return factor;
}

/* ctx = drop(P) v, lse. Blocks: pair of a batch, query tile, batch of pairs. */
template <int W>
__global__ void __launch_bounds__(THREADS, W <= 64 ? 2 : 1)
    forward(pp_attention a, int batch, number *ctx, float *lse, const number *qkv)
{
    constexpr int KEYS = keys<W>, TILE = 2 * KEYS * pitch<W>;
    PP_SHARED(number, shared); /* keys and values of two tiles; before that, queries */
    const int pair = (int)blockIdx.z * batch + (int)blockIdx.x, i = (int)(gridDim.y - 1 - blockIdx.y) * QUERIES,
              first = i + first_row(), begin = begin_keys(a, i) / KEYS * KEYS, end = open_keys(a, i + QUERIES - 1);
    if (pair >= a.rows * a.heads) return;
    const heads<const number> at = heads_of(a, qkv, pair);
    const uint32_t vectors = pp_attention_vectors(a, pair);
    const float scale2 = a.scale * LOG2E;
    held_rows<W> queries;
    running r[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    float out[W / PP_MMA_COLUMNS][PP_MMA_SUMS] = {};
    fetch<W, QUERIES, THREADS>(shared, queries_at(a, at.query), i);
    pp_copy_wait();
    __syncthreads();
    queries.take(shared + first_row() * pitch<W>);
    __syncthreads();
    fetch_keys<W, KEYS, THREADS>(a, shared + begin / KEYS % 2 * TILE, at, begin);
    for (int j = begin; j < end; j += KEYS) {
        number *const tile = shared + j / KEYS % 2 * TILE;
        pp_copy_wait();
        __syncthreads(); /* this tile is there, and the other one, which the next replaces, is done with */
        if (j + KEYS < end) fetch_keys<W, KEYS, THREADS>(a, shared + (j / KEYS + 1) % 2 * TILE, at, j + KEYS);
        if (is_blind<KEYS>(a, first, j)) continue;
        float score[KEYS / PP_MMA_COLUMNS][PP_MMA_SUMS];
        multiply<W, KEYS>(queries, tile, score);
        hide(a, first, j, score);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float factor = take_in(scale2, half, score, r[half]);
#pragma unroll
            for (int n = 0; n < W / PP_MMA_COLUMNS; n++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) out[n][e] *= factor;
        }
        if (a.drop.on)
#pragma unroll
            for (int n = 0; n < KEYS / PP_MMA_COLUMNS; n++) {
                const uint32_t kept = kept_by_queries(a, vectors, first, j + n * PP_MMA_COLUMNS);
#pragma unroll
                for (int e = 0; e < PP_MMA_SUMS; e++) score[n][e] *= kept >> e & 1 ? 1.0f : 0.0f;
            }
        add_product<W, KEYS>(score, tile + KEYS * pitch<W>, out);
    }
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = row_sum(r[half].sum);
        const int query = first + half * 8 + g();
        factor[half] = a.drop.scale / sum;
        if (t() == 0 && query < a.seq) lse[(int64_t)pair * a.seq + query] = r[half].most * a.scale + logf(sum);
    }
    write<W>({pp_attention_context(a, ctx, pair), a.seq, a.d, a.dv}, first, factor, out);
}

/* The kernel for keys and values of up to `width` columns. */
struct kind {
    int width, bytes;
    void (*forward)(pp_attention, int, number *, float *, const number *);
};

template <int W> constexpr kind kind_of() { return {W, bytes_of<W>(4 * keys<W>), forward<W>}; }

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
    PP_LAUNCH(k->forward, grid, THREADS, k->bytes, c->stream, a, batch, ctx, static_cast<float *>(at->lse), qkv);
    return cudaGetLastError();
}

cudaError_t pp_cuda_prepare_attention_mma(void)
{
    const void *const bias = reinterpret_cast<const void *>(pp_tile::bias_kernel<number>);
    cudaError_t error = pp_load_kernels(&bias, 1);
    for (const kind &k : kinds)
        if (error == cudaSuccess) error = prepare(reinterpret_cast<const void *>(k.forward), k.bytes);
    return error;
}
