/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream is a thread with a list of operations. Handles of streams that were destroyed are known as such.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "emulator.h"

enum { LOOKS = 5, NAP_NS = 100000 }; /* in vain, before naps */

static struct CUstream_st *streams;                /* live ones */
static struct CUstream_st *legacy[PP_EMU_DEVICES]; /* the default stream of each device, made when it is used */
static pthread_mutex_t streams_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;      /* one launch waits for room, so do the others */
static pthread_mutex_t host_functions = PTHREAD_MUTEX_INITIALIZER; /* CUDA may run them one after another, and does */

/* Of four operations one is late, by chance: a missing wait shows where others are prompt, and each sleep costs more
 * than most kernels. */
static void delay(unsigned *seed)
{
    const int64_t most = pp_emu_settings()->jitter_us;
    if (most > 0 && rand_r(seed) % 4 == 0) usleep((useconds_t)(rand_r(seed) % (most + 1)));
}

static void *stream_main(void *arg)
{
    struct CUstream_st *s = arg;
    unsigned seed = pp_emu_settings()->seed + 2654435761u * s->number; /* the same in every run */
    pp_emu_lock(&s->mutex);
    for (;;) {
        while (!s->head && !s->closing) pthread_cond_wait(&s->changed, &s->mutex);
        struct pp_emu_op *op = s->head;
        if (!op) break;
        s->head = op->next;
        if (!s->head) s->tail = &s->head;
        pp_emu_unlock(&s->mutex);

        pp_emu_rely(op);
        delay(&seed);
        op->run(op, s, pp_emu_fault(s->device) != cudaSuccess);
        pp_emu_promise(s);
        s->finished_ns = pp_emu_now_ns();

        pp_emu_lock(&s->mutex);
        s->finished++;
        pthread_cond_broadcast(&s->changed);
    }
    pp_emu_unlock(&s->mutex);
    pp_emu_grid_end();
    pp_emu_retire(s, &s->mutex, &s->changed);
    return NULL;
}

static cudaError_t create(int device, unsigned flags, CUgreenCtx green, cudaStream_t *out)
{
    static atomic_uint streams_made;
    struct CUstream_st *s = pp_emu_new(sizeof(*s));
    pthread_attr_t attributes;
    pthread_t thread;
    s->number = atomic_fetch_add(&streams_made, 1);
    s->device = device;
    s->flags = flags;
    s->green = green;
    s->pool = green ? pp_emu_green_pool(green) : NULL;
    s->tail = &s->head;
    pp_emu_prepare(&s->mutex, &s->changed);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const int failed = pthread_create(&thread, &attributes, stream_main, s);
    pthread_attr_destroy(&attributes);
    if (failed) {
        free(s);
        return cudaErrorMemoryAllocation;
    }
    *out = s;
    return cudaSuccess;
}

cudaError_t pp_emu_stream_open(int device, unsigned flags, CUgreenCtx green, cudaStream_t *out)
{
    if (!out || flags & ~(unsigned)cudaStreamNonBlocking) return cudaErrorInvalidValue;
    const cudaError_t error = create(device, flags, green, out);
    if (error != cudaSuccess) return error;
    pp_emu_lock(&streams_mutex);
    (*out)->next = streams;
    streams = *out;
    pp_emu_unlock(&streams_mutex);
    pp_emu_count(PP_EMU_STREAMS, 1);
    pp_emu_count(PP_EMU_LIVE_STREAMS, 1);
    return cudaSuccess;
}

cudaStream_t pp_emu_stream(cudaStream_t handle)
{
    struct CUstream_st *found = NULL;
    const int device = pp_emu_current();
    pp_emu_lock(&streams_mutex);
    if (!handle || handle == cudaStreamLegacy) {
        if (!legacy[device] && create(device, 0, NULL, &legacy[device]) != cudaSuccess) abort();
        found = legacy[device];
    } else {
        for (found = streams; found && found != handle; found = found->next) {
        }
    }
    pp_emu_unlock(&streams_mutex);
    if (!found) pp_emu_complain("stream %p was destroyed or never was one", (void *)handle);
    return found;
}

bool pp_emu_has_streams(CUgreenCtx green)
{
    pp_emu_lock(&streams_mutex);
    const struct CUstream_st *s = streams;
    while (s && s->green != green) s = s->next;
    pp_emu_unlock(&streams_mutex);
    return s != NULL;
}

static void append(cudaStream_t s, struct pp_emu_op *op)
{
    op->next = NULL;
    pp_emu_promise(op);
    pp_emu_lock(&s->mutex);
    *s->tail = op;
    s->tail = &op->next;
    s->queued++;
    pthread_cond_broadcast(&s->changed);
    pp_emu_unlock(&s->mutex);
}

static bool idle(cudaStream_t s)
{
    pp_emu_lock(&s->mutex);
    const bool done = s->queued == s->finished;
    pp_emu_unlock(&s->mutex);
    if (done) pp_emu_rely(s);
    return done;
}

/* What `to` gets from here on runs after all that is in `from` now. */
static void order(cudaStream_t from, cudaStream_t to)
{
    if (idle(from)) return;
    struct pp_emu_record *first = pp_emu_record_new();
    append(from, pp_emu_record_op(first));
    append(to, pp_emu_wait_op(first));
    pp_emu_record_release(first);
}

