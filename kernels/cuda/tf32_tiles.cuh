/* SPDX-License-Identifier: Apache-2.0
 *
 * How tf32.cu divides C among clusters, blocks and threads: which numbers each thread sums, and where it writes them.
 * Tests compile this for the host.
 *
 * B as a product with B' has it, [n,k], is read by the tensor cores from shared memory. B as it lies, [k,n], would be
 * read across its rows, and goes through registers: a thread loads two numbers beside each other at a time. Which
 * columns of B they are is ours to choose, since we know where we write the sums. So these are chosen so that a warp's
 * loads touch all banks: with g = lane / 4, a thread has numbers 2 (g % 2) and on of piece g / 4 + 4 (g / 2 % 2), and
 * the odd warps of a group those of the piece two further.
 */
#ifndef PP_KERNELS_CUDA_TF32_TILES_CUH
#define PP_KERNELS_CUDA_TF32_TILES_CUH

#include "kernels/cuda/maps.h"
#include "kernels/cuda/tf32.h"
#include "kernels/cuda/wgmma.cuh"

namespace pp_tf32
{

enum { STEP = PP_TF32_TERMS, STEP_PRODUCTS = STEP / PP_GROUP_TERMS, PIECE = 4, PIECE_BYTES = 16 };
/* B as it lies is fetched in boxes of 32 columns, STEP rows each. */
enum { BOX_COLUMNS = PP_MAP_COLUMNS, BOXES = PP_TF32_COLUMNS / BOX_COLUMNS, BOX_BYTES = STEP * PP_FETCHED_BYTES };

static_assert((int)PP_MAP_COLUMNS == (int)PP_TF32_TERMS && PP_MAP_COLUMNS * sizeof(float) == PP_FETCHED_BYTES,
              "a row of a piece is the terms of a step");

/* What the kernels are told. clusters_: of all tiles, whether they run at the same time or not. */
struct product {
    float *c;
    int m, n, steps;
    int c_pitch;
    int clusters_wide, clusters_high;
    bool adds, across;
};

template <int rows, int columns_beside, int rows_beside, int stages> struct tile_shape {
    static constexpr int ROWS = rows, COLUMNS_BESIDE = columns_beside, ROWS_BESIDE = rows_beside, STAGES = stages;
    static constexpr int TOGETHER = columns_beside * rows_beside, SUMS = rows / 2;
    static constexpr int B_BYTES = PP_TF32_COLUMNS * PP_FETCHED_BYTES, STAGE = B_BYTES + rows * PP_FETCHED_BYTES;
    static constexpr int SHARED = STAGES * STAGE + PP_FETCHED_ALIGNMENT;
};

/* How many clusters of tiles C is. */
template <class T> static inline void divide(product &p)
{
    p.clusters_wide = pp_div_up(p.n, PP_TF32_COLUMNS * T::COLUMNS_BESIDE);
    p.clusters_high = pp_div_up(p.m, T::ROWS * T::ROWS_BESIDE);
}

/* A tile's first column and row. */
struct tile {
    int column, row;
};

/* Of the block that has so many of its cluster beside and above it. Clusters that run at the same time cover all of the
 * direction in which there are fewer: so what they fetch of the larger factor is fetched by all of them at once. */
template <class T> static __device__ inline tile tile_of(const product &p, int beside, int above, int cluster)
{
    const bool wide_first = p.clusters_wide < p.clusters_high;
    const int x = wide_first ? cluster % p.clusters_wide : cluster / p.clusters_high,
              y = wide_first ? cluster / p.clusters_wide : cluster % p.clusters_high;
    return {(x * T::COLUMNS_BESIDE + beside) * PP_TF32_COLUMNS, (y * T::ROWS_BESIDE + above) * T::ROWS};
}

/* What a thread of a group that multiplies has of a tile. row, column: of its sums, the first row of each eight and the
 * first column. B as it lies: its numbers of each eight terms begin so many bytes behind the stage, those of the first
 * four `low` bytes further, the others `high`. */
struct thread_part {
    int group, thread; /* the thread's number in the group */
    int row, column;
    int begin, low, high;
};

static __device__ inline thread_part part_of(bool as_it_lies)
{
    const int thread = (int)threadIdx.x % PP_GROUP, warp = thread / PP_WARP, g = thread % PP_WARP / 4, t = thread % 4;
    const int group = (int)threadIdx.x / PP_GROUP;
    thread_part p = {group, thread, 2 * t, group * PP_GROUP_ROWS + 16 * warp + g, 0, 0, 0};
    if (!as_it_lies) return p;
    const int box = 2 * group + warp / 2, piece = 2 * (warp % 2) + g / 4 + 4 * (g / 2 % 2), two = 2 * (g % 2);
    p.column = box * BOX_COLUMNS + piece * PIECE + two;
    p.begin = box * BOX_BYTES + t * PP_FETCHED_BYTES + two * (int)sizeof(float);
    p.low = (piece ^ t) * PIECE_BYTES;
    p.high = (piece ^ (t + 4)) * PIECE_BYTES + 4 * PP_FETCHED_BYTES;
    return p;
}

template <class T, bool as_it_lies>
static __device__ inline void write_tile(const float (&sums)[T::SUMS], const product &p, const tile &at,
                                         const thread_part &part)
{
    const int column = at.column + part.column;
#pragma unroll
    for (int j = 0; j < T::ROWS / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int row = at.row + 8 * j + part.row + e;
            float *to = p.c + (int64_t)row * p.c_pitch + column;
            if (row >= p.m) continue;
            if (as_it_lies) {
                if (column < p.n) pp_put_two(to, sums[4 * j + e], sums[4 * j + 2 + e], p.adds);
            } else {
                if (column < p.n) pp_put(to, sums[4 * j + e], p.adds);
                if (column + 8 < p.n) pp_put(to + 8, sums[4 * j + 2 + e], p.adds);
            }
        }
}

/* As the columns of C in memory: rows beside each other lie beside each other there. There are evenly many. */
template <class T>
static __device__ inline void write_across(const float (&sums)[T::SUMS], const product &p, const tile &at,
                                           const thread_part &part)
{
    const int column = at.column + part.column;
#pragma unroll
    for (int j = 0; j < T::ROWS / 8; j++) {
        const int row = at.row + 8 * j + part.row;
        float *to = p.c + (int64_t)column * p.c_pitch + row;
        if (row >= p.m || column >= p.n) continue;
        pp_put_two(to, sums[4 * j], sums[4 * j + 1], p.adds);
        pp_put_two(to + p.c_pitch, sums[4 * j + 2], sums[4 * j + 3], p.adds);
    }
}

} // namespace pp_tf32

#endif
