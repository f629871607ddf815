/* SPDX-License-Identifier: Apache-2.0
 *
 * FP8 numbers (core/calls/fp8.h) against the definition of the formats, and rounding to them against a search through
 * all of them for the nearest one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/calls/fp8.h"
#include "tests/unit/dice.h"

enum { CODES = 256, SIGN = 0x80, RANDOM_NUMBERS = 400000 };

/* Table 1 of Micikevicius et al. 2022. */
static const struct format {
    const char *name;
    int mantissa, bias;
    bool gradient, has_infinity;
    uint8_t largest_code;
    double largest, smallest_normal, smallest;
} formats[] = {
    {"E4M3", 3, 7, false, false, 0x7e, 448, 0x1p-6, 0x1p-9},
    {"E5M2", 2, 15, true, true, 0x7b, 57344, 0x1p-14, 0x1p-16},
};

/* The number of a code without a sign, by the definition: (1 + mantissa / 2^bits) 2^(exponent - bias), and without the
 * 1 where the exponent is 0. */
static double number_of(const struct format *f, int code)
{
    const int steps = 1 << f->mantissa, exponent = code / steps, mantissa = code % steps;
    if (f->has_infinity && code == f->largest_code + 1) return INFINITY;
    if (code > f->largest_code) return NAN;
    const double fraction = (double)mantissa / steps;
    return exponent ? ldexp(1 + fraction, exponent - f->bias) : ldexp(fraction, 1 - f->bias);
}

static void test_codes(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + 2; f++) {
        assert_true(number_of(f, f->largest_code) == f->largest);
        assert_true(number_of(f, 1 << f->mantissa) == f->smallest_normal && number_of(f, 1) == f->smallest);
        for (int code = 0; code < CODES; code++) {
            const double expected = number_of(f, code % SIGN);
            const float got = pp_fp8_float((uint8_t)code, f->gradient);
            assert_true(isnan(expected) ? isnan(got) : fabsf(got) == expected);
            assert_true(isnan(got) || (signbit(got) != 0) == (code >= SIGN));
            if (isfinite(got)) assert_int_equal(pp_fp8(got, f->gradient), code);
        }
    }
}

/* The nearest, of two the even one, and nothing beyond the largest. */
static int nearest(const struct format *f, double size)
{
    int low = 0, high = f->largest_code;
    if (size >= f->largest) return high;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        *(number_of(f, middle) <= size ? &low : &high) = middle;
    }
    const double below = size - number_of(f, low), above = number_of(f, high) - size;
    if (below == above) return low % 2 ? high : low;
    return below < above ? low : high;
}

static void check_rounding(float value)
{
    for (const struct format *f = formats; f < formats + 2; f++) {
        const int sign = signbit(value) ? SIGN : 0, got = pp_fp8(value, f->gradient);
        if (isnan(value)) {
            assert_true(isnan(pp_fp8_float((uint8_t)got, f->gradient)) && (got & SIGN) == sign);
            continue;
        }
        const int expected = sign | nearest(f, fabs((double)value));
        if (got != expected) fail_msg("%s of %a is 0x%02x, not 0x%02x", f->name, (double)value, got, expected);
    }
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void test_all_of_bf16(void **state)
{
    (void)state;
    for (uint32_t upper = 0; upper < 1 << 16; upper++) check_rounding(float_of(upper << 16));
}

/* Each FP8 number, what lies halfway to the next one, and the neighbours of both. */
static void test_borders(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + 2; f++)
        for (int code = 0; code < f->largest_code; code++) {
            const float here = (float)number_of(f, code), next = (float)number_of(f, code + 1);
            const float points[] = {here, here + (next - here) / 2, next};
            for (int i = 0; i < 3; i++)
                for (int sign = -1; sign <= 1; sign += 2) {
                    check_rounding((float)sign * points[i]);
                    check_rounding((float)sign * nextafterf(points[i], INFINITY));
                    check_rounding((float)sign * nextafterf(points[i], -INFINITY));
                }
        }
}

/* Of all sizes, and of those that FP8 has. */
static void test_random_numbers(void **state)
{
    (void)state;
    uint64_t dice = 1;
    for (int i = 0; i < RANDOM_NUMBERS; i++) {
        const float value = float_of(2 * next_random(&dice) + next_random(&dice) % 2);
        check_rounding(value);
        int exponent;
        const float fraction = frexpf(value, &exponent);
        if (isfinite(value)) check_rounding(ldexpf(fraction, random_below(&dice, 40) - 20));
    }
}

static float normal_factor(float amax, bool gradient)
{
    const float factor = pp_fp8_factor(amax, gradient), back = 1 / factor;
    assert_true(isnormal(factor) && isnormal(back));
    return factor;
}

/* Whatever the largest number is, it becomes the largest of the format, and what undoes the scale is normal. */
static void test_factors(void **state)
{
    (void)state;
    for (const struct format *f = formats; f < formats + 2; f++) {
        assert_true(pp_fp8_factor(0, f->gradient) == 1);
        assert_true(pp_fp8_factor(INFINITY, f->gradient) == 0);
        assert_true(normal_factor((float)f->largest, f->gradient) == 1);
        for (int exponent = -149; exponent < 128; exponent++) {
            for (int i = 0; i < 8; i++) {
                const float amax = ldexpf(1 + (float)i / 8, exponent), factor = normal_factor(amax, f->gradient);
                if (factor < 0x1p126f) assert_int_equal(pp_fp8(amax * factor, f->gradient), f->largest_code);
            }
        }
        assert_true(normal_factor(0x1p-126f, f->gradient) == 0x1p126f); /* such numbers stay small */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes), cmocka_unit_test(test_all_of_bf16),
                                       cmocka_unit_test(test_borders), cmocka_unit_test(test_random_numbers),
                                       cmocka_unit_test(test_factors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
