/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL. Every channel is a communicator of its two ends and a queue of its own: kernels of one communicator run one
 * after the other whatever their queue, so channels that shared one would wait for each other. A sum is a communicator
 * of its group. What is asked for is in the queue when the call returns.
 */
#include <stdio.h>
#include <stdlib.h>

#include "exec/nccl_line.h"

/* Thread blocks that an operation may keep while it waits for its peer and moves, and that kernels lack: few for a
 * stage's messages, more for a sum, which moves all gradients, one where others need the GPU too. */
enum { CHANNEL_BLOCKS = 2, SUM_BLOCKS = 16, SHARED_BLOCKS = 1 };

struct pp_channel {
    struct pp_nccl_line line;
};

struct pp_sum {
    struct pp_nccl_line line;
    int type, own, members; /* enum pp_sum_type; this worker's rank, of so many */
    /* Members that share a process and a device can not be ranks of one communicator. */
    struct pp_sum *instead; /* pp_carrier_staged's; else NULL */
};

/* Another NCCL may add in another order. */
static char sums_text[40] = "sums by NCCL";

/* Asked by the main thread, before there are workers. */
static pp_status available(void)
{
    const struct pp_nccl *nccl;
    PP_TRY(pp_nccl_load(&nccl));
    snprintf(sums_text, sizeof sums_text, "sums by NCCL %d.%d.%d", nccl->version / 10000, nccl->version / 100 % 100,
             nccl->version % 100);
    return PP_OK;
}

/* --- channels --- */

static void close_channel(struct pp_channel *c)
{
    if (!c) return;
    pp_nccl_line_close(&c->line);
    free(c);
}

static pp_status connect_channel(struct pp_channel *c, const struct pp_channel_spec *spec)
{
    bool sends = spec->port.me == spec->src;
    struct pp_world *world = spec->port.world;
    struct pp_nccl_place place = {.ranks = 2,
                                  .rank = sends ? 0 : 1,
                                  .use = sends ? PP_NCCL_SENDS : PP_NCCL_RECEIVES,
                                  .blocks = world->sharers > 1 ? SHARED_BLOCKS : CHANNEL_BLOCKS};
    PP_TRY(pp_nccl_line_open(&c->line, &spec->port));
    if (sends) {
        PP_TRY(pp_nccl_line_result(&c->line, c->line.nccl->get_unique_id(&place.id), "ncclGetUniqueId"));
        PP_TRY(pp_send_now(world, spec->src, spec->dst, PP_MESSAGE_CONTROL, &place.id, sizeof place.id));
    } else {
        PP_TRY(pp_recv_now(world, spec->src, spec->dst, PP_MESSAGE_CONTROL, &place.id, sizeof place.id));
    }
    return pp_nccl_line_join(&c->line, &place);
}

static pp_status open_channel(const struct pp_channel_spec *spec, struct pp_channel **out)
{
    struct pp_channel *c;
    PP_TRY(PP_NEW(&c, 1));
    *out = c; /* the caller closes it, even half open */
    PP_TRY(connect_channel(c, spec));
    snprintf(c->line.name, sizeof c->line.name, "channel from worker %d to %d", spec->src, spec->dst);
    return PP_OK;
}

static pp_status send(struct pp_channel *c, struct pp_parcel *parcel, struct pp_mark *after)
{
    PP_TRY(pp_nccl_line_begin(&c->line, parcel, after));
    return pp_nccl_line_end(
        &c->line, parcel,
        c->line.nccl->send(parcel->memory, (size_t)parcel->bytes, ncclInt8, 1, c->line.comm, c->line.stream),
        "ncclSend");
}

static pp_status recv(struct pp_channel *c, struct pp_parcel *parcel, struct pp_mark *after)
{
    PP_TRY(pp_nccl_line_begin(&c->line, parcel, after));
    return pp_nccl_line_end(
        &c->line, parcel,
        c->line.nccl->recv(parcel->memory, (size_t)parcel->bytes, ncclInt8, 0, c->line.comm, c->line.stream),
        "ncclRecv");
}

static pp_status poll(struct pp_channel *c, struct pp_parcel *parcel)
{
    (void)parcel;
    return c->line.comm ? PP_OK : pp_nccl_line_check(&c->line);
}

static pp_status check(struct pp_channel *c) { return pp_nccl_line_check(&c->line); }

static void abort_channel(struct pp_channel *c) { pp_nccl_line_abort(&c->line); }

/* --- sums --- */

static void sum_close(struct pp_sum *s)
{
    if (!s) return;
    pp_carrier_staged.sum_close(s->instead);
    pp_nccl_line_close(&s->line);
    free(s);
}

/* What the first member of a group tells the others: how they sum, and where they meet. */
struct invitation {
    bool staged;
    ncclUniqueId id;
};

