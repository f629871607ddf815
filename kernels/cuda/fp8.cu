/* SPDX-License-Identifier: Apache-2.0
 *
 * The factors of FP8 products: the largest number of a matrix, and its numbers rounded to E4M3 or E5M2. What is rounded
 * is written as it lies, transposed, or both ways at once. The numbers read are bfloat16, for programs have FP8
 * products in no other precision.
 *
 * All passes are bound by memory. An octet, eight successive numbers of bfloat16, is one load of 16 bytes where
 * matrices are aligned, as all factors in programs are; plain variants of the kernels take the rest.
 */
#include <cuda_fp8.h>

#include <algorithm>

#include "kernels/cuda/gpu.cuh"

enum {
    THREADS = 256,
    OCTET = 8,
    LARGEST_BLOCKS = 1024, /* of the first pass of amax, at most */
    /* A block turns a tile, through shared memory. Each thread rounds an octet of four rows, and has for each of its
     * columns four codes, a word. */
    TILE_ROWS = 128,
    TILE_COLUMNS = 64,
    TILE_OCTETS = TILE_COLUMNS / OCTET,
    WORD_ROWS = 4,
    LINE_BYTES = sizeof(uint4), /* codes of a column that a thread writes at once */
    TILE_LINES = TILE_ROWS / LINE_BYTES
};
static_assert(THREADS * OCTET * WORD_ROWS == TILE_ROWS * TILE_COLUMNS, "a thread has an octet of four rows");

struct octet {
    float v[OCTET];
};
struct packed_octet {
    alignas(OCTET * sizeof(__nv_bfloat16)) __nv_bfloat16 v[OCTET];
};

/* `left` numbers exist from p on; those beyond them read as 0. aligned: all eight exist, and p is a multiple of 16. */
template <bool aligned> static __device__ inline octet load(const __nv_bfloat16 *p, int64_t left)
{
    octet o;
    if (aligned) {
        const packed_octet packed = *reinterpret_cast<const packed_octet *>(p);
#pragma unroll
        for (int i = 0; i < OCTET; i++) o.v[i] = pp_to_float(packed.v[i]);
    } else {
#pragma unroll
        for (int i = 0; i < OCTET; i++) o.v[i] = i < left ? pp_to_float(p[i]) : 0;
    }
    return o;
}

static bool is_aligned(const void *p, size_t bytes) { return (uintptr_t)p % bytes == 0; }

/* ---- amax ---- */

/* largest[block] = the largest |x| among the octets of the block. NaN is left aside, as fmaxf does. */
template <bool aligned>
static __global__ void __launch_bounds__(THREADS) largest_of_blocks(float *largest, const __nv_bfloat16 *x, int64_t n)
{
    PP_SHARED_ONE(pp_by_warp<float>, shared);
    const int64_t step = (int64_t)gridDim.x * THREADS * OCTET;
    float most = 0;
#pragma unroll 4
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * OCTET; i < n; i += step) {
        const octet o = load<aligned>(x + i, n - i);
#pragma unroll
        for (int k = 0; k < OCTET; k++) most = fmaxf(most, fabsf(o.v[k]));
    }
    most = pp_block_max(most, shared);
    if (threadIdx.x == 0) largest[blockIdx.x] = most;
}

/* One block. largest: [n] */
static __global__ void __launch_bounds__(THREADS) largest_of_all(float *amax, const float *largest, int n)
{
    PP_SHARED_ONE(pp_by_warp<float>, shared);
    float most = 0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS) most = fmaxf(most, largest[i]);
    most = pp_block_max(most, shared);
    if (threadIdx.x == 0) *amax = most;
}

static int64_t numbers_of(const struct pp_fp8_dims *n) { return (int64_t)PP_TIMES(n) * n->rows * n->width; }

cudaError_t pp_cuda_amax(const struct pp_cuda_call *c)
{
    const int64_t n = numbers_of(&c->call->fp8);
    const __nv_bfloat16 *const x = static_cast<const __nv_bfloat16 *>(c->at.amax.x);
    float *const amax = static_cast<float *>(c->at.amax.amax), *const parts = static_cast<float *>(c->scratch);
    const int blocks = std::min(pp_div_up(n, THREADS * OCTET), (int)LARGEST_BLOCKS);
    const auto kernel =
        n % OCTET == 0 && is_aligned(x, sizeof(packed_octet)) ? largest_of_blocks<true> : largest_of_blocks<false>;
    PP_LAUNCH(kernel, blocks, THREADS, 0, c->stream, blocks > 1 ? parts : amax, x, n);
    if (blocks > 1) PP_LAUNCH(largest_of_all, 1, THREADS, 0, c->stream, amax, parts, blocks);
    return cudaGetLastError();
}

/* ---- to_fp8 ---- */

