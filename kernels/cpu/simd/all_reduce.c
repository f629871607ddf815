/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/simd/kernels.h"

/* The sum over the workers of a rank is the run's: the kernel says only where it stands. */
void PP_SIMD(pp_cpu_all_reduce)(const struct pp_cpu_call *c)
{
    const struct pp_join *join = c->frame->join;
    if (join) join->sum(join->arg, c->p[0], (int64_t)c->call->n[0] * c->call->n[1], PP_SUM_FLOAT);
}
