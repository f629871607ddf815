/* SPDX-License-Identifier: Apache-2.0
 *
 * The open channels and sums of a worker on a queue device: a channel for each pair of workers, direction and kind of
 * message that its plans use; the sums of gradients over replicas, of squares over ranks, and over the workers of a
 * rank. Workers of one process are joined by the carrier `inproc`, others by the world's carrier.
 */
#ifndef PP_EXEC_ROUTES_H
#define PP_EXEC_ROUTES_H

#include "core/job/job.h"
#include "exec/carrier.h"

struct pp_route {
    int src, dst, kind; /* workers, enum pp_message_kind */
    const struct pp_carrier *carrier;
    struct pp_channel *channel;
};

struct pp_sum_route {
    const struct pp_carrier *carrier; /* NULL: the sum has no other members */
    struct pp_sum *sum;
};

struct pp_routes {
    int n;
    struct pp_route *routes; /* [n] */
    struct pp_sum_route gradient[PP_PARAM_SETS], norm;
    struct pp_sum_route share; /* of this worker's share of the gradients, over the groups of replicas that share */
    struct pp_sum_route tied;  /* of the embedding's gradient, with the rank that has its other copy */
    /* Inside tasks, over workers of the rank; open for the types of numbers that the rank's programs sum. */
    struct pp_sum_route joined[PP_JOIN_GROUPS][PP_SUM_TYPES];
};

/* Opens the channels and sums in which this worker takes part. All workers call it, and all open in the same order:
 * channels by replica and lane, those of training before those of evaluation; then the sums of gradients, set by set,
 * of shares, of tied embeddings, of norms, and inside tasks. Where opening may keep a GPU busy, workers wait for each
 * other after each. The caller closes *out, also after a failure. */
pp_status pp_routes_open(const struct pp_port *port, const struct pp_job *job, struct pp_routes *out) PP_MUST_CHECK;
/* How many of these channels and sums a worker has that the world's carrier joins with other processes. */
int pp_routes_crossing(const struct pp_world *world, const struct pp_job *job, int worker);
void pp_routes_close(struct pp_routes *routes);
/* PP_PEER where a channel or sum failed outside of any call. */
pp_status pp_routes_check(const struct pp_routes *routes) PP_MUST_CHECK;
/* After a failure: makes the transfers that are in queues end soon. */
void pp_routes_abort(const struct pp_routes *routes);
/* The channel of this worker from src to dst; NULL if there is none. */
const struct pp_route *pp_routes_find(const struct pp_routes *routes, int src, int dst, int kind);

#endif
