/* SPDX-License-Identifier: Apache-2.0
 *
 * Carriers: how the memory of queue devices (core/queue.h) gets from one worker to another, in queues, beside the
 * kernels. Host memory (control messages, losses, everything of the cpu) goes through exec/transport.h.
 *
 * Channels. A channel is one direction and kind of message between two workers, first in, first out. Each end has a
 * queue of its own and lives in one thread. send() and recv() return at once with a parcel that is `issued` either
 * already or after some poll(): then its work is in a queue and its mark `done` was recorded behind it, so that other
 * queues of the worker may wait for it. At the sender `done` means: the memory may be written again; at the receiver:
 * the data is there. The host never waits for the device here; a carrier may have to wait (by poll()) for the other
 * end's host thread to have issued its part, or for MPI. A parcel that is not issued must be polled until it is.
 *
 * Sums. All members of a group end with the element-wise sum of all, over their own part; or, of shares
 * (exec/shares.h), with the sum of their own, or with what the others have; or, of pieces (exec/exchange.h), with those
 * that are for them.
 *
 * Workers of one process use `inproc`; others the carrier that --transport names, or the first of pp_carriers that is
 * usable. All opens are collective: both ends of a channel, all members of a sum; every worker opens what it takes part
 * in in one global order (lanes of the plan, then sums), so they cannot wait for each other in a circle.
 */
#ifndef PP_EXEC_CARRIER_H
#define PP_EXEC_CARRIER_H

#include "core/queue.h"
#include "exec/collective.h"
#include "exec/exchange.h"
#include "exec/shares.h"
#include "exec/transport.h"

/* What every end needs. Borrowed for its life. */
struct pp_port {
    struct pp_world *world;
    const struct pp_backend *backend;
    struct pp_device *device;
    int me; /* worker */
};

/* One transfer at one end. Lives with the caller, at one address, until issued and its mark is reached; of a sum, until
 * it is issued, and `done` may then be recorded again, once the queues that wait for it have been told so. */
struct pp_parcel {
    void *memory;                   /* of the device */
    const struct pp_shares *shares; /* of a sum: what is done with which parts of the memory; NULL: all is summed */
    const struct pp_pieces *pieces; /* of a sum: in its place they are exchanged, and nothing is added; else NULL */
    int64_t bytes;                  /* without shares */
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
    int type;          /* enum pp_sum_type */
    bool sums, shares; /* what is asked for: parcels without shares, parcels with them */
    /* ... and parcels with so many pieces for each member, of so many bytes all together at most; 0: none */
    int pieces;
    int64_t exchanged_bytes;
};

struct pp_channel; /* the carrier's; begins with nothing that others may use */
struct pp_sum;

struct pp_carrier {
    const char *name, *summary;
    const char *mover; /* who moves the bytes, and when */
    const char *sums;  /* who orders the additions in sums of more than two; NULL: the order of members */
    bool
        posts_in_order; /* a receive occupies the device until it is matched, so it is posted at its place in the plan's
                          * list (dep[2]), not when its slot is free */
    /* NULL, or called before anything else is asked of any carrier, by the main thread before any other is started: it
     * may set the environment. shared: processes of the run share a device; alone: all are on one host. */
    pp_status (*prepare)(bool shared, bool alone);
    /* Can it be used in this build and on this machine? PP_UNSUPPORTED with a reason. NULL: always. */
    pp_status (*available)(void);

    pp_status (*open)(const struct pp_channel_spec *spec, struct pp_channel **out);
    void (*close)(struct pp_channel *channel); /* NULL is fine */
    /* `after`: a mark of this worker, recorded already, that the transfer must wait for: the data is written, the slot
     * is free; NULL: nothing. The caller does not record it again before the parcel is issued. */
    pp_status (*send)(struct pp_channel *channel, struct pp_parcel *parcel, struct pp_mark *after);
    pp_status (*recv)(struct pp_channel *channel, struct pp_parcel *parcel, struct pp_mark *after);
    /* In order, the oldest first. */
    pp_status (*poll)(struct pp_channel *channel, struct pp_parcel *parcel);
    /* Failures that no call reported: a dead peer, a network error. PP_PEER. NULL: there are none. */
    pp_status (*check)(struct pp_channel *channel);
    /* After a failure: whatever of it is in a queue ends soon, so that the device can be closed. NULL: it does. */
    void (*abort)(struct pp_channel *channel);

    pp_status (*sum_open)(const struct pp_sum_spec *spec, struct pp_sum **out);
    void (*sum_close)(struct pp_sum *sum); /* NULL is fine */
    /* One at a time, in the same order in all members. parcel->memory is summed in place; of shares it is the base. */
    pp_status (*sum_start)(struct pp_sum *sum, struct pp_parcel *parcel, struct pp_mark *after);
    pp_status (*sum_poll)(struct pp_sum *sum, struct pp_parcel *parcel);
    pp_status (*sum_check)(struct pp_sum *sum); /* these two as of a channel */
    void (*sum_abort)(struct pp_sum *sum);
};

/* After a failure: waits, some seconds at most, until the queue has worked off what is in it. mark: any of the device.
 * Keeps no failure. */
void pp_port_rest(const struct pp_port *port, struct pp_queue *queue, struct pp_mark *mark);

#define PP_TRANSPORT(name, joins, needs)
#define PP_CARRIER(name, joins, needs, host_wait) extern const struct pp_carrier pp_carrier_##name;
#include "core/movers.def"

/* Those between processes that this build has, in the order in which `auto` prefers them; NULL-terminated. */
extern const struct pp_carrier *const pp_carriers[];

#endif
