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
 */
#include "kernels/cuda/tf32.h"

#include "kernels/cuda/tf32_tiles.cuh"

namespace
{

using namespace pp_tf32;

enum { MULTIPLIERS = 2, THREADS = (MULTIPLIERS + 1) * PP_GROUP };
/* Of 65536, 168 for each thread: */
enum { FETCHER_REGISTERS = 40, MULTIPLIER_REGISTERS = 232 };

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
        const tile t = tile_of<T>(p, b.beside, b.above, i);
        for (int step = 0; step < p.steps; step++, at.next()) {
            pp_barrier_wait(b.empty_of(at.stage), at.parity);
            pp_barrier_expect(b.full_of(at.stage), T::STAGE);
            fetch_step<T, as_it_lies>(b, t, step * STEP, at.stage, map_a, map_b);
        }
    }
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

template <class T, bool as_it_lies> static __device__ void multiply_all(const product &p, const block<T> &b)
{
    const thread_part part = part_of(as_it_lies);
    ring_place<T::STAGES> at = {0, 0};
    for (int i = (int)blockIdx.x / T::TOGETHER; i < p.clusters_wide * p.clusters_high;
         i += (int)gridDim.x / T::TOGETHER) {
        float sums[T::SUMS];
        sum_tile<T, as_it_lies>(sums, p, b, part, at);
        if (as_it_lies && p.across)
            write_across<T>(sums, p, tile_of<T>(p, b.beside, b.above, i), part);
        else
            write_tile<T, as_it_lies>(sums, p, tile_of<T>(p, b.beside, b.above, i), part);
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
    divide<T>(p);
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
