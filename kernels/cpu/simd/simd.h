/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of the width this file is compiled for. All files of this folder are compiled once per width, with PP_ISA =
 * sse2, avx2, avx512 (x86-64) or base (any other processor: 16-byte vectors by the compiler's means); external names
 * carry it as a suffix.
 *
 * Arithmetic is written with the compiler's vector operators; only what has no operator is named here. Loads and
 * stores take the number of elements left, so that one loop serves whole vectors and the rest of a row: lanes past
 * the end read as zero and are not written.
 */
#ifndef PP_KERNELS_CPU_SIMD_SIMD_H
#define PP_KERNELS_CPU_SIMD_SIMD_H

#include <stdint.h>
#include <string.h>

#define PP_PASTE_(a, b) a##_##b
#define PP_PASTE(a, b) PP_PASTE_(a, b)
#define PP_SIMD(name) PP_PASTE(name, PP_ISA)

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* PP_MM: prefix of the processor's operations. PP_TURNS: permutations of the lanes; what is combined with all of them
 * in turn has taken in every lane. */
#if defined(__AVX512F__)
#define PP_VECTOR_BYTES 64
#define PP_MM(operation) _mm512_##operation
#define PP_TURNS(X, v) X(_mm512_shuffle_f32x4(v, v, 0x4E)) X(_mm512_shuffle_f32x4(v, v, 0xB1)) PP_TURNS_OF_FOUR(X, v)
#elif defined(__AVX2__)
#define PP_VECTOR_BYTES 32
#define PP_MM(operation) _mm256_##operation
#define PP_TURNS(X, v) X(_mm256_permute2f128_ps(v, v, 1)) PP_TURNS_OF_FOUR(X, v)
#elif defined(__SSE2__)
#define PP_VECTOR_BYTES 16
#define PP_MM(operation) _mm_##operation
#define PP_TURNS(X, v) PP_TURNS_OF_FOUR(X, v)
#else
#define PP_VECTOR_BYTES 16
#endif
#define PP_TURNS_OF_FOUR(X, v) X(PP_MM(shuffle_ps)(v, v, 0x4E)) X(PP_MM(shuffle_ps)(v, v, 0xB1))

enum { VL = PP_VECTOR_BYTES / 4 }; /* lanes of 32 bits */

typedef float vf __attribute__((vector_size(PP_VECTOR_BYTES), may_alias));
typedef uint32_t vu __attribute__((vector_size(PP_VECTOR_BYTES), may_alias));
typedef int32_t vi __attribute__((vector_size(PP_VECTOR_BYTES), may_alias));
typedef uint64_t vu64 __attribute__((vector_size(PP_VECTOR_BYTES), may_alias));
typedef double vd __attribute__((vector_size(PP_VECTOR_BYTES), may_alias));
typedef float vf_half __attribute__((vector_size(PP_VECTOR_BYTES / 2), may_alias));
typedef uint16_t vu_half __attribute__((vector_size(PP_VECTOR_BYTES / 2), may_alias));
typedef float vf_at __attribute__((vector_size(PP_VECTOR_BYTES), may_alias, aligned(4)));
typedef uint32_t vu_at __attribute__((vector_size(PP_VECTOR_BYTES), may_alias, aligned(4)));

static inline vf vf_all(float x) { return x - (vf){0}; }
static inline vu vu_all(uint32_t x) { return x - (vu){0}; }

/* mask lanes are all ones or all zeros */
static inline vf vf_select(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
static inline vf vf_keep(vi mask, vf a) { return (vf)(mask & (vi)a); }

#ifdef PP_MM
typedef __typeof__(PP_MM(setzero_ps)()) mm_floats;
typedef __typeof__(PP_MM(set1_epi32)(0)) mm_ints;

static inline vf vf_max(vf a, vf b) { return (vf)PP_MM(max_ps)((mm_floats)a, (mm_floats)b); }
static inline vf vf_sqrt(vf x) { return (vf)PP_MM(sqrt_ps)((mm_floats)x); }

/* Sum and maximum over the lanes, in a fixed order. */
static inline float vf_sum(vf v)
{
#define X(turned) v += (vf)(turned);
    PP_TURNS(X, (mm_floats)v)
#undef X
    return v[0];
}

static inline float vf_max_lane(vf v)
{
#define X(turned) v = vf_max(v, (vf)(turned));
    PP_TURNS(X, (mm_floats)v)
#undef X
    return v[0];
}

/* Products of the even 32-bit lanes, 64 bits wide. */
static inline vu64 vu_mul_even(vu a, vu b) { return (vu64)PP_MM(mul_epu32)((mm_ints)a, (mm_ints)b); }
#else
static inline vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }
static inline float vf_sum(vf v) { return (v[0] + v[2]) + (v[1] + v[3]); }

static inline vf vf_sqrt(vf x)
{
    for (int i = 0; i < VL; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
}

static inline float vf_max_lane(vf v)
{
    float most = v[0];
    for (int i = 1; i < VL; i++) most = v[i] > most ? v[i] : most;
    return most;
}

static inline vu64 vu_mul_even(vu a, vu b) { return ((vu64)a & UINT32_MAX) * ((vu64)b & UINT32_MAX); }
#endif

/* Of the 64-bit products of the even lanes and of the odd ones: the high words, and the low words (for which one more
 * multiplication would take longer), each in the lane that its factor came from. */
#if defined(__AVX512F__)
static inline vu vu_high_words(vu64 even, vu64 odd)
{
    return (vu)_mm512_mask_shuffle_epi32((__m512i)odd, 0x5555, (__m512i)even, (_MM_PERM_ENUM)0xF5);
}
static inline vu vu_low_words(vu64 even, vu64 odd)
{
    return (vu)_mm512_mask_shuffle_epi32((__m512i)even, 0xAAAA, (__m512i)odd, (_MM_PERM_ENUM)0xA0);
}
#elif defined(__AVX2__)
static inline vu vu_high_words(vu64 even, vu64 odd)
{
    return (vu)_mm256_blend_epi32((__m256i)(even >> 32), (__m256i)odd, 0xAA);
}
static inline vu vu_low_words(vu64 even, vu64 odd)
{
    return (vu)_mm256_blend_epi32((__m256i)even, (__m256i)(odd << 32), 0xAA);
}
#else
static inline vu vu_high_words(vu64 even, vu64 odd) { return (vu)((even >> 32) | (odd & ~(uint64_t)UINT32_MAX)); }
static inline vu vu_low_words(vu64 even, vu64 odd) { return (vu)((even & UINT32_MAX) | (odd << 32)); }
#endif

static inline vf vf_load_whole(const float *p) { return *(const vf_at *)p; }
static inline void vf_store_whole(float *p, vf v) { *(vf_at *)p = v; }

static inline vf vf_load(const float *p, int64_t left)
{
    if (left >= VL) return vf_load_whole(p);
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1), p);
#else
    vf v = {0};
    memcpy(&v, p, (size_t)left * sizeof(float));
    return v;
#endif
}

