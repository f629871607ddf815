/* SPDX-License-Identifier: Apache-2.0
 *
 * An event is its last record; a wait holds on to the record that was the last when it was called.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "emulator.h"

struct pp_emu_record {
    atomic_int references;
    pthread_mutex_t mutex;
    pthread_cond_t reached_now;
    bool reached;
    int64_t time_ns;
};

struct CUevent_st {
    struct CUevent_st *next; /* all live ones */
    int device;
    unsigned flags;
    CUgreenCtx green;           /* that was current; NULL: none */
    struct pp_emu_record *last; /* NULL: never recorded */
};

static struct CUevent_st *events;
static pthread_mutex_t events_mutex = PTHREAD_MUTEX_INITIALIZER;

struct pp_emu_record *pp_emu_record_new(void)
{
    struct pp_emu_record *r = pp_emu_new(sizeof(*r));
    r->references = 1;
    pp_emu_prepare(&r->mutex, &r->reached_now);
    return r;
}

void pp_emu_record_release(struct pp_emu_record *r)
{
    if (!r || atomic_fetch_sub(&r->references, 1) > 1) return;
    pp_emu_retire(r, &r->mutex, &r->reached_now);
}

static struct pp_emu_record *keep(struct pp_emu_record *r)
{
    if (r) atomic_fetch_add(&r->references, 1);
    return r;
}

struct record_op {
    struct pp_emu_op op;
    struct pp_emu_record *record;
};

static void run_record(struct pp_emu_op *op, cudaStream_t stream, bool dead)
{
    struct record_op *o = (struct record_op *)op;
    struct pp_emu_record *r = o->record;
    (void)stream, (void)dead;
    pp_emu_promise(r);
    pp_emu_lock(&r->mutex);
    r->time_ns = pp_emu_now_ns();
    r->reached = true;
    pthread_cond_broadcast(&r->reached_now);
    pp_emu_unlock(&r->mutex);
    pp_emu_record_release(r);
    free(o);
}

void pp_emu_record_wait(struct pp_emu_record *r)
{
    pp_emu_lock(&r->mutex);
    while (!r->reached) pthread_cond_wait(&r->reached_now, &r->mutex);
    pp_emu_unlock(&r->mutex);
    pp_emu_rely(r);
}

static void run_wait(struct pp_emu_op *op, cudaStream_t stream, bool dead)
{
    struct record_op *o = (struct record_op *)op;
    (void)stream, (void)dead;
    pp_emu_record_wait(o->record);
    pp_emu_record_release(o->record);
    free(o);
}

static struct pp_emu_op *make_op(struct pp_emu_record *r, void (*run)(struct pp_emu_op *, cudaStream_t, bool))
{
    struct record_op *o = pp_emu_new(sizeof(*o));
    o->op.run = run;
    o->record = keep(r);
    return &o->op;
}

struct pp_emu_op *pp_emu_record_op(struct pp_emu_record *r) { return make_op(r, run_record); }
struct pp_emu_op *pp_emu_wait_op(struct pp_emu_record *r) { return make_op(r, run_wait); }

static bool reached(struct pp_emu_record *r)
{
    pp_emu_lock(&r->mutex);
    const bool yes = r->reached;
    pp_emu_unlock(&r->mutex);
    if (yes) pp_emu_rely(r);
    return yes;
}

/* The event if it is one; its last record, kept, in *last. */
static cudaEvent_t look(cudaEvent_t handle, struct pp_emu_record **last)
{
    pp_emu_lock(&events_mutex);
    struct CUevent_st *e = events;
    while (e && e != handle) e = e->next;
    if (e && last) *last = keep(e->last);
    pp_emu_unlock(&events_mutex);
    if (!e) pp_emu_complain("event %p was destroyed or never was one", (void *)handle);
    return e;
}

