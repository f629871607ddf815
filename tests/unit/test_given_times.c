/* SPDX-License-Identifier: Apache-2.0
 *
 * Times that are given: stragglers, jitter, and what the simulator makes of them.
 */
#include "tests/unit/sim_case.h"

static const struct pp_given_times plain = {.forward_ms = 10, .input_ms = 12, .weight_ms = 8, .hop_ms = 1};

static void test_straggler_text(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "1", "1:", ":2", "-1:2", "1:-2", "1:0", "1:nan", "1:2x", "1 :2", "1:1e7"};
    struct pp_config config = {.times = "10,12,8,1", .straggler = "3:1.5", .jitter = 5, .seed = 7};
    struct pp_given_times t;
    assert_int_equal(pp_given_times_of(&config, &t), PP_OK);
    assert_int_equal(t.slow_rank, 3);
    assert_true(t.slow_factor == 1.5 && t.jitter == 0.05 && t.seed == 7 && t.hop_ms == 1);
    assert_int_equal(pp_given_times_check(&t, 4), PP_OK);
    assert_int_equal(pp_given_times_check(&t, 3), PP_USAGE);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        config.straggler = bad[i];
        if (pp_given_times_of(&config, &t) != PP_USAGE) fail_msg("\"%s\" is taken", bad[i]);
    }
}

/* Only the stages of the slow rank are slower; a microbatch of one row takes a third of one of three. */
static void test_class_times(void **state)
{
    (void)state;
    static const int rows[] = {3, 3, 1};
    struct pp_plan_spec spec = {
        .schedule = "gpipe", .ranks = 2, .virtual_stages = 1, .microbatches = 3, .replicas = 1, .rows = rows};
    spec.training = spec.optimizer = true;
    struct pp_plan *plan = build_plan(&spec);
    struct pp_given_times slow = plain;
    slow.slow_rank = 1;
    slow.slow_factor = 2;
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        double ms = cls->kind == PP_F ? 10 : cls->kind == PP_B ? 20 : 0;
        ms = ms * cls->rows / 3;
        assert_int_equal(pp_given_class_ns(&plain, plan, cls), llround(ms * 1e6));
        assert_int_equal(pp_given_class_ns(&slow, plan, cls), llround(ms * 1e6 * (1 + (cls->stage == 1))));
    }
    pp_plan_free(plan);
}

/* Evenly spread over [1 - j, 1 + j), other for each step, task, worker and seed. */
static void test_jitter(void **state)
{
    (void)state;
    enum { N = 20000, NS = 1000000 };
    double sum = 0, squares = 0;
    assert_int_equal(pp_jitter_ns(NS, 0, 1, 2, 3, 4), NS);
    assert_int_equal(pp_jitter_ns(NS, 0.3, 1, 2, 3, 4), pp_jitter_ns(NS, 0.3, 1, 2, 3, 4));
    assert_int_not_equal(pp_jitter_ns(NS, 0.3, 1, 2, 3, 4), pp_jitter_ns(NS, 0.3, 2, 2, 3, 4));
    assert_int_not_equal(pp_jitter_ns(NS, 0.3, 1, 2, 3, 4), pp_jitter_ns(NS, 0.3, 1, 3, 3, 4));
    assert_int_not_equal(pp_jitter_ns(NS, 0.3, 1, 2, 3, 4), pp_jitter_ns(NS, 0.3, 1, 2, 4, 4));
    assert_int_not_equal(pp_jitter_ns(NS, 0.3, 1, 2, 3, 4), pp_jitter_ns(NS, 0.3, 1, 2, 3, 5));
    for (int i = 0; i < N; i++) {
        double u = ((double)pp_jitter_ns(NS, 0.3, 1, i % 20, i / 20 % 50, i / 1000) / NS - 1) / 0.3;
        assert_true(u >= -1.00001 && u <= 1.00001);
        sum += u;
        squares += u * u;
    }
    assert_true(fabs(sum / N) < 0.02);
    assert_true(fabs(squares / N - 1.0 / 3) < 0.01);
}

/* One rank: its step is the sum of its tasks, each as drawn for the last step that was simulated. */
static void test_simulated_jitter(void **state)
{
    (void)state;
    struct pp_given_times times = plain;
    times.jitter = 0.2;
    times.seed = 5;
    struct sim_case c = times_case("gpipe", 1, 1, 6, times);
    int64_t sum = 0;
    for (int32_t id = 0; id < c.plan->ntasks; id++)
        sum += pp_jitter_ns(c.cost->classes[c.plan->tasks[id].cls].ns, 0.2, 5, c.result.steps - 1, id, 0);
    assert_int_equal(c.result.metrics.makespan_ns, sum);
    assert_false(c.result.steady);
    release_case(&c);
}

/* Noise makes a pipeline slower, for ranks wait for the slowest; the bound stays below. */
static void test_noisy_pipeline(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        struct pp_given_times times = plain;
        int v = i == 2 ? 2 : 1;
        struct sim_case calm = times_case(schedules[i], 8, v, 16, times);
        times.jitter = 0.2;
        struct sim_case noisy = times_case(schedules[i], 8, v, 16, times);
        assert_true(noisy.result.batch_ns > calm.result.batch_ns);
        assert_true((double)noisy.result.batch_ns < 1.2 * (double)calm.result.batch_ns);
        assert_true(noisy.result.lower_bound_ns <= noisy.result.metrics.makespan_ns);
        release_case(&calm);
        release_case(&noisy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_straggler_text),   cmocka_unit_test(test_class_times),    cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_simulated_jitter), cmocka_unit_test(test_noisy_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
