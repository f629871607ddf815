/* SPDX-License-Identifier: Apache-2.0
 *
 * What channels and sums of the carrier `inproc` share.
 */
#ifndef PP_EXEC_CARRIER_INPROC_H
#define PP_EXEC_CARRIER_INPROC_H

#include "exec/carrier.h"

enum { PP_INPROC_LINE = 64 };

/* A pointer from one worker to another of this process. The memory at `pointer` must live until the world is closed or
 * all have stopped. */
pp_status pp_inproc_hand_over(struct pp_world *world, int src, int dst, void *pointer) PP_MUST_CHECK;
pp_status pp_inproc_take_over(struct pp_world *world, int src, int dst, void *pointer) PP_MUST_CHECK;
/* Whole cache lines, zeroed; *out is the pointer. */
pp_status pp_inproc_shared(size_t bytes, void *out) PP_MUST_CHECK;
/* Puts into the queue what comes before a transfer at this end: the wait for parcel->after, and the mark `begun`. */
pp_status pp_inproc_begin(const struct pp_port *port, struct pp_queue *queue,
                          const struct pp_parcel *parcel) PP_MUST_CHECK;

pp_status pp_inproc_sum_open(const struct pp_sum_spec *spec, struct pp_sum **out) PP_MUST_CHECK;
void pp_inproc_sum_close(struct pp_sum *sum);
pp_status pp_inproc_sum_start(struct pp_sum *sum, struct pp_parcel *parcel, struct pp_mark *after) PP_MUST_CHECK;
pp_status pp_inproc_sum_poll(struct pp_sum *sum, struct pp_parcel *parcel) PP_MUST_CHECK;
void pp_inproc_sum_abort(struct pp_sum *sum);

#endif
