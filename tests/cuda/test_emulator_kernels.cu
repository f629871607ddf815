/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels for the emulator's own test.
 */
#include "test_emulator.h"

using floats = float[32];
using doubles = double[32];

/* out[block] = sum of the block's n numbers. */
static __global__ void sum_kernel(const float *in, float *out, int n)
{
    PP_SHARED_ONE(floats, part);
    float s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += in[(size_t)blockIdx.x * n + i];
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    s = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    for (int o = 16; o; o >>= 1) s += __shfl_down_sync(0xffffffffu, s, o);
    if (threadIdx.x == 0) out[blockIdx.x] = s;
}

cudaError_t test_sum(const float *in, float *out, int n, int blocks, int threads, cudaStream_t stream)
{
    PP_LAUNCH(sum_kernel, blocks, threads, 0, stream, in, out, n);
    return cudaGetLastError();
}

/* Two lanes exchange 8 bytes, one lane tells all, all vote. */
static __global__ void warp_kernel(double *out)
{
    const double mine = threadIdx.x + 0.5;
    const double other = __shfl_xor_sync(0xffffffffu, mine, 1);
    const double first = __shfl_sync(0xffffffffu, mine, 7);
    const unsigned odd = __ballot_sync(0xffffffffu, threadIdx.x & 1);
    out[threadIdx.x] = other + 1000 * first + (odd == 0xaaaaaaaau ? 1e6 : 0);
}

/* Shared memory and fresh memory must not be taken for zero. */
static __global__ void fresh_kernel(double *out)
{
    PP_SHARED_ONE(doubles, part);
    PP_SHARED(double, more);
    out[threadIdx.x] = part[threadIdx.x] + more[threadIdx.x];
}

static __global__ void divergent_kernel(double *out)
{
    if (threadIdx.x < 7)
        __syncwarp();
    else
        __syncthreads();
    out[0] = 1;
}

static __global__ void overrun_kernel(double *out)
{
    PP_SHARED(double, shared);
    shared[threadIdx.x] = 1;
    out[0] = shared[0];
}

/* Lacks a barrier: what it finds depends on who runs first. */
static __global__ void racy_kernel(double *out)
{
    PP_SHARED_ONE(double, value);
    if (threadIdx.x == 31) value = 2;
    out[threadIdx.x] = value;
}

/* Some threads end before the others' barriers: CUDA allows that. */
static __global__ void early_kernel(double *out)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x % 3 == 0) return;
    __syncthreads();
    out[threadIdx.x] = 2;
    __syncthreads();
    out[threadIdx.x] += 1;
}

cudaError_t test_kernel(const char *name, double *out, int threads, int shared_bytes, cudaStream_t stream)
{
    static const struct {
        const char *name;
        void (*kernel)(double *);
    } kernels[] = {{"warp", warp_kernel},       {"fresh", fresh_kernel}, {"divergent", divergent_kernel},
                   {"overrun", overrun_kernel}, {"racy", racy_kernel},   {"early", early_kernel}};
    for (const auto &k : kernels) {
        if (strcmp(k.name, name) == 0) PP_LAUNCH(k.kernel, 1, threads, shared_bytes, stream, out);
    }
    return cudaGetLastError();
}

static __global__ void add_kernel(float *to, float what, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] += what;
}

cudaError_t test_add(float *to, float what, int n, cudaStream_t stream)
{
    PP_LAUNCH(add_kernel, (n + 127) / 128, 128, 0, stream, to, what, n);
    return cudaGetLastError();
}

static __global__ void spin_kernel(int64_t ns)
{
    const int64_t start = clock64();
    while (clock64() - start < ns) continue;
}

cudaError_t test_spin(int blocks, int64_t ns, cudaStream_t stream)
{
    PP_LAUNCH(spin_kernel, blocks, 1, 0, stream, ns);
    return cudaGetLastError();
}
