/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of the backend `cuda`: which GPU a worker gets, its share of it, its queues.
 *
 * All workers of a process compute in the primary context of their GPU; the driver is reached through the runtime, so
 * that nothing links it. Where they share a GPU, each has a green context of its own, of which only the streams are
 * used, and events: what runs in them keeps to the share's multiprocessors.
 */
#ifndef PP_KERNELS_CUDA_DEVICE_H
#define PP_KERNELS_CUDA_DEVICE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>

#include "core/queue.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"

/* At most so many GPUs of a host, and so many workers of a process on one. */
enum { PP_CUDA_GPUS = 64, PP_CUDA_SHARES = 64 };

/* ---- errors (error.c) ---- */

/* PP_OK, or a message "cuda: <doing>: <CUDA's words>". */
pp_status pp_cuda_check(cudaError_t error, const char *doing);
#define PP_CUDA(call, doing) PP_TRY(pp_cuda_check((call), (doing)))
/* Of the driver's functions; its numbers are those of the runtime. */
#define PP_CUDA_DRIVER(call, doing) PP_TRY(pp_cuda_check((cudaError_t)(call), (doing)))

/* ---- the host's GPUs (host.c) ---- */

/* Where a worker computes. */
struct pp_cuda_place {
    int gpu;
    int first_gpu, last_gpu; /* that workers of this process use */
    int workers;             /* of the host, on this GPU */
    int index, sharing;      /* the worker among those of this process on this GPU */
};

pp_status pp_cuda_available(void);
pp_status pp_cuda_place(const struct pp_device_spec *spec, struct pp_cuda_place *out) PP_MUST_CHECK;
int pp_cuda_sharers(const struct pp_device_spec *spec);

/* ---- a worker's share of the multiprocessors (share.c) ---- */

struct pp_cuda_share {
    CUgreenCtx context; /* NULL: all of the GPU */
    CUcontext inside;   /* the same, in which its events are made; NULL: they are as all others */
    int sms;
    char none[256]; /* why workers that share the GPU have no shares; "" otherwise */
};

/* gpu_sms: of the whole GPU, which must be the thread's. No failure of the driver is one of this: the share is all of
 * the GPU then, and `none` says why. */
pp_status pp_cuda_share_open(const struct pp_cuda_place *place, int gpu_sms, struct pp_cuda_share *out) PP_MUST_CHECK;
void pp_cuda_share_close(const struct pp_cuda_place *place, struct pp_cuda_share *share);
/* The share's streams do not take its events, which are made inside it at first: from here on these are as all others
 * or, where that was tried already, the share is closed and `none` says why. Its streams and events must be gone. */
void pp_cuda_share_refuse_events(const struct pp_cuda_place *place, int gpu_sms, struct pp_cuda_share *share);
/* urgent: goes before the others where both could run. */
pp_status pp_cuda_stream(const struct pp_cuda_share *share, bool urgent, cudaStream_t *out) PP_MUST_CHECK;
/* That the share's streams record, on the thread's GPU; by one thread of a share at a time. flags: CUDA's. */
pp_status pp_cuda_event(const struct pp_cuda_share *share, unsigned flags, cudaEvent_t *out) PP_MUST_CHECK;

/* ---- a worker's device (device.c) ---- */

struct pp_queue {
    cudaStream_t stream;
};

struct pp_mark {
    cudaEvent_t event;
};

struct pp_device {
    struct pp_cuda_place place;
    struct pp_cuda_share share;
    struct pp_queue compute;
    cudaStream_t host;    /* of upload, download, alloc */
    cudaEvent_t computed; /* what they wait for */
    void *bounce;         /* locked host memory of theirs */
    bool blind;           /* some GPU of the process cannot be read from this one */
    void *scratch;
    int64_t scratch_bytes;
    struct pp_cuda_gemm *gemm;
    cudaEvent_t *times; /* timed; grown by pp_cuda_times */
    int64_t times_room;
    int ntimes;
    int64_t warm_ns;   /* until then the reference kernel finds a GPU that has worked enough */
    atomic_uint *gate; /* of measure.c, in locked host memory: the last ticket that was let through */
    unsigned ticket;   /* the last one that was drawn */
    char text[640];
};

pp_status pp_cuda_open(const struct pp_device_spec *spec, struct pp_device **out);
void pp_cuda_close(struct pp_device *device);
pp_status pp_cuda_alloc(struct pp_device *device, int64_t bytes, void **out);
void pp_cuda_release(struct pp_device *device, void *memory, int64_t bytes);
/* After what is in the compute queue. */
pp_status pp_cuda_upload(struct pp_device *device, void *to, const void *from, int64_t bytes);
pp_status pp_cuda_download(struct pp_device *device, void *to, const void *from, int64_t bytes);
const char *pp_cuda_describe(struct pp_device *device);

