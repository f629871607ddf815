/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's side of the backend `cuda`: which GPU a worker gets, its share of that GPU, and its queues.
 *
 * Every worker thread has the primary context of its GPU current. The driver API is reached through the runtime
 * (cudaGetDriverEntryPointByVersion), so nothing links libcuda. Where workers share a GPU, each worker also has a green
 * context. Only streams and events are made in it; kernels that run in these streams use the multiprocessors of the
 * green context and no others.
 */
#ifndef PP_KERNELS_CUDA_DEVICE_H
#define PP_KERNELS_CUDA_DEVICE_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>

#include "core/model/queue.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/launch.h"

/* The most GPUs of a host that are used, and the most workers of one process that share a GPU. */
enum { PP_CUDA_GPUS = 64, PP_CUDA_SHARES = 64 };

/* ---- errors (error.c) ---- */

/* PP_OK, or a message "cuda: <doing>: <CUDA's words>". */
pp_status pp_cuda_check(cudaError_t error, const char *doing);
#define PP_CUDA(call, doing) PP_TRY(pp_cuda_check((call), (doing)))
/* The same for functions of the driver API, whose error numbers (CUresult) are those of the runtime. */
#define PP_CUDA_DRIVER(call, doing) PP_TRY(pp_cuda_check((cudaError_t)(call), (doing)))

/* ---- the host's GPUs (host.c) ---- */

/* Where a worker computes. */
struct pp_cuda_place {
    int gpu;                 /* the CUDA device number */
    int first_gpu, last_gpu; /* the GPUs that workers of this process use */
    int workers;             /* workers on this GPU, in all processes of the host */
    int index, sharing;      /* of the `sharing` workers of this process on this GPU, this is number `index` */
};

/* PP_UNSUPPORTED, with a message: no driver, one that is too old, no GPU, or a GPU that is too old. */
pp_status pp_cuda_available(void);
/* PP_USAGE: the host has too few GPUs, or the workers cannot share them evenly; else as pp_cuda_available. */
pp_status pp_cuda_place(const struct pp_device_spec *spec, struct pp_cuda_place *out) PP_MUST_CHECK;
/* Workers of the host on the GPU of the worker that `spec` describes; 1 where it has no place. */
int pp_cuda_sharers(const struct pp_device_spec *spec);

/* ---- a worker's share of the multiprocessors (share.c) ---- */

struct pp_cuda_share {
    CUgreenCtx context; /* NULL: the worker uses the whole GPU */
    CUcontext inside;   /* the green context as a CUcontext: current while events are made. NULL: events are made in the
                         * primary context */
    int sms;            /* multiprocessors of the share, or of the whole GPU */
    char none[256];     /* why a worker that shares its GPU has no share of it; "" otherwise */
};

/* Opens the share of the worker at `place`. That GPU must be the thread's current device; gpu_sms is the number of its
 * multiprocessors. A driver that cannot divide the GPU is no error: then the share is the whole GPU, and out->none says
 * why. PP_INTERNAL: other workers have divided the GPU in another number of shares. */
pp_status pp_cuda_share_open(const struct pp_cuda_place *place, int gpu_sms, struct pp_cuda_share *out) PP_MUST_CHECK;
void pp_cuda_share_close(const struct pp_cuda_place *place, struct pp_cuda_share *share);
/* To be called where streams of the share refuse its events; no stream or event of the share may exist any more. A
 * share whose events were made in the green context makes them in the primary context from now on. A share that did so
 * already is closed: the worker uses the whole GPU, and share->none is the calling thread's last message. */
void pp_cuda_share_refuse_events(const struct pp_cuda_place *place, int gpu_sms, struct pp_cuda_share *share);
/* Makes a stream of the share. urgent: it has the highest priority, other streams have the lowest. */
pp_status pp_cuda_stream(const struct pp_cuda_share *share, bool urgent, cudaStream_t *out) PP_MUST_CHECK;
/* Makes an event that streams of the share can record. The GPU must be the thread's current device, and only one thread
 * may make events of a share at a time. flags: as for cudaEventCreateWithFlags. */
pp_status pp_cuda_event(const struct pp_cuda_share *share, unsigned flags, cudaEvent_t *out) PP_MUST_CHECK;

/* ---- a worker's device (device.c) ---- */

struct pp_queue {
    cudaStream_t stream;
};

struct pp_mark {
    cudaEvent_t event;
};

/* Events with times, of a program that is under way (measure.c). pp_cuda_make_times() makes more. */
struct pp_cuda_times {
    cudaEvent_t *event; /* [n] */
    int64_t room;
    int n;
    int64_t host_ns; /* what queueing the program took */
};

