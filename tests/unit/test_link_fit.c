/* SPDX-License-Identifier: Apache-2.0
 *
 * What a link takes for a byte, from measured sizes: small messages stay in caches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/link_profile_inside.h"

enum { SIZES = 5, LATENCY = 100 };

static const double sizes[SIZES] = {64, 1 << 10, 1 << 20, 16 << 20, 64 << 20}, per_byte[SIZES] = {0, 1, 2, 3, 5};

static double fitted(int64_t least, int64_t most)
{
    const int64_t asked[2] = {least, most};
    double times[SIZES], latency, slope;
    for (int i = 0; i < SIZES; i++) times[i] = LATENCY + sizes[i] * per_byte[i];
    pp_link_fit(sizes, times, SIZES, asked, &latency, &slope);
    assert_true(latency == LATENCY);
    return slope;
}

static void test_sizes_near_those_asked_for_count(void **state)
{
    (void)state;
    assert_true(fitted(1 << 20, 1 << 20) == 2);
    assert_true(fitted(1 << 20, 4 << 20) == 2.5);
    assert_true(fitted(16 << 20, 64 << 20) == 4);
}

static void test_of_none_asked_for_all_count(void **state)
{
    (void)state;
    assert_true(fitted(0, 0) == 2.75);
}

/* Larger gradients than are measured cost as much for each byte as the largest. */
static void test_the_largest_stand_for_larger_ones(void **state)
{
    (void)state;
    assert_true(fitted(64 << 20, INT64_C(1) << 30) == 4);
    assert_true(fitted(INT64_C(1) << 30, INT64_C(1) << 30) == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_near_those_asked_for_count),
        cmocka_unit_test(test_of_none_asked_for_all_count),
        cmocka_unit_test(test_the_largest_stand_for_larger_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
