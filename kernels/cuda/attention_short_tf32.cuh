/* SPDX-License-Identifier: Apache-2.0
 *
 * Factors of attention_short_tf32.cu: fragments of matrices in shared memory. Lanes are called by the g and t of
 * kernels/cuda/mma.cuh.
 *
 * Rows are an odd number of 16 bytes apart. So ldmatrix reads a quad of each of eight rows from all banks; and so do,
 * across rows, lanes that read two numbers beside each other of row 2t, and then of row 2t+1: banks 8t + 2g (times an
 * odd number) are those of half a warp. Hence the terms of a step come in the order 0 2 4 6 1 3 5 7, and of 16 columns
 * first the even ones: which numbers a fragment is made of is ours to choose, if both factors have the same terms, and
 * who writes the sums knows the columns. In that order softmax writes the columns of its factors, which are read as
 * they lie and across.
 */
#ifndef PP_KERNELS_CUDA_ATTENTION_SHORT_TF32_CUH
#define PP_KERNELS_CUDA_ATTENTION_SHORT_TF32_CUH

#include "kernels/cuda/attention_short_mma.cuh"

namespace pp_short_tf32
{

using namespace pp_short;

enum { STEP = PP_MMA_TF32_TERMS };
static_assert((int)PP_SHORT_TF32_TERMS == (int)STEP, "what predictions count");

typedef rows_of<float> matrix;

static __device__ inline int g() { return lane() / 4; }
static __device__ inline int t() { return lane() % 4; }

static __device__ inline couple couple_at(const float *p) { return *reinterpret_cast<const couple *>(p); }

static __device__ inline void round_all(uint32_t (&to)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) to[i] = pp_to_tf32(__uint_as_float(to[i]));
}

/* Left factor, 16x8: tokens, or what softmax has written, which is rounded. i: the product's row; k: the term. row():
 * the rows of a lane's sums. */
template <bool rounded> struct left_as_is {
    matrix m;
    __device__ inline void get(uint32_t (&to)[4], int i, int k) const
    {
        pp_ldmatrix(to, m.row(i + lane() % 16) + k + lane() / 16 * 4);
        if (!rounded) round_all(to);
    }
    __device__ inline int row(int i, int half) const { return i + g() + half * 8; }
};

/* What softmax has written, transposed. */
struct left_turned {
    matrix m;
    __device__ inline void get(uint32_t (&to)[4], int i, int k) const
    {
        const couple even = couple_at(m.row(k + 2 * t()) + i + 2 * g()),
                     odd = couple_at(m.row(k + 2 * t() + 1) + i + 2 * g());
        to[0] = __float_as_uint(even.a);
        to[1] = __float_as_uint(even.b);
        to[2] = __float_as_uint(odd.a);
        to[3] = __float_as_uint(odd.b);
    }
    /* Columns of eight lie in the order of put_factor(). */
    __device__ inline int row(int i, int half) const
    {
        const int place = 2 * g() + half, in_eight = place % 8;
        return i + place - in_eight + (in_eight < 4 ? 2 * in_eight : 2 * in_eight - 7);
    }
};

/* Right factor, 8x16, j: the product's column. Terms come in the order of put_factor(), even columns first. */
struct right_as_is {
    matrix m;
    __device__ inline void get(uint32_t (&to)[4], int j, int k) const
    {
        const couple even = couple_at(m.row(k + 2 * t()) + j + 2 * g()),
                     odd = couple_at(m.row(k + 2 * t() + 1) + j + 2 * g());
        to[0] = pp_to_tf32(even.a);
        to[1] = pp_to_tf32(odd.a);
        to[2] = pp_to_tf32(even.b);
        to[3] = pp_to_tf32(odd.b);
    }
};
struct right_turned {
    matrix m;
    __device__ inline void get(uint32_t (&to)[4], int j, int k) const
    {
        pp_ldmatrix(to, m.row(j + lane() % 8 + lane() / 16 * 8) + k + lane() / 8 % 2 * 4);
        round_all(to);
    }
};

/* Writes four numbers of a factor: columns of eight in the order 0 2 4 6 1 3 5 7. */
static __device__ inline void put_factor(float *row, int column, pp_quad q)
{
    float r[PP_QUAD];
#pragma unroll
    for (int i = 0; i < PP_QUAD; i++) r[i] = __uint_as_float(pp_to_tf32(q.v[i]));
    float *const to = row + column / 8 * 8 + column % 8 / 2;
    *reinterpret_cast<couple *>(to) = {r[0], r[2]};
    *reinterpret_cast<couple *>(to + 4) = {r[1], r[3]};
}

} // namespace pp_short_tf32

#endif
