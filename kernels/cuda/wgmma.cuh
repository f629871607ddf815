/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor cores, the copy engine and barriers of compute capability 9.0 ("sm_90a"), by inline PTX (PTX ISA 8.7: 9.7.15
 * "Asynchronous Warpgroup Level Matrix Multiply-Accumulate", 9.7.9.27 "cp.async.bulk.tensor", 9.7.13.15 "mbarrier").
 *
 * A group is four successive warps, 128 threads, the first a multiple of four. Its threads call together what is
 * pp_wgmma_. It computes sums [64,N] += first [64,8] second [N,8]' of TF32 factors. Shared memory has a factor as the
 * copy engine puts it there: rows of 32 numbers, which are 128 bytes, in each of which the eight pieces of 16 bytes
 * are exchanged: piece p of row r lies at place p ^ r % 8. A matrix begins at a multiple of 1024 bytes; the 8 terms of
 * a product begin at a multiple of 32 bytes in its rows.
 *
 * Let w be a warp's number in its group, g = lane / 4 and t = lane % 4. A thread holds
 *
 *   first, 64 x 8:   [0] row 16w + g, column t     [1] row 16w + g + 8, column t     [2], [3] the same, column t + 4
 *   sums, 64 x N:    [4j], [4j+1] row 16w + g, columns 8j + 2t, 8j + 2t + 1          [4j+2], [4j+3] the same, row + 8
 *
 * Addresses of shared memory are those of pp_shared_address() (mma.cuh).
 *
 * Tests compile what divides products for the host (tf32_tiles.cuh); tests/cuda/emulator/mma.h has what it puts there.
 */
#ifndef PP_KERNELS_CUDA_WGMMA_CUH
#define PP_KERNELS_CUDA_WGMMA_CUH

#include <cuda.h>

#include "kernels/cuda/mma.cuh"

enum { PP_GROUP = 128, PP_GROUP_ROWS = 64, PP_GROUP_TERMS = 8 };
enum { PP_FETCHED_BYTES = 128, PP_FETCHED_ALIGNMENT = 1024 };

#ifndef PP_EMULATOR

/* ---- barriers in shared memory, 8 bytes each ---- */

