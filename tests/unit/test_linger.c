/* SPDX-License-Identifier: Apache-2.0
 *
 * Lingering: allowed until the system takes the core away, then again after a pause that grows while others stay.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/linger.h"

static const int64_t ms = 1000000;

static void test_alone(void **state)
{
    (void)state;
    struct pp_linger linger = {0};
    assert_true(pp_linger_is_due(&linger, 7 * ms));
    pp_linger_look(&linger, 7 * ms, 41); /* what happened before does not count */
    assert_true(pp_linger_allowed(&linger, 7 * ms));
    assert_false(pp_linger_is_due(&linger, 7 * ms + 1000));
    assert_true(pp_linger_is_due(&linger, 8 * ms));
    pp_linger_look(&linger, 100 * ms, 41);
    assert_true(pp_linger_allowed(&linger, 100 * ms));
}

static void test_once_disturbed(void **state)
{
    (void)state;
    struct pp_linger linger = {0};
    pp_linger_look(&linger, 10 * ms, 0);
    pp_linger_look(&linger, 20 * ms, 1);
    assert_false(pp_linger_allowed(&linger, 20 * ms));
    assert_false(pp_linger_allowed(&linger, 25 * ms - 1));
    assert_true(pp_linger_allowed(&linger, 25 * ms));
    pp_linger_look(&linger, 22 * ms, 2); /* while others have the core: no news */
    assert_true(pp_linger_allowed(&linger, 25 * ms));
    pp_linger_look(&linger, 900 * ms, 3); /* long after: 5 ms again */
    assert_false(pp_linger_allowed(&linger, 905 * ms - 1));
    assert_true(pp_linger_allowed(&linger, 905 * ms));
}

/* A neighbour that stays: each look after a pause finds it. */
static void test_beside_one_that_stays(void **state)
{
    (void)state;
    struct pp_linger linger = {0};
    int64_t now = ms, lingered = 0, start = now;
    pp_linger_look(&linger, now, 0);
    for (int i = 1; i <= 20; i++) {
        now += ms;
        lingered += ms;
        pp_linger_look(&linger, now, i);
        assert_false(pp_linger_allowed(&linger, now));
        now = linger.not_till_ns;
    }
    assert_true(linger.pause_ns == 1000 * ms);
    assert_true(lingered < (now - start) / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_once_disturbed),
        cmocka_unit_test(test_beside_one_that_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