/* `times` matrices [rows, width]. */
struct matrices {
    uint8_t *q, *turned; /* NULL: not wanted */
    float *scale;
    const __nv_bfloat16 *x;
    const float *amax;
    int rows, width, times;
};

static matrices matrices_of(const struct pp_cuda_call *c)
{
    const struct pp_fp8_dims *n = &c->call->fp8;
    const struct pp_to_fp8_memory *at = &c->at.to_fp8;
    matrices m;
    m.q = static_cast<uint8_t *>(at->q);
    m.turned = static_cast<uint8_t *>(at->turned);
    m.scale = static_cast<float *>(at->scale);
    m.x = static_cast<const __nv_bfloat16 *>(at->x);
    m.amax = static_cast<const float *>(at->amax);
    m.rows = n->rows;
    m.width = n->width;
    m.times = PP_TIMES(n);
    return m;
}

/* pp_fp8_factor() of core/calls/fp8.h, in each thread. The first one of the launch writes the scale. */
template <__nv_fp8_interpretation_t format> static __device__ inline float factor_of(const matrices &m)
{
    const float largest = format == __NV_E5M2 ? 57344.0f : 448.0f, amax = *m.amax;
    const float factor = amax > 0 ? fminf(largest / amax, 0x1p126f) : 1;
    if (blockIdx.x == 0 && threadIdx.x == 0) *m.scale = 1 / factor;
    return factor;
}

/* pp_fp8() of core/calls/fp8.h: the codes of four numbers, the first in the lowest byte. */
template <__nv_fp8_interpretation_t format>
static __device__ inline uint32_t round_four(float a, float b, float c, float d, float factor)
{
    const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a * factor, b * factor), __NV_SATFINITE, format),
                   high = __nv_cvt_float2_to_fp8x2(make_float2(c * factor, d * factor), __NV_SATFINITE, format);
    return low | high << 16;
}

/* Rounds an octet and writes it to q. `left` of its codes exist there; aligned: all, and q is a multiple of 8. */
template <__nv_fp8_interpretation_t format, bool aligned>
static __device__ inline void store_rounded(uint8_t *q, int64_t left, const octet &o, float factor)
{
    const uint2 words = make_uint2(round_four<format>(o.v[0], o.v[1], o.v[2], o.v[3], factor),
                                   round_four<format>(o.v[4], o.v[5], o.v[6], o.v[7], factor));
    if (aligned) {
        *reinterpret_cast<uint2 *>(q) = words;
    } else {
#pragma unroll
        for (int i = 0; i < OCTET; i++)
            if (i < left) q[i] = (uint8_t)((i < 4 ? words.x : words.y) >> (i % 4 * 8));
    }
}

/* All matrices as one row of numbers, an octet to each thread. */
template <__nv_fp8_interpretation_t format, bool aligned>
static __global__ void __launch_bounds__(THREADS) straight(matrices m)
{
    const int64_t n = (int64_t)m.times * m.rows * m.width;
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * OCTET, left = n - i;
    const octet o = left > 0 ? load<aligned>(m.x + i, left) : octet{};
    const float factor = factor_of<format>(m);
    if (left > 0) store_rounded<format, aligned>(m.q + i, left, o, factor);
}

/* The lines of a tile's columns. A warp that writes words to them has four successive words of eight columns, each
 * OCTET columns from the next; in column c line l stands at place l ^ (c / OCTET), so that these are in different
 * banks. */
using tile_lines = uint4[TILE_COLUMNS * TILE_LINES];
static __device__ inline int line_place(int column, int line)
{
    return column * TILE_LINES + (line ^ (column / OCTET % TILE_LINES));
}

/* Where a block's tile begins. Tiles are counted along the rows, then down, then over the matrices. */
struct tile_place {
    int64_t matrix; /* index of the matrix's first number */
    int row, column;
};

static __host__ __device__ inline int tiles_across(const matrices &m) { return pp_div_up(m.width, TILE_COLUMNS); }
static __host__ __device__ inline int tiles_down(const matrices &m) { return pp_div_up(m.rows, TILE_ROWS); }

static __device__ inline tile_place tile_of(const matrices &m)
{
    const unsigned across = (unsigned)tiles_across(m), down = (unsigned)tiles_down(m), line = blockIdx.x / across;
    tile_place tile;
    tile.matrix = (int64_t)(line / down) * m.rows * m.width;
    tile.row = (int)(line % down) * TILE_ROWS;
    tile.column = (int)(blockIdx.x % across) * TILE_COLUMNS;
    return tile;
}

/* Where the thread's octets of a tile are: WORD_ROWS rows, of which `rows` exist, and `left` columns from the first. */
struct octets_place {
    int64_t at; /* index of the first number */
    int rows, left;
};

