/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor cores and asynchronous copies of compute capability 8.0 and later, as PTX has them (PTX ISA 8.7, chapter 9.7:
 * "Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix", "cp.async").
 *
 * A warp multiplies matrices that its lanes hold together. With g = lane / 4 and t = lane % 4, and two bfloat16 in a
 * register, the one of the lower column (in b: row) in its lower half:
 *
 *   a, 16 x 16:  a[0] row g, columns 2t, 2t+1;  a[1] row g+8;  a[2] row g, columns 2t+8, 2t+9;  a[3] row g+8 of these
 *   b, 16 x 8:   b[0] rows 2t, 2t+1 of column g;  b[1] rows 2t+8, 2t+9
 *   sums, 16 x 8, floats:  [0], [1] row g, columns 2t, 2t+1;  [2], [3] row g+8
 *
 * Two neighbouring tiles of sums, rounded, are therefore an a: P needs no way through memory.
 *
 * Tests compile kernels for the host; tests/cuda/emulator/mma.h has these functions there.
 */
#ifndef PP_KERNELS_CUDA_MMA_CUH
#define PP_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/gpu.cuh"

enum { PP_MMA_ROWS = 16, PP_MMA_TERMS = 16, PP_MMA_COLUMNS = 8, PP_MMA_SUMS = 4 };
enum { PP_COPY_BYTES = 16 };

#ifndef PP_EMULATOR

/* sum += a b */
static __device__ inline void pp_mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ inline uint32_t pp_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Four matrices of 8 x 8 bfloat16. row: of lane l it is row l % 8 of matrix l / 8, 16 bytes in shared memory, aligned
 * to them. to[m]: row g, columns 2t, 2t+1 of matrix m. */
static __device__ inline void pp_ldmatrix(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(pp_shared_address(row))
                 : "memory");
}

/* to[m]: rows 2t, 2t+1 of column g of matrix m. */
static __device__ inline void pp_ldmatrix_transposed(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(pp_shared_address(row))
                 : "memory");
}

/* Starts to copy to shared memory, zeros unless `real`; bytes, to which both are aligned: 4, or PP_COPY_BYTES. `from`
 * is an address of the same memory in any case. */
template <int bytes> static __device__ inline void pp_copy_start(void *to, const void *from, bool real)
{
    const int size = real ? bytes : 0;
    if (bytes == PP_COPY_BYTES)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(pp_shared_address(to)), "l"(from), "r"(size)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(pp_shared_address(to)), "l"(from), "r"(size)
                     : "memory");
}

/* What this thread started has landed. Others see it behind a barrier. */
static __device__ inline void pp_copy_wait(void) { asm volatile("cp.async.wait_all;" ::: "memory"); }

#endif

/* Two floats as bfloat16, `low` in the lower half. */
static __device__ inline uint32_t pp_pair_of(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

#endif