static cudaError_t create(cudaEvent_t *out, unsigned flags)
{
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
    if (!out || flags & ~known) return cudaErrorInvalidValue;
    struct CUevent_st *e = calloc(1, sizeof(*e));
    if (!e) return cudaErrorMemoryAllocation;
    e->device = pp_emu_current();
    e->flags = flags;
    e->green = pp_emu_current_green();
    pp_emu_lock(&events_mutex);
    e->next = events;
    events = e;
    pp_emu_unlock(&events_mutex);
    pp_emu_count(PP_EMU_EVENTS, 1);
    pp_emu_count(PP_EMU_LIVE_EVENTS, 1);
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    PP_EMU_ENTER();
    return pp_emu_error(create(out, flags));
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    PP_EMU_ENTER();
    return pp_emu_error(create(out, 0));
}

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    PP_EMU_ENTER();
    if (!look(handle, NULL)) return pp_emu_error(cudaErrorInvalidResourceHandle);
    pp_emu_lock(&events_mutex);
    struct CUevent_st **link = &events;
    while (*link != handle) link = &(*link)->next;
    *link = handle->next;
    pp_emu_unlock(&events_mutex);
    pp_emu_record_release(handle->last);
    free(handle);
    pp_emu_count(PP_EMU_LIVE_EVENTS, -1);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream)
{
    PP_EMU_ENTER();
    cudaEvent_t e = look(handle, NULL);
    cudaStream_t s = pp_emu_stream(stream);
    if (!e || !s) return pp_emu_error(cudaErrorInvalidResourceHandle);
    if (e->device != s->device) {
        pp_emu_complain("event of device %d recorded in a stream of device %d", e->device, s->device);
        return pp_emu_error(cudaErrorInvalidResourceHandle);
    }
    const int wanted = pp_emu_settings()->own_events;
    if ((wanted == PP_EMU_OWN_EVENTS && e->green != s->green) || (wanted == PP_EMU_PRIMARY_EVENTS && e->green))
        return pp_emu_error(cudaErrorInvalidResourceHandle);
    struct pp_emu_record *r = pp_emu_record_new();
    pp_emu_enqueue(s, pp_emu_record_op(r));
    pp_emu_lock(&events_mutex);
    struct pp_emu_record *before = e->last;
    e->last = r;
    pp_emu_unlock(&events_mutex);
    pp_emu_record_release(before);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    PP_EMU_ENTER();
    struct pp_emu_record *r = NULL;
    cudaStream_t s = pp_emu_stream(stream);
    if (!s || !look(event, &r)) return pp_emu_error(cudaErrorInvalidResourceHandle);
    if (!r && pp_emu_settings()->strict) pp_emu_complain("a stream waits for an event that was never recorded");
    if (r && !flags) pp_emu_enqueue(s, pp_emu_wait_op(r));
    pp_emu_record_release(r);
    return pp_emu_error(flags ? cudaErrorInvalidValue : cudaSuccess);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    PP_EMU_ENTER();
    struct pp_emu_record *r = NULL;
    cudaEvent_t e = look(event, &r);
    if (!e) return pp_emu_error(cudaErrorInvalidResourceHandle);
    const bool done = !r || reached(r);
    pp_emu_record_release(r);
    const cudaError_t fault = pp_emu_fault(e->device);
    return pp_emu_error(fault != cudaSuccess ? fault : pp_emu_looked(done));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    PP_EMU_ENTER();
    struct pp_emu_record *r = NULL;
    cudaEvent_t e = look(event, &r);
    if (!e) return pp_emu_error(cudaErrorInvalidResourceHandle);
    pp_emu_count(PP_EMU_HOST_WAITS, 1);
    if (r) pp_emu_record_wait(r);
    pp_emu_record_release(r);
    return pp_emu_error(pp_emu_fault(e->device));
}

static cudaError_t elapsed(cudaEvent_t from, cudaEvent_t to, struct pp_emu_record *first, struct pp_emu_record *second,
                           float *ms)
{
    if (!from || !to || !first || !second || from->device != to->device) return cudaErrorInvalidResourceHandle;
    if ((from->flags | to->flags) & cudaEventDisableTiming) return cudaErrorInvalidResourceHandle;
    if (!reached(first) || !reached(second)) return cudaErrorNotReady;
    *ms = (float)((double)(second->time_ns - first->time_ns) * 1e-6);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    PP_EMU_ENTER();
    struct pp_emu_record *first = NULL, *second = NULL;
    from = look(from, &first);
    to = look(to, &second);
    const cudaError_t error = ms ? elapsed(from, to, first, second, ms) : cudaErrorInvalidValue;
    pp_emu_record_release(first);
    pp_emu_record_release(second);
    return pp_emu_error(error);
}
