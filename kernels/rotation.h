/* SPDX-License-Identifier: Apache-2.0
 *
 * By which angle rotary positions turn a pair of columns from one token to the next: for processors and for GPUs.
 */
#ifndef PP_KERNELS_ROTATION_H
#define PP_KERNELS_ROTATION_H

#include <math.h>

#include "core/call.h"

#ifdef __device__ /* CUDA C++ */
#define PP_ROTATION __host__ __device__
#else
#define PP_ROTATION
#endif

struct pp_rotation {
    double log_rate;                  /* pair k turns by exp(log_rate * k) */
    double factor, low, high, tokens; /* ... slowed down, see struct pp_rope_scaling */
};

/* columns: of a head, that are rotated. */
static inline struct pp_rotation pp_rotation_of(const struct pp_rope_scalars *scalars, int columns)
{
    struct pp_rotation r;
    r.log_rate = -log((double)scalars->theta) * 2 / columns;
    r.factor = scalars->factor;
    r.low = scalars->low;
    r.high = scalars->high;
    r.tokens = scalars->tokens;
    return r;
}

/* The angle of pair k, in radians for each token. */
static PP_ROTATION inline double pp_rotation_rate(const struct pp_rotation *r, int k)
{
    const double tau = 6.283185307179586477, rate = exp(r->log_rate * k);
    if (r->factor <= 1) return rate;
    const double turns = r->tokens * rate / tau, kept = (turns - r->low) / (r->high - r->low);
    const double part = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return rate * (part + (1 - part) / r->factor);
}

#endif
