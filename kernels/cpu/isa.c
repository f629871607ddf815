/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/cpu.h"

#if PP_WIDTHS
extern const struct pp_cpu_isa pp_cpu_isa_avx512, pp_cpu_isa_avx2, pp_cpu_isa_sse2;
static const struct pp_cpu_isa *const isas[] = {&pp_cpu_isa_avx512, &pp_cpu_isa_avx2, &pp_cpu_isa_sse2};
#else
extern const struct pp_cpu_isa pp_cpu_isa_base;
static const struct pp_cpu_isa *const isas[] = {&pp_cpu_isa_base};
#endif

enum { ISAS = sizeof isas / sizeof isas[0] };

const struct pp_cpu_isa *pp_cpu_isa_at(int i) { return i >= 0 && i < ISAS ? isas[i] : NULL; }

const struct pp_cpu_isa *pp_cpu_isa_best(void)
{
    int i = 0;
    while (!isas[i]->supported()) i++;
    return isas[i];
}
