/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs with times: runs that block until the program has ended, and measurements for a profile.
 */
#include <math.h>
#include <time.h>

#include "core/base/clock.h"
#include "kernels/cuda/device.h"

enum {
    HELD_KERNELS = 500,             /* launches queued behind a closed gate, at most: a stream has room for some 1000 */
    REFERENCE_CYCLES = 400000,      /* of the reference kernel: 0.2 ms at 1980 MHz */
    WARM_UP_CYCLES = 4000000,       /* of a piece of the warm-up: some 2 ms, long enough to see how fast the clock is */
    LONGEST_HOLD_CYCLES = 400000000 /* a gate opens by itself after so many: some 200 ms */
};

static const int64_t longest_rest_ns = INT64_C(5000000000);

/* A GPU that was idle runs at a fraction of its clock rate (an H100 at 345 MHz of 1980) until it has worked for a
 * while. So before the reference kernel the GPU works for warm_up_ns at least, until two pieces of work in succession
 * take equally long, and for longest_warm_up_ns at most. Afterwards it counts as warm for stays_warm_ns. */
static const int64_t warm_up_ns = 30000000, longest_warm_up_ns = 100000000, stays_warm_ns = 10000000;
static const double steady = 0.01; /* times that differ by less than this share are equal */

/* Closes the gate: queues a kernel that ends when the host opens the gate (gate.cu). What is queued behind it then runs
 * without gaps in which the device would wait for the host. It opens by itself after a while, so that no mistake can
 * close it for good. */
static pp_status close_gate(struct pp_device *device)
{
    return pp_cuda_check(
        pp_cuda_hold(device->compute.stream, (const unsigned *)device->gate, ++device->ticket, LONGEST_HOLD_CYCLES),
        "closing the gate");
}

static void open_gate(struct pp_device *device) { atomic_store(device->gate, device->ticket); }

/* The number n of intervals that are timed: of each call, or one of the whole program. The slot's events are 0 .. n. */
static int intervals(const struct pp_program *program, bool each)
{
    return each && program->ncalls > 0 ? program->ncalls : 1;
}

/* Queues the program with its events. each: an event also between calls. Opens the gate before the stream is full:
 * otherwise the host would block in a launch, waiting for a gate that only the host can open. (A program that was begun
 * before has its gate open, so it makes room.) */
static pp_status queue_timed(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                             int slot, bool each)
{
    const cudaStream_t stream = device->compute.stream;
    cudaEvent_t *times = device->times[slot].event;
    int64_t kernels = 0;
    PP_CUDA(cudaEventRecord(times[0], stream), "recording an event");
    for (int i = 0, n; i < program->ncalls; i += n) {
        n = each ? 1 : pp_cuda_group(program, i);
        kernels += pp_cuda_launches(&program->calls[i]) + each; /* an event takes a place, too */
        if (kernels > HELD_KERNELS) open_gate(device);
        PP_TRY(pp_cuda_queue_calls(device, &program->calls[i], n, frame));
        if (each && i + 1 < program->ncalls) PP_CUDA(cudaEventRecord(times[i + 1], stream), "recording an event");
    }
    return pp_cuda_check(cudaEventRecord(times[intervals(program, each)], stream), "recording an event");
}

static pp_status read_times(const cudaEvent_t *times, const struct pp_program *program, int64_t *kernel_ns)
{
    for (int i = 0; kernel_ns && i < program->ncalls; i++)
        PP_TRY(pp_cuda_between(times[i], times[i + 1], &kernel_ns[i]));
    return PP_OK;
}

pp_status pp_cuda_run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                      const struct pp_progress *progress, int64_t *kernel_ns)
{
    const int n = intervals(program, kernel_ns != NULL);
    PP_TRY(pp_cuda_make_times(device, 0, n + 1));
    PP_TRY(queue_timed(device, program, frame, 0, kernel_ns != NULL));
    PP_TRY(pp_cuda_poll(device->times[0].event[n], progress));
    return read_times(device->times[0].event, program, kernel_ns);
}

/* To be called after a failure: what is queued already uses the gate and the program's memory, which the caller may
 * release. Waits until it has ended, for longest_rest_ns at most, and clears CUDA's last error. */
static void rest(struct pp_device *device)
{
    const struct timespec nap = {.tv_nsec = 100 * 1000};
    const int64_t latest = pp_now_ns() + longest_rest_ns;
    while (cudaStreamQuery(device->compute.stream) == cudaErrorNotReady && pp_now_ns() < latest) nanosleep(&nap, NULL);
    (void)cudaGetLastError();
}

pp_status pp_cuda_measure_begin(struct pp_device *device, const struct pp_program *program,
                                const struct pp_frame *frame, int slot, bool each)
{
    pp_status status = pp_cuda_make_times(device, slot, intervals(program, each) + 1);
    if (status == PP_OK) status = close_gate(device);
    const int64_t before = pp_now_ns();
    if (status == PP_OK) status = queue_timed(device, program, frame, slot, each);
    device->times[slot].host_ns = pp_now_ns() - before;
    open_gate(device);
    if (status != PP_OK) rest(device);
    return status;
}

pp_status pp_cuda_measure_end(struct pp_device *device, const struct pp_program *program, int slot,
                              struct pp_run_time *out, int64_t *kernel_ns)
{
    const cudaEvent_t *times = device->times[slot].event;
    const int n = intervals(program, kernel_ns != NULL);
    pp_status status = pp_cuda_poll(times[n], NULL);
    out->host_ns = device->times[slot].host_ns;
    if (status == PP_OK) status = pp_cuda_between(times[0], times[n], &out->device_ns);
    if (status == PP_OK) status = read_times(times, program, kernel_ns);
    if (status != PP_OK) rest(device);
    return status;
}

static pp_status time_spin(struct pp_device *device, int64_t cycles, int64_t *ns)
{
    PP_TRY(pp_cuda_make_times(device, 0, 2));
    const cudaEvent_t *times = device->times[0].event;
    PP_CUDA(cudaEventRecord(times[0], device->compute.stream), "recording an event");
    PP_CUDA(pp_cuda_spin(device->compute.stream, 1, cycles), "the reference");
    PP_CUDA(cudaEventRecord(times[1], device->compute.stream), "recording an event");
    PP_TRY(pp_cuda_poll(times[1], NULL));
    return pp_cuda_between(times[0], times[1], ns);
}

/* warm_up_ns is a minimum because two pieces of work may also take equally long before the clock has begun to rise. */
static pp_status warm_up(struct pp_device *device)
{
    const int64_t start = pp_now_ns();
    int64_t before, ns = 0, taken = 0;
    while (taken < longest_warm_up_ns) {
        before = ns;
        PP_TRY(time_spin(device, WARM_UP_CYCLES, &ns));
        taken = pp_now_ns() - start;
        if (taken >= warm_up_ns && fabs((double)(ns - before)) <= steady * (double)ns) break;
    }
    return PP_OK;
}

static pp_status time_reference(struct pp_device *device, int64_t *ns)
{
    if (pp_now_ns() >= device->warm_ns) PP_TRY(warm_up(device));
    PP_TRY(time_spin(device, REFERENCE_CYCLES, ns));
    device->warm_ns = pp_now_ns() + stays_warm_ns;
    return PP_OK;
}

int64_t pp_cuda_reference_ns(struct pp_device *device)
{
    int64_t ns = 0;
    (void)time_reference(device, &ns);
    return ns;
}
