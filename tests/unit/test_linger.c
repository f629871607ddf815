/* SPDX-License-Identifier: Apache-2.0
 *
 * Lingering: allowed until the system takes the core away, then again after a pause that grows while others stay. Looks
 * at devices, now and then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "exec/transport.h"

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

/* Devices are not looked at all the time: launches of other threads would have to wait for the looks. A bell ends the
 * wait. */
static void devices_are_looked_at_now_and_then(void **state)
{
    enum { LOOKS = 100, LEAST_NS = 2000 };
    static const struct pp_processes alone = {.count = 1, .on_host = 1, .hosts = 1};
    struct pp_world *world;
    (void)state;
    assert_int_equal(pp_world_open(&pp_transport_inproc, &alone, 1, 1, &world), PP_OK);
    world->polled = true;
    world->crowded = false;
    const int64_t start = pp_now_ns();
    for (int i = 0; i < LOOKS; i++) {
        int64_t idle_since = 0;
        pp_world_wait(world, 0, pp_bell_seen(world, 0), &idle_since);
    }
    assert_true(pp_now_ns() - start >= LOOKS * LEAST_NS);
    pp_world_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_once_disturbed),
        cmocka_unit_test(test_beside_one_that_stays),
        cmocka_unit_test(devices_are_looked_at_now_and_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
