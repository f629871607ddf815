/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums segment by segment: to the host, through pp_reduce, back. Of shares a segment has the same piece of each
 * member's, one behind the other, and only what others need of it is fetched, or new brought back. Pieces that are
 * exchanged go all at once.
 */
#include <stdlib.h>

#include "exec/carrier_staged.h"
#include "exec/reduce.h"

enum {
    SEGMENTS = 2,                                  /* one is copied while one is added */
    SEGMENT_BYTES = 16 << 20,                      /* far more than the pieces that pp_reduce has under way */
    SHARE_LINE = PP_PART_LINE * (int)sizeof(float) /* bytes of which a share's part of a segment has a multiple */
};

struct pp_sum {
    struct pp_port port;
    const struct pp_queue_ops *ops;
    struct pp_queue *queue;
    struct pp_reduce *reduce;
    void *segment[SEGMENTS];
    struct pp_mark *fetched_mark[SEGMENTS];
    int64_t segment_bytes;
    int element_bytes;
    struct pp_shares *packed;     /* a segment's, as one tensor */
    struct pp_exchange *exchange; /* of pieces, all of them at once; NULL: there are none */
    void *sent, *received;
    /* the one under way */
    int64_t nsegments, fetched, summed;
    bool reducing;
};

void pp_staged_sum_close(struct pp_sum *s)
{
    if (!s) return;
    pp_staged_destroy_queue(&s->port, s->queue);
    pp_reduce_free(s->reduce);
    free(s->packed);
    pp_exchange_free(s->exchange);
    pp_staged_release(&s->port, s->sent);
    pp_staged_release(&s->port, s->received);
    for (int i = 0; i < SEGMENTS; i++) {
        pp_staged_release(&s->port, s->segment[i]);
        pp_staged_destroy_mark(&s->port, s->fetched_mark[i]);
    }
    free(s);
}

static pp_status open_exchange(struct pp_sum *s, const struct pp_sum_spec *spec)
{
    PP_TRY(pp_exchange_create(spec->group, s->port.me, spec->pieces, &s->exchange));
    PP_TRY(s->ops->host_alloc(s->port.device, spec->exchanged_bytes, &s->sent));
    return s->ops->host_alloc(s->port.device, spec->exchanged_bytes, &s->received);
}

static pp_status open_sum_parts(struct pp_sum *s, const struct pp_sum_spec *spec)
{
    if (spec->pieces) PP_TRY(open_exchange(s, spec));
    PP_TRY(s->ops->queue_create(s->port.device, &s->queue));
    for (int i = 0; i < SEGMENTS; i++) PP_TRY(s->ops->mark_create(s->port.device, false, &s->fetched_mark[i]));
    if (!spec->sums && !spec->shares) return PP_OK;
    for (int i = 0; i < SEGMENTS; i++) PP_TRY(s->ops->host_alloc(s->port.device, s->segment_bytes, &s->segment[i]));
    PP_TRY(pp_shares_create_plain(&s->packed));
    return pp_reduce_create_host(spec->group, s->port.me, spec->type, s->segment_bytes, &s->reduce);
}

/* Bytes of a share, rounded up so that segments end where lines of it do. */
static int64_t whole_lines(int64_t bytes) { return (bytes + SHARE_LINE - 1) / SHARE_LINE * SHARE_LINE; }

pp_status pp_staged_sum_open(const struct pp_sum_spec *spec, struct pp_sum **out)
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
        pp_staged_sum_close(s);
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

/* Copies the shares of a segment to the host (`fetches`) or back. To the host go the shares of all members, where they
 * are summed; where they are only gathered, this member's own. Back come those that this member did not have: its own,
 * if it was summed, and the others', if they are gathered. */
