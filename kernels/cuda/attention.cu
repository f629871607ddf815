/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/attention.cuh"

cudaError_t pp_attention_shared_bytes(int *out)
{
    int device;
    const cudaError_t error = cudaGetDevice(&device);
    return error == cudaSuccess ? cudaDeviceGetAttribute(out, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) : error;
}

typedef cudaError_t (*way)(const struct pp_cuda_call *);

static cudaError_t run(const struct pp_cuda_call *c, way is_short, way is_long)
{
    int most = 0;
    const cudaError_t error = pp_attention_shared_bytes(&most);
    if (error != cudaSuccess) return error;
    const struct pp_attention_dims *n = &c->call->attention;
    return pp_attention_short_bytes(n->seq, PP_WIDEST_COLUMNS(n), n->heads / PP_KV_HEADS(n)) <= most ? is_short(c)
                                                                                                     : is_long(c);
}

cudaError_t pp_cuda_attention(const struct pp_cuda_call *c) { return run(c, pp_attention_short, pp_attention_long); }

cudaError_t pp_cuda_attention_grad(const struct pp_cuda_call *c)
{
    return run(c, pp_attention_short_grad, pp_attention_long_grad);
}

cudaError_t pp_cuda_prepare_attention(void)
{
    int most = 0;
    cudaError_t error = pp_attention_shared_bytes(&most);
    if (error == cudaSuccess) error = pp_attention_short_prepare(most);
    return error == cudaSuccess ? pp_attention_long_prepare() : error;
}
