/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiling of workers that share a device with queues: beside what a task is measured.
 */
#include <time.h>

#include "tests/unit/queued_case.h"

/* Under load, a task of gpipe is measured beside tasks of its own stretch. (In other schedules forwards and backwards
 * mix, but threads that are not at the same time anywhere cannot be held to that.) */
static void test_stretches(void **state)
{
    (void)state;
    const struct pp_backend backend = queued_backend();
    struct pp_profile *profile = queued_profile(
        "--preset lab --layers 4 --rows 8 --seconds 0.02 --stages 4 --chunks 4 --gpus 1 --schedule gpipe", &backend);
    assert_int_equal(pp_profile_run(profile), PP_OK);
    assert_int_equal(disorders + forwards + backwards, 0);
    assert_int_equal(mixed, 0);
    pp_profile_free(profile);
}

static time_t patience_ends;
static bool is_late(void) { return time(NULL) > patience_ends; }

/* Of the slowest rank the last forward, of fewer rows than the others, ends after all that other ranks do in that
 * stretch; it has a load nevertheless. */
static void test_slowest_rank(void **state)
{
    (void)state;
    const struct pp_backend backend = queued_backend();
    struct pp_profile *profile = queued_profile(
        "--preset lab --rows 7 --seconds 0.005 --stages 2 --chunks 2 --gpus 1 --schedule gpipe", &backend);
    profile->setup.interrupted = is_late;
    patience_ends = time(NULL) + 20;
    last_rank_is_slow = true;
    assert_int_equal(pp_profile_run(profile), PP_OK);
    last_rank_is_slow = false;
    assert_true(slow_runs < 600); /* 160, or some hundred beside other things; 810 where it never has a load */
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < 2; load++) assert_true(profile->shapes[i].cell[load].ns.count > 0);
    assert_int_equal(disorders, 0);
    pp_profile_free(profile);
}

/* Workers that take turns on a GPU have no times. */
static void test_cannot_share(void **state)
{
    (void)state;
    const struct pp_backend backend = queued_backend();
    struct pp_profile *profile = queued_profile("--preset lab --seconds 0.005 --stages 2 --gpus 1", &backend);
    cannot_share = true;
    assert_int_equal(pp_profile_run(profile), PP_UNSUPPORTED);
    cannot_share = false;
    assert_non_null(strstr(pp_message(), "do not overlap"));
    assert_int_equal(open_devices + open_blocks, 0);
    pp_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stretches),
        cmocka_unit_test(test_slowest_rank),
        cmocka_unit_test(test_cannot_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
