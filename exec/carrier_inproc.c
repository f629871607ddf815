/* SPDX-License-Identifier: Apache-2.0
 *
 * Between queue devices of one process, or of one device shared by several workers. Both ends of a channel share a ring
 * of parcels. The sender publishes where its data lies and the mark that is reached when it is written; the receiver's
 * queue copies behind that mark, and a mark behind the copy goes back. Only the hosts' issuing is handed over through
 * memory: the devices wait for each other by themselves.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "exec/carrier_inproc.h"

struct entry {
    void *memory;
    int64_t bytes;
    struct pp_mark *written; /* the sender's; NULL: nothing to wait for */
    struct pp_mark *read;    /* the receiver's: behind its copy. Recorded again when the sender has waited for it */
};

struct wire {
    atomic_int users;
    int capacity;
    _Alignas(PP_INPROC_LINE) _Atomic uint64_t sent;  /* published; the sender writes */
    _Alignas(PP_INPROC_LINE) _Atomic uint64_t taken; /* copies in the receiver's queue; the receiver writes */
    struct entry entries[];
};

struct pp_channel {
    struct pp_port port;
    int src, dst;
    struct pp_queue *queue;
    struct pp_mark *rest; /* for the end after a failure */
    struct wire *wire;
    uint64_t next; /* parcels of this end so far */
};

pp_status pp_inproc_hand_over(struct pp_world *world, int src, int dst, void *pointer)
{
    return pp_send_now(world, src, dst, PP_MESSAGE_CONTROL, pointer, sizeof(void *));
}

pp_status pp_inproc_take_over(struct pp_world *world, int src, int dst, void *pointer)
{
    return pp_recv_now(world, src, dst, PP_MESSAGE_CONTROL, pointer, sizeof(void *));
}

pp_status pp_inproc_shared(size_t bytes, void *out)
{
    bytes = (bytes + PP_INPROC_LINE - 1) / PP_INPROC_LINE * PP_INPROC_LINE;
    void *memory = aligned_alloc(PP_INPROC_LINE, bytes);
    if (!memory) return pp_fail(PP_NOMEM, "cannot allocate %zu bytes", bytes);
    memset(memory, 0, bytes);
    memcpy(out, &memory, sizeof memory);
    return PP_OK;
}

static pp_status open_receiver(struct pp_channel *c)
{
    PP_TRY(pp_inproc_take_over(c->port.world, c->src, c->dst, &c->wire));
    atomic_fetch_add(&c->wire->users, 1);
    for (int i = 0; i < c->wire->capacity; i++)
        PP_TRY(c->port.backend->queue->mark_create(c->port.device, false, &c->wire->entries[i].read));
    return PP_OK;
}

static pp_status open_sender(struct pp_channel *c, int capacity)
{
    PP_TRY(pp_inproc_shared(sizeof *c->wire + (size_t)capacity * sizeof c->wire->entries[0], &c->wire));
    c->wire->capacity = capacity;
    atomic_store(&c->wire->users, 1);
    return pp_inproc_hand_over(c->port.world, c->src, c->dst, &c->wire);
}

static pp_status open_channel(const struct pp_channel_spec *spec, struct pp_channel **out)
{
    struct pp_channel *c;
    PP_TRY(PP_NEW(&c, 1));
    *out = c; /* the caller closes it, even half open */
    c->port = spec->port;
    c->src = spec->src;
    c->dst = spec->dst;
    PP_TRY(c->port.backend->queue->queue_create(c->port.device, &c->queue));
    PP_TRY(c->port.backend->queue->mark_create(c->port.device, false, &c->rest));
    return c->port.me == c->dst ? open_receiver(c) : open_sender(c, spec->most_parcels);
}

static void close_channel(struct pp_channel *c)
{
    if (!c) return;
    const struct pp_queue_ops *ops = c->port.backend->queue;
    if (c->queue) ops->queue_destroy(c->port.device, c->queue);
    if (c->rest) ops->mark_destroy(c->port.device, c->rest);
    for (int i = 0; c->wire && c->port.me == c->dst && i < c->wire->capacity; i++)
        if (c->wire->entries[i].read) ops->mark_destroy(c->port.device, c->wire->entries[i].read);
    if (c->wire && atomic_fetch_sub(&c->wire->users, 1) == 1) free(c->wire);
    free(c);
}

static struct entry *entry_of(struct pp_channel *c, const struct pp_parcel *parcel)
{
    return &c->wire->entries[parcel->sequence % (uint64_t)c->wire->capacity];
}

pp_status pp_inproc_begin(const struct pp_port *port, struct pp_queue *queue, const struct pp_parcel *parcel)
{
    const struct pp_queue_ops *ops = port->backend->queue;
    if (parcel->after) PP_TRY(ops->wait(port->device, queue, parcel->after));
    return parcel->begun ? ops->record(port->device, queue, parcel->begun) : PP_OK;
}

