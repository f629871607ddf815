/* SPDX-License-Identifier: Apache-2.0
 *
 * SplitMix64 (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators"): it turns a counter into 64
 * well-mixed bits. It is for values that have to look random and be the same on every machine (jitter, generated text).
 * Dropout has another generator.
 */
#ifndef PP_CORE_BASE_MIX_H
#define PP_CORE_BASE_MIX_H

#include <stdint.h>

/* The generator's sequence is pp_mix(seed), pp_mix(seed + PP_MIX_STEP), pp_mix(seed + 2 * PP_MIX_STEP), ... */
#define PP_MIX_STEP UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t pp_mix(uint64_t x)
{
    x += PP_MIX_STEP;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

#endif
