/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels/cuda/tf32.cu, of which the processor can run nothing, in place of which it has this: the same numbers, to
 * rounding, by a thread for each quad of the product's columns.
 */
#include "kernels/cuda/tf32.h"

#include "kernels/cuda/gpu.cuh"
#include "tf32.h"

enum { THREADS = 128 };

namespace
{

/* Grid: (quads of columns / THREADS, rows). */
__global__ void multiply(pp_tf32_product p)
{
    const int column = PP_QUAD * ((int)blockIdx.x * THREADS + (int)threadIdx.x), row = (int)blockIdx.y;
    if (column >= p.n) return;
    const float *a = p.a + (int64_t)row * p.pitch, *b = p.as_it_lies ? p.b + column : p.b + (int64_t)column * p.k;
    const int64_t next = p.as_it_lies ? 1 : p.k, further = p.as_it_lies ? p.n : 1;
    pp_quad sum = {};
    for (int i = 0; i < p.k; i++) {
        const float x = pp_emu_tf32(a[i]);
        for (int k = 0; k < PP_QUAD; k++) sum.v[k] += x * pp_emu_tf32(b[i * further + k * next]);
    }
    for (int k = 0; k < PP_QUAD; k++) {
        const int in_row = p.across ? column + k : row, in_column = p.across ? row : column + k;
        float *c = p.c + (int64_t)in_row * p.c_pitch + in_column;
        *c = sum.v[k] + (p.adds ? *c : 0);
    }
}

} // namespace

cudaError_t pp_cuda_tf32(cudaStream_t stream, const struct pp_tf32_product *product)
{
    const dim3 grid((unsigned)pp_div_up(product->n, PP_QUAD * THREADS), (unsigned)product->m);
    PP_LAUNCH(multiply, grid, THREADS, 0, stream, *product);
    return cudaGetLastError();
}

cudaError_t pp_cuda_prepare_tf32(void)
{
    const void *const kernel = reinterpret_cast<const void *>(multiply);
    return pp_load_kernels(&kernel, 1);
}
