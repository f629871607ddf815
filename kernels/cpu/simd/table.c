/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/random.h"

/* What __builtin_cpu_supports has to say yes to. */
static bool supported(void)
{
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

static void random_numbers(const uint32_t key[2], uint32_t step, uint32_t site, uint32_t row, int rows, int quads,
                           uint32_t *out)
{
    const struct pp_simd_dropout drop = {.key = {key[0], key[1]}, .step = step, .site = site};
    pp_simd_random_rows(&drop, row, rows, 0, quads, out);
}

static void exponentials(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += VL) vf_store(to + i, n - i, vf_exp(vf_load(from + i, n - i)));
}

#define PP_TEXT_(x) #x
#define PP_TEXT(x) PP_TEXT_(x)

extern const struct pp_cpu_isa PP_SIMD(pp_cpu_isa);
const struct pp_cpu_isa PP_SIMD(pp_cpu_isa) = {
    .name = PP_TEXT(PP_ISA),
    .supported = supported,
    .add = PP_SIMD(pp_cpu_add),
    .spin = PP_SIMD(pp_cpu_spin),
    .random = random_numbers,
    .exp = exponentials,
#define X(ID, name, dims, named, flops) .run[PP_KERNEL_##ID] = PP_SIMD(pp_cpu_##name),
    PP_KERNEL_LIST(X)
#undef X
};