/* Elements at, at + 1, .. of an operand that may be missing: 0. */
static inline vf vf_load_any(const float *p, int64_t at, int64_t left) { return p ? vf_load(p + at, left) : (vf){0}; }

static inline void vf_store(float *p, int64_t left, vf v)
{
    if (left >= VL) {
        vf_store_whole(p, v);
        return;
    }
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << left) - 1), (__m512)v);
#else
    memcpy(p, &v, (size_t)left * sizeof(float));
#endif
}

/* Arrays of bfloat16, read and written as float; rounded as by pp_bf16(). */
static inline vf vf_load_bf16(const uint16_t *p, int64_t left)
{
    vu_half v = {0};
    if (left >= VL)
        memcpy(&v, p, sizeof v);
    else
        memcpy(&v, p, (size_t)left * sizeof *p);
    return (vf)(__builtin_convertvector(v, vu) << 16);
}

static inline void vf_store_bf16(uint16_t *p, int64_t left, vf v)
{
    const vu bits = (vu)v, nan = (vu)((bits & 0x7fffffffu) > 0x7f800000u);
    const vu rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
    const vu_half out = __builtin_convertvector((nan & quiet) | (~nan & rounded), vu_half);
    if (left >= VL)
        memcpy(p, &out, sizeof out);
    else
        memcpy(p, &out, (size_t)left * sizeof *p);
}

/* Lanes 0 .. left-1 of v, `fill` in the others. */
static inline vf vf_first(vf v, int64_t left, float fill)
{
    if (left >= VL) return v;
    vi lane;
    for (int i = 0; i < VL; i++) lane[i] = i;
    return vf_select(lane < (int32_t)left, v, vf_all(fill));
}

/* exp(x) for x <= 88, to 1e-7 relative; below -87.3 it stays at exp(-87.3), which is as good as 0 beside 1. */
static inline vf vf_exp(vf x)
{
    const vf shift = vf_all(12582912.f); /* 1.5 * 2^23: adding it leaves the rounded integer in the low bits */
    const vf ln2_high = vf_all(0.693359375f), ln2_low = vf_all(-2.12194440e-4f);
    x = vf_max(vf_all(-87.3f), x);
    vf rounded = x * 1.44269504f + shift;
    vu power = (vu)rounded - (vu)shift;
    rounded -= shift;
    vf r = x - rounded * ln2_high - rounded * ln2_low; /* |r| <= ln2 / 2 */
    vf sum = vf_all(1.f / 5040);                       /* Taylor's sum to r^7: the rest is below 6e-9 */
    const float terms[] = {1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f, 1, 1};
    for (int i = 0; i < 7; i++) sum = sum * r + terms[i];
    return (vf)((vu)sum + (power << 23));
}

/* s(x) = 1 / (1 + exp(-x)), and its derivative s(x) (1 - s(x)): of exp(-|x|), so that neither loses digits. */
struct vf_logistic {
    vf value, slope;
};

static inline struct vf_logistic vf_logistic(vf x)
{
    const vf e = vf_exp(-(vf)((vu)x & INT32_MAX)), w = 1 / (1 + e);
    return (struct vf_logistic){vf_select((vi)(x > 0), w, e * w), e * w * w};
}

#endif
