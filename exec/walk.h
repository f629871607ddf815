/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan as one rank walks it: its computations and collectives in issue order, and its end of each channel.
 * Everything that a task waits for on this rank is turned into counters ("the third receive of channel 1"), so that a
 * step looks nothing up.
 */
#ifndef PP_EXEC_WALK_H
#define PP_EXEC_WALK_H

#include "core/plan.h"

/* One stop on the way: a computation or a collective. */
struct pp_stop {
    int32_t task;
    int32_t recv_lane,
        recv_index;     /* the receive that brings its input: index into recv[], number in the step; -1 = none */
    int32_t send_lane;  /* where its output goes: index into send[]; -1 = nowhere */
    int32_t reductions; /* of what combines on this rank, so much must be done */
    bool after_norm;    /* needs the global norm */
};

/* This rank's end of a channel: the transfers of a step in their order. */
struct pp_channel_end {
    int peer;     /* rank at the other end */
    int transfer; /* PP_XFER_F or PP_XFER_B */
    int n;
    int32_t *tasks; /* [n] */
    /* What must have happened before number i: receive: the stop that empties its slot has been passed (its index; -1
     * = at once). Send: the slot's earlier send is done (its number, less n where it is one of the previous step). */
    int32_t *after; /* [n] */
    /* Receives: the stop before its place in the issue list (its index; -1 = none); never before after[]. Where a
     * posted receive occupies the device, it is posted only then. Sends: NULL. */
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
/* Transfers of a step, both directions. */
int64_t pp_walk_transfers(const struct pp_walk *walk);

#endif
