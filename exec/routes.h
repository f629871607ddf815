/* SPDX-License-Identifier: Apache-2.0
 *
 * The carriers of a worker on a queue device: a channel for each directed pair and kind that its plans use, the sum of
 * gradients over the replicas, the sum of squares over the ranks, sums over the workers of a rank. Workers of one
 * process are joined by `inproc`, others by the world's carrier.
 */
#ifndef PP_EXEC_ROUTES_H
#define PP_EXEC_ROUTES_H

#include "core/job.h"
#include "exec/carrier.h"

struct pp_route {
    int src, dst, kind; /* workers, enum pp_message_kind */
    const struct pp_carrier *carrier;
    struct pp_channel *channel;
};

struct pp_sum_route {
    const struct pp_carrier *carrier; /* NULL: there is nobody to sum with */
    struct pp_sum *sum;
};

struct pp_routes {
    int n;
    struct pp_route *routes; /* [n] */
    struct pp_sum_route gradient[PP_PARAM_SETS], norm;
    struct pp_sum_route share; /* with the groups that share, of a share */
    struct pp_sum_route tied;  /* with the rank that has the other copy of the embedding */
    /* Inside tasks, among the workers of the rank; those types that its programs join. */
    struct pp_sum_route joined[PP_JOIN_GROUPS][PP_SUM_TYPES];
};

/* Collective over all workers: all open what they take part in, in one order: channels in the order of replicas and of
 * lanes, training before evaluation; then sums of gradients, set by set, of shares, of copies, norms, sums of ranks;
 * where that may keep GPUs busy, one after the other. Closed by the caller even after a failure. */
pp_status pp_routes_open(const struct pp_port *port, const struct pp_job *job, struct pp_routes *out) PP_MUST_CHECK;
void pp_routes_close(struct pp_routes *routes);
/* Failures that no call reported. */
pp_status pp_routes_check(const struct pp_routes *routes) PP_MUST_CHECK;
/* After a failure: what is in queues ends soon. */
void pp_routes_abort(const struct pp_routes *routes);
/* NULL if there is none. */
const struct pp_route *pp_routes_find(const struct pp_routes *routes, int src, int dst, int kind);

#endif
