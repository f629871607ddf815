/* SPDX-License-Identifier: Apache-2.0
 *
 * bfloat16 on the host: the upper half of a float32. Rounded to the nearest, ties to even, as devices do it; NaN stays
 * NaN.
 */
#ifndef PP_CORE_CALLS_BF16_H
#define PP_CORE_CALLS_BF16_H

#include <stdint.h>
#include <string.h>

static inline uint16_t pp_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40); /* rounding could make it infinite */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float pp_bf16_float(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

#endif
