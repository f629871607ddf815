/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <stdio.h>

#define X(ID, name, dims, flops, floats)                                                                               \
    static double flops_##name(const double *n) { return (void)n, flops; }                                             \
    static double floats_##name(const double *n) { return floats; }
PP_KERNEL_LIST(X)
#undef X

const struct pp_kernel_info pp_kernel_table[PP_KERNELS] = {
#define X(ID, name, dims, flops, floats) [PP_KERNEL_##ID] = {#name, dims, flops_##name, floats_##name},
    PP_KERNEL_LIST(X)
#undef X
};

static void dimensions(const struct pp_call *call, double *n)
{
    for (int i = 0; i < PP_CALL_DIMS; i++) n[i] = call->n[i];
}

double pp_call_flops(const struct pp_call *call)
{
    double n[PP_CALL_DIMS];
    dimensions(call, n);
    return pp_kernel_table[call->kernel].flops(n);
}

double pp_call_bytes(const struct pp_call *call)
{
    double n[PP_CALL_DIMS];
    dimensions(call, n);
    return sizeof(float) * pp_kernel_table[call->kernel].floats(n);
}

const char *pp_call_text(const struct pp_call *call, char *buf, size_t size)
{
    const struct pp_kernel_info *info = &pp_kernel_table[call->kernel];
    size_t used = (size_t)snprintf(buf, size, "%s ", info->name);
    for (int i = 0; i < info->dims && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, i ? "x%d" : "%d", call->n[i]);
    if (call->site && used < size) snprintf(buf + used, size - used, " drop");
    return buf;
}
