/* SPDX-License-Identifier: Apache-2.0
 *
 * By which angle rotary positions turn a pair of columns from one token to the next: for processors and for GPUs.
 */
#ifndef PP_KERNELS_ROTATION_H
#define PP_KERNELS_ROTATION_H

#include <math.h>

#include "core/calls/call.h"
#include "kernels/host_device.h"

struct pp_rotation {
    double log_rate;  /* pair k turns by exp(log_rate * k) */
    double factor;    /* slow pairs turn so many times slower; 1 and less: none does */
    bool by_turns;    /* what `low` and `high` are: turns in a row of `tokens` tokens, or else numbers of pairs */
    double low, high; /* where pairs are slow, and where they keep their speed */
    double tokens;
    double magnitude; /* times sines and cosines */
};

/* The number of the pair, which need not be a whole one, that turns so many times in a row of so many tokens. */
static inline double pp_rotation_pair(const struct pp_rope_scalars *s, int columns, double turns)
{
    const double tau = 6.283185307179586477;
    return columns * log((double)s->tokens / (turns * tau)) / (2 * log((double)s->theta));
}

/* yarn: the pairs between which the speed is interpolated; far apart enough to divide by the distance. */
static inline void pp_rotation_set_pairs(struct pp_rotation *r, const struct pp_rope_scalars *s, int columns)
{
    const double fast = pp_rotation_pair(s, columns, s->high), slow = pp_rotation_pair(s, columns, s->low);
    r->high = fmax(s->whole ? floor(fast) : fast, 0);
    r->low = fmin(s->whole ? ceil(slow) : slow, columns - 1);
    if (r->low == r->high) r->low += 0.001;
}

/* columns: rotated ones of a head. */
static inline struct pp_rotation pp_rotation_of(const struct pp_rope_scalars *scalars, int columns)
{
    struct pp_rotation r;
    r.log_rate = -log((double)scalars->theta) * 2 / columns;
    r.factor = scalars->factor;
    r.by_turns = scalars->kind == PP_ROPE_LLAMA3;
    r.low = scalars->low;
    r.high = scalars->high;
    r.tokens = scalars->tokens;
    r.magnitude = scalars->magnitude > 0 ? scalars->magnitude : 1;
    if (scalars->kind == PP_ROPE_YARN) pp_rotation_set_pairs(&r, scalars, columns);
    if (scalars->kind == PP_ROPE_LINEAR) r.low = 0, r.high = -1; /* no pair is faster than the first one */
    return r;
}

/* The angle of pair k, in radians for each token. */
static PP_HOST_DEVICE inline double pp_rotation_rate(const struct pp_rotation *r, int k)
{
    const double tau = 6.283185307179586477, rate = exp(r->log_rate * k);
    if (r->factor <= 1) return rate;
    const double at = r->by_turns ? r->tokens * rate / tau : k, kept = (at - r->low) / (r->high - r->low);
    const double part = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return rate * (part + (1 - part) / r->factor);
}

#endif
