/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/gpu.cuh"

cudaError_t pp_cuda_prepare(void)
{
    cudaError_t (*const prepare[])(void) = {
        pp_cuda_prepare_rows,          pp_cuda_prepare_layernorm, pp_cuda_prepare_embedding, pp_cuda_prepare_attention,
        pp_cuda_prepare_cross_entropy, pp_cuda_prepare_update,    pp_cuda_prepare_gate};
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < sizeof prepare / sizeof prepare[0] && error == cudaSuccess; i++) error = prepare[i]();
    return error;
}
