/* SPDX-License-Identifier: Apache-2.0
 *
 * Between threads of one process. A channel is one direction and kind between two workers: a ring of posted sends with
 * one writer and one reader. A send publishes where its bytes lie; the receiver copies from there when it tests its
 * receive, and by moving `head` tells the sender that the buffer is free. No lock, and nothing is buffered.
 */
#include <stdlib.h>
#include <string.h>

#include "exec/transport.h"

enum { RING = 16 }; /* sends published at once; more wait at the sender */

struct channel {
    _Alignas(64) _Atomic uint64_t tail; /* published; the sender writes */
    uint64_t sends;                     /* asked for; the sender's */
    struct {
        const void *buffer;
        int64_t bytes;
    } ring[RING];
    _Alignas(64) _Atomic uint64_t head; /* received; the receiver writes */
    uint64_t receives;                  /* asked for; the receiver's */
};

/* [count * count * kinds], made on first use by whichever end comes first. */
struct state {
    size_t n;
    _Atomic(struct channel *) channels[];
};

static pp_status start(struct pp_processes *out)
{
    *out = (struct pp_processes){.count = 1, .on_host = 1, .hosts = 1};
    return PP_OK;
}

static void finish(void) {}

static void stop_nobody_else(int exit_code) { (void)exit_code; }

static pp_status gather(const void *mine, int bytes, void *all)
{
    memcpy(all, mine, (size_t)bytes);
    return PP_OK;
}

static bool nobody_else(void) { return true; }

static pp_status attach(struct pp_world *world, void **out)
{
    size_t n = (size_t)world->count * (size_t)world->count * PP_MESSAGE_KINDS;
    struct state *state;
    PP_TRY(pp_alloc_bytes(&state, 1, sizeof *state + n * sizeof *state->channels));
    state->n = n;
    *out = state;
    return PP_OK;
}

static void detach(struct pp_world *world, void *memory)
{
    (void)world;
    struct state *state = memory;
    for (size_t i = 0; i < state->n; i++) free(atomic_load(&state->channels[i]));
    free(state);
}

static pp_status channel_of(struct pp_world *world, const struct pp_request *request, struct channel **out)
{
    struct state *state = world->local_state;
    size_t src = (size_t)(request->src - world->first), dst = (size_t)(request->dst - world->first);
    size_t index = (src * (size_t)world->count + dst) * PP_MESSAGE_KINDS + (size_t)request->kind;
    struct channel *channel = atomic_load(&state->channels[index]);
    if (!channel) {
        struct channel *fresh = aligned_alloc(_Alignof(struct channel), sizeof *fresh);
        if (!fresh) return pp_fail(PP_NOMEM, "cannot allocate %zu bytes", sizeof *fresh);
        memset(fresh, 0, sizeof *fresh);
        if (atomic_compare_exchange_strong(&state->channels[index], &channel, fresh))
            channel = fresh;
        else
            free(fresh);
    }
    *out = channel;
    return PP_OK;
}

static void publish(struct pp_world *world, struct pp_request *request, struct channel *channel)
{
    uint64_t tail = atomic_load_explicit(&channel->tail, memory_order_relaxed);
    if (request->sequence != tail) return; /* published already, or an earlier send is waiting */
    if (tail - atomic_load_explicit(&channel->head, memory_order_acquire) >= RING) return;
    channel->ring[tail % RING].buffer = request->buffer;
    channel->ring[tail % RING].bytes = request->bytes;
    atomic_store_explicit(&channel->tail, tail + 1, memory_order_release);
    pp_bell_ring(world, request->dst);
}

static pp_status post_send(struct pp_world *world, struct pp_request *request)
{
    struct channel *channel = NULL;
    PP_TRY(channel_of(world, request, &channel));
    request->channel = channel;
    request->sequence = channel->sends++;
    publish(world, request, channel);
    return PP_OK;
}

static pp_status post_recv(struct pp_world *world, struct pp_request *request)
{
    struct channel *channel = NULL;
    PP_TRY(channel_of(world, request, &channel));
    request->channel = channel;
    request->sequence = channel->receives++;
    return PP_OK;
}

static pp_status test_send(struct pp_world *world, struct pp_request *request, struct channel *channel)
{
    publish(world, request, channel);
    request->done = atomic_load_explicit(&channel->head, memory_order_acquire) > request->sequence;
    return PP_OK;
}

static pp_status test_recv(struct pp_world *world, struct pp_request *request, struct channel *channel)
{
    uint64_t head = atomic_load_explicit(&channel->head, memory_order_relaxed);
    if (head != request->sequence) return PP_OK; /* an earlier receive comes first */
    if (atomic_load_explicit(&channel->tail, memory_order_acquire) == head) return PP_OK;
    int64_t bytes = channel->ring[head % RING].bytes;
    if (bytes != request->bytes)
        return pp_fail(PP_INTERNAL, "worker %d sent %lld bytes where worker %d expects %lld (message kind %d)",
                       request->src, (long long)bytes, request->dst, (long long)request->bytes, request->kind);
    if (bytes) memcpy(request->buffer, channel->ring[head % RING].buffer, (size_t)bytes);
    atomic_store_explicit(&channel->head, head + 1, memory_order_release);
    request->done = true;
    pp_bell_ring(world, request->src);
    return PP_OK;
}

static pp_status test(struct pp_world *world, struct pp_request *request)
{
    return request->receive ? test_recv(world, request, request->channel) : test_send(world, request, request->channel);
}

const struct pp_transport pp_transport_inproc = {
    .name = "inproc",
    .summary = "workers are threads of one process",
    .mover = "the receiver's core copies from the sender's buffer when it polls",
    .start = start,
    .finish = finish,
    .abort = stop_nobody_else,
    .gather = gather,
    .all_stopped = nobody_else,
    .attach = attach,
    .detach = detach,
    .send = post_send,
    .recv = post_recv,
    .test = test,
};
