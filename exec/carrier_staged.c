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

#include "exec/carrier.h"
#include "exec/reduce.h"

enum {
    PLACES = 4,               /* of a channel's end: one is copied while one is sent, and two for uneven moments */
    SEGMENTS = 2,             /* of a sum: one is copied while one is added */
    SEGMENT_BYTES = 16 << 20, /* far more than the pieces that pp_reduce has under way */
    SHARE_LINE = PP_PART_LINE * (int)sizeof(float) /* bytes of which a share's part of a segment has a multiple */
};

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

static void destroy_mark(const struct pp_port *port, struct pp_mark *mark)
{
    if (mark) port->backend->queue->mark_destroy(port->device, mark);
}

static void destroy_queue(const struct pp_port *port, struct pp_queue *queue)
{
    if (queue) port->backend->queue->queue_destroy(port->device, queue);
}

static void release(const struct pp_port *port, void *memory)
{
    if (memory) port->backend->queue->host_release(port->device, memory);
}

static void close_channel(struct pp_channel *c)
{
    if (!c) return;
    destroy_queue(&c->port, c->queue);
    destroy_queue(&c->port, c->gate);
    for (int i = 0; i < PLACES; i++) {
        release(&c->port, c->place[i]);
        destroy_mark(&c->port, c->emptied[i]);
    }
    for (int i = 0; c->ready && i < c->room; i++) destroy_mark(&c->port, c->ready[i]);
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

/* --- sums --- */

/* Segment by segment: to the host, through pp_reduce, back. Of shares a segment has the same piece of each member's,
 * one behind the other, and only what others need of it is fetched, or new brought back. */
struct pp_sum {
    struct pp_port port;
    const struct pp_queue_ops *ops;
    struct pp_queue *queue;
    struct pp_reduce *reduce;
    void *segment[SEGMENTS];
    struct pp_mark *fetched_mark[SEGMENTS];
    int64_t segment_bytes;
    int element_bytes;
    struct pp_shares *packed; /* a segment's, as one tensor */
    /* the one under way */
    int64_t nsegments, fetched, summed;
    bool reducing;
};

static void sum_close(struct pp_sum *s)
{
    if (!s) return;
    destroy_queue(&s->port, s->queue);
    pp_reduce_free(s->reduce);
    free(s->packed);
    for (int i = 0; i < SEGMENTS; i++) {
        release(&s->port, s->segment[i]);
        destroy_mark(&s->port, s->fetched_mark[i]);
    }
    free(s);
}

static pp_status open_sum_parts(struct pp_sum *s, const struct pp_sum_spec *spec)
{
    PP_TRY(s->ops->queue_create(s->port.device, &s->queue));
    PP_TRY(pp_reduce_create_host(spec->group, s->port.me, spec->type, s->segment_bytes, &s->reduce));
    PP_TRY(pp_shares_create_plain(&s->packed));
    for (int i = 0; i < SEGMENTS; i++) {
        PP_TRY(s->ops->host_alloc(s->port.device, s->segment_bytes, &s->segment[i]));
        PP_TRY(s->ops->mark_create(s->port.device, false, &s->fetched_mark[i]));
    }
    return PP_OK;
}

/* Bytes of a share, rounded up so that segments end where lines of it do. */
static int64_t whole_lines(int64_t bytes) { return (bytes + SHARE_LINE - 1) / SHARE_LINE * SHARE_LINE; }

static pp_status sum_open(const struct pp_sum_spec *spec, struct pp_sum **out)
{
    struct pp_sum *s;
    PP_TRY(PP_NEW(&s, 1));
    s->port = spec->port;
    s->ops = spec->port.backend->queue;
    s->element_bytes = pp_sum_bytes(spec->type);
    int64_t most = spec->most_elements * s->element_bytes;
    if (spec->shares) most = spec->group.n * whole_lines(most / spec->group.n);
    s->segment_bytes = most < SEGMENT_BYTES ? most : SEGMENT_BYTES;
    pp_status status = open_sum_parts(s, spec);
    if (status == PP_OK)
        *out = s;
    else
        sum_close(s);
    return status;
}

/* Where a segment lies on the device, and its bytes. */
static void *segment_of(const struct pp_sum *s, const struct pp_parcel *parcel, int64_t number, int64_t *bytes)
{
    int64_t start = number * s->segment_bytes, left = parcel->bytes - start;
    *bytes = left < s->segment_bytes ? left : s->segment_bytes;
    return (char *)parcel->memory + start;
}

/* Bytes of a member's share in a segment. */
static int64_t share_room(const struct pp_sum *s)
{
    return s->segment_bytes / s->reduce->group.n / SHARE_LINE * SHARE_LINE;
}

/* A member's part of a segment of shares. */
static pp_status copy_share(struct pp_sum *s, const struct pp_parcel *parcel, int64_t number, int member, bool fetches)
{
    const int64_t start = number * share_room(s), left = parcel->shares->bytes - start;
    const int64_t bytes = left < share_room(s) ? left : share_room(s);
    char *host = (char *)s->segment[number % SEGMENTS] + member * bytes;
    for (int64_t done = 0; done < bytes;) {
        const struct pp_share_run run = pp_shares_run(parcel->shares, start + done, bytes - done);
        char *device = (char *)parcel->memory + run.offset + member * run.stride;
        PP_TRY(s->ops->copy(s->port.device, s->queue, fetches ? host + done : device, fetches ? device : host + done,
                            run.bytes));
        done += run.bytes;
    }
    return PP_OK;
}

/* Of a sum the parts of all are fetched, and this member's is brought back; else its own, and those of the others. */
static pp_status copy_shares(struct pp_sum *s, const struct pp_parcel *parcel, int64_t number, bool fetches)
{
    const bool sums = parcel->shares->use == PP_SHARES_SCATTER;
    for (int i = 0; i < s->reduce->group.n; i++) {
        const bool own = i == s->reduce->own, needed = fetches ? own || sums : own == sums;
        if (needed) PP_TRY(copy_share(s, parcel, number, i, fetches));
    }
    return PP_OK;
}

/* To its place on the host, or from there. */
static pp_status copy_segment(struct pp_sum *s, const struct pp_parcel *parcel, int64_t number, bool fetches)
{
    int64_t bytes;
    if (parcel->shares) return copy_shares(s, parcel, number, fetches);
    void *device = segment_of(s, parcel, number, &bytes), *host = s->segment[number % SEGMENTS];
    return s->ops->copy(s->port.device, s->queue, fetches ? host : device, fetches ? device : host, bytes);
}

/* Into the place of the segment two before, whose way back is in the same queue. */
static pp_status fetch(struct pp_sum *s, const struct pp_parcel *parcel)
{
    if (s->fetched == s->nsegments) return PP_OK;
    PP_TRY(copy_segment(s, parcel, s->fetched, true));
    return s->ops->record(s->port.device, s->queue, s->fetched_mark[s->fetched++ % SEGMENTS]);
}

static pp_status start_segment(struct pp_sum *s, const struct pp_parcel *parcel)
{
    void *segment = s->segment[s->summed % SEGMENTS];
    int64_t bytes;
    if (parcel->shares) {
        const int64_t left = parcel->shares->bytes - s->summed * share_room(s);
        pp_shares_set_plain(s->packed, parcel->shares->use, left < share_room(s) ? left : share_room(s));
        return pp_reduce_start_shares(s->port.world, s->reduce, segment, s->packed);
    }
    segment_of(s, parcel, s->summed, &bytes);
    return pp_reduce_start(s->port.world, s->reduce, segment, bytes / s->element_bytes);
}

/* Moves on with the oldest segment; *moved = false where that has to wait. */
static pp_status advance_segment(struct pp_sum *s, const struct pp_parcel *parcel, bool *moved)
{
    if (!s->reducing) {
        PP_TRY(s->ops->reached(s->port.device, s->fetched_mark[s->summed % SEGMENTS], moved));
        if (!*moved) return PP_OK;
        s->reducing = true;
        PP_TRY(start_segment(s, parcel));
    }
    PP_TRY(pp_reduce_poll(s->port.world, s->reduce));
    *moved = s->reduce->done;
    if (!*moved) return PP_OK;
    s->reducing = false;
    PP_TRY(copy_segment(s, parcel, s->summed++, false));
    return fetch(s, parcel);
}

static pp_status sum_poll(struct pp_sum *s, struct pp_parcel *parcel)
{
    for (bool moved = true; moved && s->summed < s->nsegments;) PP_TRY(advance_segment(s, parcel, &moved));
    if (parcel->issued || s->summed < s->nsegments) return PP_OK;
    PP_TRY(s->ops->record(s->port.device, s->queue, parcel->done));
    parcel->issued = true;
    return PP_OK;
}

static pp_status sum_start(struct pp_sum *s, struct pp_parcel *parcel, struct pp_mark *after)
{
    if (after) PP_TRY(s->ops->wait(s->port.device, s->queue, after));
    if (parcel->begun) PP_TRY(s->ops->record(s->port.device, s->queue, parcel->begun));
    parcel->issued = false;
    const int64_t bytes = parcel->shares ? parcel->shares->bytes : parcel->bytes;
    const int64_t room = parcel->shares ? share_room(s) : s->segment_bytes;
    s->nsegments = (bytes + room - 1) / room;
    s->fetched = s->summed = 0;
    for (int i = 0; i < SEGMENTS; i++) PP_TRY(fetch(s, parcel));
    return sum_poll(s, parcel);
}

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
    .sum_open = sum_open,
    .sum_close = sum_close,
    .sum_start = sum_start,
    .sum_poll = sum_poll,
};
