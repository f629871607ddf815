/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels/cuda/mma.cuh has of PTX, and wgmma.cuh to put sums into memory, for kernels that are compiled for the
 * host: part of kernel.h.
 *
 * Each lane has of a matrix what the tables of the PTX ISA give it, and gets the rest from its warp, which meets for
 * that as it would: whoever has numbers in another place computes something else. Sums are in float, one term after
 * the other; how tensor cores add, no document says. Copies land when their thread waits for them, or, where blocks
 * run in reverse (PP_EMULATE_ORDER), at once: both are allowed.
 */
#ifndef PP_EMULATOR_MMA_H
#define PP_EMULATOR_MMA_H

#include <atomic>

#include "tf32.h"

namespace pp_emu
{

/* What the warps of all blocks did: products of 16 x 8 x 16, in TF32 of 16 x 8 x 8, and fragments read by ldmatrix. */
inline std::atomic<int64_t> products, tf32_products, fragments;

/* [PP_EMU_WARP] what the lanes brought, until the next meeting. */
template <class T> PP_EMU_UNSEEN const T *meet(const T &mine)
{
    static_assert(sizeof(T) <= PP_EMU_SHOWN, "a place for what a lane brings is too small");
    return static_cast<const T *>(pp_emu_meet(&mine, sizeof(T)));
}

/* A lane's elements, by the names of the PTX ISA. */
struct mma_operands {
    float a[8], b[4];
};

/* Of the pair in a register. */
inline float element(uint32_t pair, int i) { return value<float>((uint64_t)(pair >> 16 * i) << 16); }

/* "Matrix Fragments for mma.m16n8k16 with floating point type" of the PTX ISA: row of ai = groupID for i < 2 and 4 <= i
 * < 6, else groupID + 8; column = threadID_in_group * 2 + (i & 1), and 8 more for i >= 4. */
PP_EMU_UNSEEN inline float a_element(const mma_operands *lanes, int row, int column)
{
    return lanes[row % 8 * 4 + column % 8 / 2].a[column / 8 * 4 + row / 8 * 2 + column % 2];
}

/* Row of bi = threadID_in_group * 2 + (i & 1), and 8 more for i >= 2; column = groupID. */
PP_EMU_UNSEEN inline float b_element(const mma_operands *lanes, int row, int column)
{
    return lanes[column * 4 + row % 8 / 2].b[row / 8 * 2 + row % 2];
}

/* A lane's elements in TF32. */
struct tf32_operands {
    float a[4], b[2];
};

/* What was not rounded to TF32 is no factor: PTX leaves the result open. */
inline float tf32_element(uint32_t bits)
{
    const float x = value<float>(bits);
    return bits << 19 && !isnan(x) ? NAN : x;
}

/* "Matrix Fragments for mma.m16n8k8", .tf32: row of ai = groupID for a0 and a2, else groupID + 8; column =
 * threadID_in_group for a0 and a1, and 4 more for a2 and a3. */
PP_EMU_UNSEEN inline float tf32_a_element(const tf32_operands *lanes, int row, int column)
{
    return lanes[row % 8 * 4 + column % 4].a[column / 4 * 2 + row / 8];
}

/* Row of bi = threadID_in_group, and 4 more for b1; column = groupID. */
PP_EMU_UNSEEN inline float tf32_b_element(const tf32_operands *lanes, int row, int column)
{
    return lanes[column * 4 + row % 4].b[row / 4];
}

/* Adds a term to a lane's sums: of its two rows of a, and its two columns of b. */
inline void add_term(float (&sum)[4], float low, float high, float left, float right)
{
    sum[0] += low * left;
    sum[1] += low * right;
    sum[2] += high * left;
    sum[3] += high * right;
}

PP_EMU_UNSEEN inline uint32_t element_at(const void *row, int i)
{
    const uint16_t *at = static_cast<const uint16_t *>(row) + i;
    pp_emu_race_look(at, sizeof *at, false);
    return *at;
}

PP_EMU_UNSEEN inline void land(const pp_emu_copy &copy)
{
    pp_emu_race_look(copy.to, copy.bytes, true);
    if (copy.real)
        memcpy(copy.to, copy.from, copy.bytes);
    else
        memset(copy.to, 0, copy.bytes);
}

} // namespace pp_emu

