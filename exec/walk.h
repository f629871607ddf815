/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan as one rank executes it: its computations and collectives (stops) in issue order, and its ends of channels.
 * What a task waits for is stored as numbers ("the third receive of channel 1"), so that a step need not search the
 * plan.
 */
#ifndef PP_EXEC_WALK_H
#define PP_EXEC_WALK_H

#include "core/plan/plan.h"

/* One stop on the way: a computation or a collective. */
struct pp_stop {
    int32_t task;
    /* The receive that brings its input: index into pp_walk.recv[], and number in the step; -1, both: there is none. */
    int32_t recv_lane, recv_index;
    int32_t send_lane;  /* the channel of its output: index into pp_walk.send[]; -1: there is none */
    int32_t reductions; /* collectives of this rank (pp_combines()), the first so many, that must be done before */
    bool after_norm;    /* the global norm must be known before */
};

/* This rank's end of a channel: the transfers of a step in their order. */
struct pp_channel_end {
    int peer;     /* rank at the other end */
    int transfer; /* PP_XFER_F or PP_XFER_B */
    int n;
    int32_t *tasks; /* [n] */
    /* What transfer i waits for. Receive: index of the stop that frees its slot; -1: it waits for nothing. Send: number
     * of the send that used the slot before; numbers below 0 are of the previous step (its send number + n). */
    int32_t *after; /* [n] */
    /* Receives: index of the stop before the receive's place in the issue list; -1: there is none. It is never an
     * earlier stop than after[i]. With a carrier whose receives occupy the device, receives wait for this stop. Sends:
     * NULL. */
    int32_t *place; /* [n] */
};

struct pp_walk {
    const struct pp_plan *plan;
    int rank;
    int nstops, nrecv, nsend;
    struct pp_stop *stops;
    struct pp_channel_end *recv, *send;
};

pp_status pp_walk_create(const struct pp_plan *plan, int rank, struct pp_walk **out) PP_MUST_CHECK;
void pp_walk_free(struct pp_walk *walk); /* NULL is fine */
/* Number of transfers of a step, sends and receives. */
int64_t pp_walk_transfers(const struct pp_walk *walk);

#endif