struct pp_device {
    struct pp_cuda_place place;
    struct pp_cuda_share share;
    struct pp_queue compute;
    cudaStream_t host;    /* the stream of upload, download and alloc */
    cudaEvent_t computed; /* makes the stream `host` wait for the compute queue, and the thread for the stream `host` */
    void *bounce;         /* locked host memory through which upload and download copy */
    bool blind;           /* at least one other GPU of the process has memory that this GPU cannot read */
    void *scratch;        /* device memory that calls of the compute queue use one after another */
    int64_t scratch_bytes;
    struct pp_cuda_gemm *gemm;
    struct pp_cuda_times times[PP_MEASURED];
    int64_t warm_ns; /* until this time (pp_now_ns) the GPU's clock counts as risen: no warm-up before the reference */
    atomic_uint *gate; /* in locked host memory, for measure.c: the number of the last gate that was opened */
    unsigned ticket;   /* the number of the last gate that was closed */
    char text[640];    /* what pp_cuda_describe() returns */
    bool mixed;        /* what pp_cuda_mixed() returns */
};

pp_status pp_cuda_open(const struct pp_device_spec *spec, struct pp_device **out);
void pp_cuda_close(struct pp_device *device);
pp_status pp_cuda_alloc(struct pp_device *device, int64_t bytes, void **out);
/* pp_backend.available_bytes */
int64_t pp_cuda_available_bytes(const struct pp_device_spec *spec);
void pp_cuda_release(struct pp_device *device, void *memory, int64_t bytes);
/* Both copy after what is in the compute queue, and return when the copy has ended. */
pp_status pp_cuda_upload(struct pp_device *device, void *to, const void *from, int64_t bytes);
pp_status pp_cuda_download(struct pp_device *device, void *to, const void *from, int64_t bytes);
/* pp_backend.draw(), with the same order: makes all but normal values, whose logarithms and cosines would have other
 * last bits here. */
pp_status pp_cuda_draw(struct pp_device *device, const struct pp_draw *draw, void *to, bool *drawn);
const char *pp_cuda_describe(struct pp_device *device);
bool pp_cuda_mixed(const struct pp_device *device);

/* ---- queues and marks (queue.c); contracts: core/model/queue.h ---- */

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

/* Waits until the event is reached, by polling, so that a failing device is noticed. progress: NULL, or what is polled
 * meanwhile. */
pp_status pp_cuda_poll(cudaEvent_t event, const struct pp_progress *progress);
/* What a polling thread does between two looks at the device: it yields its core for some microseconds. */
void pp_cuda_pause(void);
/* Nanoseconds from one event to another; both have times and are reached. */
pp_status pp_cuda_between(cudaEvent_t from, cudaEvent_t to, int64_t *ns);
/* Makes events until device->times[slot] has at least n. */
pp_status pp_cuda_make_times(struct pp_device *device, int slot, int n);

/* ---- programs (run.c) ---- */

/* How many successive calls, from number `first` on, are queued as one launch: 1 or more. */
int pp_cuda_group(const struct pp_program *program, int first);
/* Queues one call, or n calls of which pp_cuda_group() says that they are one launch. */
pp_status pp_cuda_queue_calls(const struct pp_device *device, const struct pp_call *calls, int n,
                              const struct pp_frame *frame);
/* Launches of a call (launches.c). Exact for attention that stores no scores; for other calls an upper bound that is
 * near. */
int pp_cuda_launches(const struct pp_call *call);
/* Bytes of scratch that a call uses (launches.c). The call's shape alone decides, whatever other calls need: how the
 * call is divided depends on it, and equal calls must give equal bits. */
int64_t pp_cuda_scratch_bytes(const struct pp_call *call);
int pp_cuda_queue_launches(struct pp_device *device, const struct pp_program *program);
/* Makes what the program's calls need before they run: scratch, and plans of products with their kernels loaded. Waits
 * for the compute queue if scratch has to grow. */
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

/* ---- programs with times (measure.c) ---- */

pp_status pp_cuda_run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                      const struct pp_progress *progress, int64_t *kernel_ns);
pp_status pp_cuda_measure_begin(struct pp_device *device, const struct pp_program *program,
                                const struct pp_frame *frame, int slot, bool each);
pp_status pp_cuda_measure_end(struct pp_device *device, const struct pp_program *program, int slot,
                              struct pp_run_time *out, int64_t *kernel_ns);
int64_t pp_cuda_reference_ns(struct pp_device *device);

/* ---- algorithms for products (tune.c); contract: core/model/queue.h ---- */

pp_status pp_cuda_tune(struct pp_device *device, const struct pp_program *program, FILE *out, int *added);

/* ---- do sharers compute at the same time? (probe.c) ---- */

pp_status pp_cuda_probe(struct pp_device *device);
/* A device joins when it is open and leaves before it is closed: a probe uses all devices of its GPU. */
void pp_cuda_probe_join(struct pp_device *device);
void pp_cuda_probe_leave(struct pp_device *device);

#endif
