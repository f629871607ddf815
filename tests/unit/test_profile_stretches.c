/* SPDX-License-Identifier: Apache-2.0
 *
 * Stretches of a step that the ranks of a profile begin together.
 */
#include "tests/unit/profile_case.h"

#include "kernels/profile_stretches.h"

/* Where a rank's stretches begin. */
static void test_begins(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        bool split;
        int n, begin[PP_STRETCHES + 1];
    } cases[] = {
        {"--schedule gpipe", true, 3, {0, 3, 7, 8}}, /* 3 F; 3 B and NORM; STEP */
        {"--schedule gpipe", false, 2, {0, 7, 8}},
        {"--schedule 1f1b", true, 2, {0, 7, 8}},
        {"--schedule gpipe --clip 0", true, 3, {0, 3, 6, 7}},
        {"--schedule gpipe --checkpoint always", true, 3, {0, 3, 10, 11}}, /* R too */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[160];
        snprintf(options, sizeof options, "--preset lab --clip 0.5 --rows 6 --stages 2 --chunks 3 %s",
                 cases[i].options);
        configure(options, 64);
        struct pp_point *points;
        struct pp_job *job;
        int n;
        assert_int_equal(pp_points(&config, &pp_schedules, &points, &n), PP_OK);
        assert_int_equal(pp_job_create(&config, &points[0], &pp_schedules, &pp_model_ops, false, NULL, &job), PP_OK);
        for (int rank = 0; rank < 2; rank++) {
            struct pp_stretches s;
            assert_int_equal(pp_stretches_of(job->train, rank, cases[i].split, &s), PP_OK);
            assert_int_equal(s.n, cases[i].n);
            for (int k = 0; k <= s.n; k++) assert_int_equal(s.begin[k], cases[i].begin[k]);
            free(s.tasks);
        }
        pp_job_free(job);
        free(points);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_begins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
