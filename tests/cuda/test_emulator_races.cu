/* SPDX-License-Identifier: Apache-2.0
 *
 * Races that the emulator finds, and none where there is the barrier that was left out.
 */
#include "test_emulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include <cmocka.h>
}

#include "kernels/cuda/mma.cuh"

namespace
{

enum { THREADS = 64, BLOCKS = 2 };
using numbers = float[THREADS];

__device__ inline void barrier(bool ordered)
{
    if (ordered) __syncthreads();
}

/* A thread of another warp reads what was written. */
__global__ void read_written(float *out, bool ordered)
{
    PP_SHARED_ONE(numbers, shared);
    shared[threadIdx.x] = 1;
    barrier(ordered);
    out[blockIdx.x * THREADS + threadIdx.x] = shared[THREADS - 1 - threadIdx.x];
}

/* It is written while others may still read. */
__global__ void write_read(float *out, bool ordered)
{
    PP_SHARED(float, shared);
    float sum = 0;
    for (int i = 0; i < 2; i++) {
        shared[threadIdx.x] = (float)i;
        __syncthreads();
        sum += shared[THREADS - 1 - threadIdx.x];
        barrier(ordered);
    }
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

/* A shuffle brings the lanes together, but puts no order on memory. */
__global__ void shuffled(float *out, bool ordered)
{
    PP_SHARED_ONE(numbers, shared);
    shared[threadIdx.x] = 1;
    const float other = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    if (ordered) __syncwarp();
    out[blockIdx.x * THREADS + threadIdx.x] = shared[threadIdx.x ^ 1] + other;
}

/* Two blocks write one place. */
__global__ void one_place(float *out, bool ordered)
{
    const int place = ordered ? (int)(blockIdx.x * THREADS + threadIdx.x) : (int)threadIdx.x;
    out[place] = 1;
}

/* A copy may land while its place is still read. */
__global__ void copied(float *out, bool ordered)
{
    PP_SHARED_ONE(numbers, shared);
    shared[threadIdx.x] = 1;
    __syncthreads();
    const float other = shared[threadIdx.x ^ PP_WARP];
    barrier(ordered);
    pp_copy_start<sizeof(float)>(&shared[threadIdx.x], &out[blockIdx.x * THREADS + threadIdx.x], true);
    pp_copy_wait();
    __syncthreads();
    out[blockIdx.x * THREADS + threadIdx.x] = other + shared[threadIdx.x];
}

/* Neighbours write bytes of one word, or one byte. */
__global__ void bytes(float *out, bool ordered)
{
    unsigned char *const to = reinterpret_cast<unsigned char *>(out) + blockIdx.x * THREADS;
    to[ordered ? threadIdx.x : threadIdx.x / 2] = 1;
}

/* A word is read whose bytes others have written. */
__global__ void read_bytes(float *out, bool ordered)
{
    PP_SHARED_ONE(numbers, shared);
    reinterpret_cast<unsigned char *>(shared)[threadIdx.x] = 1;
    barrier(ordered);
    out[blockIdx.x * THREADS + threadIdx.x] = shared[threadIdx.x / sizeof(float)];
}

typedef void (*kernel)(float *, bool);
using arguments = pp_emu::call<float *, bool>; /* what the host keeps of a launch of such a kernel */

__global__ void fill(float *out, bool ordered)
{
    if (threadIdx.x < sizeof(arguments) / sizeof(float)) out[threadIdx.x] = (float)ordered;
}

/* What a launch wrote is given back, and becomes the host's, for the next launch. */
void test_memory_of_the_launch_before(void **state)
{
    (void)state;
    cudaStream_t stream;
    void *out, *first = malloc(sizeof(arguments));
    assert_non_null(first);
    assert_true(!cudaMalloc(&out, sizeof(arguments)));
    assert_true(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const int before = pp_emu_races();
    PP_LAUNCH(fill, 1, THREADS, 0, stream, static_cast<float *>(first), true);
    assert_true(!cudaStreamSynchronize(stream));
    free(first);
    PP_LAUNCH(fill, 1, THREADS, 0, stream, static_cast<float *>(out), true);
    assert_true(!cudaStreamSynchronize(stream));
    assert_int_equal(pp_emu_races(), before);
    assert_true(!cudaStreamDestroy(stream) && !cudaFree(out));
}

/* state: the kernel. */
void test_kernel_races(void **state)
{
    void *out;
    cudaStream_t stream;
    assert_true(!cudaMalloc(&out, sizeof(float) * THREADS * BLOCKS));
    assert_true(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int ordered = 1; ordered >= 0; ordered--) {
        const int before = pp_emu_races();
        PP_LAUNCH(*static_cast<const kernel *>(*state), BLOCKS, THREADS, sizeof(numbers), stream,
                  static_cast<float *>(out), ordered);
        assert_true(!cudaStreamSynchronize(stream));
        assert_int_equal(pp_emu_races() == before, ordered);
    }
    assert_true(!cudaStreamDestroy(stream) && !cudaFree(out));
}

} // namespace

int main(void)
{
    static kernel kernels[] = {read_written, write_read, shuffled, one_place, copied, bytes, read_bytes};
    const struct CMUnitTest tests[] = {{"read after write", test_kernel_races, NULL, NULL, &kernels[0]},
                                       {"write after read", test_kernel_races, NULL, NULL, &kernels[1]},
                                       {"shuffle", test_kernel_races, NULL, NULL, &kernels[2]},
                                       {"blocks", test_kernel_races, NULL, NULL, &kernels[3]},
                                       {"copies", test_kernel_races, NULL, NULL, &kernels[4]},
                                       {"bytes", test_kernel_races, NULL, NULL, &kernels[5]},
                                       {"words of bytes", test_kernel_races, NULL, NULL, &kernels[6]},
                                       cmocka_unit_test(test_memory_of_the_launch_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
