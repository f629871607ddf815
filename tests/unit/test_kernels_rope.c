/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions against a double-precision oracle that turns complex numbers; the gradient turns them back.
 */
#include <complex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

struct shape {
    int rows, seq, heads, dh, columns, kv;
    struct pp_rope_scalars turns;
};

/* By wavelengths, as Hugging Face's _compute_llama3_parameters() does it. */
static double slowed(const struct pp_rope_scalars *s, double rate)
{
    const double wavelength = 2 * acos(-1.0) / rate, smooth = (s->tokens / wavelength - s->low) / (s->high - s->low);
    if (s->kind == PP_ROPE_LINEAR) return rate / s->factor;
    if (s->factor == 0 || wavelength < s->tokens / s->high) return rate;
    if (wavelength > s->tokens / s->low) return rate / s->factor;
    return (1 - smooth) * rate / s->factor + smooth * rate;
}

/* As its _compute_yarn_parameters(): `pair` of so many columns. */
static double yarn(const struct pp_rope_scalars *s, int pair, int columns, double rate)
{
    const double tau = 2 * acos(-1.0), log_theta = 2 * log(s->theta);
    double first = columns * log(s->tokens / (s->high * tau)) / log_theta,
           last = columns * log(s->tokens / (s->low * tau)) / log_theta;
    if (s->whole) first = floor(first), last = ceil(last);
    if (first < 0) first = 0;
    if (last > columns - 1) last = columns - 1;
    double ramp = (pair - first) / (last == first ? 0.001 : last - first);
    if (ramp < 0) ramp = 0;
    if (ramp > 1) ramp = 1;
    return rate / s->factor * ramp + rate * (1 - ramp);
}

static double rate_of(const struct shape *s, int pair, int columns)
{
    const double rate = pow(s->turns.theta, -2.0 * pair / columns);
    return s->turns.kind == PP_ROPE_YARN ? yarn(&s->turns, pair, columns, rate) : slowed(&s->turns, rate);
}

static int width_of(const struct shape *s) { return (s->heads + 2 * s->kv) * s->dh; }

/* One token [width], in place. direction: 1, or -1 for the way back. */
static void oracle(const struct shape *s, int token, int direction, double *x)
{
    const int rotated = s->columns ? s->columns : s->dh, half = rotated / 2;
    for (int h = 0; h < s->heads + s->kv; h++, x += s->dh)
        for (int i = 0; i < half; i++) {
            const double angle = direction * token * rate_of(s, i, rotated);
            const double magnitude = s->turns.magnitude > 0 ? s->turns.magnitude : 1;
            const double complex z = magnitude * (x[i] + x[i + half] * I) * cexp(angle * I);
            x[i] = creal(z);
            x[i + half] = cimag(z);
        }
}

/* got: what became of `given` and, unless NULL, bias. */
static void check(const struct shape *s, int direction, const float *given, const float *bias, const float *got)
{
    const int width = width_of(s);
    double *x = malloc(sizeof *x * (size_t)width);
    assert_non_null(x);
    for (int t = 0; t < s->rows * s->seq; t++) {
        for (int j = 0; j < width; j++) x[j] = (double)given[t * width + j] + (bias ? bias[j] : 0);
        oracle(s, t % s->seq, direction, x);
        assert_near(got + (int64_t)t * width, x, width, 1e-6);
    }
    free(x);
}

static void check_shape(const struct pp_cpu_isa *isa, const struct shape *s)
{
    const int width = width_of(s);
    const int64_t n = (int64_t)s->rows * s->seq * width;
    float *x = case_floats(n, 1), *bias = case_floats(width, 2), *given = case_copy(x, n);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.rope = {s->rows, s->seq, s->heads, s->dh, s->columns, s->kv}, .turns = s->turns};
    isa->run[PP_KERNEL_ROPE](&(struct pp_cpu_call){&call, &frame, .p = {x, bias}});
    check(s, 1, given, bias, x);
    memcpy(x, given, sizeof *x * (size_t)n);
    isa->run[PP_KERNEL_ROPE_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {x}});
    check(s, -1, given, NULL, x);
    isa->run[PP_KERNEL_ROPE](&(struct pp_cpu_call){&call, &frame, .p = {x}}); /* there and back */
    for (int64_t i = 0; i < n && s->turns.magnitude == 0; i++) assert_true(fabsf(x[i] - given[i]) <= 1e-6f);
    case_free(x, bias, given, NULL);
}

/* Heads of one pair, of fewer and of more than a vector, of more pairs than have their angles at a time; long rows;
 * heads of which some columns are rotated. */
static void test_rope(void **state)
{
    (void)state;
    const struct shape shapes[] = {{2, 3, 1, 2, 0, 1, {10000}},
                                   {2, 9, 4, 6, 0, 2, {10000}},
                                   {1, 5, 3, 64, 0, 1, {500000}},
                                   {2, 4, 2, 100, 0, 2, {1000}},
                                   {1, 3, 1, 300, 0, 1, {10000}},
                                   {1, 5000, 1, 8, 0, 1, {500000}},
                                   {2, 70, 2, 64, 0, 1, {500000, 8, 1, 4, 64}},
                                   {1, 9, 1, 100, 0, 1, {10000, 3, 2, 2.5f, 8192}},
                                   {2, 9, 4, 6, 2, 2, {100}},
                                   {2, 5, 3, 64, 32, 1, {10000}},
                                   {1, 3, 2, 300, 150, 2, {10000}},
                                   {1, 9, 2, 100, 30, 1, {10000, 3, 2, 2.5f, 8192}},
                                   {1, 9, 2, 64, 0, 1, {10000, 8, .kind = PP_ROPE_LINEAR}},
                                   {1, 9, 2, 64, 0, 1, {10000, 8, 1, 32, 4096, 1.25f, PP_ROPE_YARN, 1}},
                                   {2, 9, 1, 64, 32, 1, {150000, 32, 1, 32, 4096, 0, PP_ROPE_YARN, 0}},
                                   {1, 5, 1, 8, 0, 1, {10000, 4, 1, 1.001f, 4096, 0.5f, PP_ROPE_YARN, 0}},
                                   {1, 9, 2, 64, 0, 1, {50000, 32, 1, 1, 4096, 1, PP_ROPE_YARN, 1}},
                                   {1, 9, 2, 64, 0, 1, {50000, 32, 1, 1, 4096, 1, PP_ROPE_YARN, 0}},
                                   /* all pairs between, or none fast enough to keep their speed */
                                   {1, 9, 2, 16, 0, 1, {3, 8, 1, 32, 64, 0, PP_ROPE_YARN, 1}},
                                   {1, 9, 2, 16, 0, 1, {10000, 8, 1, 32, 6, 0, PP_ROPE_YARN, 1}}};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_shape(isa, &shapes[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rope)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
