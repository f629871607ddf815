/* SPDX-License-Identifier: Apache-2.0
 *
 * What channels and sums of the carrier `inproc` share.
 */
#ifndef PP_EXEC_CARRIER_INPROC_H
#define PP_EXEC_CARRIER_INPROC_H

#include "exec/carrier.h"

enum { PP_INPROC_LINE = 64 };

/* Send and receive the address of memory, from one worker of this process to another. `pointer`: where the address is
 * read from, or stored to, during the call (a message so short is copied, see pp_send_now()). */
pp_status pp_inproc_hand_over(struct pp_world *world, int src, int dst, void *pointer) PP_MUST_CHECK;
pp_status pp_inproc_take_over(struct pp_world *world, int src, int dst, void *pointer) PP_MUST_CHECK;
/* Allocates zeroed memory that begins at a cache line and fills whole ones. out: address of the pointer to set. */
pp_status pp_inproc_shared(size_t bytes, void *out) PP_MUST_CHECK;
/* Puts into the queue what comes before the transfer at this end: waiting for the mark parcel->after, then recording
 * the mark parcel->begun. */
pp_status pp_inproc_begin(const struct pp_port *port, struct pp_queue *queue,
                          const struct pp_parcel *parcel) PP_MUST_CHECK;

pp_status pp_inproc_sum_open(const struct pp_sum_spec *spec, struct pp_sum **out) PP_MUST_CHECK;
void pp_inproc_sum_close(struct pp_sum *sum);
pp_status pp_inproc_sum_start(struct pp_sum *sum, struct pp_parcel *parcel, struct pp_mark *after) PP_MUST_CHECK;
pp_status pp_inproc_sum_poll(struct pp_sum *sum, struct pp_parcel *parcel) PP_MUST_CHECK;
void pp_inproc_sum_abort(struct pp_sum *sum);

#endif
