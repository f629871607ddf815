/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a matrix, for kernels/cuda/turned.h. A block copies a square of it through shared memory, so that its warps
 * read and write whole lines.
 */
#include "kernels/cuda/gpu.cuh"

enum { SIDE = PP_WARP, WARPS = 8, THREADS = WARPS * PP_WARP };

namespace
{

/* A column more than the square has, so that the numbers of a column lie in different banks. */
struct square {
    float v[SIDE][SIDE + 1];
};

/* to [columns, rows] = from [rows, the first `columns` of pitch]'. Blocks: squares of columns, squares of rows. */
__global__ void __launch_bounds__(THREADS) turn(float *to, const float *from, int rows, int columns, int pitch)
{
    PP_SHARED_ONE(square, s);
    const int lane = (int)threadIdx.x % PP_WARP, warp = (int)threadIdx.x / PP_WARP, column = (int)blockIdx.x * SIDE,
              row = (int)blockIdx.y * SIDE;
#pragma unroll
    for (int i = warp; i < SIDE; i += WARPS)
        if (row + i < rows && column + lane < columns) s.v[i][lane] = from[(int64_t)(row + i) * pitch + column + lane];
    __syncthreads();
#pragma unroll
    for (int i = warp; i < SIDE; i += WARPS)
        if (row + lane < rows && column + i < columns) to[(int64_t)(column + i) * rows + row + lane] = s.v[lane][i];
}

} // namespace

cudaError_t pp_cuda_turn(cudaStream_t stream, float *to, const float *from, int rows, int columns, int pitch)
{
    const dim3 grid((unsigned)pp_div_up(columns, SIDE), (unsigned)pp_div_up(rows, SIDE));
    PP_LAUNCH(turn, grid, THREADS, 0, stream, to, from, rows, columns, pitch);
    return cudaGetLastError();
}

cudaError_t pp_cuda_prepare_turn(void)
{
    const void *const kernel = reinterpret_cast<const void *>(turn);
    return pp_load_kernels(&kernel, 1);
}
