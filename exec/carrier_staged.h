/* SPDX-License-Identifier: Apache-2.0
 *
 * What channels and sums of the carrier `staged` share.
 */
#ifndef PP_EXEC_CARRIER_STAGED_H
#define PP_EXEC_CARRIER_STAGED_H

#include "exec/carrier.h"

/* NULL is fine in all of these. */
static inline void pp_staged_destroy_mark(const struct pp_port *port, struct pp_mark *mark)
{
    if (mark) port->backend->queue->mark_destroy(port->device, mark);
}

static inline void pp_staged_destroy_queue(const struct pp_port *port, struct pp_queue *queue)
{
    if (queue) port->backend->queue->queue_destroy(port->device, queue);
}

static inline void pp_staged_release(const struct pp_port *port, void *memory)
{
    if (memory) port->backend->queue->host_release(port->device, memory);
}

/* As in struct pp_carrier. */
pp_status pp_staged_sum_open(const struct pp_sum_spec *spec, struct pp_sum **out) PP_MUST_CHECK;
void pp_staged_sum_close(struct pp_sum *sum);
pp_status pp_staged_sum_start(struct pp_sum *sum, struct pp_parcel *parcel, struct pp_mark *after) PP_MUST_CHECK;
pp_status pp_staged_sum_poll(struct pp_sum *sum, struct pp_parcel *parcel) PP_MUST_CHECK;

#endif
