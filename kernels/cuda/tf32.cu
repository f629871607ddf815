/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels/cuda/tf32.h. Tensor cores compute C' = B' A', as cublasLt does: what they call the first factor is our B, of
 * which a tile has 128 columns, and the second is A, whose rows lie in memory as they must (wgmma.cuh).
 *
 * A block has three groups of 128 threads. One thread of the last group fetches pieces of both factors, 32 terms deep,
 * into a ring of stages in shared memory; the first two groups multiply, each for 64 of the tile's columns. A block
 * computes several tiles, one after another, and the next one's pieces are fetched while a tile is written. Blocks of
 * a cluster have tiles beside each other. Each fetches a part of what it shares with another, for both; a stage may be
 * filled again when all groups of the cluster have read it.
 *
 * B as a product with B' has it, [n,k], is read by the tensor cores from shared memory. B as it lies, [k,n], would be
 * read across its rows, and goes through registers: a thread loads two numbers beside each other at a time. Which
 * columns of B they are is ours to choose, since we know where we write the sums. So these are chosen so that a warp's
 * loads touch all banks: with g = lane / 4, a thread has numbers 2 (g % 2) and on of piece g / 4 + 4 (g / 2 % 2), and
 * the odd warps of a group those of the piece two further.
 */
#include "kernels/cuda/tf32.h"

#include "kernels/cuda/maps.h"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum { MULTIPLIERS = 2, THREADS = (MULTIPLIERS + 1) * PP_GROUP };
enum { STEP = PP_TF32_TERMS, STEP_PRODUCTS = STEP / PP_GROUP_TERMS, PIECE = 4, PIECE_BYTES = 16 };
/* Of 65536, 168 for each thread: */
enum { FETCHER_REGISTERS = 40, MULTIPLIER_REGISTERS = 232 };
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

/* Where a thread is in the ring: the stages are used one after another, and the parity of their phases changes when all
 * have been. */
template <int stages> struct ring_place {
    int stage, parity;
    __device__ void next(void)
    {
        if (++stage < stages) return;
        stage = 0;
        parity ^= 1;
    }
};

/* The block: its place in the cluster, and addresses of shared memory. */
template <class T> struct block {
    uint32_t stages, full, empty; /* full, empty: T::STAGES barriers each */
    int beside, above;

    __device__ uint32_t stage(int i) const { return stages + i * T::STAGE; }
    __device__ uint32_t full_of(int i) const { return full + i * (int)sizeof(uint64_t); }
    __device__ uint32_t empty_of(int i) const { return empty + i * (int)sizeof(uint64_t); }
    /* Those of the cluster that have the same columns, and those that have the same rows. */
    __device__ unsigned of_columns(void) const
    {
        unsigned all = 0;
        for (int i = 0; i < T::ROWS_BESIDE; i++) all |= 1u << (i * T::COLUMNS_BESIDE + beside);
        return all;
    }
    __device__ unsigned of_rows(void) const { return ((1u << T::COLUMNS_BESIDE) - 1) << above * T::COLUMNS_BESIDE; }
};

/* The first column and row of the block's tile in a cluster's. Clusters that run at the same time cover all of the
 * direction in which there are fewer: so what they fetch of the larger factor is fetched by all of them at once. */
struct tile {
    int column, row;
};
template <class T> static __device__ inline tile tile_of(const product &p, const block<T> &b, int cluster)
{
    const bool wide_first = p.clusters_wide < p.clusters_high;
    const int x = wide_first ? cluster % p.clusters_wide : cluster / p.clusters_high,
              y = wide_first ? cluster / p.clusters_wide : cluster % p.clusters_high;
    return {(x * T::COLUMNS_BESIDE + b.beside) * PP_TF32_COLUMNS, (y * T::ROWS_BESIDE + b.above) * T::ROWS};
}

/* Fetches for one block, or for those of the cluster that share it. */
template <bool shared>
static __device__ inline void fetch(uint32_t to, const CUtensorMap *map, int column, int row, uint32_t full,
                                    unsigned blocks)
{
    if (shared)
        pp_fetch_for(to, map, column, row, full, blocks);
    else
        pp_fetch(to, map, column, row, full);
}

/* This block's part of both factors' pieces. */
template <class T, bool as_it_lies>
static __device__ inline void fetch_step(const block<T> &b, const tile &at, int term, int stage,
                                         const CUtensorMap *map_a, const CUtensorMap *map_b)
{
    constexpr bool share_b = T::ROWS_BESIDE > 1, share_a = T::COLUMNS_BESIDE > 1;
    constexpr int boxes = BOXES / T::ROWS_BESIDE, columns = PP_TF32_COLUMNS / T::ROWS_BESIDE,
                  rows = T::ROWS / T::COLUMNS_BESIDE;
    const uint32_t to_b = b.stage(stage), to_a = to_b + T::B_BYTES, full = b.full_of(stage);
    if (as_it_lies)
#pragma unroll
        for (int i = b.above * boxes, n = 0; n < boxes; i++, n++)
            fetch<share_b>(to_b + i * BOX_BYTES, map_b, at.column + i * BOX_COLUMNS, term, full, b.of_columns());
    else
        fetch<share_b>(to_b + b.above * columns * PP_FETCHED_BYTES, map_b, term, at.column + b.above * columns, full,
                       b.of_columns());
    fetch<share_a>(to_a + b.beside * rows * PP_FETCHED_BYTES, map_a, term, at.row + b.beside * rows, full, b.of_rows());
}

