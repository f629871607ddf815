/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges: all to all, and shifts.
 *
 * All to all: each member of a group sends to every other member the same number of pieces of equal size. Three uses:
 * members that share experts (pp_shape.expert_parallel): a piece is the part of one expert's places that the tokens of
 * one member may take. Members that share the tokens of rows, by exchanging heads (pp_shape.context): a piece is what
 * the tokens of one member, of one row, have for the heads of one member. Members that share tokens and gather keys
 * (pp_shape_gathers_keys): a piece is the keys and values of one chunk of one row.
 *
 * Shift: each member sends one piece, to the next member, and the last one to the first.
 */
#ifndef PP_EXEC_EXCHANGE_H
#define PP_EXEC_EXCHANGE_H

#include "core/model/queue.h"
#include "exec/collective.h"

/* What is exchanged. There are two layouts of members * each pieces:
 *   here:  the pieces for member 0 (`each` of them), then those for member 1, and so on;
 *   there: the first piece from every member, in the order of members; then the second piece from every member, ...
 * An exchange goes from the layout `here` of the senders to the layout `there` of the receivers, or back.
 *
 * halves: a member has each / 2 rows, and two chunks of each row. `here` are the `each` chunks of one member, which all
 * members get alike. `there` are whole rows, one behind the other: of a row the first chunks of members 0 .. n-1, then
 * the second chunks of members n-1 .. 0. Back, `there` holds for each chunk of each member a piece of its own, and
 * `here` receives, member after member, what that member has for the chunks of this one.
 *
 * shift: `from` and `to` are one piece each (each: 1), and have no layout. */
struct pp_pieces {
    const void *from;
    void *to;
    int members, each;
    bool back; /* `from` has the layout there, and `to` the layout here; else the other way round */
    bool halves;
    bool shift;
    int64_t piece_bytes;
};

/* The pieces of a call that exchanges (pp_join_exchanges()) in a group of so many workers. */
struct pp_pieces pp_pieces_of(const struct pp_join_call *call, int members);

/* Has member `from` pieces for member `to`? In an all to all for every member, itself included. */
static inline bool pp_pieces_go(const struct pp_pieces *pieces, int from, int to)
{
    return !pieces->shift || to == (from + 1) % pieces->members;
}

/* Offsets in bytes, k in 0 .. each-1: in `from` of any member, where the k-th piece for `member` begins; in `to`, where
 * the k-th piece from `member` begins. If there is one, see pp_pieces_go(). */
int64_t pp_piece_sent(const struct pp_pieces *pieces, int member, int k);
int64_t pp_piece_received(const struct pp_pieces *pieces, int member, int k);
/* What member `own` gets from `member`, which has something for it, as strided copies: one for each turn, for only the
 * pieces of one turn have equal distances both in `from` and in `to`. from: that of `member`. */
static inline int pp_pieces_turns(const struct pp_pieces *pieces) { return pieces->halves ? 2 : 1; }
struct pp_strided pp_pieces_between(const struct pp_pieces *pieces, int member, const void *from, int own, int turn);
/* Bytes of `to`: those of all pieces. */
static inline int64_t pp_pieces_bytes(const struct pp_pieces *pieces)
{
    return pieces->piece_bytes * pieces->each * (pieces->shift ? 1 : pieces->members);
}
/* Bytes of `from`: as many; fewer where all members get the same pieces. */
int64_t pp_pieces_sent_bytes(const struct pp_pieces *pieces);

/* Exchanges memory of the host by messages, one for each piece. It progresses when it is polled. */
struct pp_exchange {
    struct pp_group group;
    int own; /* this worker's position in the group */
    struct pp_request *requests; /* sends and receives */
    int n, most;                 /* requests of the exchange that is under way; room for so many */
    bool done;
};

/* most_each: the most pieces for one member. *out may be set even after a failure, and is then to be freed. */
pp_status pp_exchange_create(struct pp_group group, int me, int most_each, struct pp_exchange **out) PP_MUST_CHECK;
void pp_exchange_free(struct pp_exchange *exchange); /* NULL is fine */
/* One exchange at a time is under way; all members start theirs in the same order. */
pp_status pp_exchange_start(struct pp_world *world, struct pp_exchange *exchange,
                            const struct pp_pieces *pieces) PP_MUST_CHECK;
pp_status pp_exchange_poll(struct pp_world *world, struct pp_exchange *exchange) PP_MUST_CHECK;

#endif
