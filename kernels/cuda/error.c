/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device.h"

/* Errors that have a status of their own or for which there is advice. All others are PP_IO. */
static const struct {
    cudaError_t error;
    pp_status status;
    const char *advice;
} known[] = {
    {cudaErrorMemoryAllocation, PP_NOMEM, ": use more stages, more chunks, fewer rows or a smaller model"},
    {cudaErrorNotSupported, PP_UNSUPPORTED, ""},
    {cudaErrorNoKernelImageForDevice, PP_UNSUPPORTED,
     ": this build has no kernels for this GPU; build with -DCMAKE_CUDA_ARCHITECTURES=native"},
    {cudaErrorUnsupportedPtxVersion, PP_UNSUPPORTED, ": update the driver"},
    {cudaErrorDevicesUnavailable, PP_IO, ": another process has the GPU for itself"},
    {cudaErrorECCUncorrectable, PP_IO, ": the GPU's memory is damaged; see nvidia-smi -q -d ECC"},
};

pp_status pp_cuda_check(cudaError_t error, const char *doing)
{
    if (error == cudaSuccess) return PP_OK;
    pp_status status = PP_IO;
    const char *advice = "";
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].error == error) {
            status = known[i].status;
            advice = known[i].advice;
        }
    (void)cudaGetLastError(); /* not to be found again by the next launch */
    return pp_fail(status, "cuda: %s: %s (%s)%s", doing, cudaGetErrorString(error), cudaGetErrorName(error), advice);
}
