/* SPDX-License-Identifier: Apache-2.0
 *
 * All to all: of equal pieces each member of a group sends some to every other. With experts that the members share
 * (pp_shape.expert_parallel), a piece is the places of one expert that one member's tokens may take; with tokens that
 * they share (pp_shape.context), what one member's tokens of a row have of one member's heads, or the keys and values
 * of one of its chunks of a row.
 */
#ifndef PP_EXEC_EXCHANGE_H
#define PP_EXEC_EXCHANGE_H

#include "core/queue.h"
#include "exec/collective.h"

/* What is exchanged: from and to hold members * each pieces. Here pieces lie in the order of the members that they are
 * for, `each` for every one; there, at such a member, the first pieces of all members one behind the other in the order
 * of these, then the second ones, and so on. halves: each has as many rows as half of its pieces, and of each row two
 * chunks. Here is what one member has of all rows, and sends to all; there is what all have, row after row, of each the
 * first chunks of all members, then the second ones, of the last member first. Back comes, member after member, what
 * each has for the chunks of this one. */
struct pp_pieces {
    const void *from;
    void *to;
    int members, each;
    bool back; /* from there to here; else from here to there */
    bool halves;
    int64_t piece_bytes;
};

/* Of a join (PP_JOIN_ALL_TO_ALL) of so many workers. */
struct pp_pieces pp_pieces_of(const struct pp_join_call *call, int members);

/* Where the k-th piece for a member begins in any member's `from`, and the k-th one from a member in its `to`; k in
 * 0 .. each-1. Bytes. */
int64_t pp_piece_sent(const struct pp_pieces *pieces, int member, int k);
int64_t pp_piece_received(const struct pp_pieces *pieces, int member, int k);
/* All that member `own` gets of `member`, whose `from` is given, in so many turns: of each there are even distances
 * between them on both sides. */
static inline int pp_pieces_turns(const struct pp_pieces *pieces) { return pieces->halves ? 2 : 1; }
struct pp_strided pp_pieces_between(const struct pp_pieces *pieces, int member, const void *from, int own, int turn);
static inline int64_t pp_pieces_bytes(const struct pp_pieces *pieces)
{
    return pieces->piece_bytes * pieces->members * pieces->each;
}
/* Of `from`: those of all that come, unless all members get the same. */
int64_t pp_pieces_sent_bytes(const struct pp_pieces *pieces);

/* By messages, in memory of the host: a message for each piece. It progresses when it is polled. */
struct pp_exchange {
    struct pp_group group;
    int own; /* this worker's position in the group */
    struct pp_request *sends, *receives;
    int n, most; /* requests of each: of the one under way, and that there is room for */
    bool done;
};

/* most_each: of each member. */
pp_status pp_exchange_create(struct pp_group group, int me, int most_each, struct pp_exchange **out) PP_MUST_CHECK;
void pp_exchange_free(struct pp_exchange *exchange); /* NULL is fine */
/* One at a time, in the same order in all members. */
pp_status pp_exchange_start(struct pp_world *world, struct pp_exchange *exchange,
                            const struct pp_pieces *pieces) PP_MUST_CHECK;
pp_status pp_exchange_poll(struct pp_world *world, struct pp_exchange *exchange) PP_MUST_CHECK;

#endif
