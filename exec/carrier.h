/* SPDX-License-Identifier: Apache-2.0
 *
 * Carriers: how the memory of queue devices (core/model/queue.h) gets from one worker to another, in queues, beside the
 * kernels. Host memory (control messages, losses, everything of the cpu) goes through exec/transport.h.
 *
 * Channels. A channel is one direction and kind of message between two workers, first in, first out. Each end has a
 * queue of its own and lives in one thread. send() and recv() return at once with a parcel that is `issued` either
 * already or after some poll(): then its work is in a queue and its mark `done` was recorded behind it, so that other
 * queues of the worker may wait for it. At the sender `done` means: the memory may be written again; at the receiver:
 * the data is there. The host never waits for the device here; a carrier may have to wait (by poll()) for the other
 * end's host thread to have issued its part, or for MPI. A parcel that is not issued must be polled until it is.
 *
 * Sums. Each member of a group gives equally much memory. Afterwards the memory of each member holds the element-wise
 * sum of all. With shares (exec/shares.h) a member gets the sum of its own share only, or the shares of the others as
 * they are. With pieces (exec/exchange.h) nothing is added: each member gets the pieces that the others have for it.
 *
 * Workers of one process use `inproc`; others the carrier that --transport names, or the first of pp_carriers that is
 * usable. All opens are collective: both ends of a channel open it, and all members of a sum. Every worker opens its
 * channels and sums in the same global order (lanes of the plan, then sums), so no circle of waiting workers arises.
 */
#ifndef PP_EXEC_CARRIER_H
#define PP_EXEC_CARRIER_H

#include "core/model/queue.h"
#include "exec/collective.h"
#include "exec/exchange.h"
#include "exec/shares.h"
#include "exec/transport.h"

/* What each end of a channel or sum needs of its worker. Everything is borrowed until the end is closed. */
struct pp_port {
    struct pp_world *world;
    const struct pp_backend *backend;
    struct pp_device *device;
    int me; /* worker */
};

/* One transfer at one end, in the caller's memory. It stays at one address until it is issued and its mark `done` is
 * reached. The parcel of a sum may go as soon as it is issued; its mark `done` may be recorded again as soon as all
 * queues that shall wait for it have been told to. */
struct pp_parcel {
    void *memory; /* of the device */
    /* Sums only. shares: which parts of the memory are summed, scattered or gathered; NULL: all of it is summed.
     * pieces: these are exchanged, and nothing is added; NULL: it is a sum. */
    const struct pp_shares *shares;
    const struct pp_pieces *pieces;
    int64_t bytes; /* of the memory; unused with shares */
    bool issued;
    /* The caller's marks, recorded in the channel's queue by the carrier: `begun` (NULL: not wanted) when this end is
     * ready and before anything moves, `done` behind the transfer. */
    struct pp_mark *begun, *done;
    /* the carrier's */
    struct pp_mark *after;
    uint64_t sequence;
    int state;
    struct pp_request request;
};

struct pp_channel_spec {
    struct pp_port port;
    int src, dst, kind; /* workers; enum pp_message_kind */
    int64_t most_bytes; /* largest parcel */
    int most_parcels;   /* open at once at one end */
};

struct pp_sum_spec {
    struct pp_port port;
    struct pp_group group; /* of two or more workers, this one among them */
    int64_t most_elements;
    int type; /* enum pp_sum_type */
    /* Which parcels will be started: those without shares (sums), those with shares (shares), and exchanges. */
    bool sums, shares;
    int pieces;              /* of an exchange for each member, at most; 0: there are no exchanges */
    int64_t exchanged_bytes; /* of all pieces of an exchange together, at most */
};

/* Each carrier defines its own. */
struct pp_channel;
struct pp_sum;

struct pp_carrier {
    const char *name, *summary;
    const char *mover; /* who moves the bytes, and when */
    const char *sums;  /* who orders the additions in sums of more than two; NULL: the order of members */
    /* A receive occupies the device until the other end sends. So it is posted at its place in the plan's list
     * (dep[2]), not as soon as its slot is free. */
    bool posts_in_order;
    /* May set environment variables. Called before any other function of any carrier, by the main thread, before any
     * other thread is started. shared: processes of the run share a device; alone: all are on one host. NULL: there is
     * nothing to prepare. */
    pp_status (*prepare)(bool shared, bool alone);
    /* Can it be used in this build and on this machine? PP_UNSUPPORTED with a reason. NULL: always. */
    pp_status (*available)(void);

    pp_status (*open)(const struct pp_channel_spec *spec, struct pp_channel **out);
    void (*close)(struct pp_channel *channel); /* NULL is fine */
    /* Starts a transfer. `after`: a mark of this worker, already recorded, that the transfer waits for: a send for its
     * data to be written, a receive for its slot to be free. NULL: it waits for nothing. The caller does not record the
     * mark again before the parcel is issued. */
    pp_status (*send)(struct pp_channel *channel, struct pp_parcel *parcel, struct pp_mark *after);
    pp_status (*recv)(struct pp_channel *channel, struct pp_parcel *parcel, struct pp_mark *after);
    /* Moves a parcel on that is not issued yet. Of several, the oldest is polled first. */
    pp_status (*poll)(struct pp_channel *channel, struct pp_parcel *parcel);
    /* PP_PEER where something failed outside of any call: a peer died, the network broke. NULL: that cannot happen. */
    pp_status (*check)(struct pp_channel *channel);
    /* After a failure: makes the work that this channel has in queues end soon, so that the device can be closed. NULL:
     * such work always ends by itself. */
    void (*abort)(struct pp_channel *channel);

    pp_status (*sum_open)(const struct pp_sum_spec *spec, struct pp_sum **out);
    void (*sum_close)(struct pp_sum *sum); /* NULL is fine */
    /* Starts a sum of parcel->memory, in place; with shares that memory is the base of their offsets. A member has one
     * sum under way at a time, and all members start theirs in the same order. */
    pp_status (*sum_start)(struct pp_sum *sum, struct pp_parcel *parcel, struct pp_mark *after);
    pp_status (*sum_poll)(struct pp_sum *sum, struct pp_parcel *parcel);
    pp_status (*sum_check)(struct pp_sum *sum); /* as check() */
    void (*sum_abort)(struct pp_sum *sum);      /* as abort() */
};

/* After a failure: waits until the queue is empty, for some seconds at most. mark: any mark of the device; it is
 * recorded. Failures of the waiting itself are ignored. */
void pp_port_rest(const struct pp_port *port, struct pp_queue *queue, struct pp_mark *mark);

#define PP_TRANSPORT(name, joins, needs)
#define PP_CARRIER(name, joins, needs, host_wait) extern const struct pp_carrier pp_carrier_##name;
#include "core/plan/movers.def"

/* The carriers between processes that this build has, in the order in which `auto` prefers them; NULL-terminated. */
extern const struct pp_carrier *const pp_carriers[];

#endif
