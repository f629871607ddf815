/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial weights, the same bits as those of kernels/model_init.c.
 */
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256 };

/* Nothing here is rounded twice, or otherwise if the compiler fuses multiplication and addition: only the product with
 * the bound is rounded, then its conversion to float. */
static __device__ inline float uniform(uint32_t random, double bound)
{
    return (float)(bound * ((random >> 8) * 0x1p-23 - 1));
}

/* Of quads that are counted from the start of the whole tensor, number `quad`. */
static __device__ inline pp_quad values_of(const pp_draw &d, int64_t quad)
{
    pp_quad q;
    if (d.init == PP_INIT_UNIFORM) {
        const uint4 random =
            pp_philox(make_uint4((uint32_t)quad, (uint32_t)((uint64_t)quad >> 32), (uint32_t)d.tensor, PP_INIT_SITE),
                      (uint32_t)d.seed, (uint32_t)(d.seed >> 32));
        q.v[0] = uniform(random.x, d.bound);
        q.v[1] = uniform(random.y, d.bound);
        q.v[2] = uniform(random.z, d.bound);
        q.v[3] = uniform(random.w, d.bound);
    } else {
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++) q.v[i] = d.init == PP_INIT_ONE;
    }
    return q;
}

/* A thread makes a quad. whole: the result has all elements of all quads, and is aligned; otherwise it lacks elements
 * of the first and of the last one, or is not. */
template <typename T, bool whole> static __global__ void __launch_bounds__(THREADS) draw(pp_draw d, T *to)
{
    const int64_t quad = d.first / PP_QUAD + (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t at = quad * PP_QUAD - d.first;
    if (at >= d.n) return;
    const pp_quad q = values_of(d, quad);
    if (whole) {
        pp_store<true>(to + at, PP_QUAD, q);
    } else {
#pragma unroll
        for (int i = 0; i < PP_QUAD; i++)
            if (at + i >= 0 && at + i < d.n) to[at + i] = pp_from_float<T>(q.v[i]);
    }
}

template <typename T> static cudaError_t launch(cudaStream_t stream, T *to, const struct pp_draw &d)
{
    const bool whole = d.first % PP_QUAD == 0 && d.n % PP_QUAD == 0 && pp_aligned(to);
    const auto kernel = whole ? draw<T, true> : draw<T, false>;
    if (d.n == 0) return cudaSuccess;
    PP_LAUNCH(kernel, pp_div_up(d.first % PP_QUAD + d.n, PP_QUAD * THREADS), THREADS, 0, stream, d, to);
    return cudaGetLastError();
}

cudaError_t pp_cuda_draw_values(cudaStream_t stream, void *to, const struct pp_draw *d)
{
    return d->precision == PP_BF16 ? launch(stream, static_cast<__nv_bfloat16 *>(to), *d)
                                   : launch(stream, static_cast<float *>(to), *d);
}

cudaError_t pp_cuda_prepare_draw(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(draw<float, true>),
                                   reinterpret_cast<const void *>(draw<float, false>),
                                   reinterpret_cast<const void *>(draw<__nv_bfloat16, true>),
                                   reinterpret_cast<const void *>(draw<__nv_bfloat16, false>)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
