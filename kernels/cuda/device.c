/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/affinity.h"

enum { BOUNCE_BYTES = 4 << 20 };

/* Enables access to the memory of the other GPUs that workers of this process use: sums read it, and copies write it.
 * Sets device->blind if some GPU's memory cannot be accessed. */
static pp_status see_peers(struct pp_device *device)
{
    for (int peer = device->place.first_gpu; peer <= device->place.last_gpu; peer++) {
        int can = 0;
        if (peer == device->place.gpu) continue;
        PP_CUDA(cudaDeviceCanAccessPeer(&can, device->place.gpu, peer), "asking for access to another GPU");
        if (!can) {
            device->blind = true;
            continue;
        }
        const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
        if (error == cudaErrorPeerAccessAlreadyEnabled)
            (void)cudaGetLastError(); /* by another worker of this GPU */
        else
            PP_CUDA(error, "enabling access to another GPU");
    }
    return PP_OK;
}

/* Do workers of this process use a GPU of another kind? Writes ", GPU 1 is NVIDIA L4, 58 SMs: GPUs differ", of the
 * first such GPU. Only for a worker on the process's first GPU, whose text becomes that of the run. */
static pp_status write_other(struct pp_device *device, const struct cudaDeviceProp *gpu, char *out, size_t size)
{
    const struct pp_cuda_place *place = &device->place;
    for (int i = place->gpu + 1; place->gpu == place->first_gpu && i <= place->last_gpu; i++) {
        struct cudaDeviceProp other;
        PP_CUDA(cudaGetDeviceProperties(&other, i), "asking for another GPU's properties");
        if (other.multiProcessorCount == gpu->multiProcessorCount && strcmp(other.name, gpu->name) == 0) continue;
        snprintf(out, size, ", GPU %d is %.60s, %d SMs: GPUs differ", i, other.name, other.multiProcessorCount);
        device->mixed = true;
        return PP_OK;
    }
    return PP_OK;
}

/* "NVIDIA H200, 132 SMs, driver 13.0, cuBLAS 13.1.0, share 1/4 (32 SMs)" */
static pp_status write_text(struct pp_device *device, const struct cudaDeviceProp *gpu)
{
    char share[96] = "", other[128] = "";
    int driver = 0;
    PP_TRY(write_other(device, gpu, other, sizeof other));
    PP_CUDA(cudaDriverGetVersion(&driver), "asking for the driver's version");
    if (device->share.context)
        snprintf(share, sizeof share, ", share 1/%d (%d SMs)", device->place.sharing, device->share.sms);
    else if (*device->share.none)
        snprintf(share, sizeof share, ", %d workers take turns: times are meaningless", device->place.workers);
    snprintf(device->text, sizeof device->text, "%s, %d SMs, driver %d.%d, %s%s%s", gpu->name, gpu->multiProcessorCount,
             driver / 1000, driver % 1000 / 10, pp_cuda_gemm_describe(device->gemm), share, other);
    return PP_OK;
}

static pp_status open_products(const struct pp_device_spec *spec, const struct cudaDeviceProp *gpu,
                               struct pp_device *device)
{
    char name[160];
    snprintf(name, sizeof name, "%.128s, %d SMs", gpu->name, gpu->multiProcessorCount);
    const bool hopper = gpu->major == 9 && gpu->minor == 0;
    const int part = device->share.context ? device->share.sms : 0, all = part ? part : gpu->multiProcessorCount;
    const struct pp_cuda_gemm_spec products = {
        .sms = part, .hopper_sms = hopper ? all : 0, .gpu = name, .algorithms = spec->algorithms};
    return pp_cuda_gemm_open(&products, &device->gemm);
}

/* Waits for what is in the stream of upload, download and alloc. */
static pp_status finish(struct pp_device *device, const char *doing)
{
    PP_CUDA(cudaEventRecord(device->computed, device->host), doing);
    return pp_cuda_poll(device->computed, NULL);
}

static pp_status make_streams(struct pp_device *device)
{
    PP_TRY(pp_cuda_stream(&device->share, false, &device->compute.stream));
    return pp_cuda_stream(&device->share, false, &device->host);
}

static void close_streams(struct pp_device *device)
{
    if (device->computed) (void)cudaEventDestroy(device->computed);
    if (device->host) (void)cudaStreamDestroy(device->host);
    if (device->compute.stream) (void)cudaStreamDestroy(device->compute.stream);
    device->computed = NULL;
    device->compute.stream = device->host = NULL;
}

/* Does with events what is done with them later: records two in a stream, lets another stream wait for one, and reads
 * the time between both. */
