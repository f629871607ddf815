/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#if PP_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#include "core/base/clock.h"
#include "kernels/cuda/device.h"

enum { LOOK_NS = 3000 /* a polling thread looks at the device every so many ns */ };

pp_status pp_cuda_use(struct pp_device *device)
{
    return pp_cuda_check(cudaSetDevice(device->place.gpu), "taking the GPU");
}

struct pp_queue *pp_cuda_compute(struct pp_device *device) { return &device->compute; }

/* These queues have transfers, for which other workers wait: their stream has a higher priority than the compute
 * queue's. */
pp_status pp_cuda_queue_create(struct pp_device *device, struct pp_queue **out)
{
    PP_TRY(PP_NEW(out, 1));
    pp_status status = pp_cuda_use(device);
    if (status == PP_OK) status = pp_cuda_stream(&device->share, true, &(*out)->stream);
    if (status == PP_OK) return PP_OK;
    free(*out);
    *out = NULL;
    return status;
}

void pp_cuda_queue_destroy(struct pp_device *device, struct pp_queue *queue)
{
    (void)device;
    if (!queue) return;
    (void)cudaStreamDestroy(queue->stream);
    free(queue);
}

void *pp_cuda_native(struct pp_queue *queue) { return queue->stream; }

pp_status pp_cuda_mark_create(struct pp_device *device, bool timed, struct pp_mark **out)
{
    const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    PP_TRY(PP_NEW(out, 1));
    pp_status status = pp_cuda_use(device);
    if (status == PP_OK) status = pp_cuda_event(&device->share, flags, &(*out)->event);
    if (status == PP_OK) return PP_OK;
    free(*out);
    *out = NULL;
    return status;
}

void pp_cuda_mark_destroy(struct pp_device *device, struct pp_mark *mark)
{
    (void)device;
    if (!mark) return;
    (void)cudaEventDestroy(mark->event);
    free(mark);
}

pp_status pp_cuda_record(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark)
{
    (void)device;
    return pp_cuda_check(cudaEventRecord(mark->event, queue->stream), "recording an event");
}

pp_status pp_cuda_wait(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark)
{
    (void)device;
    return pp_cuda_check(cudaStreamWaitEvent(queue->stream, mark->event, 0), "waiting for an event");
}

static pp_status reached(cudaEvent_t event, bool *out)
{
    const cudaError_t error = cudaEventQuery(event);
    *out = error == cudaSuccess;
    if (error != cudaErrorNotReady) return pp_cuda_check(error, "work on the GPU");
    (void)cudaGetLastError(); /* clears cudaErrorNotReady, which the next launch would report */
    return PP_OK;
}

pp_status pp_cuda_reached(struct pp_device *device, struct pp_mark *mark, bool *out)
{
    (void)device;
    return reached(mark->event, out);
}

/* Looks are kept apart because each takes a lock of the driver that launches of other threads need, too. */
void pp_cuda_pause(void)
{
    const int64_t start = pp_now_ns();
    do sched_yield();
    while (pp_now_ns() - start < LOOK_NS);
}

pp_status pp_cuda_poll(cudaEvent_t event, const struct pp_progress *progress)
{
    bool done = false;
    for (;;) {
        PP_TRY(reached(event, &done));
        if (done) return PP_OK;
        if (progress) progress->poll(progress->arg);
        pp_cuda_pause();
    }
}

pp_status pp_cuda_between(cudaEvent_t from, cudaEvent_t to, int64_t *ns)
{
    float ms = 0;
    PP_CUDA(cudaEventElapsedTime(&ms, from, to), "reading the time between events");
    *ns = llround((double)ms * 1e6);
    return PP_OK;
}

pp_status pp_cuda_elapsed(struct pp_device *device, struct pp_mark *from, struct pp_mark *to, int64_t *ns)
{
    (void)device;
    return pp_cuda_between(from->event, to->event, ns);
}

pp_status pp_cuda_make_times(struct pp_device *device, int slot, int n)
{
    struct pp_cuda_times *times = &device->times[slot];
    PP_TRY(PP_GROW(&times->event, n, &times->room));
    for (; times->n < n; times->n++)
        PP_TRY(pp_cuda_event(&device->share, cudaEventDefault, &times->event[times->n]));
    return PP_OK;
}

pp_status pp_cuda_host_alloc(struct pp_device *device, int64_t bytes, void **out)
{
    const size_t size = bytes > 0 ? (size_t)bytes : 1;
    (void)device;
    *out = NULL;
    const cudaError_t error = cudaHostAlloc(out, size, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        *out = NULL;
        return pp_fail(PP_NOMEM, "cannot lock %.2f GiB of the host's memory for copies", (double)size / (1 << 30));
    }
    PP_CUDA(error, "taking host memory");
    memset(*out, 0, size);
    return PP_OK;
}

void pp_cuda_host_release(struct pp_device *device, void *memory)
{
    (void)device;
    if (memory) (void)cudaFreeHost(memory);
}

pp_status pp_cuda_queue_copy(struct pp_device *device, struct pp_queue *queue, void *to, const void *from,
                             int64_t bytes)
{
    (void)device;
    return pp_cuda_check(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, queue->stream), "copying");
}

/* One copy for all pieces, or a copy for each where cudaMemcpy2DAsync is not used: for strides from 2 GiB on, which it
 * does not take (so few pieces of that size fit into a GPU that single copies cost nothing), and where the memory of
 * some GPU cannot be accessed, so that a copy may go through the host. */
pp_status pp_cuda_queue_copy_strided(struct pp_device *device, struct pp_queue *queue, const struct pp_strided *copies)
{
    const struct pp_strided c = *copies;
    const int64_t stride = c.to_stride > c.from_stride ? c.to_stride : c.from_stride;
    if (c.n > 1 && stride <= INT32_MAX && !device->blind)
        return pp_cuda_check(cudaMemcpy2DAsync(c.to, (size_t)c.to_stride, c.from, (size_t)c.from_stride,
                                               (size_t)c.bytes, (size_t)c.n, cudaMemcpyDefault, queue->stream),
                             "copying pieces");
    for (int64_t i = 0; i < c.n; i++)
        PP_TRY(pp_cuda_queue_copy(device, queue, (char *)c.to + i * c.to_stride,
                                  (const char *)c.from + i * c.from_stride, c.bytes));
    return PP_OK;
}

#if PP_HAVE_NVTX
void pp_cuda_push_range(const char *name) { nvtxRangePushA(name); }
void pp_cuda_pop_range(void) { nvtxRangePop(); }
#else
void pp_cuda_push_range(const char *name) { (void)name; }
void pp_cuda_pop_range(void) {}
#endif
