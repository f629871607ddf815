/* SPDX-License-Identifier: Apache-2.0
 *
 * What the measurements of links share: sizes, samples, figures, fits. Between the files of link_profile.
 */
#ifndef PP_EXEC_LINK_PROFILE_INSIDE_H
#define PP_EXEC_LINK_PROFILE_INSIDE_H

#include "exec/link_profile.h"

enum {
    PP_LINK_SMALL = 64, /* bytes of the message whose calls are the overheads */
    PP_LINK_SIZES = 11  /* sizes to measure, at most: those of a fixed list, and the two that the plans ask for */
};

/* Sizes in bytes to measure, of messages or of gradients: those of a fixed list and those asked for, up to `limit`.
 * Return how many there are. */
int pp_link_message_sizes(const int64_t asked[2], int64_t limit, int64_t sizes[PP_LINK_SIZES]);
int pp_link_gradient_sizes(const int64_t asked[2], int64_t limit, int64_t sizes[PP_LINK_SIZES]);
/* Bytes of the largest message or gradient that is measured. */
int64_t pp_link_room(const struct pp_link_setup *setup);

pp_status pp_link_sample(struct pp_link_profile *profile, const char *name, const char *context, int64_t bytes,
                         const struct pp_quantiles *ns) PP_MUST_CHECK;

/* Fits y = latency + x * per_byte to n points (x in bytes, y in ns). The first point is so small that its time is taken
 * for the latency. asked: smallest and largest size of the plans; per_byte is taken from the points near them. */
void pp_link_fit(const double *x, const double *y, int n, const int64_t asked[2], double *latency, double *per_byte);

/* The same, and adds both to the profile as figures of the link: latency_ns, ns_per_byte. */
pp_status pp_link_add_fit(struct pp_link_profile *profile, const char *link, const double *x, const double *y, int n,
                          const int64_t asked[2]) PP_MUST_CHECK;

/* Called by both workers: measures sums of all sizes of gradients with measure(), at worker 0 for the profile. */
struct pp_link_sums {
    const struct pp_link_setup *setup;
    const char *link;
    int64_t room; /* bytes of the largest sum */
    pp_status (*measure)(void *side, int64_t bytes, struct pp_quantiles *ns);
    void *side;
    struct pp_link_profile *out; /* NULL in worker 1 */
};
pp_status pp_link_measure_sums(const struct pp_link_sums *sums) PP_MUST_CHECK;

/* Called by both workers: worker 0 tells worker 1 whether to go on. The message is also the signal to start. */
pp_status pp_link_agree(struct pp_world *world, int me, bool *more) PP_MUST_CHECK;

/* Called by both workers of a world of two, on devices that work through queues: measures the carrier between them.
 * out: NULL in worker 1. After a failure memory and device stay allocated, for the other worker may still be
 * copying. */
pp_status pp_link_profile_queue(const struct pp_link_setup *setup, struct pp_world *world, int me,
                                struct pp_link_profile *out) PP_MUST_CHECK;

#endif