static pp_status use_events(struct pp_device *device, const cudaEvent_t timed[2])
{
    static const char doing[] = "using an event in a part of the GPU";
    int64_t ns;
    for (int i = 0; i < 2; i++) PP_CUDA(cudaEventRecord(timed[i], device->compute.stream), doing);
    PP_CUDA(cudaStreamWaitEvent(device->host, timed[1], 0), doing);
    PP_TRY(finish(device, doing));
    PP_TRY(pp_cuda_poll(timed[1], NULL));
    return pp_cuda_between(timed[0], timed[1], &ns);
}

static pp_status try_events(struct pp_device *device)
{
    cudaEvent_t timed[2] = {NULL, NULL};
    pp_status status = PP_OK;
    for (int i = 0; i < 2 && status == PP_OK; i++) status = pp_cuda_event(&device->share, cudaEventDefault, &timed[i]);
    if (status == PP_OK) status = use_events(device, timed);
    for (int i = 0; i < 2; i++)
        if (timed[i]) (void)cudaEventDestroy(timed[i]);
    return status;
}

/* Makes the streams and the event of a device. cuEventRecord demands an event of the stream's own context. For a stream
 * of a green context cuStreamGetCtx names the context that cuCtxFromGreenCtx returns, so a share makes its events while
 * that context is current. If the streams refuse such events, events of the primary context are tried; if these are
 * refused, too, the worker has no share. */
static pp_status open_streams(struct pp_device *device, int gpu_sms)
{
    for (;;) {
        PP_TRY(make_streams(device));
        pp_status status = pp_cuda_event(&device->share, cudaEventDisableTiming, &device->computed);
        if (status == PP_OK && device->share.context) status = try_events(device);
        if (status == PP_OK || !device->share.context) return status;
        (void)cudaGetLastError();
        close_streams(device);
        pp_cuda_share_refuse_events(&device->place, gpu_sms, &device->share);
    }
}

static pp_status open_on_gpu(const struct pp_device_spec *spec, struct pp_device *device)
{
    struct cudaDeviceProp gpu;
    void *gate;
    PP_TRY(pp_cuda_place(spec, &device->place));
    PP_CUDA(cudaSetDevice(device->place.gpu), "taking the GPU");
    PP_CUDA(cudaGetDeviceProperties(&gpu, device->place.gpu), "asking for the GPU's properties");
    PP_TRY(see_peers(device));
    PP_CUDA(pp_cuda_prepare(), "loading the kernels");
    PP_TRY(pp_cuda_share_open(&device->place, gpu.multiProcessorCount, &device->share));
    PP_TRY(open_streams(device, gpu.multiProcessorCount));
    PP_TRY(pp_cuda_host_alloc(device, BOUNCE_BYTES, &device->bounce));
    PP_TRY(pp_cuda_host_alloc(device, sizeof *device->gate, &gate));
    device->gate = gate;
    device->scratch_bytes = PP_CUDA_SCRATCH_BYTES;
    PP_CUDA(cudaMalloc(&device->scratch, PP_CUDA_SCRATCH_BYTES), "taking memory for the kernels");
    PP_TRY(open_products(spec, &gpu, device));
    return write_text(device, &gpu);
}

/* Opens the device while the thread may run on all cores: threads that CUDA starts inherit the cores of the thread that
 * starts them, and must not be tied to a worker's core. */
static pp_status open_untied(const struct pp_device_spec *spec, struct pp_device *device)
{
    size_t bytes;
    cpu_set_t *own = pp_affinity(&bytes);
    if (own) pp_affinity_widen();
    const pp_status status = open_on_gpu(spec, device);
    if (own) (void)sched_setaffinity(0, bytes, own);
    free(own);
    return status;
}

pp_status pp_cuda_open(const struct pp_device_spec *spec, struct pp_device **out)
{
    PP_TRY(PP_NEW(out, 1));
    const pp_status status = open_untied(spec, *out);
    if (status == PP_OK) {
        pp_cuda_probe_join(*out);
        return PP_OK;
    }
    pp_cuda_close(*out);
    *out = NULL;
    return status;
}

/* Closes what is open of the device, which may be half open. Errors are not reported: once a GPU has failed, every call
 * of CUDA may fail. */
void pp_cuda_close(struct pp_device *device)
{
    if (!device) return;
    pp_cuda_probe_leave(device);
    (void)cudaSetDevice(device->place.gpu);
    pp_cuda_gemm_close(device->gemm);
    if (device->scratch) (void)cudaFree(device->scratch);
    pp_cuda_host_release(device, device->bounce);
    pp_cuda_host_release(device, device->gate);
    for (int slot = 0; slot < PP_MEASURED; slot++) {
        for (int i = 0; i < device->times[slot].n; i++) (void)cudaEventDestroy(device->times[slot].event[i]);
        free(device->times[slot].event);
    }
    close_streams(device);
    pp_cuda_share_close(&device->place, &device->share);
    (void)cudaGetLastError();
    free(device);
}