static bool has_neighbour(const struct pp_sum_spec *spec)
{
    const struct pp_world *world = spec->port.world;
    int here = 0;
    for (int i = 0; i < spec->group.n; i++) {
        int worker = pp_group_worker(&spec->group, i);
        here += worker >= world->first && worker < world->first + world->count;
    }
    return here > 1;
}

/* The first member asks all others whether one communicator can hold them, and tells what is done. */
static pp_status agree(const struct pp_sum_spec *spec, struct pp_nccl_line *line, struct invitation *out)
{
    struct pp_world *world = spec->port.world;
    int me = spec->port.me, first = pp_group_worker(&spec->group, 0);
    bool crowded = world->sharers > 1 && has_neighbour(spec), theirs;
    if (me != first) {
        PP_TRY(pp_send_now(world, me, first, PP_MESSAGE_CONTROL, &crowded, sizeof crowded));
        return pp_recv_now(world, first, me, PP_MESSAGE_CONTROL, out, sizeof *out);
    }
    PP_TRY(pp_nccl_line_result(line, line->nccl->get_unique_id(&out->id), "ncclGetUniqueId"));
    out->staged = crowded;
    for (int i = 1; i < spec->group.n; i++) {
        PP_TRY(pp_recv_now(world, pp_group_worker(&spec->group, i), me, PP_MESSAGE_CONTROL, &theirs, sizeof theirs));
        out->staged = out->staged || theirs;
    }
    for (int i = 1; i < spec->group.n; i++)
        PP_TRY(pp_send_now(world, me, pp_group_worker(&spec->group, i), PP_MESSAGE_CONTROL, out, sizeof *out));
    return PP_OK;
}

static pp_status connect_sum(struct pp_sum *s, const struct pp_sum_spec *spec)
{
    struct invitation invitation = {0};
    PP_TRY(pp_nccl_line_open(&s->line, &spec->port));
    PP_TRY(agree(spec, &s->line, &invitation));
    if (invitation.staged) return pp_carrier_staged.sum_open(spec, &s->instead);
    const struct pp_nccl_place place = {.id = invitation.id,
                                        .ranks = spec->group.n,
                                        .rank = pp_group_member(&spec->group, spec->port.me),
                                        .use = (spec->sums ? PP_NCCL_SUMS : 0) | (spec->shares ? PP_NCCL_SHARES : 0) |
                                               (spec->pieces ? PP_NCCL_PIECES : 0),
                                        .type = spec->type,
                                        .most_bytes = spec->most_elements * pp_sum_bytes(spec->type),
                                        .blocks = spec->port.world->sharers > 1 ? SHARED_BLOCKS : SUM_BLOCKS};
    return pp_nccl_line_join(&s->line, &place);
}

static pp_status sum_open(const struct pp_sum_spec *spec, struct pp_sum **out)
{
    struct pp_sum *s;
    PP_TRY(PP_NEW(&s, 1));
    *out = s; /* the caller closes it, even half open */
    s->type = spec->type;
    s->own = pp_group_member(&spec->group, spec->port.me);
    s->members = spec->group.n;
    PP_TRY(connect_sum(s, spec));
    snprintf(s->line.name, sizeof s->line.name, "sum over workers %d to %d", pp_group_worker(&spec->group, 0),
             pp_group_worker(&spec->group, spec->group.n - 1));
    return PP_OK;
}

static ncclResult_t share_tensor(const struct pp_sum *s, const struct pp_parcel *parcel,
                                 const struct pp_share_tensor *tensor)
{
    const struct pp_nccl_line *line = &s->line;
    const size_t bytes = (size_t)tensor->part_bytes, elements = bytes / (size_t)pp_sum_bytes(s->type);
    char *all = (char *)parcel->memory + tensor->offset, *own = all + s->own * tensor->part_bytes;
    switch (parcel->shares->use) {
    case PP_SHARES_GATHER:
        return line->nccl->all_gather(own, all, bytes, ncclInt8, line->comm, line->stream);
    case PP_SHARES_SCATTER:
        return line->nccl->reduce_scatter(all, own, elements, pp_nccl_sum_types[s->type], ncclSum, line->comm,
                                          line->stream);
    default:
        return line->nccl->all_reduce(all, all, elements * (size_t)s->members, pp_nccl_sum_types[s->type], ncclSum,
                                      line->comm, line->stream);
    }
}