template <class T, bool as_it_lies>
static __device__ void fetch_all(const product &p, const block<T> &b, const CUtensorMap *map_a,
                                 const CUtensorMap *map_b)
{
    ring_place<T::STAGES> at = {0, 1};
    for (int i = (int)blockIdx.x / T::TOGETHER; i < p.clusters_wide * p.clusters_high;
         i += (int)gridDim.x / T::TOGETHER) {
        const tile t = tile_of(p, b, i);
        for (int step = 0; step < p.steps; step++, at.next()) {
            pp_barrier_wait(b.empty_of(at.stage), at.parity);
            pp_barrier_expect(b.full_of(at.stage), T::STAGE);
            fetch_step<T, as_it_lies>(b, t, step * STEP, at.stage, map_a, map_b);
        }
    }
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

static __device__ inline void load_two(uint32_t &first, uint32_t &second, uint32_t address)
{
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "r"(address) : "memory");
}

/* A step of a tile, by a group. add: to the sums; else they begin. */
template <class T>
static __device__ inline void multiply_straight(float (&sums)[T::SUMS], uint32_t stage, const thread_part &part,
                                                bool add)
{
    const uint64_t first = pp_wgmma_factor(stage + part.group * PP_GROUP_ROWS * PP_FETCHED_BYTES),
                   second = pp_wgmma_factor(stage + T::B_BYTES);
    pp_wgmma_begin();
#pragma unroll
    for (int i = 0; i < STEP_PRODUCTS; i++)
        pp_wgmma<T::ROWS>::multiply(sums, first + 2 * i, second + 2 * i, add || i > 0);
    pp_wgmma_end();
}

/* B's numbers wait in `first`, which products that are still running must not read. */
template <class T>
static __device__ inline void multiply_as_it_lies(float (&sums)[T::SUMS], uint32_t (&first)[STEP_PRODUCTS][4],
                                                  uint32_t stage, const thread_part &part, bool add)
{
    const uint64_t second = pp_wgmma_factor(stage + T::B_BYTES);
#pragma unroll
    for (int i = 0; i < STEP_PRODUCTS; i++) {
        const uint32_t rows = stage + part.begin + i * PP_GROUP_TERMS * PP_FETCHED_BYTES;
        load_two(first[i][0], first[i][1], rows + part.low);
        load_two(first[i][2], first[i][3], rows + part.high);
    }
    pp_wgmma_begin();
#pragma unroll
    for (int i = 0; i < STEP_PRODUCTS; i++) pp_wgmma<T::ROWS>::multiply(sums, first[i], second + 2 * i, add || i > 0);
    pp_wgmma_end();
}

/* Tells all blocks of the cluster that this group has read a stage. */
template <class T> static __device__ inline void release(const block<T> &b, const thread_part &part, int stage)
{
    if (part.thread < T::TOGETHER) pp_barrier_arrive_at(b.empty_of(stage), part.thread);
}

/* All steps of a tile. While a step's products run the next one's are queued, and the stage before it is given back. */
template <class T, bool as_it_lies>
static __device__ inline void sum_tile(float (&sums)[T::SUMS], const product &p, const block<T> &b,
                                       const thread_part &part, ring_place<T::STAGES> &at)
{
    uint32_t first[2][STEP_PRODUCTS][4];
    int before = -1;
    const auto done = [&] {
        pp_wgmma_wait<1>();
        if (before >= 0) release(b, part, before);
        before = at.stage;
        at.next();
    };
    for (int step = 0; step < p.steps; step += 2) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            pp_barrier_wait(b.full_of(at.stage), at.parity);
            if (as_it_lies)
                multiply_as_it_lies<T>(sums, first[i], b.stage(at.stage), part, step + i > 0);
            else
                multiply_straight<T>(sums, b.stage(at.stage), part, step + i > 0);
            done();
        }
    }
    pp_wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < T::SUMS; i++) asm volatile("" : "+f"(sums[i])::"memory"); /* from here on they may be read */
    release(b, part, before);
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

template <class T, bool as_it_lies> static __device__ void multiply_all(const product &p, const block<T> &b)
{
    const thread_part part = part_of(as_it_lies);
    ring_place<T::STAGES> at = {0, 0};
    for (int i = (int)blockIdx.x / T::TOGETHER; i < p.clusters_wide * p.clusters_high;
         i += (int)gridDim.x / T::TOGETHER) {
        float sums[T::SUMS];
        sum_tile<T, as_it_lies>(sums, p, b, part, at);
        if (as_it_lies && p.across)
            write_across<T>(sums, p, tile_of(p, b, i), part);
        else
            write_tile<T, as_it_lies>(sums, p, tile_of(p, b, i), part);
    }
}