/* A phase ends when `arrivals` threads have arrived, and all bytes that were expected in it. */
static __device__ inline void pp_barrier_make(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Makes new barriers known to the copy engine and to the other blocks; the block synchronises after it. */
static __device__ inline void pp_barriers_made(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Waits until the phase of this parity has ended: that of a new barrier has parity 0, and the one before it counts as
 * ended. A thread may be one phase behind, not more. */
static __device__ inline void pp_barrier_wait(uint32_t barrier, int parity)
{
    asm volatile("{\n"
                 ".reg .pred ended;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
                 "@!ended bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Arrives, and lets the phase wait for so many more bytes. */
static __device__ inline void pp_barrier_expect(uint32_t barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Arrives at the same barrier of a block of this cluster. */
static __device__ inline void pp_barrier_arrive_at(uint32_t barrier, int block)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(barrier),
                 "r"(block)
                 : "memory");
}

/* All threads of all blocks of the cluster; those of a warp come together. */
static __device__ inline void pp_cluster_synchronise(void)
{
    asm volatile("barrier.cluster.arrive.aligned;\n"
                 "barrier.cluster.wait.aligned;" ::
                     : "memory");
}

/* ---- copies ---- */

/* Fetches the piece of a matrix that begins at a column and a row, as large as the map says, and tells the barrier. One
 * thread calls it. What lies outside the matrix is zeros. */
static __device__ inline void pp_fetch(uint32_t to, const CUtensorMap *map, int column, int row, uint32_t barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

/* The same, to the same addresses of all blocks of the cluster whose bits are set, and to the barrier of each. */
static __device__ inline void pp_fetch_for(uint32_t to, const CUtensorMap *map, int column, int row, uint32_t barrier,
                                           unsigned blocks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "h"((uint16_t)blocks)
                 : "memory");
}

/* ---- registers ---- */

/* How many registers a thread of this group has: all groups of a block say it, once, and together have no more than the
 * block was launched with. */
template <int n> static __device__ inline void pp_registers_less(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n> static __device__ inline void pp_registers_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

/* ---- products ---- */

/* What a product needs to know of a factor in shared memory. Of terms 8i and on: + 2i. */
static __device__ inline uint64_t pp_wgmma_factor(uint32_t address)
{
    const uint64_t eight_rows = PP_FETCHED_ALIGNMENT >> 4, exchanged = 1;
    return (address & 0x3ffff) >> 4 | (uint64_t)1 << 16 | eight_rows << 32 | exchanged << 62;
}

/* Before products: registers that they read or add to have been written. */
static __device__ inline void pp_wgmma_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/* Products since the last end() belong together. */
static __device__ inline void pp_wgmma_end(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until all but the last n of those that belong together are done. */
template <int n> static __device__ inline void pp_wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}

/* Operands of the instructions: %0 to %63, to %87 and to %127 are sums. */
#define PP_SUMS_64                                                                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "   \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "   \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PP_SUMS_88                                                                                                     \
    PP_SUMS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, "     \
               "%83, %84, %85, %86, %87"
#define PP_SUMS_128                                                                                                    \
    PP_SUMS_88 ", %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, "    \
               "%106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, "      \
               "%122, %123, %124, %125, %126, %127"
#define PP_EIGHT_SUMS(i)                                                                                               \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]),      \
        "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define PP_THE_SUMS_64                                                                                                 \
    PP_EIGHT_SUMS(0), PP_EIGHT_SUMS(8), PP_EIGHT_SUMS(16), PP_EIGHT_SUMS(24), PP_EIGHT_SUMS(32), PP_EIGHT_SUMS(40),    \
        PP_EIGHT_SUMS(48), PP_EIGHT_SUMS(56)
#define PP_THE_SUMS_88 PP_THE_SUMS_64, PP_EIGHT_SUMS(64), PP_EIGHT_SUMS(72), PP_EIGHT_SUMS(80)
#define PP_THE_SUMS_128                                                                                                \
    PP_THE_SUMS_88, PP_EIGHT_SUMS(88), PP_EIGHT_SUMS(96), PP_EIGHT_SUMS(104), PP_EIGHT_SUMS(112), PP_EIGHT_SUMS(120)

/* sums [64,N] += first [64,8] second [N,8]'; if not add, sums = it. The first factor in registers, or both in shared
 * memory (pp_wgmma_factor()). */
template <int N> struct pp_wgmma;
#define PP_WGMMA(N, COUNT, FIRST, SECOND, ADD)                                                                         \
    "{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\nwgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 "     \
    "{" PP_SUMS_##COUNT "}, " FIRST ", %" #SECOND ", add, 1, 1;\n}"
#define PP_WGMMA_OF(N, COUNT, P0, P1, P2, P3, P4, P5)                                                                  \
    template <> struct pp_wgmma<N> {                                                                                   \
        static __device__ inline void multiply(float (&sums)[COUNT], uint64_t first, uint64_t second, int add)         \
        {                                                                                                              \
            asm volatile(PP_WGMMA(N, COUNT, "%" #P0, P1, P2)                                                           \
                         : PP_THE_SUMS_##COUNT                                                                         \
                         : "l"(first), "l"(second), "r"(add));                                                         \
        }                                                                                                              \
        static __device__ inline void multiply(float (&sums)[COUNT], const uint32_t (&first)[4], uint64_t second,      \
                                               int add)                                                                \
        {                                                                                                              \
            asm volatile(PP_WGMMA(N, COUNT, "{%" #P0 ", %" #P1 ", %" #P2 ", %" #P3 "}", P4, P5)                        \
                         : PP_THE_SUMS_##COUNT                                                                         \
                         : "r"(first[0]), "r"(first[1]), "r"(first[2]), "r"(first[3]), "l"(second), "r"(add));         \
        }                                                                                                              \
    };
PP_WGMMA_OF(128, 64, 64, 65, 66, 67, 68, 69)
PP_WGMMA_OF(176, 88, 88, 89, 90, 91, 92, 93)
PP_WGMMA_OF(256, 128, 128, 129, 130, 131, 132, 133)

/* ---- sums to memory ---- */

/* to = x, or to += x: by the memory, which no thread waits for. Nobody else adds to the number meanwhile. */
static __device__ inline void pp_put(float *to, float x, bool adds)
{
    if (adds)
        asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory");
    else
        *to = x;
}
static __device__ inline void pp_put_two(float *to, float x, float y, bool adds)
{
    if (adds)
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(x), "f"(y) : "memory");
    else
        *reinterpret_cast<float2 *>(to) = make_float2(x, y);
}

#endif

#endif
