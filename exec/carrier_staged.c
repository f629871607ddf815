/* SPDX-License-Identifier: Apache-2.0
 *
 * Through memory of the host and the transport of the processes: works wherever messages do. The sender copies a parcel
 * into a place (pinned memory), and sends the place when the copy's mark is reached; the receiver copies out of a place
 * when the message is there. A parcel is issued at the sender when its place has been sent, at the receiver when its
 * copy is queued. Marks and messages are polled by whoever polls the channel.
 *
 * `after` is waited for, and `begun` recorded, in a queue of its own, the gate: in that of the copies they would hold
 * up the parcels before, which are queued later.
 */
#include <stdlib.h>

#include "exec/carrier_staged.h"

enum { PLACES = 4 /* of a channel's end: one is copied while one is sent, and two for uneven moments */ };

/* Parcels are numbered from 0. fetched: of a sender, copies into places; posted: messages; moved: issued. */
struct pp_channel {
    struct pp_port port;
    const struct pp_queue_ops *ops;
    int src, dst, kind, room, nplaces; /* room: most_parcels */
    struct pp_queue *queue, *gate;
    struct pp_parcel **open; /* [room] */
    struct pp_mark **ready;  /* [room] in the gate */
    void *place[PLACES];
    struct pp_mark *emptied[PLACES]; /* receiver: the copy out of it is done */
    uint64_t asked, fetched, posted, moved;
};

static pp_status open_parts(struct pp_channel *c, int64_t most_bytes)
{
    struct pp_device *device = c->port.device;
    PP_TRY(c->ops->queue_create(device, &c->queue));
    PP_TRY(c->ops->queue_create(device, &c->gate));
    PP_TRY(PP_NEW(&c->open, c->room));
    PP_TRY(PP_NEW(&c->ready, c->room));
    for (int i = 0; i < c->room; i++) PP_TRY(c->ops->mark_create(device, false, &c->ready[i]));
    for (int i = 0; i < c->nplaces; i++) {
        PP_TRY(c->ops->host_alloc(device, most_bytes, &c->place[i]));
        PP_TRY(c->ops->mark_create(device, false, &c->emptied[i]));
    }
    return PP_OK;
}

static void close_channel(struct pp_channel *c)
{
    if (!c) return;
    pp_staged_destroy_queue(&c->port, c->queue);
    pp_staged_destroy_queue(&c->port, c->gate);
    for (int i = 0; i < PLACES; i++) {
        pp_staged_release(&c->port, c->place[i]);
        pp_staged_destroy_mark(&c->port, c->emptied[i]);
    }
    for (int i = 0; c->ready && i < c->room; i++) pp_staged_destroy_mark(&c->port, c->ready[i]);
    free(c->ready);
    free(c->open);
    free(c);
}

static pp_status open_channel(const struct pp_channel_spec *spec, struct pp_channel **out)
{
    struct pp_channel *c;
    PP_TRY(PP_NEW(&c, 1));
    c->port = spec->port;
    c->ops = spec->port.backend->queue;
    c->src = spec->src;
    c->dst = spec->dst;
    c->kind = spec->kind;
    c->room = spec->most_parcels;
    c->nplaces = spec->most_parcels < PLACES ? spec->most_parcels : PLACES;
    pp_status status = open_parts(c, spec->most_bytes);
    if (status == PP_OK)
        *out = c;
    else
        close_channel(c);
    return status;
}

static struct pp_parcel *parcel_at(const struct pp_channel *c, uint64_t number)
{
    return c->open[number % (uint64_t)c->room];
}

static void *place_at(const struct pp_channel *c, uint64_t number) { return c->place[number % (uint64_t)c->nplaces]; }

/* Is there a place for this one? The message of the one that had it before is through. */
static bool has_place(const struct pp_channel *c, uint64_t number) { return number < c->moved + (uint64_t)c->nplaces; }

static pp_status copy_when_ready(struct pp_channel *c, uint64_t number, void *to, const void *from)
{
    const struct pp_parcel *parcel = parcel_at(c, number);
    PP_TRY(c->ops->wait(c->port.device, c->queue, c->ready[number % (uint64_t)c->room]));
    return c->ops->copy(c->port.device, c->queue, to, from, parcel->bytes);
}