/* Row of ci = groupID for i < 2, else groupID + 8; column = threadID_in_group * 2 + (i & 1). */
PP_EMU_UNSEEN static inline void pp_mma(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    pp_emu::mma_operands mine;
    pp_emu::products += pp_emu::lane() == 0;
    for (int i = 0; i < 8; i++) mine.a[i] = pp_emu::element(a[i / 2], i % 2);
    for (int i = 0; i < 4; i++) mine.b[i] = pp_emu::element(i < 2 ? b0 : b1, i % 2);
    const pp_emu::mma_operands *lanes = pp_emu::meet(mine);
    const int group = pp_emu::lane() / 4, thread = pp_emu::lane() % 4;
    for (int k = 0; k < 16; k++)
        pp_emu::add_term(sum, pp_emu::a_element(lanes, group, k), pp_emu::a_element(lanes, group + 8, k),
                         pp_emu::b_element(lanes, k, thread * 2), pp_emu::b_element(lanes, k, thread * 2 + 1));
}

PP_EMU_UNSEEN static inline void pp_mma_tf32(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    pp_emu::tf32_operands mine;
    pp_emu::tf32_products += pp_emu::lane() == 0;
    for (int i = 0; i < 4; i++) mine.a[i] = pp_emu::tf32_element(a[i]);
    for (int i = 0; i < 2; i++) mine.b[i] = pp_emu::tf32_element(i < 1 ? b0 : b1);
    const pp_emu::tf32_operands *lanes = pp_emu::meet(mine);
    const int group = pp_emu::lane() / 4, thread = pp_emu::lane() % 4;
    for (int k = 0; k < 8; k++)
        pp_emu::add_term(sum, pp_emu::tf32_a_element(lanes, group, k), pp_emu::tf32_a_element(lanes, group + 8, k),
                         pp_emu::tf32_b_element(lanes, k, thread * 2),
                         pp_emu::tf32_b_element(lanes, k, thread * 2 + 1));
}

static inline uint32_t pp_to_tf32(float x) { return (uint32_t)pp_emu::bits(pp_emu_tf32(x)); }

/* "ldmatrix": threads 8m .. 8m + 7 have the addresses of matrix m's rows; thread l gets elements 2 (l % 4) and the next
 * of row l / 4 of each. */
PP_EMU_UNSEEN static inline void pp_ldmatrix(uint32_t (&to)[4], const void *row)
{
    pp_emu_check_aligned(row, 16);
    pp_emu::fragments += pp_emu::lane() == 0;
    const void *const *rows = pp_emu::meet(row);
    const int group = pp_emu::lane() / 4, thread = pp_emu::lane() % 4;
    for (int m = 0; m < 4; m++)
        to[m] = pp_emu::element_at(rows[8 * m + group], 2 * thread) |
                pp_emu::element_at(rows[8 * m + group], 2 * thread + 1) << 16;
}

/* .trans: of the transposed matrices. */
PP_EMU_UNSEEN static inline void pp_ldmatrix_transposed(uint32_t (&to)[4], const void *row)
{
    pp_emu_check_aligned(row, 16);
    pp_emu::fragments += pp_emu::lane() == 0;
    const void *const *rows = pp_emu::meet(row);
    const int group = pp_emu::lane() / 4, thread = pp_emu::lane() % 4;
    for (int m = 0; m < 4; m++)
        to[m] = pp_emu::element_at(rows[8 * m + 2 * thread], group) |
                pp_emu::element_at(rows[8 * m + 2 * thread + 1], group) << 16;
}

static inline float pp_exp2(float x) { return exp2f(x); }

template <int bytes> static inline void pp_copy_start(void *to, const void *from, bool real)
{
    const pp_emu_copy copy = {to, from, bytes, real};
    pp_emu_check_aligned(to, bytes);
    pp_emu_check_aligned(from, bytes);
    pp_emu_race_look(to, bytes, true);
    if (real) pp_emu_race_look(from, bytes, false);
    if (!pp_emu_copy_put(&copy)) pp_emu::land(copy);
}

static inline void pp_copy_wait(void)
{
    pp_emu_copy copy;
    while (pp_emu_copy_get(&copy)) pp_emu::land(copy);
}

static inline void pp_put(float *to, float x, bool adds) { *to = adds ? *to + x : x; }

static inline void pp_put_two(float *to, float x, float y, bool adds)
{
    pp_emu_check_aligned(to, 2 * sizeof *to);
    pp_put(to, x, adds);
    pp_put(to + 1, y, adds);
}

#endif