/* All tensors in one group, so that NCCL puts them into few kernels. */
static pp_status start_shares(struct pp_sum *s, struct pp_parcel *parcel, struct pp_mark *after)
{
    static const char *const calls[] = {[PP_SHARES_SCATTER] = "ncclReduceScatter",
                                        [PP_SHARES_GATHER] = "ncclAllGather",
                                        [PP_SHARES_SUM] = "ncclAllReduce"};
    struct pp_nccl_line *line = &s->line;
    PP_TRY(pp_nccl_line_begin(line, parcel, after));
    ncclResult_t result = line->nccl->group_start();
    const bool open = result == ncclSuccess;
    for (int t = 0; t < parcel->shares->n && result == ncclSuccess; t++)
        result = share_tensor(s, parcel, &parcel->shares->tensors[t]);
    const ncclResult_t end = open ? line->nccl->group_end() : result;
    return pp_nccl_line_end(line, parcel, result == ncclSuccess ? end : result, calls[parcel->shares->use]);
}

static ncclResult_t exchange_piece(const struct pp_sum *s, const struct pp_pieces *p, int peer, int k)
{
    const struct pp_nccl_line *line = &s->line;
    const char *from = (const char *)p->from + pp_piece_sent(p, peer, k);
    char *to = (char *)p->to + pp_piece_received(p, peer, k);
    const size_t bytes = (size_t)p->piece_bytes;
    ncclResult_t result = ncclSuccess;
    if (pp_pieces_go(p, s->own, peer)) result = line->nccl->send(from, bytes, ncclInt8, peer, line->comm, line->stream);
    if (pp_pieces_go(p, peer, s->own) && result == ncclSuccess)
        result = line->nccl->recv(to, bytes, ncclInt8, peer, line->comm, line->stream);
    return result;
}

static pp_status copy_own_pieces(struct pp_sum *s, const struct pp_pieces *p)
{
    struct pp_nccl_line *line = &s->line;
    if (!pp_pieces_go(p, s->own, s->own)) return PP_OK;
    for (int turn = 0; turn < pp_pieces_turns(p); turn++) {
        const struct pp_strided own = pp_pieces_between(p, s->own, p->from, s->own, turn);
        PP_TRY(line->ops->copy_strided(line->port.device, line->queue, &own));
    }
    return PP_OK;
}

/* This worker's own are copied before the group, whose operations NCCL starts at its end. */
static pp_status start_pieces(struct pp_sum *s, struct pp_parcel *parcel, struct pp_mark *after)
{
    struct pp_nccl_line *line = &s->line;
    const struct pp_pieces *p = parcel->pieces;
    PP_TRY(pp_nccl_line_begin(line, parcel, after));
    PP_TRY(copy_own_pieces(s, p));
    ncclResult_t result = line->nccl->group_start();
    const bool open = result == ncclSuccess;
    for (int i = 0; i < p->members * p->each && result == ncclSuccess; i++)
        if (i / p->each != s->own) result = exchange_piece(s, p, i / p->each, i % p->each);
    const ncclResult_t end = open ? line->nccl->group_end() : result;
    return pp_nccl_line_end(line, parcel, result == ncclSuccess ? end : result, "ncclSend and ncclRecv");
}

static pp_status sum_start(struct pp_sum *s, struct pp_parcel *parcel, struct pp_mark *after)
{
    if (s->instead) return pp_carrier_staged.sum_start(s->instead, parcel, after);
    if (parcel->pieces) return start_pieces(s, parcel, after);
    if (parcel->shares) return start_shares(s, parcel, after);
    const size_t n = (size_t)(parcel->bytes / pp_sum_bytes(s->type));
    PP_TRY(pp_nccl_line_begin(&s->line, parcel, after));
    return pp_nccl_line_end(&s->line, parcel,
                            s->line.nccl->all_reduce(parcel->memory, parcel->memory, n, pp_nccl_sum_types[s->type],
                                                     ncclSum, s->line.comm, s->line.stream),
                            "ncclAllReduce");
}

static pp_status sum_poll(struct pp_sum *s, struct pp_parcel *parcel)
{
    if (s->instead) return pp_carrier_staged.sum_poll(s->instead, parcel);
    return s->line.comm ? PP_OK : pp_nccl_line_check(&s->line);
}

static pp_status sum_check(struct pp_sum *s) { return s->instead ? PP_OK : pp_nccl_line_check(&s->line); }

static void sum_abort(struct pp_sum *s)
{
    if (!s->instead) pp_nccl_line_abort(&s->line);
}

const struct pp_carrier pp_carrier_nccl = {
    .name = "nccl",
    .summary = "between GPUs of several processes: NVLink, PCIe or the network",
    .mover = "thread blocks of both GPUs, from when both ends are ready",
    .sums = sums_text,
    .posts_in_order = true,
    .prepare = pp_nccl_set_environment,
    .available = available,
    .open = open_channel,
    .close = close_channel,
    .send = send,
    .recv = recv,
    .poll = poll,
    .check = check,
    .abort = abort_channel,
    .sum_open = sum_open,
    .sum_close = sum_close,
    .sum_start = sum_start,
    .sum_poll = sum_poll,
    .sum_check = sum_check,
    .sum_abort = sum_abort,
};
