/* SPDX-License-Identifier: Apache-2.0
 *
 * What the measurements of links share: sizes, samples, figures, fits. Between the files of link_profile.
 */
#ifndef PP_EXEC_LINK_PROFILE_INSIDE_H
#define PP_EXEC_LINK_PROFILE_INSIDE_H

#include "exec/link_profile.h"

enum {
    PP_LINK_SMALL = 64, /* bytes of the message whose calls are the overheads */
    PP_LINK_SIZES = 11  /* at most: a fixed list, and the two that the plans ask for */
};

/* Bytes to measure, of messages or of gradients: a fixed list and those asked for up to `limit`. Returns how many. */
int pp_link_message_sizes(const int64_t asked[2], int64_t limit, int64_t sizes[PP_LINK_SIZES]);
int pp_link_gradient_sizes(const int64_t asked[2], int64_t limit, int64_t sizes[PP_LINK_SIZES]);
/* Room for the largest of either. */
int64_t pp_link_room(const struct pp_link_setup *setup);

pp_status pp_link_sample(struct pp_link_profile *profile, const char *name, const char *context, int64_t bytes,
                         const struct pp_quantiles *ns) PP_MUST_CHECK;

/* y = latency + x per_byte, from n points; the first is a size so small that its time is all latency. */
void pp_link_fit(const double *x, const double *y, int n, const int64_t asked[2], double *latency, double *per_byte);

/* By both workers: worker 0 tells whether to go on. That message is also the start. */
pp_status pp_link_agree(struct pp_world *world, int me, bool *more) PP_MUST_CHECK;

/* One of two workers of the world, on a device that works through queues, over the carrier between the two. out: worker
 * 0's, else NULL. After a failure nothing is given back: the other may still be copying. */
pp_status pp_link_profile_queue(const struct pp_link_setup *setup, struct pp_world *world, int me,
                                struct pp_link_profile *out) PP_MUST_CHECK;

#endif
