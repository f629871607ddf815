/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices that work through queues of their own (GPUs): a call returns when the work is queued.
 *
 * A queue runs what is put into it in order; queues run beside each other. A mark is a point in a queue: record() puts
 * it there, wait() holds another queue back until the mark is reached. A wait sees only the record() that was called
 * before it, so host threads must order the two calls. Queues and marks of one worker may be waited for by others of
 * the same process, whatever their devices.
 *
 * Nothing here blocks the host but what says so, as long as a queue has room: a GPU's takes some 1000 kernels, copies,
 * records and waits. Into a full one a call blocks until there is room, and so may calls of other threads for the same
 * device: whoever issues ahead of the device bounds how far (exec/worker_queue.h). Nothing allocates device memory
 * after open. Every function returns the device's failures as they come up, also those of earlier work: PP_NOMEM,
 * PP_UNSUPPORTED, else PP_IO with the device's own words.
 */
#ifndef PP_CORE_QUEUE_H
#define PP_CORE_QUEUE_H

#include <stdio.h>

#include "core/program.h"

struct pp_queue; /* a CUDA stream */
struct pp_mark;  /* a CUDA event */

/* Tensors of the norm or of the optimizer's step that one launch on a GPU takes: as many as its parameters have room
 * for. Predictions count launches. */
enum { PP_CUDA_GROUP = 64 };

/* What one run of a task took. */
struct pp_run_time {
    int64_t device_ns; /* first kernel's start to last kernel's end, all of them queued before the first one started */
    int64_t host_ns;   /* the host's time to queue them */
};

/* n pieces of `bytes` bytes. Each begins to_stride behind the one before it in `to`, from_stride in `from`: strides are
 * at least `bytes`. */
struct pp_strided {
    void *to;
    const void *from;
    int64_t to_stride, from_stride; /* bytes */
    int64_t bytes, n;
};

struct pp_queue_ops {
    /* Makes the device the calling thread's. Once per thread that uses it, before anything else. */
    pp_status (*use)(struct pp_device *device);

    /* The queue in which run() computes; made and ended with the device. */
    struct pp_queue *(*compute)(struct pp_device *device);
    /* Another one, for a channel or a collective. */
    pp_status (*queue_create)(struct pp_device *device, struct pp_queue **out);
    void (*queue_destroy)(struct pp_device *device, struct pp_queue *queue);
    void *(*native)(struct pp_queue *queue); /* cudaStream_t */

    /* timed: may be given to elapsed(). A mark that was never recorded counts as reached. */
    pp_status (*mark_create)(struct pp_device *device, bool timed, struct pp_mark **out);
    void (*mark_destroy)(struct pp_device *device, struct pp_mark *mark);
    pp_status (*record)(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark);
    pp_status (*wait)(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark);
    /* Polls. Takes what launches of other threads may need too: not back to back. */
    pp_status (*reached)(struct pp_device *device, struct pp_mark *mark, bool *out);
    /* ns from one reached timed mark to another of the same device; may be negative. Resolution about 500 ns, and 24
     * bits of the distance: compare marks of one step, not of one run. */
    pp_status (*elapsed)(struct pp_device *device, struct pp_mark *from, struct pp_mark *to, int64_t *ns);

    /* Memory of the host that copies may use; zeroed. */
    pp_status (*host_alloc)(struct pp_device *device, int64_t bytes, void **out);
    void (*host_release)(struct pp_device *device, void *memory);
    /* Between memories of devices, and host_alloc's, in any direction. */
    pp_status (*copy)(struct pp_device *device, struct pp_queue *queue, void *to, const void *from, int64_t bytes);
    /* The same of pieces, which take the room of one copy in the queue where the device can copy at strides. */
    pp_status (*copy_strided)(struct pp_device *device, struct pp_queue *queue, const struct pp_strided *copies);

    /* Outside of steps, once for each program that run() will get: chooses what its products use and loads its kernels,
     * so that no step does. Blocks; the regions' addresses are not needed. */
    pp_status (*prepare)(struct pp_device *device, const struct pp_program *program);
    /* Room that run() takes in the compute queue, about: kernels. */
    int (*launches)(struct pp_device *device, const struct pp_program *program);
    /* Puts all calls into the compute queue. */
    pp_status (*run)(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame);
    /* to[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) ...: device memory, of other devices of the process too. `to`
     * may be one of the parts. parts: an array of the host, copied by the call; nparts <= PP_SUM_PARTS. type: enum
     * pp_sum_type. */
    pp_status (*sum)(struct pp_device *device, struct pp_queue *queue, void *to, const void *const *parts, int nparts,
                     int64_t elements, int type);
    /* n numbers of the device's memory: rounded to bfloat16 as core/bf16.h does it, or as float32 again. */
    pp_status (*narrow)(struct pp_device *device, struct pp_queue *queue, uint16_t *to, const float *from, int64_t n);
    pp_status (*widen)(struct pp_device *device, struct pp_queue *queue, float *to, const uint16_t *from, int64_t n);
    /* *factor = min(1, most / (sqrt(sums[0] + sums[1] + ...) + 1e-6)), added in this order; device memory. */
    pp_status (*clip_factor)(struct pp_device *device, struct pp_queue *queue, const double *sums, int n, double most,
                             float *factor);

    /* Blocks: runs the program once, for profiling, and leaves nothing of it running, also after a failure. Until
     * all of it is queued (host_ns) the device waits, and so its neighbours have less company than in training.
     * kernel_ns: NULL, or [ncalls] device times of the single calls (then out->device_ns is not meaningful, because
     * the marks between them cost time). */
    pp_status (*measure)(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                         struct pp_run_time *out, int64_t *kernel_ns);

    /* Outside of steps; NULL: there is nothing to choose from. Times by which algorithms each product of the program
     * can be computed, in this worker's share of the device, and writes the fastest of each to `out`: lines of a file
     * for pp_device_spec.algorithms, behind its head where nothing was written before. Products that the device's own
     * file has are passed over. *added counts the others. Blocks, and takes device memory for as long. */
    pp_status (*tune)(struct pp_device *device, const struct pp_program *program, FILE *out, int *added);

    /* Blocks: do the workers that share the device compute at the same time, each on a part of it? Work that fills a
     * part more than once, alone, against the same in all of their compute queues at once. PP_OK: they do, or there is
     * nobody to share with. PP_UNSUPPORTED: they do not, so times of this configuration are meaningless; the message
     * says what was seen. When all have opened their devices, and while none of them computes; any of them may ask, and
     * all get the same answer. */
    pp_status (*probe)(struct pp_device *device);

    /* Names what the host issues from here to pop(), for profilers (NVTX). No-ops where nobody listens. */
    void (*push_range)(const char *name);
    void (*pop_range)(void);
};

enum { PP_SUM_PARTS = 64 };

#endif
