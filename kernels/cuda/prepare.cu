/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/gpu.cuh"

cudaError_t pp_cuda_prepare(void)
{
    cudaError_t (*const prepare[])(void) = {
#define PP_CUDA_KERNELS(file) pp_cuda_prepare_##file,
#include "kernels/cuda/kernels.def"
#undef PP_CUDA_KERNELS
    };
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < sizeof prepare / sizeof prepare[0] && error == cudaSuccess; i++) error = prepare[i]();
    return error;
}
