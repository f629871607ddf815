/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate of each step: at the borders by hand, between them by other formulas.
 */
#include "core/shape/learning_rate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void near(double made, double expected)
{
    if (!(fabs(made - expected) <= 4e-16 * fmax(1, fabs(expected)))) fail_msg("%.17g, not %.17g", made, expected);
}

static void without_options_it_is_the_rate_itself(void **state)
{
    (void)state;
    const struct pp_lr_options none = {0};
    for (int64_t step = 0; step < 5; step++) assert_true(pp_lr_share(&none, 0.3, step) == 1);
    assert_true(pp_lr_share(&none, 0.3, INT32_MAX) == 1);
}

static void it_rises_in_equal_parts(void **state)
{
    (void)state;
    for (int schedule = PP_LR_CONSTANT; schedule <= PP_LR_LINEAR; schedule++) {
        const struct pp_lr_options o = {schedule, 4, 100, 0.01};
        const double expected[] = {0.25, 0.5, 0.75, 1, 1}; /* N - 1 and N have all of it */
        for (int step = 0; step < 5; step++) assert_true(pp_lr_share(&o, 0.3, step) == expected[step]);
        assert_true((pp_lr_share(&o, 0.3, 5) < 1) == (schedule != PP_LR_CONSTANT));
    }
    const struct pp_lr_options one = {PP_LR_CONSTANT, 1, 0, 0};
    assert_true(pp_lr_share(&one, 0.3, 0) == 1 && pp_lr_share(&one, 0.3, 1) == 1);
}

/* From 2 to 0.5 in 8 steps behind 2: at a quarter, a half and three quarters of the way. */
static void it_falls_to_the_least(void **state)
{
    (void)state;
    const struct pp_lr_options line = {PP_LR_LINEAR, 2, 10, 0.5}, wave = {PP_LR_COSINE, 2, 10, 0.5};
    const double lr = 2, eighth = sqrt(0.5); /* of a turn */
    near(lr * pp_lr_share(&line, lr, 2), 2);
    near(lr * pp_lr_share(&line, lr, 4), 1.625);
    near(lr * pp_lr_share(&line, lr, 6), 1.25);
    near(lr * pp_lr_share(&line, lr, 8), 0.875);
    near(lr * pp_lr_share(&line, lr, 9), 0.6875);
    near(lr * pp_lr_share(&wave, lr, 2), 2);
    near(lr * pp_lr_share(&wave, lr, 4), 0.5 + 0.75 * (1 + eighth));
    near(lr * pp_lr_share(&wave, lr, 6), 1.25);
    near(lr * pp_lr_share(&wave, lr, 8), 0.5 + 0.75 * (1 - eighth));
    const int64_t last[] = {10, 11, 1000, INT32_MAX};
    for (int i = 0; i < 4; i++)
        assert_true(lr * pp_lr_share(&line, lr, last[i]) == 0.5 && lr * pp_lr_share(&wave, lr, last[i]) == 0.5);
}

/* Numbers of a long training: 1 - sin^2 instead of the cosine, the line from its other end. */
static void it_is_what_the_formulas_say(void **state)
{
    (void)state;
    enum { WARMUP = 715, STEPS = 600000 };
    const double lr = 6e-4, least = 6e-5;
    const struct pp_lr_options line = {PP_LR_LINEAR, WARMUP, STEPS, least}, wave = {PP_LR_COSINE, WARMUP, STEPS, least};
    double before = 1;
    for (int step = WARMUP; step <= STEPS; step += 719) {
        const double x = (double)(step - WARMUP) / (STEPS - WARMUP), s = sin(acos(-1) / 2 * x);
        const double by_line = ((lr - least) * (STEPS - step) / (STEPS - WARMUP) + least) / lr;
        const double share = pp_lr_share(&wave, lr, step);
        near(share, (least + (lr - least) * (1 - s * s)) / lr);
        near(pp_lr_share(&line, lr, step), by_line);
        assert_true(share <= before);
        before = share;
    }
    const struct pp_lr_options to_zero = {PP_LR_COSINE, 0, INT32_MAX, 0}; /* no whole number is too large */
    assert_true(pp_lr_share(&to_zero, lr, 0) == 1 && pp_lr_share(&to_zero, lr, INT32_MAX) == 0);
    assert_true(pp_lr_share(&to_zero, lr, INT64_MAX) == 0);
}

/* Nothing of nothing is nothing, not 0 / 0. */
static void a_rate_of_zero_stays(void **state)
{
    (void)state;
    const struct pp_lr_options o = {PP_LR_COSINE, 1, 5, 0};
    for (int64_t step = 0; step < 7; step++) assert_true(0 * pp_lr_share(&o, 0, step) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_options_it_is_the_rate_itself),
        cmocka_unit_test(it_rises_in_equal_parts),
        cmocka_unit_test(it_falls_to_the_least),
        cmocka_unit_test(it_is_what_the_formulas_say),
        cmocka_unit_test(a_rate_of_zero_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
