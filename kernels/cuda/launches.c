/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device.h"
#include "kernels/cuda/flash.h"

/* Attention of long rows: a part of what goes through scratch, with room for parts that are not full. */
enum { MOST_LAUNCHES = 2, PART_LAUNCHES = 8 };

static int stored_attention(const struct pp_call *call)
{
    const int32_t *n = call->n; /* row, head, query: scores and gradients of each */
    const int64_t floats = (int64_t)n[0] * n[2] * n[1] * (n[1] + 3 * n[3]);
    const int64_t group = n[2] / PP_KV_HEADS(n); /* each pair is a part where all of a group do not fit */
    return (int)(PART_LAUNCHES * (1 + group * floats * (int64_t)sizeof(float) / PP_CUDA_SCRATCH_BYTES));
}

static int flash_parts(const struct pp_call *call, bool multiplies)
{
    const struct pp_flash_parts p = pp_flash_divide(call, multiplies, PP_CUDA_SCRATCH_BYTES);
    return p.parts * p.launches;
}

/* Tensor cores may have too little shared memory for wide heads. */
static int flash_grad(const struct pp_call *call)
{
    const int in_float = flash_parts(call, false);
    if (!pp_flash_multiplies(call)) return in_float;
    const int multiplied = flash_parts(call, true);
    return call->n[3] > PP_MMA_NARROW && in_float > multiplied ? in_float : multiplied;
}

int pp_cuda_launches(const struct pp_call *call)
{
    switch (call->kernel) {
    case PP_KERNEL_ATTENTION:
    case PP_KERNEL_ATTENTION_GRAD:
        return stored_attention(call);
    case PP_KERNEL_FLASH:
        return pp_flash_launches(call);
    case PP_KERNEL_FLASH_GRAD:
        return flash_grad(call);
    default:
        return MOST_LAUNCHES;
    }
}
