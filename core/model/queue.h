/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue devices (GPUs): devices that work through queues of their own. A call returns when the work is queued.
 *
 * A queue runs its work in order; different queues run at the same time. A mark is a point in a queue: record() puts it
 * there, and wait() makes another queue wait until the mark is reached. A wait() sees only a record() that was called
 * before it, so host threads must order the two calls. Workers of one process may wait for each other's marks, whatever
 * their devices.
 *
 * Functions do not block the host, unless their comment says so, while the queue has room: a GPU's queue takes some
 * 1000 kernels, copies, records and waits. If it is full, the call blocks until there is room, and so may calls of
 * other threads for the same device. So whoever issues work ahead of the device limits how far (exec/worker_queue.h).
 *
 * Nothing allocates device memory after open(). Every function returns failures of the device when they show, also
 * those of earlier work: PP_NOMEM, PP_UNSUPPORTED, else PP_IO with the device's own words.
 */
#ifndef PP_CORE_MODEL_QUEUE_H
#define PP_CORE_MODEL_QUEUE_H

#include <stdio.h>

#include "core/model/backend.h"

struct pp_queue; /* a CUDA stream */
struct pp_mark;  /* a CUDA event */

/* Tensors that one launch of the norm or of the optimizer's step on a GPU handles: as many as fit into the kernel's
 * parameters. Predictions count launches. */
enum { PP_CUDA_GROUP = 64 };

enum { PP_MEASURED = 2 }; /* programs that may be measured at a time */

/* Times of one measured run of a task. */
struct pp_run_time {
    int64_t device_ns; /* start of the first kernel to end of the last one; all were queued before the first started */
    int64_t host_ns;   /* the host's time to queue them */
};

/* A copy of n pieces of `bytes` bytes each. Successive pieces begin to_stride bytes apart in `to`, and from_stride
 * bytes apart in `from`; both strides are at least `bytes`. */
struct pp_strided {
    void *to;
    const void *from;
    int64_t to_stride, from_stride; /* bytes */
    int64_t bytes, n;
};

struct pp_queue_ops {
    /* Makes the device the current one of the calling thread. Each thread that uses a device calls it once, first. */
    pp_status (*use)(struct pp_device *device);

    /* The queue in which run() computes. It is created and destroyed with the device. */
    struct pp_queue *(*compute)(struct pp_device *device);
    /* Creates another queue, for a channel or a collective. */
    pp_status (*queue_create)(struct pp_device *device, struct pp_queue **out);
    void (*queue_destroy)(struct pp_device *device, struct pp_queue *queue);
    void *(*native)(struct pp_queue *queue); /* cudaStream_t */

    /* timed: the mark can be given to elapsed(). A mark that was never recorded counts as reached. */
    pp_status (*mark_create)(struct pp_device *device, bool timed, struct pp_mark **out);
    void (*mark_destroy)(struct pp_device *device, struct pp_mark *mark);
    pp_status (*record)(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark);
    pp_status (*wait)(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark);
    /* Has the mark been reached? Polling may hold up launches of other threads: do not poll in a tight loop. */
    pp_status (*reached)(struct pp_device *device, struct pp_mark *mark, bool *out);
    /* ns from one reached timed mark to another of the same device; may be negative. The resolution is about 500 ns,
     * and the result has 24 significant bits: compare marks of one step, not of a whole run. */
    pp_status (*elapsed)(struct pp_device *device, struct pp_mark *from, struct pp_mark *to, int64_t *ns);

    /* Host memory that copies can use; zeroed. */
    pp_status (*host_alloc)(struct pp_device *device, int64_t bytes, void **out);
    void (*host_release)(struct pp_device *device, void *memory);
    /* Copies between memory of devices and memory of host_alloc(), in any direction. */
    pp_status (*copy)(struct pp_device *device, struct pp_queue *queue, void *to, const void *from, int64_t bytes);
    /* Copies pieces. They take the room of one copy in the queue if the device can copy with strides. */
    pp_status (*copy_strided)(struct pp_device *device, struct pp_queue *queue, const struct pp_strided *copies);

    /* Called outside of steps, once for each program that run() will get: chooses the algorithms of its products and
     * loads its kernels, so that no step has to. Blocks. It does not need the addresses of the regions. */
    pp_status (*prepare)(struct pp_device *device, const struct pp_program *program);
    /* About how many kernels run() puts into the compute queue. */
    int (*launches)(struct pp_device *device, const struct pp_program *program);
    /* Puts all calls of the program into the compute queue. */
    pp_status (*run)(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame);
    /* to[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) ..., in device memory; parts may be memory of other devices
     * of the process, and `to` may be one of the parts. parts: an array in host memory, which the call copies; nparts
     * <= PP_SUM_PARTS. type: enum pp_sum_type. */
    pp_status (*sum)(struct pp_device *device, struct pp_queue *queue, void *to, const void *const *parts, int nparts,
                     int64_t elements, int type);
    /* Converts n numbers in device memory from float32 to bfloat16, rounded as in core/calls/bf16.h, or back. */
    pp_status (*narrow)(struct pp_device *device, struct pp_queue *queue, uint16_t *to, const float *from, int64_t n);
    pp_status (*widen)(struct pp_device *device, struct pp_queue *queue, float *to, const uint16_t *from, int64_t n);
    /* *factor = min(1, most / (sqrt(sums[0] + sums[1] + ...) + 1e-6)), added in this order. sums and factor are device
     * memory. */
    pp_status (*clip_factor)(struct pp_device *device, struct pp_queue *queue, const double *sums, int n, double most,
                             float *factor);

    /* Queues the program once, for profiling. The device begins it when all of it is queued. If that is done while
     * another program runs, which was begun with another slot, the device does not rest between the two: workers that
     * share it are slowed down as in training. slot: 0 .. PP_MEASURED-1; each begin has its end before the slot's next
     * begin, and programs are ended in the order of their begins. each: marks also between the calls. A failure leaves
     * nothing running. */
    pp_status (*measure_begin)(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                               int slot, bool each);
    /* Blocks until the program has ended. kernel_ns: [ncalls] device times of the single calls, with `each` (then
     * out->device_ns means nothing, because the marks between the calls cost time), else NULL. */
    pp_status (*measure_end)(struct pp_device *device, const struct pp_program *program, int slot,
                             struct pp_run_time *out, int64_t *kernel_ns);

    /* Called outside of steps: for each product of the program, times the algorithms that can compute it, in this
     * worker's share of the device, and writes the fastest one to `out`, as a line of a file for
     * pp_device_spec.algorithms (after the head of such a file, if `out` is empty). Products that the file of
     * pp_device_spec.algorithms has already are left out; *added counts the others. Blocks, and takes device memory
     * meanwhile. NULL: the device has no choice of algorithms. */
    pp_status (*tune)(struct pp_device *device, const struct pp_program *program, FILE *out, int *added);

    /* Do the workers that share the device compute at the same time, each on a part of it? It compares the time of some
     * work in one worker's compute queue with that of the same work in the queues of all workers at once; the work
     * fills a part more than once. Blocks. PP_OK: they do, or no others share the device. PP_UNSUPPORTED: they do not,
     * so times of this configuration mean nothing; the message has the measured times. Call it when all workers have
     * opened their devices, and while none computes; any of them may ask, and all get the same answer. */
    pp_status (*probe)(struct pp_device *device);

    /* Name the calls that the host issues between push_range() and pop_range(), for profilers (NVTX). They do nothing
     * without a profiler. */
    void (*push_range)(const char *name);
    void (*pop_range)(void);
};

enum { PP_SUM_PARTS = 64 }; /* most parts of one sum() */

#endif