/* Grid: T::TOGETHER blocks, a cluster, as often as there is room at the same time or as there are tiles. The body is of
 * sm_90a alone. */
template <class T, bool as_it_lies>
__global__ void __launch_bounds__(THREADS, 1)
    multiply(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, product p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char stages[];
    __shared__ uint64_t barriers[2][T::STAGES];
    const int rank = (int)blockIdx.x % T::TOGETHER;
    const uint32_t begin = pp_shared_address(stages) + PP_FETCHED_ALIGNMENT - 1;
    const block<T> b = {begin - begin % PP_FETCHED_ALIGNMENT, pp_shared_address(barriers[0]),
                        pp_shared_address(barriers[1]), rank % T::COLUMNS_BESIDE, rank / T::COLUMNS_BESIDE};
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::STAGES; i++) {
            pp_barrier_make(b.full_of(i), 1);
            pp_barrier_make(b.empty_of(i), T::TOGETHER * MULTIPLIERS);
        }
        pp_barriers_made();
    }
    __syncwarp();
    pp_cluster_synchronise();
    if (threadIdx.x < MULTIPLIERS * PP_GROUP) {
        pp_registers_more<MULTIPLIER_REGISTERS>();
        multiply_all<T, as_it_lies>(p, b);
    } else {
        pp_registers_less<FETCHER_REGISTERS>();
        if (threadIdx.x == MULTIPLIERS * PP_GROUP) fetch_all<T, as_it_lies>(p, b, &map_a, &map_b);
    }
    __syncwarp();
    pp_cluster_synchronise(); /* others may still tell this block, or fetch for it */
#else
    __trap();
#endif
}

/* ---- launching ---- */

template <class T, bool as_it_lies> cudaError_t queue(cudaStream_t stream, const pp_tf32_product *given)
{
    product p = {};
    p.c = given->c, p.m = given->m, p.n = given->n, p.c_pitch = given->c_pitch;
    p.adds = given->adds, p.across = given->across;
    p.steps =
        2 * pp_div_up(given->k, 2 * STEP); /* a step more, of zeros, costs less than to ask whether there is one */
    p.clusters_wide = pp_div_up(given->n, PP_TF32_COLUMNS * T::COLUMNS_BESIDE);
    p.clusters_high = pp_div_up(given->m, T::ROWS * T::ROWS_BESIDE);
    CUtensorMap map_a, map_b;
    cudaError_t error = pp_cuda_map(&map_a, given->a, given->m, given->k, given->pitch, T::ROWS / T::COLUMNS_BESIDE);
    if (error != cudaSuccess) return error;
    error = as_it_lies ? pp_cuda_map(&map_b, given->b, given->k, given->n, given->n, STEP)
                       : pp_cuda_map(&map_b, given->b, given->n, given->k, given->k, PP_TF32_COLUMNS / T::ROWS_BESIDE);
    if (error != cudaSuccess) return error;
    const int clusters = p.clusters_wide * p.clusters_high, room = given->sms / T::TOGETHER;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = T::TOGETHER, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = (unsigned)(T::TOGETHER * (clusters < room ? clusters : room));
    config.blockDim = THREADS;
    config.dynamicSmemBytes = T::SHARED;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, multiply<T, as_it_lies>, map_a, map_b, p);
}

template <class T, bool as_it_lies> cudaError_t prepare(void)
{
    const auto kernel = multiply<T, as_it_lies>;
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::SHARED);
    const void *const pointer = reinterpret_cast<const void *>(kernel);
    return error == cudaSuccess ? pp_load_kernels(&pointer, 1) : error;
}

/* In the order of pp_tf32_tiles: [tiles][as it lies]. */
#define X(rows, beside, above, stages, worth)                                                                          \
    {queue<tile_shape<rows, beside, above, stages>, false>, queue<tile_shape<rows, beside, above, stages>, true>},
cudaError_t (*const queues[PP_TF32_TILES][2])(cudaStream_t, const pp_tf32_product *) = {PP_TF32_TILE_LIST(X)};
#undef X
#define X(rows, beside, above, stages, worth)                                                                          \
    prepare<tile_shape<rows, beside, above, stages>, false>, prepare<tile_shape<rows, beside, above, stages>, true>,
cudaError_t (*const prepares[])(void) = {PP_TF32_TILE_LIST(X)};
#undef X

} // namespace

cudaError_t pp_cuda_tf32(cudaStream_t stream, const struct pp_tf32_product *product)
{
    const int tiles = pp_tf32_choose(product->m, product->n, product->sms, nullptr);
    return queues[tiles][product->as_it_lies](stream, product);
}

/* On other GPUs the kernels are never launched, and could not be loaded. */
cudaError_t pp_cuda_prepare_tf32(void)
{
    int device, capability[2];
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&capability[0], cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&capability[1], cudaDevAttrComputeCapabilityMinor, device);
    if (error != cudaSuccess || capability[0] != 9 || capability[1] != 0) return error;
    if (!pp_cuda_has_maps()) return cudaErrorCallRequiresNewerDriver;
    for (size_t i = 0; i < sizeof prepares / sizeof prepares[0] && error == cudaSuccess; i++) error = prepares[i]();
    return error;
}
