/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout's random numbers: Philox4x32-10 (Salmon et al., SC'11; the numbers are those of Random123's philox4x32),
 * many counters at once. Counter = {column / 4, row vector, step, site}, key = seed; word column % 4 of the result
 * belongs to the column.
 */
#ifndef PP_KERNELS_CPU_SIMD_RANDOM_H
#define PP_KERNELS_CPU_SIMD_RANDOM_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd/simd.h"

/* Numbers made at a time, on the stack: small against the first-level cache. */
enum { PP_RANDOM_TILE = 2048 };

struct pp_simd_dropout {
    uint32_t key[2], step, site;
    uint32_t threshold;            /* kept if the number is not below */
    float scale;                   /* of kept values: 1 / (1 - p) */
    uint32_t first;                /* quads of columns before the row's: those of other workers of the rank */
    struct pp_token_places places; /* seq 0: rows are not tokens */
};

/* False if the call has no dropout now; *out then keeps everything. seq: its rows are tokens, so many of each row of
 * the batch; 0: they are not. */
static inline bool pp_simd_dropout_of(const struct pp_cpu_call *c, int seq, struct pp_simd_dropout *out)
{
    const float p = c->call->p;
    const struct pp_frame *frame = c->frame;
    const bool on = c->call->site && frame->training && p > 0;
    out->key[0] = (uint32_t)frame->seed;
    out->key[1] = (uint32_t)(frame->seed >> 32);
    out->step = frame->step;
    out->site = (uint32_t)c->call->site;
    out->threshold = on ? (uint32_t)((double)p * 0x1p32) : 0;
    out->scale = on ? 1 / (1 - p) : 1;
    out->first = 0;
    out->places = pp_token_places_of(seq, frame);
    return on;
}

/* The same where the rows are these tokens. */
static inline bool pp_simd_dropout_of_tokens(const struct pp_cpu_call *c, const struct pp_tokens *tokens,
                                             struct pp_simd_dropout *out)
{
    const bool on = pp_simd_dropout_of(c, tokens->seq, out);
    out->places = pp_places_of_tokens(tokens, c->frame);
    return on;
}

/* The same for an activation function, of whose columns the workers of a rank have a part each: a multiple of 4 where
 * there are several. */
static inline bool pp_simd_dropout_of_part(const struct pp_cpu_call *c, struct pp_simd_dropout *out)
{
    const bool on = pp_simd_dropout_of(c, c->call->activation.seq, out);
    out->first = (uint32_t)((int64_t)c->frame->tensor_rank * c->call->activation.width / 4);
    return on;
}

static inline void pp_simd_philox_multiply(vu a, uint32_t factor, vu *high, vu *low)
{
    const vu f = vu_all(factor);
    vu64 even = vu_mul_even(a, f), odd = vu_mul_even((vu)((vu64)a >> 32), f);
    *low = vu_low_words(even, odd);
    *high = vu_high_words(even, odd);
}

/* x[0..3]: counters in, numbers out; x[w] holds word w of each lane's counter. */
static inline void pp_simd_philox(vu x[4], uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        vu high0, low0, high1, low1;
        pp_simd_philox_multiply(x[0], 0xD2511F53u, &high0, &low0);
        pp_simd_philox_multiply(x[2], 0xCD9E8D57u, &high1, &low1);
        x[0] = high1 ^ x[1] ^ key0;
        x[2] = high0 ^ x[3] ^ key1;
        x[1] = low1;
        x[3] = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

/* Which counter (from the first of the vector on) lane i works on, so that pp_simd_store_quads can write in order with
 * few moves. */
static inline uint32_t pp_simd_lane_counter(int i) { return (uint32_t)(i % 4 * (VL / 4) + i / 4); }

/* Writes 4*VL numbers, counter by counter. */
static inline void pp_simd_store_quads(uint32_t *out, const vu x[4])
{
#ifdef PP_MM
    mm_ints a = PP_MM(unpacklo_epi32)((mm_ints)x[0], (mm_ints)x[1]),
            b = PP_MM(unpacklo_epi32)((mm_ints)x[2], (mm_ints)x[3]);
    mm_ints c = PP_MM(unpackhi_epi32)((mm_ints)x[0], (mm_ints)x[1]),
            d = PP_MM(unpackhi_epi32)((mm_ints)x[2], (mm_ints)x[3]);
    *(vu_at *)out = (vu)PP_MM(unpacklo_epi64)(a, b);
    *(vu_at *)(out + VL) = (vu)PP_MM(unpackhi_epi64)(a, b);
    *(vu_at *)(out + 2 * VL) = (vu)PP_MM(unpacklo_epi64)(c, d);
    *(vu_at *)(out + 3 * VL) = (vu)PP_MM(unpackhi_epi64)(c, d);
#else
    for (int i = 0; i < VL; i++)
        for (int w = 0; w < 4; w++) out[4 * pp_simd_lane_counter(i) + (uint32_t)w] = x[w][i];
#endif
}

/* The number of a token's row vector among those of whole rows. */
static inline uint32_t pp_simd_token_place(const struct pp_simd_dropout *drop, uint32_t token)
{
    const struct pp_token_places *p = &drop->places;
    const uint32_t gaps = p->run ? (token - p->first) / p->run * p->gap : 0, t = token - p->begin + gaps;
    if (!p->others) return t + p->begin;
    const uint32_t row = t / p->seq;
    return t + row * p->others + p->before + (t - row * p->seq < p->half ? 0 : p->apart);
}

/* Numbers of `rows` row vectors from `row` on, columns 4*first .. 4*(first+quads)-1 of each; out: [rows][4*quads],
 * with room for a multiple of 4*VL. Of tokens one at a time. */
static inline void pp_simd_random_rows(const struct pp_simd_dropout *drop, uint32_t row, int rows, int first, int quads,
                                       uint32_t *out)
{
    row = pp_simd_token_place(drop, row);
    const int64_t counters = (int64_t)rows * quads;
    const int turns = (VL - 1) / quads + 1; /* rows that a step of VL counters can pass, rounded up */
    const vu width = vu_all((uint32_t)quads);
    vu column, at = vu_all(row);
    for (int i = 0; i < VL; i++) column[i] = pp_simd_lane_counter(i);
    for (int64_t done = 0; done < counters; done += VL) {
        for (int i = 0; i < turns; i++) {
            vu past = (vu)(column >= width);
            column -= past & width;
            at -= past; /* a true lane is -1 */
        }
        vu x[4] = {column + (uint32_t)first + drop->first, at, vu_all(drop->step), vu_all(drop->site)};
        pp_simd_philox(x, drop->key[0], drop->key[1]);
        pp_simd_store_quads(out + 4 * done, x);
        column += VL;
    }
}

/* Lanes of v whose numbers are kept, scaled; zero in the others. */
static inline vf pp_simd_drop_lanes(const struct pp_simd_dropout *drop, const uint32_t *random, vf v)
{
    vi kept = (vi)(*(const vu_at *)random >= drop->threshold);
    return vf_keep(kept, v * drop->scale);
}

#endif
