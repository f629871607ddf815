/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "exec/link_profile_inside.h"

enum { NEAR = 4 /* sizes count from a quarter of the smallest to four times the largest asked for */ };

static const int64_t message_sizes[] = {PP_LINK_SMALL, 1 << 10, 4 << 10, 16 << 10, 64 << 10,
                                        256 << 10,     1 << 20, 4 << 20, 16 << 20};
static const int64_t gradient_sizes[] = {4 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
enum {
    MESSAGE_SIZES = sizeof message_sizes / sizeof *message_sizes,
    GRADIENT_SIZES = sizeof gradient_sizes / sizeof *gradient_sizes
};
_Static_assert(MESSAGE_SIZES + 2 == PP_LINK_SIZES, "the fixed list and the two of the plans");
static const int64_t largest_gradient = 64 << 20; /* bytes; larger ones cost the same per byte */

pp_status pp_link_sample(struct pp_link_profile *out, const char *name, const char *context, int64_t bytes,
                         const struct pp_quantiles *ns)
{
    if (out->nsamples == PP_LINK_SAMPLES) return pp_fail(PP_INTERNAL, "more than %d samples of links", PP_LINK_SAMPLES);
    struct pp_sample *sample = &out->samples[out->nsamples++];
    *sample = pp_sample_of(name, context, 2, ns);
    sample->bytes = bytes;
    return PP_OK;
}

pp_status pp_link_profile_add(struct pp_link_profile *profile, const char *link, const char *parameter, double value)
{
    if (profile->nfigures == PP_LINK_FIGURES)
        return pp_fail(PP_INTERNAL, "more than %d figures of links", PP_LINK_FIGURES);
    profile->figures[profile->nfigures++] = (struct pp_figure){.of = link, .name = parameter, .value = value};
    return PP_OK;
}

pp_status pp_link_agree(struct pp_world *world, int me, bool *more)
{
    if (me == 0) return pp_send_now(world, 0, 1, PP_MESSAGE_CONTROL, more, sizeof *more);
    return pp_recv_now(world, 0, 1, PP_MESSAGE_CONTROL, more, sizeof *more);
}

/* A fixed list of sizes and the two that the plans ask for; returns how many. */
static int list_sizes(const int64_t *fixed, int n, const int64_t asked[2], int64_t limit, int64_t sizes[PP_LINK_SIZES])
{
    int count = 0;
    for (int i = 0; i < n; i++) sizes[count++] = fixed[i];
    for (int i = 0; i < 2; i++) {
        int64_t size = asked[i] < limit ? asked[i] : limit;
        bool known = size < PP_LINK_SMALL;
        for (int j = 0; j < count; j++) known = known || sizes[j] == size;
        if (!known) sizes[count++] = size;
    }
    return count;
}

int pp_link_message_sizes(const int64_t asked[2], int64_t limit, int64_t sizes[PP_LINK_SIZES])
{
    return list_sizes(message_sizes, MESSAGE_SIZES, asked, limit, sizes);
}

int pp_link_gradient_sizes(const int64_t asked[2], int64_t limit, int64_t sizes[PP_LINK_SIZES])
{
    return list_sizes(gradient_sizes, GRADIENT_SIZES, asked, limit, sizes);
}

int64_t pp_link_room(const struct pp_link_setup *setup)
{
    int64_t room = message_sizes[MESSAGE_SIZES - 1];
    if (setup->message_bytes[1] > room) room = setup->message_bytes[1];
    int64_t gradient = setup->gradient_bytes[1];
    if (gradient > largest_gradient) gradient = largest_gradient;
    return gradient > room ? gradient : room;
}

/* The first point is a size so small that its time is all latency. What a byte adds is taken at the sizes near those
 * asked for, of larger ones than were measured near the largest, or at all where there are none: caches of several
 * sizes make it no constant. */
void pp_link_fit(const double *x, const double *y, int n, const int64_t asked[2], double *latency, double *per_byte)
{
    double sum = 0, near_sum = 0, largest = 0;
    int near = 0;
    for (int i = 1; i < n; i++) largest = fmax(largest, x[i]);
    const double least = fmin((double)asked[0], largest);
    for (int i = 1; i < n; i++) {
        double slope = fmax(0, (y[i] - y[0]) / x[i]);
        sum += slope / (n - 1);
        if (x[i] * NEAR < least || x[i] > (double)asked[1] * NEAR) continue;
        near_sum += slope;
        near++;
    }
    *latency = y[0];
    *per_byte = near ? near_sum / near : sum;
}

pp_status pp_link_add_fit(struct pp_link_profile *profile, const char *link, const double *x, const double *y, int n,
                          const int64_t asked[2])
{
    double latency, per_byte;
    pp_link_fit(x, y, n, asked, &latency, &per_byte);
    PP_TRY(pp_link_profile_add(profile, link, "latency_ns", latency));
    return pp_link_profile_add(profile, link, "ns_per_byte", per_byte);
}

pp_status pp_link_measure_sums(const struct pp_link_sums *sums)
{
    const int64_t *asked = sums->setup->gradient_bytes;
    int64_t sizes[PP_LINK_SIZES];
    double x[PP_LINK_SIZES], y[PP_LINK_SIZES];
    const int n = pp_link_gradient_sizes(asked, sums->room, sizes);
    for (int i = 0; i < n; i++) {
        struct pp_quantiles ns;
        PP_TRY(sums->measure(sums->side, sizes[i], &ns));
        x[i] = (double)sizes[i];
        y[i] = (double)ns.median_ns;
        if (sums->out) PP_TRY(pp_link_sample(sums->out, sums->link, "", sizes[i], &ns));
    }
    return sums->out ? pp_link_add_fit(sums->out, sums->link, x, y, n, asked) : PP_OK;
}