static pp_status copy_shares(struct pp_sum *s, const struct pp_parcel *parcel, int64_t number, bool fetches)
{
    const bool sums = parcel->shares->use != PP_SHARES_GATHER, tells = parcel->shares->use != PP_SHARES_SCATTER;
    for (int i = 0; i < s->reduce->group.n; i++) {
        const bool own = i == s->reduce->own, needed = own ? fetches || sums : fetches ? sums : tells;
        if (needed) PP_TRY(copy_share(s, parcel, number, i, fetches));
    }
    return PP_OK;
}

/* Copies a segment to its place on the host (`fetches`), or from there to the device. */
static pp_status copy_segment(struct pp_sum *s, const struct pp_parcel *parcel, int64_t number, bool fetches)
{
    int64_t bytes;
    if (parcel->shares) return copy_shares(s, parcel, number, fetches);
    void *device = segment_of(s, parcel, number, &bytes), *host = s->segment[number % SEGMENTS];
    return s->ops->copy(s->port.device, s->queue, fetches ? host : device, fetches ? device : host, bytes);
}

/* Queues the copy of the next segment to the host. It takes the place of the segment two before, whose way back is in
 * the same queue. */
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

/* What is sent is on the host: then the messages, then what has come to the device. */
static pp_status poll_pieces(struct pp_sum *s, struct pp_parcel *parcel)
{
    bool fetched = true;
    if (parcel->issued) return PP_OK;
    if (!s->reducing) {
        struct pp_pieces pieces = *parcel->pieces;
        pieces.from = s->sent;
        pieces.to = s->received;
        PP_TRY(s->ops->reached(s->port.device, s->fetched_mark[0], &fetched));
        if (!fetched) return PP_OK;
        s->reducing = true;
        PP_TRY(pp_exchange_start(s->port.world, s->exchange, &pieces));
    }
    PP_TRY(pp_exchange_poll(s->port.world, s->exchange));
    if (!s->exchange->done) return PP_OK;
    s->reducing = false;
    PP_TRY(s->ops->copy(s->port.device, s->queue, parcel->pieces->to, s->received, pp_pieces_bytes(parcel->pieces)));
    PP_TRY(s->ops->record(s->port.device, s->queue, parcel->done));
    parcel->issued = true;
    return PP_OK;
}

static pp_status start_pieces(struct pp_sum *s, struct pp_parcel *parcel)
{
    PP_TRY(s->ops->copy(s->port.device, s->queue, s->sent, parcel->pieces->from, pp_pieces_sent_bytes(parcel->pieces)));
    PP_TRY(s->ops->record(s->port.device, s->queue, s->fetched_mark[0]));
    return poll_pieces(s, parcel);
}

pp_status pp_staged_sum_poll(struct pp_sum *s, struct pp_parcel *parcel)
{
    if (parcel->pieces) return poll_pieces(s, parcel);
    for (bool moved = true; moved && s->summed < s->nsegments;) PP_TRY(advance_segment(s, parcel, &moved));
    if (parcel->issued || s->summed < s->nsegments) return PP_OK;
    PP_TRY(s->ops->record(s->port.device, s->queue, parcel->done));
    parcel->issued = true;
    return PP_OK;
}

pp_status pp_staged_sum_start(struct pp_sum *s, struct pp_parcel *parcel, struct pp_mark *after)
{
    if (after) PP_TRY(s->ops->wait(s->port.device, s->queue, after));
    if (parcel->begun) PP_TRY(s->ops->record(s->port.device, s->queue, parcel->begun));
    parcel->issued = false;
    if (parcel->pieces) return start_pieces(s, parcel);
    const int64_t bytes = parcel->shares ? parcel->shares->bytes : parcel->bytes;
    const int64_t room = parcel->shares ? share_room(s) : s->segment_bytes;
    s->nsegments = (bytes + room - 1) / room;
    s->fetched = s->summed = 0;
    for (int i = 0; i < SEGMENTS; i++) PP_TRY(fetch(s, parcel));
    return pp_staged_sum_poll(s, parcel);
}