static __device__ inline octets_place octets_of(const matrices &m, const tile_place &tile)
{
    const int column = tile.column + (int)threadIdx.x % TILE_OCTETS * OCTET,
              row = tile.row + (int)threadIdx.x / TILE_OCTETS * WORD_ROWS;
    octets_place place;
    place.at = tile.matrix + (int64_t)row * m.width + column;
    place.left = m.width - column;
    place.rows = place.left > 0 ? m.rows - row : 0;
    return place;
}

/* Writes a line of a column. `left` of its codes exist; aligned: all, and `to` is a multiple of 16. */
template <bool aligned> static __device__ inline void store_line(uint8_t *to, int left, const uint4 &line)
{
    if (aligned) {
        *reinterpret_cast<uint4 *>(to) = line;
    } else {
        const uint32_t words[] = {line.x, line.y, line.z, line.w};
#pragma unroll
        for (int i = 0; i < LINE_BYTES; i++)
            if (i < left) to[i] = (uint8_t)(words[i / 4] >> (i % 4 * 8));
    }
}

/* A tile to each block: turned, and as it lies if that is wanted as well. */
template <__nv_fp8_interpretation_t format, bool aligned>
static __global__ void __launch_bounds__(THREADS) turn(matrices m)
{
    PP_SHARED_ONE(tile_lines, lines);
    uint32_t *const words = reinterpret_cast<uint32_t *>(lines);
    const int first = (int)threadIdx.x % TILE_OCTETS * OCTET, word = (int)threadIdx.x / TILE_OCTETS;
    const tile_place tile = tile_of(m);
    const octets_place mine = octets_of(m, tile);
    octet o[WORD_ROWS]; /* all are loaded before anything is stored, so that loads do not wait for stores */
#pragma unroll
    for (int i = 0; i < WORD_ROWS; i++)
        o[i] = i < mine.rows ? load<aligned>(m.x + mine.at + (int64_t)i * m.width, mine.left) : octet{};
    const float factor = factor_of<format>(m);
#pragma unroll
    for (int i = 0; i < WORD_ROWS; i++)
        if (m.q && i < mine.rows)
            store_rounded<format, aligned>(m.q + mine.at + (int64_t)i * m.width, mine.left, o[i], factor);
#pragma unroll
    for (int k = 0; k < OCTET; k++)
        words[line_place(first + k, word / 4) * 4 + word % 4] =
            round_four<format>(o[0].v[k], o[1].v[k], o[2].v[k], o[3].v[k], factor);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < TILE_COLUMNS * TILE_LINES; i += THREADS) {
        const int column = i / TILE_LINES, line = i % TILE_LINES, row = tile.row + line * LINE_BYTES;
        if (tile.column + column >= m.width || row >= m.rows) continue;
        store_line<aligned>(m.turned + tile.matrix + (int64_t)(tile.column + column) * m.rows + row, m.rows - row,
                            lines[line_place(column, line)]);
    }
}

template <__nv_fp8_interpretation_t format> static cudaError_t run_to_fp8(const struct pp_cuda_call *c)
{
    const matrices m = matrices_of(c);
    const int64_t n = numbers_of(&c->call->fp8);
    const bool octets = is_aligned(m.x, sizeof(packed_octet)) && is_aligned(m.q, sizeof(uint2));
    if (m.turned) {
        const bool lines = m.width % OCTET == 0 && m.rows % LINE_BYTES == 0 && is_aligned(m.turned, LINE_BYTES);
        const auto kernel = octets && lines ? turn<format, true> : turn<format, false>;
        const unsigned tiles = (unsigned)m.times * (unsigned)tiles_down(m) * (unsigned)tiles_across(m);
        PP_LAUNCH(kernel, tiles, THREADS, 0, c->stream, m);
    } else {
        const auto kernel = octets && n % OCTET == 0 ? straight<format, true> : straight<format, false>;
        PP_LAUNCH(kernel, pp_div_up(n, THREADS * OCTET), THREADS, 0, c->stream, m);
    }
    return cudaGetLastError();
}

cudaError_t pp_cuda_to_fp8(const struct pp_cuda_call *c)
{
    return c->call->fp8.gradient ? run_to_fp8<__NV_E5M2>(c) : run_to_fp8<__NV_E4M3>(c);
}

template <__nv_fp8_interpretation_t format> static cudaError_t prepare(void)
{
    const void *const kernels[] = {
        reinterpret_cast<const void *>(straight<format, true>), reinterpret_cast<const void *>(straight<format, false>),
        reinterpret_cast<const void *>(turn<format, true>), reinterpret_cast<const void *>(turn<format, false>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}

cudaError_t pp_cuda_prepare_fp8(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(largest_of_blocks<true>),
                                   reinterpret_cast<const void *>(largest_of_blocks<false>),
                                   reinterpret_cast<const void *>(largest_of_all)};
    cudaError_t error = pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
    if (error == cudaSuccess) error = prepare<__NV_E4M3>();
    return error == cudaSuccess ? prepare<__NV_E5M2>() : error;
}
