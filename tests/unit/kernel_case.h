/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of single kernels: operands with exact borders, filled with numbers that look random, and the vector
 * widths to go through. The oracles that kernels are compared with compute in double; their dropout masks come from
 * Random123.
 */
#ifndef PP_TESTS_KERNEL_CASE_H
#define PP_TESTS_KERNEL_CASE_H

#include <Random123/philox.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"

/* Dropout of all tests. */
static const uint64_t case_seed = 0x123456789abcdef0u;
enum { CASE_STEP = 3, CASE_SITE = 7, CASE_FIRST_ROW = 11 };

/* Memory of n floats, each in (-1, 1). The caller frees it. */
static inline float *case_floats(int64_t n, uint32_t salt)
{
    float *out = malloc(sizeof *out * (n > 0 ? (size_t)n : 1));
    assert_non_null(out);
    *out = 0; /* where n is 0, says gcc 13, it would not be written */
    uint32_t x = salt * 2654435761u + 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        out[i] = (float)(x >> 8) * 0x1p-23f - 1;
    }
    return out;
}

static inline float *case_copy(const float *from, int64_t n)
{
    float *out = malloc(sizeof *out * (size_t)n);
    assert_non_null(out);
    return memcpy(out, from, sizeof *out * (size_t)n);
}

/* Frees pointers up to a NULL. */
static inline void case_free(void *first, ...)
{
    va_list args;
    va_start(args, first);
    for (void *p = first; p; p = va_arg(args, void *)) free(p);
    va_end(args);
}

static inline struct pp_frame case_frame(void)
{
    return (struct pp_frame){
        .seed = case_seed, .step = CASE_STEP, .first_row = CASE_FIRST_ROW, .training = true, .clip_factor = 1};
}

/* Is the element of dropout's row vector and column kept? */
static inline bool case_kept(uint32_t row, int column, double p)
{
    philox4x32_ctr_t counter = {{(uint32_t)column / 4, row, CASE_STEP, CASE_SITE}};
    philox4x32_key_t key = {{(uint32_t)case_seed, (uint32_t)(case_seed >> 32)}};
    return philox4x32(counter, key).v[column % 4] >= (uint32_t)((double)(float)p * 0x1p32);
}

static inline double case_drop(uint32_t row, int column, double p, double value)
{
    if (p == 0) return value;
    return case_kept(row, column, p) ? value / (1 - p) : 0;
}

/* Fails with the first element that is further from the oracle than tolerance * (1 + |expected|). */
#define assert_near(got, expected, n, tolerance)                                                                       \
    do {                                                                                                               \
        for (int64_t near_i = 0; near_i < (n); near_i++) {                                                             \
            const double near_a = (got)[near_i], near_b = (expected)[near_i];                                          \
            if (!(fabs(near_a - near_b) <= (tolerance) * (1 + fabs(near_b))))                                          \
                fail_msg("%s[%lld] = %.9g, expected %.9g", #got, (long long)near_i, near_a, near_b);                   \
        }                                                                                                              \
    } while (0)

/* Of one worker; of all, where tensor is 1. */
static inline void case_run(const struct pp_cpu_isa *isa, enum pp_kernel kernel, const struct pp_call *call, int tensor,
                            int rank, struct pp_frame *frame, void *const *operands)
{
    struct pp_cpu_call c = {.call = call, .frame = frame};
    memcpy(c.p, operands, sizeof c.p);
    frame->tensor = tensor;
    frame->tensor_rank = rank;
    isa->run[kernel](&c);
}

/* The same bits. */
static inline void assert_same(const float *got, const float *expected, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got) != 0)
            fail_msg("element %lld is %.9g, not %.9g", (long long)i, got[i], expected[i]);
}

/* The next vector width that this machine has, from *i on; NULL after the last. */
static inline const struct pp_cpu_isa *case_next_isa(int *i)
{
    const struct pp_cpu_isa *isa;
    while ((isa = pp_cpu_isa_at((*i)++)))
        if (isa->supported()) return isa;
    return NULL;
}

#define FOR_EACH_ISA(isa)                                                                                              \
    for (int isa_index = 0; isa_index >= 0; isa_index = -1)                                                            \
        for (const struct pp_cpu_isa *isa; (isa = case_next_isa(&isa_index));)

#endif
