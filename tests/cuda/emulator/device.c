/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices, kernels' attributes and launches.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "emulator.h"

enum { FUNCTIONS = 4096, CLOCK_KHZ = 1000000 /* kernel.h: clock64() counts ns */ };

static _Thread_local int current;
static atomic_int faults[PP_EMU_DEVICES];
static bool peers[PP_EMU_DEVICES][PP_EMU_DEVICES];

/* Kernels that are loaded on a device: each has attributes of its own there. */
static struct function {
    const void *function;
    int device, shared_bytes;
} functions[FUNCTIONS];
static int nfunctions;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

int pp_emu_current(void) { return current; }
cudaError_t pp_emu_fault(int device) { return (cudaError_t)atomic_load(&faults[device]); }

void pp_emu_set_fault(int device, cudaError_t error)
{
    int none = cudaSuccess;
    atomic_compare_exchange_strong(&faults[device], &none, error);
}

cudaError_t cudaGetDeviceCount(int *count)
{
    PP_EMU_ENTER();
    *count = pp_emu_settings()->devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    PP_EMU_ENTER();
    if (device < 0 || device >= pp_emu_settings()->devices) return pp_emu_error(cudaErrorInvalidDevice);
    current = device;
    pp_emu_reset_green();
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    PP_EMU_ENTER();
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    PP_EMU_ENTER();
    if (device < 0 || device >= pp_emu_settings()->devices) return pp_emu_error(cudaErrorInvalidDevice);
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), pp_emu_settings()->numbered ? "Emulated device %d" : "Emulated device", device);
    p->uuid.bytes[0] = (char)(device + 1);
    p->totalGlobalMem = pp_emu_settings()->memory_bytes;
    p->sharedMemPerBlock = PP_EMU_SHARED_DEFAULT;
    p->sharedMemPerBlockOptin = (size_t)pp_emu_settings()->shared_bytes;
    p->sharedMemPerMultiprocessor = p->sharedMemPerBlockOptin + (1 << 10);
    p->regsPerBlock = 65536;
    p->warpSize = PP_EMU_WARP;
    p->maxThreadsPerBlock = PP_EMU_BLOCK_THREADS;
    p->maxThreadsPerMultiProcessor = 2048;
    p->multiProcessorCount = PP_EMU_SMS;
    p->major = pp_emu_settings()->capability / 10;
    p->minor = pp_emu_settings()->capability % 10;
    p->l2CacheSize = 1 << 20; /* a 50th of the real one: what has to exceed it is made here byte by byte */
    p->memoryBusWidth = 5120;
    p->asyncEngineCount = 3;
    p->concurrentKernels = 1;
    p->unifiedAddressing = 1;
    p->pciBusID = device + 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    const int shared_bytes = pp_emu_settings()->shared_bytes, capability = pp_emu_settings()->capability;
    const struct {
        enum cudaDeviceAttr attribute;
        int value;
    } table[] = {{cudaDevAttrMultiProcessorCount, PP_EMU_SMS},
                 {cudaDevAttrComputeCapabilityMajor, capability / 10},
                 {cudaDevAttrComputeCapabilityMinor, capability % 10},
                 {cudaDevAttrMaxSharedMemoryPerBlock, PP_EMU_SHARED_DEFAULT},
                 {cudaDevAttrMaxSharedMemoryPerBlockOptin, shared_bytes},
                 {cudaDevAttrMaxSharedMemoryPerMultiprocessor, shared_bytes + (1 << 10)},
                 {cudaDevAttrMaxThreadsPerBlock, PP_EMU_BLOCK_THREADS},
                 {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
                 {cudaDevAttrMaxBlocksPerMultiprocessor, PP_EMU_SM_BLOCKS},
                 {cudaDevAttrMaxGridDimX, INT32_MAX},
                 {cudaDevAttrWarpSize, PP_EMU_WARP},
                 {cudaDevAttrClockRate, CLOCK_KHZ},
                 {cudaDevAttrMemoryClockRate, 2619000},
                 {cudaDevAttrGlobalMemoryBusWidth, 5120},
                 {cudaDevAttrL2CacheSize, 50 << 20},
                 {cudaDevAttrAsyncEngineCount, 3},
                 {cudaDevAttrConcurrentKernels, 1},
                 {cudaDevAttrUnifiedAddressing, 1}};
    PP_EMU_ENTER();
    if (device < 0 || device >= pp_emu_settings()->devices) return pp_emu_error(cudaErrorInvalidDevice);
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (table[i].attribute != attribute) continue;
        *value = table[i].value;
        return cudaSuccess;
    }
    pp_emu_complain("cudaDeviceGetAttribute: attribute %d is not emulated", attribute);
    return pp_emu_error(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    PP_EMU_ENTER();
    *can = device != peer && pp_emu_settings()->peers;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    PP_EMU_ENTER();
    if (flags || peer == current || peer < 0 || peer >= pp_emu_settings()->devices)
        return pp_emu_error(flags ? cudaErrorInvalidValue : cudaErrorInvalidDevice);
    pp_emu_lock(&mutex);
    const bool before = peers[current][peer];
    peers[current][peer] = true;
    pp_emu_unlock(&mutex);
    return pp_emu_error(before ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

/* Both succeed without a driver. */
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = pp_emu_settings()->driver ? CUDART_VERSION : 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- kernels ---- */

/* On the calling thread's device; NULL: nobody has asked for it there. Under the mutex. */
static struct function *find_function(const void *function)
{
    for (int i = 0; i < nfunctions; i++)
        if (functions[i].function == function && functions[i].device == current) return &functions[i];
    return NULL;
}

static void check_loaded(const struct pp_emu_kernel *k)
{
    pp_emu_lock(&mutex);
    const bool loaded = find_function(k->function) != NULL;
    pp_emu_unlock(&mutex);
    if (!loaded) pp_emu_complain("kernel %s: its first launch loads it", k->name);
}

static int shared_limit(const void *function)
{
    pp_emu_lock(&mutex);
    const struct function *f = find_function(function);
    const int limit = f ? f->shared_bytes : PP_EMU_SHARED_DEFAULT;
    pp_emu_unlock(&mutex);
    return limit;
}

/* Whoever asks for a kernel loads it. bytes: what it may have from here on; 0: as before. */
static cudaError_t load_function(const void *function, int bytes)
{
    if (bytes < 0 || bytes > pp_emu_settings()->shared_bytes) return cudaErrorInvalidValue;
    pp_emu_lock(&mutex);
    struct function *f = find_function(function);
    if (!f && nfunctions < FUNCTIONS) {
        f = &functions[nfunctions++];
        *f = (struct function){function, current, PP_EMU_SHARED_DEFAULT};
    }
    if (f && bytes) f->shared_bytes = bytes;
    pp_emu_unlock(&mutex);
    return f ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    PP_EMU_ENTER();
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return pp_emu_error(cudaErrorInvalidValue);
    return pp_emu_error(load_function(function, value));
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function)
{
    PP_EMU_ENTER();
    const cudaError_t error = load_function(function, 0);
    if (error != cudaSuccess) return pp_emu_error(error);
    *out = (struct cudaFuncAttributes){
        .maxThreadsPerBlock = PP_EMU_BLOCK_THREADS, .numRegs = 32, .maxDynamicSharedSizeBytes = shared_limit(function)};
    return cudaSuccess;
}

struct launch {
    struct pp_emu_op op;
    struct pp_emu_kernel kernel;
    cudaError_t fault; /* injected */
    int64_t queued_ns;
};

/* When it would end on a device, where no thread must wake up before it begins. */
static int64_t end_of(const struct launch *l, cudaStream_t stream, int64_t start)
{
    const uint3 g = l->kernel.grid;
    const int64_t least = start + pp_emu_settings()->kernel_ns, block_ns = pp_emu_grid_ns();
    const int64_t begin = l->queued_ns > stream->finished_ns ? l->queued_ns : stream->finished_ns;
    const int64_t end = block_ns ? pp_emu_occupy(stream, begin, (uint64_t)g.x * g.y * g.z, block_ns) : 0;
    return end > least ? end : least;
}

static void run_launch(struct pp_emu_op *op, cudaStream_t stream, bool dead)
{
    struct launch *l = (struct launch *)op;
    const int64_t start = pp_emu_now_ns();
    char message[256];
    if (l->fault != cudaSuccess) pp_emu_set_fault(stream->device, l->fault);
    if (!dead && l->fault == cudaSuccess && !pp_emu_grid_run(&l->kernel, message, sizeof(message))) {
        pp_emu_complain("%s", message);
        pp_emu_set_fault(stream->device, cudaErrorLaunchFailure);
    }
    const int64_t left = dead ? 0 : end_of(l, stream, start) - pp_emu_now_ns();
    if (left > 0) nanosleep(&(struct timespec){.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000}, NULL);
    l->kernel.release(l->kernel.arguments);
    free(l);
}

static cudaError_t check_launch(const struct pp_emu_kernel *k, cudaStream_t stream)
{
    const uint3 b = k->block, g = k->grid;
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->device != current) {
        pp_emu_complain("kernel %s for device %d put into a stream of device %d", k->name, current, stream->device);
        return cudaErrorInvalidResourceHandle;
    }
    const uint64_t threads = (uint64_t)b.x * b.y * b.z;
    const bool block_fits = threads && threads <= PP_EMU_BLOCK_THREADS && b.z <= 64;
    const bool grid_fits = g.x && g.y && g.z && g.x <= INT32_MAX && g.y <= UINT16_MAX && g.z <= UINT16_MAX;
    if (block_fits && grid_fits && k->shared_bytes <= (size_t)shared_limit(k->function)) return cudaSuccess;
    pp_emu_complain("kernel %s: grid (%u, %u, %u), block (%u, %u, %u), %zu bytes of shared memory (limit %d)", k->name,
                    g.x, g.y, g.z, b.x, b.y, b.z, k->shared_bytes, shared_limit(k->function));
    return block_fits && grid_fits ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
}

void pp_emu_launch(const struct pp_emu_kernel *kernel, cudaStream_t handle)
{
    cudaError_t error = pp_emu_enter("launch");
    cudaStream_t stream = error == cudaSuccess ? pp_emu_stream(handle) : NULL;
    struct launch *l = NULL;
    if (error == cudaSuccess) error = check_launch(kernel, stream);
    if (error == cudaSuccess && !(l = calloc(1, sizeof(*l)))) error = cudaErrorMemoryAllocation;
    if (error != cudaSuccess) {
        kernel->release(kernel->arguments);
        pp_emu_error(error);
        return;
    }
    l->op.run = run_launch;
    l->kernel = *kernel;
    l->queued_ns = pp_emu_now_ns();
    l->fault = (cudaError_t)pp_emu_injected("kernel", cudaErrorIllegalAddress);
    if (pp_emu_settings()->strict) check_loaded(kernel);
    pp_emu_count(PP_EMU_LAUNCHES, 1);
    pp_emu_enqueue(stream, &l->op);
}
