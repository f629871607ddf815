/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor cores and asynchronous copies of compute capability 8.0 and later, by inline PTX (PTX ISA 8.7, chapter 9.7:
 * "Matrix Fragments for mma.m16n8k16 with floating point type", "... mma.m16n8k8", "ldmatrix", "cp.async", "cvt").
 *
 * A warp computes sums += a b. Its 32 lanes hold the three matrices together, each lane some elements (a fragment). Let
 * g = lane / 4 and t = lane % 4. A register of a or b holds two bfloat16; its lower half is the one of the lower column
 * (in b: of the lower row). A lane holds:
 *
 *   a, 16 x 16:           a[0] row g, columns 2t, 2t+1       a[1] row g+8, columns 2t, 2t+1
 *                         a[2] row g, columns 2t+8, 2t+9     a[3] row g+8, columns 2t+8, 2t+9
 *   b, 16 x 8:            b[0] column g, rows 2t, 2t+1       b[1] column g, rows 2t+8, 2t+9
 *   sums, 16 x 8, float:  [0], [1] row g, columns 2t, 2t+1   [2], [3] row g+8, columns 2t, 2t+1
 *
 * Of TF32 (mma.m16n8k8) a register has one number, and there are half as many terms:
 *
 *   a, 16 x 8:            a[0] row g, column t               a[1] row g+8, column t
 *                         a[2] row g, column t+4             a[3] row g+8, column t+4
 *   b, 8 x 8:             b[0] column g, row t               b[1] column g, row t+4
 *
 * Four floats of a row are as eight bfloat16 to ldmatrix, so it loads these, too: row g, column t.
 *
 * The sums of two neighbouring tiles, rounded to bfloat16, are a fragment of a as they lie. That is why attention's
 * probabilities, which are sums of one product and a factor of the next, need not go through memory.
 *
 * Tests compile kernels for the host; tests/cuda/emulator/mma.h has these functions there.
 */
#ifndef PP_KERNELS_CUDA_MMA_CUH
#define PP_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/gpu.cuh"

enum { PP_MMA_ROWS = 16, PP_MMA_TERMS = 16, PP_MMA_COLUMNS = 8, PP_MMA_SUMS = 4 };
enum { PP_MMA_TF32_TERMS = 8 };
enum { PP_COPY_BYTES = 16 };

#ifndef PP_EMULATOR

/* sum += a b, for the fragments of the whole warp; all lanes call it. b0, b1: b[0] and b[1]. */
static __device__ inline void pp_mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The same of TF32 numbers (pp_to_tf32()). */
static __device__ inline void pp_mma_tf32(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The bits of the nearest TF32 number; of two as near those of the even one, as products have it (tf32.h). Before
 * compute capability 9.0 there is no such instruction, and it is the one further from zero. */
static __device__ inline uint32_t pp_to_tf32(float x)
{
    uint32_t bits;
#if __CUDA_ARCH__ >= 900
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
    return bits;
}

static __device__ inline uint32_t pp_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Loads four matrices of 8 x 8 bfloat16 from shared memory; all lanes call it. row: lane l passes the address of row l
 * % 8 of matrix l / 8, which is 16 bytes, aligned to 16. to[m]: the lane gets row g, columns 2t, 2t+1 of matrix m. */
static __device__ inline void pp_ldmatrix(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(pp_shared_address(row))
                 : "memory");
}

/* The same, transposed. to[m]: the lane gets rows 2t, 2t+1 of column g of matrix m. */
static __device__ inline void pp_ldmatrix_transposed(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(pp_shared_address(row))
                 : "memory");
}

/* Starts an asynchronous copy of `bytes` bytes (4, or PP_COPY_BYTES) from global to shared memory; both addresses are
 * aligned to as many bytes. Unless `real`, zeros are written and nothing is read, but `from` must be an address in
 * global memory all the same. */
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

/* 2^x, to two units in the last place or so; what is too small for a normal number is 0. exp2f() is three instructions
 * more, for such numbers. */
static __device__ inline float pp_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Waits until all copies that this thread started have ended. Other threads see their data behind a barrier. */
static __device__ inline void pp_copy_wait(void) { asm volatile("cp.async.wait_all;" ::: "memory"); }

#endif

/* Two floats, rounded to bfloat16, in one register; `low` in its lower half. */
static __device__ inline uint32_t pp_pair_of(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

#endif