pp_status pp_cuda_alloc(struct pp_device *device, int64_t bytes, void **out)
{
    static const char doing[] = "clearing memory";
    const double gib = 1 << 30;
    size_t available = 0, total = 0;
    const size_t size = bytes > 0 ? (size_t)bytes : 1;
    *out = NULL;
    PP_TRY(pp_cuda_use(device));
    const cudaError_t error = cudaMalloc(out, size);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        *out = NULL;
        PP_CUDA(cudaMemGetInfo(&available, &total), "asking for the GPU's memory");
        return pp_fail(PP_NOMEM,
                       "a worker needs %.2f GiB, GPU %d has %.2f GiB left of %.2f: use more stages or GPUs, more "
                       "chunks, fewer rows or a smaller model",
                       (double)size / gib, device->place.gpu, (double)available / gib, (double)total / gib);
    }
    PP_CUDA(error, "taking memory");
    pp_status status = pp_cuda_check(cudaMemsetAsync(*out, 0, size, device->host), doing);
    if (status == PP_OK) status = finish(device, doing);
    if (status == PP_OK) return PP_OK;
    (void)cudaFree(*out);
    *out = NULL;
    return status;
}

int64_t pp_cuda_available_bytes(const struct pp_device_spec *spec)
{
    struct pp_cuda_place place;
    size_t available = 0, total = 0;
    if (pp_cuda_place(spec, &place) != PP_OK) return -1;
    if (cudaSetDevice(place.gpu) == cudaSuccess && cudaMemGetInfo(&available, &total) == cudaSuccess)
        return (int64_t)available;
    (void)cudaGetLastError();
    return -1;
}

void pp_cuda_release(struct pp_device *device, void *memory, int64_t bytes)
{
    (void)bytes;
    if (!memory) return;
    (void)cudaSetDevice(device->place.gpu);
    (void)cudaFree(memory);
}

/* Makes what follows in the stream of upload and download wait for what is in the compute queue. */
static pp_status after_compute(struct pp_device *device, const char *doing)
{
    PP_CUDA(cudaEventRecord(device->computed, device->compute.stream), doing);
    return pp_cuda_check(cudaStreamWaitEvent(device->host, device->computed, 0), doing);
}

static size_t piece_of(int64_t bytes) { return bytes < BOUNCE_BYTES ? (size_t)bytes : BOUNCE_BYTES; }

/* Copies by way of locked memory: a copy from pageable memory would block the driver for the other workers. */
pp_status pp_cuda_upload(struct pp_device *device, void *to, const void *from, int64_t bytes)
{
    static const char doing[] = "copying to the GPU";
    PP_TRY(after_compute(device, doing));
    for (int64_t at = 0; at < bytes; at += BOUNCE_BYTES) {
        const size_t piece = piece_of(bytes - at);
        memcpy(device->bounce, (const char *)from + at, piece);
        PP_CUDA(cudaMemcpyAsync((char *)to + at, device->bounce, piece, cudaMemcpyHostToDevice, device->host), doing);
        PP_TRY(finish(device, doing));
    }
    return PP_OK;
}

pp_status pp_cuda_download(struct pp_device *device, void *to, const void *from, int64_t bytes)
{
    static const char doing[] = "copying from the GPU";
    PP_TRY(after_compute(device, doing));
    for (int64_t at = 0; at < bytes; at += BOUNCE_BYTES) {
        const size_t piece = piece_of(bytes - at);
        PP_CUDA(cudaMemcpyAsync(device->bounce, (const char *)from + at, piece, cudaMemcpyDeviceToHost, device->host),
                doing);
        PP_TRY(finish(device, doing));
        memcpy((char *)to + at, device->bounce, piece);
    }
    return PP_OK;
}

pp_status pp_cuda_draw(struct pp_device *device, const struct pp_draw *draw, void *to, bool *drawn)
{
    static const char doing[] = "making initial weights";
    *drawn = draw->init != PP_INIT_NORMAL;
    if (!*drawn) return PP_OK;
    PP_TRY(after_compute(device, doing));
    PP_CUDA(pp_cuda_draw_values(device->host, to, draw), doing);
    return finish(device, doing);
}

const char *pp_cuda_describe(struct pp_device *device) { return device->text; }
bool pp_cuda_mixed(const struct pp_device *device) { return device->mixed; }