static pp_status advance_sender(struct pp_channel *c)
{
    bool copied = true;
    for (; c->fetched < c->asked && has_place(c, c->fetched); c->fetched++) {
        struct pp_parcel *parcel = parcel_at(c, c->fetched);
        PP_TRY(copy_when_ready(c, c->fetched, place_at(c, c->fetched), parcel->memory));
        PP_TRY(c->ops->record(c->port.device, c->queue, parcel->done));
    }
    for (; c->posted < c->fetched; c->posted++) {
        struct pp_parcel *parcel = parcel_at(c, c->posted);
        PP_TRY(c->ops->reached(c->port.device, parcel->done, &copied));
        if (!copied) break;
        PP_TRY(
            pp_send(c->port.world, c->src, c->dst, c->kind, place_at(c, c->posted), parcel->bytes, &parcel->request));
    }
    for (; c->moved < c->posted; c->moved++) {
        struct pp_parcel *parcel = parcel_at(c, c->moved);
        PP_TRY(pp_test(c->port.world, &parcel->request));
        if (!parcel->request.done) break;
        parcel->issued = true;
    }
    return PP_OK;
}

static pp_status advance_receiver(struct pp_channel *c)
{
    bool empty = true;
    for (; c->posted < c->asked && has_place(c, c->posted); c->posted++) {
        struct pp_parcel *parcel = parcel_at(c, c->posted);
        PP_TRY(c->ops->reached(c->port.device, c->emptied[c->posted % (uint64_t)c->nplaces], &empty));
        if (!empty) break;
        PP_TRY(
            pp_recv(c->port.world, c->src, c->dst, c->kind, place_at(c, c->posted), parcel->bytes, &parcel->request));
    }
    for (; c->moved < c->posted; c->moved++) {
        struct pp_parcel *parcel = parcel_at(c, c->moved);
        PP_TRY(pp_test(c->port.world, &parcel->request));
        if (!parcel->request.done) break;
        PP_TRY(copy_when_ready(c, c->moved, parcel->memory, place_at(c, c->moved)));
        PP_TRY(c->ops->record(c->port.device, c->queue, c->emptied[c->moved % (uint64_t)c->nplaces]));
        PP_TRY(c->ops->record(c->port.device, c->queue, parcel->done));
        parcel->issued = true;
    }
    return PP_OK;
}

static pp_status advance(struct pp_channel *c)
{
    return c->port.me == c->src ? advance_sender(c) : advance_receiver(c);
}

static pp_status ask(struct pp_channel *c, struct pp_parcel *parcel, struct pp_mark *after)
{
    struct pp_device *device = c->port.device;
    if (c->asked - c->moved == (uint64_t)c->room)
        return pp_fail(PP_INTERNAL, "more than %d parcels open from worker %d to worker %d", c->room, c->src, c->dst);
    parcel->issued = false;
    parcel->sequence = c->asked;
    c->open[c->asked % (uint64_t)c->room] = parcel;
    if (after) PP_TRY(c->ops->wait(device, c->gate, after));
    if (parcel->begun) PP_TRY(c->ops->record(device, c->gate, parcel->begun)); /* reached when `done` is */
    PP_TRY(c->ops->record(device, c->gate, c->ready[c->asked % (uint64_t)c->room]));
    c->asked++;
    return advance(c);
}

static pp_status poll(struct pp_channel *c, struct pp_parcel *parcel) { return parcel->issued ? PP_OK : advance(c); }

/* Whatever is in a queue waits for nothing but this worker's device: nothing to check, or to end. */
const struct pp_carrier pp_carrier_staged = {
    .name = "staged",
    .summary = "between GPUs of several processes, through memory of the host and MPI",
    .mover = "copy engines to and from memory of the host, between them MPI, when a worker's thread polls",
    .open = open_channel,
    .close = close_channel,
    .send = ask,
    .recv = ask,
    .poll = poll,
    .sum_open = pp_staged_sum_open,
    .sum_close = pp_staged_sum_close,
    .sum_start = pp_staged_sum_start,
    .sum_poll = pp_staged_sum_poll,
};
