/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>

#include "core/options/devices.h"
#include "kernels/cuda/device.h"

/* Compute capability: of products in bfloat16, and in FP8, as ten times the major and the minor number. */
enum { OLDEST = 80, OLDEST_FP8 = 89 };

/* Sets variables that CUDA reads once, at its first call. Values that the user has set stay. */
static void set_environment(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* hardware queues: streams that share one wait for each other */
    /* A kernel that is loaded inside a step stops the device. EAGER loads all kernels at the start, those of libraries,
     * too, which costs time and memory. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

static pp_status count_gpus(int *count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_environment);
    int driver = 0, runtime = 0;
    *count = 0;
    PP_CUDA(cudaDriverGetVersion(&driver), "asking for the driver's version");
    if (driver == 0) return pp_fail(PP_UNSUPPORTED, "there is no NVIDIA driver on this machine (libcuda.so.1)");
    const cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorInsufficientDriver) {
        (void)cudaGetLastError();
        PP_CUDA(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
        return pp_fail(PP_UNSUPPORTED, "the NVIDIA driver is too old: it knows CUDA %d.%d, this build needs %d.%d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *count == 0)) {
        (void)cudaGetLastError();
        return pp_fail(PP_UNSUPPORTED, "the NVIDIA driver finds no GPU (nvidia-smi -L shows those there are, "
                                       "CUDA_VISIBLE_DEVICES hides some)");
    }
    PP_CUDA(error, "counting the GPUs");
    if (*count > PP_CUDA_GPUS) *count = PP_CUDA_GPUS;
    return PP_OK;
}

static pp_status check_age(int gpu, int precision)
{
    int major = 0, minor = 0;
    PP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu), "asking for the GPU's age");
    PP_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu), "asking for the GPU's age");
    const int oldest = precision == PP_FP8 ? OLDEST_FP8 : OLDEST;
    if (10 * major + minor < oldest)
        return pp_fail(PP_UNSUPPORTED, "GPU %d is too old%s: it has compute capability %d.%d, %d.%d is needed", gpu,
                       precision == PP_FP8 ? " for --precision fp8" : "", major, minor, oldest / 10, oldest % 10);
    return PP_OK;
}

pp_status pp_cuda_available(void)
{
    int count;
    pp_status status = count_gpus(&count);
    if (status == PP_OK) status = check_age(0, PP_FP32);
    return status == PP_OK ? PP_OK : PP_UNSUPPORTED;
}

static int at_least_1(int n) { return n > 1 ? n : 1; }

/* Finds the worker's place. GPUs are given out in order: if there are more workers than GPUs, successive workers of the
 * host share one. PP_USAGE: more GPUs are asked for than there are, or workers cannot share them evenly. */
static pp_status find_place(const struct pp_device_spec *spec, struct pp_cuda_place *out)
{
    int count;
    PP_TRY(count_gpus(&count));
    if (spec->gpus > count) return pp_fail(PP_USAGE, "--gpus %d: this host has %d", spec->gpus, count);
    const int gpus = spec->gpus > 0 ? spec->gpus : count;
    const int mine = at_least_1(spec->workers), all = mine * at_least_1(spec->on_host);
    const int first = spec->host_index * mine, me = first + spec->worker;
    if (all > gpus && all % gpus)
        return pp_fail(PP_USAGE,
                       "%d workers of a host cannot share %d GPUs evenly: use --gpus %d, or other --stages, --tensor "
                       "or --context-parallel",
                       all, gpus, pp_gpus_even(all, gpus));
    const int each = pp_gpu_sharers(all, gpus), gpu = me / each;
    const int from = gpu * each > first ? gpu * each : first;
    const int to = (gpu + 1) * each < first + mine ? (gpu + 1) * each : first + mine;
    *out = (struct pp_cuda_place){.gpu = gpu,
                                  .first_gpu = first / each,
                                  .last_gpu = (first + mine - 1) / each,
                                  .workers = each,
                                  .index = me - from,
                                  .sharing = to - from};
    if (out->sharing > PP_CUDA_SHARES)
        return pp_fail(PP_USAGE, "%d workers of a process on GPU %d: at most %d can share one", out->sharing, gpu,
                       PP_CUDA_SHARES);
    return PP_OK;
}

pp_status pp_cuda_place(const struct pp_device_spec *spec, struct pp_cuda_place *out)
{
    PP_TRY(find_place(spec, out));
    return check_age(out->gpu, spec->precision);
}

int pp_cuda_sharers(const struct pp_device_spec *spec)
{
    struct pp_cuda_place place = {.workers = 1};
    return find_place(spec, &place) == PP_OK ? place.workers : 1;
}