/* ---- queues and marks (queue.c); contracts: core/queue.h ---- */

pp_status pp_cuda_use(struct pp_device *device);
struct pp_queue *pp_cuda_compute(struct pp_device *device);
pp_status pp_cuda_queue_create(struct pp_device *device, struct pp_queue **out);
void pp_cuda_queue_destroy(struct pp_device *device, struct pp_queue *queue);
void *pp_cuda_native(struct pp_queue *queue);
pp_status pp_cuda_mark_create(struct pp_device *device, bool timed, struct pp_mark **out);
void pp_cuda_mark_destroy(struct pp_device *device, struct pp_mark *mark);
pp_status pp_cuda_record(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark);
pp_status pp_cuda_wait(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark);
pp_status pp_cuda_reached(struct pp_device *device, struct pp_mark *mark, bool *out);
pp_status pp_cuda_elapsed(struct pp_device *device, struct pp_mark *from, struct pp_mark *to, int64_t *ns);
pp_status pp_cuda_host_alloc(struct pp_device *device, int64_t bytes, void **out);
void pp_cuda_host_release(struct pp_device *device, void *memory);
pp_status pp_cuda_queue_copy(struct pp_device *device, struct pp_queue *queue, void *to, const void *from,
                             int64_t bytes);
pp_status pp_cuda_queue_copy_strided(struct pp_device *device, struct pp_queue *queue, const struct pp_strided *copies);
void pp_cuda_push_range(const char *name);
void pp_cuda_pop_range(void);

/* Blocks, by polling, so that a failing device is noticed. progress: NULL, or polled meanwhile. */
pp_status pp_cuda_poll(cudaEvent_t event, const struct pp_progress *progress);
/* Between two looks at the device: some microseconds. */
void pp_cuda_pause(void);
/* ns between two reached events. */
pp_status pp_cuda_between(cudaEvent_t from, cudaEvent_t to, int64_t *ns);
/* At least n of device->times. */
pp_status pp_cuda_times(struct pp_device *device, int n);

/* ---- programs (run.c) ---- */

/* How many calls from the first-th on a run queues at once: 1, or those that are one launch. */
int pp_cuda_group(const struct pp_program *program, int first);
/* One call, or n that pp_cuda_group() allows. */
pp_status pp_cuda_queue_calls(const struct pp_device *device, const struct pp_call *calls, int n,
                              const struct pp_frame *frame);
/* Launches of a call (launches.c): of attention that stores no scores exactly, of others about, and rather too many. */
int pp_cuda_launches(const struct pp_call *call);
/* Bytes of scratch of a call (launches.c). Its shape alone decides, not what other calls need: equal calls have equal
 * bits. */
int64_t pp_cuda_scratch_bytes(const struct pp_call *call);
int pp_cuda_queue_launches(struct pp_device *device, const struct pp_program *program);
/* Waits for the device where a call needs more scratch than any before. */
pp_status pp_cuda_prepare_program(struct pp_device *device, const struct pp_program *program);
pp_status pp_cuda_queue_run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame);
pp_status pp_cuda_queue_sum(struct pp_device *device, struct pp_queue *queue, void *to, const void *const *parts,
                            int nparts, int64_t elements, int type);
pp_status pp_cuda_queue_narrow(struct pp_device *device, struct pp_queue *queue, uint16_t *to, const float *from,
                               int64_t n);
pp_status pp_cuda_queue_widen(struct pp_device *device, struct pp_queue *queue, float *to, const uint16_t *from,
                              int64_t n);
pp_status pp_cuda_queue_clip(struct pp_device *device, struct pp_queue *queue, const double *sums, int n, double most,
                             float *factor);
void pp_cuda_add(struct pp_device *device, float *to, const float *a, const float *b, int64_t n);

/* ---- programs with times (measure.c) ---- */

pp_status pp_cuda_run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                      const struct pp_progress *progress, int64_t *kernel_ns);
pp_status pp_cuda_measure(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                          struct pp_run_time *out, int64_t *kernel_ns);
int64_t pp_cuda_reference_ns(struct pp_device *device);

/* ---- algorithms for products (tune.c); contract: core/queue.h ---- */

pp_status pp_cuda_tune(struct pp_device *device, const struct pp_program *program, FILE *out, int *added);

/* ---- do sharers compute at the same time? (probe.c) ---- */

pp_status pp_cuda_probe(struct pp_device *device);
/* Open devices are known to the probes of those they share a GPU with. */
void pp_cuda_probe_join(struct pp_device *device);
void pp_cuda_probe_leave(struct pp_device *device);

#endif
