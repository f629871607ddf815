/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device offers to run programs: `cpu` always, `cuda` where it was built, `delay`, which only waits as long as
 * tasks take. The registry that finds a device by name is kernels/backend.h.
 */
#ifndef PP_CORE_MODEL_BACKEND_H
#define PP_CORE_MODEL_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/model/draw.h"
#include "core/model/program.h"

/* What a worker has open of a device; its members are the backend's. Each worker has its own, used by one thread. */
struct pp_device;

/* Called by run() between kernels, so that transfers progress while a program runs. */
struct pp_progress {
    void (*poll)(void *arg);
    void *arg;
    /* Polls until this time of pp_now_ns(), asleep while nothing comes in; earlier if the run is to end. For devices
     * that wait; else NULL. */
    void (*wait)(void *arg, int64_t until_ns);
};

/* Which device a worker opens. */
struct pp_device_spec {
    int worker, workers;       /* index in the process; workers of the process in this configuration */
    int host_index, on_host;   /* the process among those of its host; 0 of 1 where there is only one */
    int threads;               /* of BLAS */
    int gpus;                  /* --gpus: devices of the host that may be used; 0 = all there are */
    int precision;             /* enum pp_precision */
    bool (*interrupted)(void); /* long work that is not run() ends early when it says so: PP_INTERRUPTED. NULL: never */
    const char *algorithms;    /* --algorithms: a file that says how products are computed; NULL: none */
};

struct pp_queue_ops;

struct pp_backend {
    const char *name, *summary;
    /* NULL: the device computes while run() is called, in memory that the host can read. Else it works through queues
     * (core/model/queue.h). */
    const struct pp_queue_ops *queue;
    bool waits; /* computes nothing: run() takes the time of frame->wait */
    /* Can this machine use it? PP_UNSUPPORTED with a message that says in one line what is missing. NULL: always. */
    pp_status (*available)(void);
    /* Once it was chosen, before other threads use it: what may not run beside them. NULL: there is nothing. */
    pp_status (*prepare)(void);
    /* Workers of one host that share the worker's device, itself included; 1: it has a device to itself. NULL: 1.
     * Devices are given out in order: successive workers of the host share one. */
    int (*sharers)(const struct pp_device_spec *spec);
    pp_status (*open)(const struct pp_device_spec *spec, struct pp_device **out);
    void (*close)(struct pp_device *device);
    /* Memory of the device; zeroed. Page-faulted in by this call, so that no step pays for it, unless the device
     * waits. upload and download return when the bytes are there. */
    pp_status (*alloc)(struct pp_device *device, int64_t bytes, void **out);
    void (*release)(struct pp_device *device, void *memory, int64_t bytes);
    /* What alloc() could still hand out to all workers together that share the memory of the worker's device; -1: not
     * known. NULL: never known. */
    int64_t (*available_bytes)(const struct pp_device_spec *spec);
    pp_status (*upload)(struct pp_device *device, void *to, const void *from, int64_t bytes);
    pp_status (*download)(struct pp_device *device, void *to, const void *from, int64_t bytes);
    /* Writes initial values to the device's memory at `to`, with the bits that the host would make, and returns when
     * they are there. *drawn = false: it has written nothing, for it cannot make this kind with the same bits; then the
     * host does. NULL: it makes none. */
    pp_status (*draw)(struct pp_device *device, const struct pp_draw *draw, void *to, bool *drawn);
    /* Runs all calls, and returns when they have run. kernel_ns: NULL, or [ncalls] durations to fill in. progress:
     * NULL, or polled after each call. */
    pp_status (*run)(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                     const struct pp_progress *progress, int64_t *kernel_ns);
    /* to[i] = a[i] + b[i]: gradient reduction. NULL with queues, which have their own sums. */
    void (*add)(struct pp_device *device, float *to, const float *a, const float *b, int64_t n);
    /* "OpenBLAS 0.3.21 SkylakeX, avx512 kernels": for run headers. Beside the accumulation key, equal bits need
     * equal texts here. */
    const char *(*describe)(struct pp_device *device);
    /* Of the first worker of a process: do others compute on another kind of device, with other bits? NULL: never. */
    bool (*mixed)(const struct pp_device *device);
    /* A fixed piece of register-only work (a few hundred microseconds); its duration in ns. Brackets profiles and
     * runs. A GPU that may have been idle works for some 30 ms before. */
    int64_t (*reference_ns)(struct pp_device *device);
};

#endif
