/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/cpu/simd/kernels.h"

/* What the workers of a rank make together is the run's: the kernels say only where it stands. */
void PP_SIMD(pp_cpu_all_reduce)(const struct pp_cpu_call *c) { pp_call_meet(c->call, c->frame); }
void PP_SIMD(pp_cpu_reduce_scatter)(const struct pp_cpu_call *c) { pp_call_meet(c->call, c->frame); }
void PP_SIMD(pp_cpu_all_gather)(const struct pp_cpu_call *c) { pp_call_meet(c->call, c->frame); }
void PP_SIMD(pp_cpu_await)(const struct pp_cpu_call *c) { pp_call_meet(c->call, c->frame); }

static void exchange(const struct pp_cpu_call *c)
{
    const struct pp_operand from = pp_call_operand(c->call, 1);
    const int64_t copies = pp_call_copies(c->call), bytes = from.elements * from.element_bytes;
    if (c->frame->join)
        pp_call_meet(c->call, c->frame);
    else
        for (int64_t i = 0; i < copies; i++)
            memcpy((char *)c->at.exchange.to + i * bytes, c->at.exchange.from, (size_t)bytes);
}

void PP_SIMD(pp_cpu_all_to_all)(const struct pp_cpu_call *c) { exchange(c); }
void PP_SIMD(pp_cpu_shift)(const struct pp_cpu_call *c) { exchange(c); }
