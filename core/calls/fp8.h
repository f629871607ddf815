/* SPDX-License-Identifier: Apache-2.0
 *
 * FP8 on the host: the formats E4M3 and E5M2 of "FP8 Formats for Deep Learning" (Micikevicius et al., 2022), as devices
 * round to them: to the nearest, ties to even, and to the largest number where that is too small. NaN stays NaN. E4M3
 * has no infinity; E5M2 has, but nothing becomes that here.
 */
#ifndef PP_CORE_CALLS_FP8_H
#define PP_CORE_CALLS_FP8_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Sizes of FP8 products are multiples of this: factors begin, and their rows end, at multiples of so many bytes, as the
 * cuBLAS documentation asks. */
enum { PP_FP8_STEP = 16 };

/* Of E4M3, which activations and weights become, and of E5M2, which gradients become. */
struct pp_fp8_format {
    int mantissa; /* bits */
    int least;    /* exponent of the smallest normal number */
    float largest;
    uint8_t largest_code;
};

static inline struct pp_fp8_format pp_fp8_format(bool gradient)
{
    const struct pp_fp8_format e4m3 = {3, -6, 448, 0x7e}, e5m2 = {2, -14, 57344, 0x7b};
    return gradient ? e5m2 : e4m3;
}

/* What numbers are multiplied by before they are rounded: so that amax, the largest of them, becomes the largest number
 * of the format, as far as the factor, and what undoes it, are normal numbers. An infinity among them becomes NaN in
 * this way, and all else 0. */
static inline float pp_fp8_factor(float amax, bool gradient)
{
    return amax > 0 ? fminf(pp_fp8_format(gradient).largest / amax, 0x1p126f) : 1;
}

static inline uint8_t pp_fp8(float value, bool gradient)
{
    enum { NOT_A_NUMBER = 0x7f };
    const struct pp_fp8_format f = pp_fp8_format(gradient);
    const float size = fabsf(value);
    const int sign = signbit(value) ? 0x80 : 0;
    if (isnan(value)) return (uint8_t)(sign | NOT_A_NUMBER);
    if (size >= f.largest) return (uint8_t)(sign | f.largest_code);
    const int exponent = size < ldexpf(1, f.least) ? f.least : ilogbf(size);
    /* Of a normal number the first bit of `steps` is not stored: it is one more in the exponent. */
    const int steps = (int)rintf(ldexpf(size, f.mantissa - exponent));
    return (uint8_t)(sign | (((exponent - f.least) << f.mantissa) + steps));
}

static inline float pp_fp8_float(uint8_t code, bool gradient)
{
    const struct pp_fp8_format f = pp_fp8_format(gradient);
    const int size = code & 0x7f, exponent = size >> f.mantissa, rest = size & ((1 << f.mantissa) - 1);
    const bool infinite = gradient && size == 0x7c;
    const int steps = exponent ? (1 << f.mantissa) + rest : rest;
    const float value = infinite ? INFINITY
                        : size > f.largest_code
                            ? NAN
                            : ldexpf((float)steps, (exponent ? exponent - 1 : 0) + f.least - f.mantissa);
    return code & 0x80 ? -value : value;
}

#endif