/* Nothing is put into the queue before the receiver's part is: what waits for `done` waits for this parcel alone, not
 * for data of the next one. */
static pp_status poll_send(struct pp_channel *c, struct pp_parcel *parcel)
{
    const struct pp_queue_ops *ops = c->port.backend->queue;
    if (atomic_load_explicit(&c->wire->taken, memory_order_acquire) <= parcel->sequence) return PP_OK;
    if (parcel->begun) PP_TRY(pp_inproc_begin(&c->port, c->queue, parcel));
    PP_TRY(ops->wait(c->port.device, c->queue, entry_of(c, parcel)->read));
    PP_TRY(ops->record(c->port.device, c->queue, parcel->done));
    parcel->issued = true;
    return PP_OK;
}

static pp_status copy_in(struct pp_channel *c, struct pp_parcel *parcel, const struct entry *entry)
{
    const struct pp_queue_ops *ops = c->port.backend->queue;
    if (entry->bytes != parcel->bytes)
        return pp_fail(PP_INTERNAL, "worker %d sent %lld bytes where worker %d expects %lld", c->src,
                       (long long)entry->bytes, c->dst, (long long)parcel->bytes);
    PP_TRY(pp_inproc_begin(&c->port, c->queue, parcel));
    if (entry->written) PP_TRY(ops->wait(c->port.device, c->queue, entry->written));
    PP_TRY(ops->copy(c->port.device, c->queue, parcel->memory, entry->memory, entry->bytes));
    PP_TRY(ops->record(c->port.device, c->queue, parcel->done));
    return ops->record(c->port.device, c->queue, entry->read);
}

static pp_status poll_recv(struct pp_channel *c, struct pp_parcel *parcel)
{
    uint64_t taken = atomic_load_explicit(&c->wire->taken, memory_order_relaxed);
    if (taken != parcel->sequence) return PP_OK; /* an earlier receive comes first */
    if (atomic_load_explicit(&c->wire->sent, memory_order_acquire) == taken) return PP_OK;
    PP_TRY(copy_in(c, parcel, entry_of(c, parcel)));
    atomic_store_explicit(&c->wire->taken, taken + 1, memory_order_release);
    parcel->issued = true;
    pp_bell_ring(c->port.world, c->src);
    return PP_OK;
}

static pp_status poll_channel(struct pp_channel *c, struct pp_parcel *parcel)
{
    if (parcel->issued) return PP_OK;
    return c->port.me == c->dst ? poll_recv(c, parcel) : poll_send(c, parcel);
}

static void open_parcel(struct pp_channel *c, struct pp_parcel *parcel, struct pp_mark *after)
{
    parcel->sequence = c->next++;
    parcel->after = after;
    parcel->issued = false;
}

static pp_status send_parcel(struct pp_channel *c, struct pp_parcel *parcel, struct pp_mark *after)
{
    open_parcel(c, parcel, after);
    uint64_t taken = atomic_load_explicit(&c->wire->taken, memory_order_acquire);
    if (parcel->sequence - taken >= (uint64_t)c->wire->capacity)
        return pp_fail(PP_INTERNAL, "worker %d has more than %d parcels open to worker %d", c->src, c->wire->capacity,
                       c->dst);
    struct entry *entry = entry_of(c, parcel);
    entry->memory = parcel->memory;
    entry->bytes = parcel->bytes;
    entry->written = after;
    atomic_store_explicit(&c->wire->sent, parcel->sequence + 1, memory_order_release);
    pp_bell_ring(c->port.world, c->dst);
    return poll_channel(c, parcel);
}

static pp_status recv_parcel(struct pp_channel *c, struct pp_parcel *parcel, struct pp_mark *after)
{
    open_parcel(c, parcel, after);
    return poll_channel(c, parcel);
}

/* Copies must end before another worker's memory is released. */
static void abort_channel(struct pp_channel *c)
{
    if (c->rest) pp_port_rest(&c->port, c->queue, c->rest);
}

/* What is in a queue ends by itself; a failure of the peer is known to the world: no checks. */
const struct pp_carrier pp_carrier_inproc = {
    .name = "inproc",
    .summary = "workers of one process: copies between their devices",
    .mover = "a copy in the receiver's queue, as soon as the data is written and the slot is free",
    .open = open_channel,
    .close = close_channel,
    .send = send_parcel,
    .recv = recv_parcel,
    .poll = poll_channel,
    .abort = abort_channel,
    .sum_open = pp_inproc_sum_open,
    .sum_close = pp_inproc_sum_close,
    .sum_start = pp_inproc_sum_start,
    .sum_poll = pp_inproc_sum_poll,
    .sum_abort = pp_inproc_sum_abort,
};
