/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate: a kernel of one thread that keeps its stream waiting until the host opens the gate, by writing a number to
 * memory that the kernel polls. A host function (cudaLaunchHostFunc) would not do: CUDA may run the host functions of
 * all streams one after another, and hold other work back meanwhile.
 */
#include "kernels/cuda/gpu.cuh"

/* Reads host memory anew each time it is evaluated. Tests that compile the kernels for the host define PP_LOOK before
 * this file is read, as an atomic load. */
#ifndef PP_LOOK
#define PP_LOOK(p) (*(const volatile unsigned *)(p))
#endif

/* Ends when *opened has come to `ticket`, or after most_cycles cycles. The difference of both numbers is compared with
 * 0, so that they may overflow. */
static __global__ void hold(const unsigned *opened, unsigned ticket, int64_t most_cycles)
{
    const int64_t start = clock64();
    while ((int)(PP_LOOK(opened) - ticket) < 0 && clock64() - start < most_cycles) continue;
}

cudaError_t pp_cuda_hold(cudaStream_t stream, const unsigned *opened, unsigned ticket, int64_t most_cycles)
{
    PP_LAUNCH(hold, 1, 1, 0, stream, opened, ticket, most_cycles);
    return cudaGetLastError();
}

cudaError_t pp_cuda_prepare_gate(void)
{
    const void *const kernels[] = {reinterpret_cast<const void *>(hold)};
    return pp_load_kernels(kernels, sizeof kernels / sizeof kernels[0]);
}
