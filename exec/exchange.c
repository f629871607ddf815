/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exchange.h"

#include <stdlib.h>
#include <string.h>

struct pp_pieces pp_pieces_of(const struct pp_join_call *call, int members)
{
    const int64_t bytes = call->elements * pp_sum_bytes(call->type);
    struct pp_pieces pieces = {.from = call->from, .to = call->memory, .members = members};
    pieces.shift = call->op == PP_JOIN_SHIFT;
    pieces.each = pieces.shift ? 1 : call->each;
    pieces.piece_bytes = pieces.shift ? bytes : bytes / members / call->each;
    pieces.back = call->back;
    pieces.halves = call->halves;
    return pieces;
}

/* The place of the k-th piece for `member` in the layout `here` (exec/exchange.h). With halves all members get the same
 * chunks, so there is only one of each. */
static int64_t here(const struct pp_pieces *p, int member, int k)
{
    return p->halves && !p->back ? k : (int64_t)member * p->each + k;
}

/* Chunks lie as a row has them: from the first member to the last one, and back. */
static int64_t there(const struct pp_pieces *p, int member, int k)
{
    if (!p->halves) return (int64_t)k * p->members + member;
    return ((int64_t)(k / 2) * 2 + k % 2) * p->members + (k % 2 ? p->members - 1 - member : member);
}

/* Without a layout there is one piece, and it is the first. */
static int64_t place(const struct pp_pieces *p, bool is_there, int member, int k)
{
    if (p->shift) return k;
    return is_there ? there(p, member, k) : here(p, member, k);
}

int64_t pp_piece_sent(const struct pp_pieces *p, int member, int k)
{
    return place(p, p->back, member, k) * p->piece_bytes;
}

int64_t pp_piece_received(const struct pp_pieces *p, int member, int k)
{
    return place(p, !p->back, member, k) * p->piece_bytes;
}

int64_t pp_pieces_sent_bytes(const struct pp_pieces *p)
{
    return p->halves && !p->back ? p->piece_bytes * p->each : pp_pieces_bytes(p);
}

struct pp_strided pp_pieces_between(const struct pp_pieces *p, int member, const void *from, int own, int turn)
{
    const int turns = pp_pieces_turns(p);
    const int64_t sent = pp_piece_sent(p, own, turn), received = pp_piece_received(p, member, turn);
    return (struct pp_strided){.to = (char *)p->to + received,
                               .from = (const char *)from + sent,
                               .to_stride = pp_piece_received(p, member, turn + turns) - received,
                               .from_stride = pp_piece_sent(p, own, turn + turns) - sent,
                               .bytes = p->piece_bytes,
                               .n = p->each / turns};
}

pp_status pp_exchange_create(struct pp_group group, int me, int most_each, struct pp_exchange **out)
{
    struct pp_exchange *x;
    PP_TRY(PP_NEW(&x, 1));
    *out = x; /* the caller frees it, even half made */
    x->group = group;
    x->own = pp_group_member(&group, me);
    x->most = 2 * (group.n - 1) * most_each;
    x->done = true;
    return PP_NEW(&x->requests, x->most);
}

void pp_exchange_free(struct pp_exchange *x)
{
    if (!x) return;
    free(x->requests);
    free(x);
}

/* The k-th piece for a member, and the k-th one from it, if there are such. */
static pp_status post(struct pp_world *world, struct pp_exchange *x, const struct pp_pieces *p, int member, int k)
{
    const int me = pp_group_worker(&x->group, x->own), peer = pp_group_worker(&x->group, member);
    const bool sends = pp_pieces_go(p, x->own, member), receives = pp_pieces_go(p, member, x->own);
    char *to = (char *)p->to + pp_piece_received(p, member, k);
    const char *from = (const char *)p->from + pp_piece_sent(p, member, k);
    if (member == x->own) {
        if (sends) memcpy(to, from, (size_t)p->piece_bytes);
        return PP_OK;
    }
    if (x->n + sends + receives > x->most) return pp_fail(PP_INTERNAL, "more than %d messages of pieces", x->most);
    if (receives) PP_TRY(pp_recv(world, peer, me, PP_MESSAGE_PIECE, to, p->piece_bytes, &x->requests[x->n++]));
    if (sends) PP_TRY(pp_send(world, me, peer, PP_MESSAGE_PIECE, from, p->piece_bytes, &x->requests[x->n++]));
    return PP_OK;
}

pp_status pp_exchange_start(struct pp_world *world, struct pp_exchange *x, const struct pp_pieces *p)
{
    x->n = 0;
    x->done = false;
    for (int i = 0; i < x->group.n; i++) {
        const int member = (x->own + i) % x->group.n; /* not all to the same member at once */
        for (int k = 0; k < p->each; k++) PP_TRY(post(world, x, p, member, k));
    }
    return pp_exchange_poll(world, x);
}

pp_status pp_exchange_poll(struct pp_world *world, struct pp_exchange *x)
{
    bool done = true;
    for (int i = 0; i < x->n && !x->done; i++) {
        PP_TRY(pp_test(world, &x->requests[i]));
        done = done && x->requests[i].done;
    }
    x->done = x->done || done;
    return PP_OK;
}
