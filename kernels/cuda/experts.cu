/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/gpu.cuh"

cudaError_t pp_cuda_route(const struct pp_cuda_call *) { return cudaErrorNotSupported; }
cudaError_t pp_cuda_route_grad(const struct pp_cuda_call *) { return cudaErrorNotSupported; }
cudaError_t pp_cuda_dispatch(const struct pp_cuda_call *) { return cudaErrorNotSupported; }
cudaError_t pp_cuda_combine(const struct pp_cuda_call *) { return cudaErrorNotSupported; }
cudaError_t pp_cuda_weigh(const struct pp_cuda_call *) { return cudaErrorNotSupported; }
cudaError_t pp_cuda_weigh_grad(const struct pp_cuda_call *) { return cudaErrorNotSupported; }
cudaError_t pp_cuda_prepare_experts(void) { return cudaSuccess; }
