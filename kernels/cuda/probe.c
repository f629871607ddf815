/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "core/base/clock.h"
#include "kernels/cuda/device.h"

/* The probe asks whether workers that share a GPU compute at the same time, each on its own part of the
 * multiprocessors. Its work: blocks that only wait for PROBE_CYCLES cycles (some milliseconds; a launch is short beside
 * that), WAVES times as many as the share's multiprocessors can hold. On a share it takes WAVES * PROBE_CYCLES,
 * whatever the others do. A stream that may use the whole GPU ends earlier when it is alone, and streams that take
 * turns end later when all work: either changes the ratio of both times by a factor of two or more. */
enum { WAVES = 2, PROBE_CYCLES = 10000000, TRIES = 5 };

static const double most_slowdown = 1.5; /* of work beside that of all others */

/* The open devices of this process on each GPU, and the times that the probe measured. */
static struct gpu {
    struct pp_device *member[PP_CUDA_SHARES];
    int members;
    double alone_ms, together_ms; /* 0: not measured since a device joined or left */
} gpus[PP_CUDA_GPUS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void pp_cuda_probe_join(struct pp_device *device)
{
    struct gpu *gpu = &gpus[device->place.gpu];
    pthread_mutex_lock(&lock);
    if (!gpu->member[device->place.index]) gpu->members++;
    gpu->member[device->place.index] = device;
    gpu->alone_ms = gpu->together_ms = 0;
    pthread_mutex_unlock(&lock);
}

void pp_cuda_probe_leave(struct pp_device *device)
{
    struct gpu *gpu = &gpus[device->place.gpu];
    pthread_mutex_lock(&lock);
    if (gpu->member[device->place.index] == device) {
        gpu->member[device->place.index] = NULL;
        gpu->members--;
        gpu->alone_ms = gpu->together_ms = 0;
    }
    pthread_mutex_unlock(&lock);
}

static pp_status wait_for(cudaStream_t stream)
{
    for (;;) {
        const cudaError_t error = cudaStreamQuery(stream);
        if (error != cudaErrorNotReady) return pp_cuda_check(error, "the probe");
        (void)cudaGetLastError();
        pp_cuda_pause();
    }
}

static pp_status start_work(const struct pp_device *device)
{
    int blocks = 0;
    PP_CUDA(cudaDeviceGetAttribute(&blocks, cudaDevAttrMaxBlocksPerMultiprocessor, device->place.gpu),
            "asking for the room of a multiprocessor");
    blocks *= WAVES * device->share.sms;
    return pp_cuda_check(pp_cuda_spin(device->compute.stream, blocks, PROBE_CYCLES), "the probe");
}

/* Runs the work in the compute queues of the first n members at once, TRIES times. *best_ms becomes the least time of
 * these and, unless it was 0, of the value that it had. Times are by the host's clock, for events of different shares
 * need not have a common one. */
static pp_status time_members(struct pp_device *const *member, int n, double *best_ms)
{
    for (int attempt = 0; attempt < TRIES; attempt++) {
        const int64_t start = pp_now_ns();
        for (int i = 0; i < n; i++) PP_TRY(start_work(member[i]));
        for (int i = 0; i < n; i++) PP_TRY(wait_for(member[i]->compute.stream));
        const double ms = (double)(pp_now_ns() - start) * 1e-6;
        if (*best_ms == 0 || ms < *best_ms) *best_ms = ms;
    }
    return PP_OK;
}

/* Measures one device alone, all together, and one alone again: if the clock of an idle GPU rose only after the first
 * measurement, that one would be too long, and workers that take turns would not be noticed. */
static pp_status time_work(struct gpu *gpu, int sharing)
{
    double alone_ms = 0, together_ms = 0;
    PP_TRY(time_members(gpu->member, 1, &alone_ms));
    PP_TRY(time_members(gpu->member, sharing, &together_ms));
    PP_TRY(time_members(gpu->member, 1, &alone_ms));
    gpu->alone_ms = alone_ms;
    gpu->together_ms = together_ms;
    return PP_OK;
}

static pp_status probe(struct gpu *gpu, const struct pp_cuda_place *place)
{
    if (gpu->members < place->sharing)
        return pp_fail(PP_INTERNAL, "GPU %d is probed before its %d workers are open", place->gpu, place->sharing);
    for (int i = 0; i < place->sharing; i++) {
        const char *why = gpu->member[i]->share.none;
        if (*why) return pp_fail(PP_UNSUPPORTED, "%s, so times would be meaningless", why);
    }
    if (gpu->together_ms == 0) PP_TRY(time_work(gpu, place->sharing));
    if (gpu->together_ms > most_slowdown * gpu->alone_ms)
        return pp_fail(
            PP_UNSUPPORTED,
            "the %d workers on GPU %d do not compute at the same time (what takes %.2f ms alone takes %.2f ms "
            "beside the others), so times would be meaningless",
            place->sharing, place->gpu, gpu->alone_ms, gpu->together_ms);
    return PP_OK;
}

pp_status pp_cuda_probe(struct pp_device *device)
{
    const struct pp_cuda_place *place = &device->place;
    if (place->workers == 1) return PP_OK;
    if (*device->share.none) return pp_fail(PP_UNSUPPORTED, "%s, so times would be meaningless", device->share.none);
    pthread_mutex_lock(&lock);
    const pp_status status = probe(&gpus[place->gpu], place);
    pthread_mutex_unlock(&lock);
    return status;
}
