/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device.h"
#include "kernels/cuda/flash.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tf32.h"

/* MOST_LAUNCHES: of a kernel that is not named below. NORM_GRAD_LAUNCHES: two for the column sums, one for the rows.
 * PART_LAUNCHES: of attention that stores scores, for each part that goes through scratch; more than a part has (four),
 * for parts are not all full. */
enum { MOST_LAUNCHES = 2, NORM_GRAD_LAUNCHES = 3, PART_LAUNCHES = 8 };

static int stored_attention(const struct pp_call *call)
{
    const struct pp_attention_dims *n = &call->attention;
    /* in scratch: for each row, head and query its scores, and gradients of a query, a key and a value */
    const int64_t floats = (int64_t)n->rows * n->heads * n->seq * (n->seq + 2 * n->dh + PP_VALUE_COLUMNS(n));
    const int64_t group = n->heads / PP_KV_HEADS(n); /* each pair is a part where all of a group do not fit */
    return (int)(PART_LAUNCHES * (1 + group * floats * (int64_t)sizeof(float) / PP_CUDA_SCRATCH_BYTES));
}

/* May the gradient of attention that stores no scores be computed in this way: on tensor cores (multiplies), or in
 * float arithmetic? For wide heads both are possible: GPUs with too little shared memory use float arithmetic. */
static bool has_way(const struct pp_call *call, bool multiplies)
{
    if (call->kernel != PP_KERNEL_FLASH_GRAD) return false;
    return pp_flash_multiplies(call) ? multiplies || PP_WIDEST_COLUMNS(&call->attention) > PP_MMA_NARROW : !multiplies;
}

/* At least what all workers have; more where one part of flash_grad, which is at least a group of heads, needs more, or
 * for a turned factor, whether the GPU wants it so or not. On tensor cores parts of flash_grad are as large as may be:
 * a GPU is idle at the end of each, when the longest of its blocks still run. */
int64_t pp_cuda_scratch_bytes(const struct pp_call *call)
{
    int64_t most = pp_flash_most(PP_CUDA_SCRATCH_BYTES, pp_tf32_bytes(call));
    for (int way = 0; way < 2; way++)
        if (has_way(call, way)) {
            const struct pp_flash_parts p = pp_flash_divide(call, way, PP_CUDA_SCRATCH_BYTES);
            const int64_t groups = (int64_t)call->attention.rows * PP_KV_HEADS(&call->attention),
                          all = way ? pp_flash_least(groups * p.bytes, PP_CUDA_MOST_SCRATCH_BYTES) : 0;
            most = pp_flash_most(most, pp_flash_most(p.bytes, all));
        }
    return most;
}

static int flash_grad(const struct pp_call *call)
{
    int64_t most = 0;
    for (int way = 0; way < 2; way++) {
        if (!has_way(call, way)) continue;
        const struct pp_flash_parts p = pp_flash_divide(call, way, pp_cuda_scratch_bytes(call));
        most = pp_flash_most(most, (int64_t)p.parts * p.launches);
    }
    return (int)most;
}

/* Of each part: the copy, and the product. */
static int gemm_tn(const struct pp_call *call)
{
    const int rows = pp_tf32_bytes(call) > 0 ? pp_tf32_rows(call, pp_cuda_scratch_bytes(call)) : 0;
    return rows > 0 ? (1 + MOST_LAUNCHES) * ((pp_tf32_sides_of(call).rows + rows - 1) / rows) : MOST_LAUNCHES;
}

/* One launch to clear the gradient, then two for each PP_CUDA_SORT_TOKENS tokens: one sorts them, one adds their rows.
 */
static int embed_grad(const struct pp_call *call)
{
    const int64_t tokens = (int64_t)call->embed.rows * call->embed.seq;
    return (int)(1 + 2 * ((tokens + PP_CUDA_SORT_TOKENS - 1) / PP_CUDA_SORT_TOKENS));
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
    case PP_KERNEL_GEMM_TN:
        return gemm_tn(call);
    case PP_KERNEL_EMBED_GRAD:
        return embed_grad(call);
    case PP_KERNEL_LAYERNORM_GRAD:
    case PP_KERNEL_RMSNORM_GRAD:
    case PP_KERNEL_QK_NORM_GRAD:
    case PP_KERNEL_LATENT_NORM_GRAD:
        return NORM_GRAD_LAUNCHES;
    case PP_KERNEL_ALL_TO_ALL:
    case PP_KERNEL_SHIFT:
        return (int)pp_call_copies(call);
    default:
        return MOST_LAUNCHES;
    }
}