/* The default stream and those that were not made cudaStreamNonBlocking wait for each other. */
static void order_with_legacy(cudaStream_t s)
{
    if (s->flags & cudaStreamNonBlocking) return;
    pp_emu_lock(&streams_mutex);
    if (s != legacy[s->device]) {
        if (legacy[s->device]) order(legacy[s->device], s);
    } else {
        for (struct CUstream_st *other = streams; other; other = other->next) {
            if (other->device == s->device && !(other->flags & cudaStreamNonBlocking)) order(other, s);
        }
    }
    pp_emu_unlock(&streams_mutex);
}

static void await_room(cudaStream_t s)
{
    const uint64_t most = pp_emu_settings()->queue;
    pp_emu_lock(&launching);
    pp_emu_lock(&s->mutex);
    if (s->queued - s->finished >= most) pp_emu_count(PP_EMU_FULL_QUEUES, 1);
    while (s->queued - s->finished >= most) pthread_cond_wait(&s->changed, &s->mutex);
    pp_emu_unlock(&s->mutex);
    pp_emu_unlock(&launching);
}

void pp_emu_enqueue(cudaStream_t stream, struct pp_emu_op *op)
{
    await_room(stream);
    order_with_legacy(stream);
    append(stream, op);
}

void pp_emu_drain(cudaStream_t s)
{
    pp_emu_count(PP_EMU_HOST_WAITS, 1);
    if (idle(s)) return;
    pp_emu_lock(&s->mutex);
    const uint64_t target = s->queued;
    while (s->finished < target) pthread_cond_wait(&s->changed, &s->mutex);
    pp_emu_unlock(&s->mutex);
    pp_emu_rely(s);
}

/* Others go on using streams meanwhile. */
void pp_emu_drain_device(int device)
{
    enum { MOST = 1024 };
    struct pp_emu_record *ends[MOST];
    int n = 0;
    pp_emu_lock(&streams_mutex);
    struct CUstream_st *s = legacy[device] ? legacy[device] : streams;
    while (s) {
        if (s->device == device && n < MOST && !idle(s)) {
            ends[n] = pp_emu_record_new();
            append(s, pp_emu_record_op(ends[n++]));
        }
        s = s == legacy[device] ? streams : s->next;
    }
    pp_emu_unlock(&streams_mutex);
    pp_emu_count(PP_EMU_HOST_WAITS, 1);
    while (n) {
        pp_emu_record_wait(ends[--n]);
        pp_emu_record_release(ends[n]);
    }
}

/* ---- the runtime's functions ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    PP_EMU_ENTER();
    (void)priority; /* no stream goes before another */
    return pp_emu_error(pp_emu_stream_open(pp_emu_current(), flags, pp_emu_current_green(), out));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    PP_EMU_ENTER();
    return pp_emu_error(pp_emu_stream_open(pp_emu_current(), flags, pp_emu_current_green(), out));
}

/* Returns at once; what is queued still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    PP_EMU_ENTER();
    cudaStream_t s = pp_emu_stream(handle);
    if (!s || !handle || handle == cudaStreamLegacy) return pp_emu_error(cudaErrorInvalidResourceHandle);
    pp_emu_lock(&streams_mutex);
    struct CUstream_st **link = &streams;
    while (*link && *link != s) link = &(*link)->next;
    if (*link) *link = s->next;
    pp_emu_unlock(&streams_mutex);
    pp_emu_lock(&s->mutex);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pp_emu_unlock(&s->mutex);
    pp_emu_count(PP_EMU_LIVE_STREAMS, -1);
    return cudaSuccess;
}

cudaError_t pp_emu_looked(bool done)
{
    static _Thread_local int in_vain;
    in_vain = done ? 0 : in_vain + 1;
    if (in_vain > LOOKS) nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    PP_EMU_ENTER();
    cudaStream_t s = pp_emu_stream(handle);
    if (!s) return pp_emu_error(cudaErrorInvalidResourceHandle);
    const bool done = idle(s);
    const cudaError_t fault = pp_emu_fault(s->device);
    return pp_emu_error(fault != cudaSuccess ? fault : pp_emu_looked(done));
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    PP_EMU_ENTER();
    cudaStream_t s = pp_emu_stream(handle);
    if (!s) return pp_emu_error(cudaErrorInvalidResourceHandle);
    pp_emu_drain(s);
    return pp_emu_error(pp_emu_fault(s->device));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    PP_EMU_ENTER();
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

struct host_function {
    struct pp_emu_op op;
    cudaHostFn_t function;
    void *data;
};

static void run_host_function(struct pp_emu_op *op, cudaStream_t stream, bool dead)
{
    struct host_function *h = (struct host_function *)op;
    (void)stream;
    pp_emu_lock(&host_functions);
    pp_emu_show(); /* what the function does is not the emulator's */
    if (!dead) h->function(h->data);
    pp_emu_hide();
    pp_emu_unlock(&host_functions);
    free(h);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *data)
{
    PP_EMU_ENTER();
    cudaStream_t s = pp_emu_stream(handle);
    if (!s) return pp_emu_error(cudaErrorInvalidResourceHandle);
    struct host_function *h = calloc(1, sizeof(*h));
    if (!h) return pp_emu_error(cudaErrorMemoryAllocation);
    *h = (struct host_function){.op.run = run_host_function, .function = function, .data = data};
    pp_emu_count(PP_EMU_HOST_FUNCTIONS, 1);
    pp_emu_enqueue(s, &h->op);
    return cudaSuccess;
}
