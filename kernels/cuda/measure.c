/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs with times: runs that block, and profiling.
 */
#include <time.h>

#include "core/clock.h"
#include "kernels/cuda/device.h"

enum {
    HELD_KERNELS = 500, /* that may pile up behind a closed gate: the GPU's queue has room for some 1000 */
    REFERENCE_CYCLES = 400000,
    LONGEST_HOLD_CYCLES = 400000000 /* some 200 ms */
};

static const int64_t longest_rest_ns = INT64_C(5000000000);

/* The gate: a kernel that waits until the host has queued what is to run without gaps. It opens by itself after a
 * while, so that no mistake can close it for good. */
static pp_status close_gate(struct pp_device *device)
{
    return pp_cuda_check(
        pp_cuda_hold(device->compute.stream, (const unsigned *)device->gate, ++device->ticket, LONGEST_HOLD_CYCLES),
        "closing the gate");
}

static void open_gate(struct pp_device *device) { atomic_store(device->gate, device->ticket); }

/* Events around the program, or also between its calls: device->times[0..n]; n is returned. */
static int intervals(const struct pp_program *program, const int64_t *kernel_ns)
{
    return kernel_ns && program->ncalls > 0 ? program->ncalls : 1;
}

/* The gate opens before the queue is full: the host would wait in a launch, for itself. */
static pp_status queue_timed(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                             bool each)
{
    const cudaStream_t stream = device->compute.stream;
    int64_t kernels = 0;
    PP_CUDA(cudaEventRecord(device->times[0], stream), "recording an event");
    for (int i = 0, n; i < program->ncalls; i += n) {
        n = each ? 1 : pp_cuda_group(program, i);
        kernels += pp_cuda_launches(&program->calls[i]) + each; /* and the event */
        if (kernels > HELD_KERNELS) open_gate(device);
        PP_TRY(pp_cuda_queue_calls(device, &program->calls[i], n, frame));
        if (each && i + 1 < program->ncalls)
            PP_CUDA(cudaEventRecord(device->times[i + 1], stream), "recording an event");
    }
    return pp_cuda_check(cudaEventRecord(device->times[each && program->ncalls > 0 ? program->ncalls : 1], stream),
                         "recording an event");
}

static pp_status read_times(struct pp_device *device, const struct pp_program *program, int64_t *kernel_ns)
{
    for (int i = 0; kernel_ns && i < program->ncalls; i++)
        PP_TRY(pp_cuda_between(device->times[i], device->times[i + 1], &kernel_ns[i]));
    return PP_OK;
}

pp_status pp_cuda_run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                      const struct pp_progress *progress, int64_t *kernel_ns)
{
    const int n = intervals(program, kernel_ns);
    PP_TRY(pp_cuda_times(device, n + 1));
    PP_TRY(queue_timed(device, program, frame, kernel_ns != NULL));
    PP_TRY(pp_cuda_poll(device->times[n], progress));
    return read_times(device, program, kernel_ns);
}

/* After a failure: what was queued before it uses the gate and the program's memory, which the caller may release.
 * Waits until it has ended, some seconds at most; keeps no failure. */
static void rest(struct pp_device *device)
{
    const struct timespec nap = {.tv_nsec = 100 * 1000};
    const int64_t latest = pp_now_ns() + longest_rest_ns;
    while (cudaStreamQuery(device->compute.stream) == cudaErrorNotReady && pp_now_ns() < latest) nanosleep(&nap, NULL);
    (void)cudaGetLastError();
}

pp_status pp_cuda_measure(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                          struct pp_run_time *out, int64_t *kernel_ns)
{
    const int n = intervals(program, kernel_ns);
    PP_TRY(pp_cuda_times(device, n + 1));
    PP_TRY(close_gate(device));
    const int64_t before = pp_now_ns();
    const pp_status status = queue_timed(device, program, frame, kernel_ns != NULL);
    out->host_ns = pp_now_ns() - before;
    open_gate(device);
    if (status != PP_OK) rest(device);
    PP_TRY(status);
    PP_TRY(pp_cuda_poll(device->times[n], NULL));
    PP_TRY(pp_cuda_between(device->times[0], device->times[n], &out->device_ns));
    return read_times(device, program, kernel_ns);
}

static pp_status time_reference(struct pp_device *device, int64_t *ns)
{
    PP_TRY(pp_cuda_times(device, 2));
    PP_CUDA(cudaEventRecord(device->times[0], device->compute.stream), "recording an event");
    PP_CUDA(pp_cuda_spin(device->compute.stream, 1, REFERENCE_CYCLES), "the reference");
    PP_CUDA(cudaEventRecord(device->times[1], device->compute.stream), "recording an event");
    PP_TRY(pp_cuda_poll(device->times[1], NULL));
    return pp_cuda_between(device->times[0], device->times[1], ns);
}

int64_t pp_cuda_reference_ns(struct pp_device *device)
{
    int64_t ns = 0;
    (void)time_reference(device, &ns);
    return ns;
}
