/* SPDX-License-Identifier: Apache-2.0
 *
 * Times that are given: stragglers, jitter, and what the simulator makes of them.
 */
#include "tests/unit/sim_case.h"

static const struct pp_given_times plain = {.forward_ms = 10, .input_ms = 12, .weight_ms = 8, .hop_ms = 1};

static int64_t class_ns(const struct pp_given_times *times, const struct pp_plan *plan, const struct pp_class *cls)
{
    int64_t ns;
    if (pp_given_class_ns(times, plan, cls, &ns) != PP_OK) fail_msg("%s", pp_message());
    return ns;
}

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
        assert_int_equal(class_ns(&plain, plan, cls), llround(ms * 1e6));
        assert_int_equal(class_ns(&slow, plan, cls), llround(ms * 1e6 * (1 + (cls->stage == 1))));
    }
    pp_plan_free(plan);
}

/* Checkpoints of layers: the second forward is B's, which then is as long as R and B. */
static void test_layers(void **state)
{
    (void)state;
    struct pp_plan_spec spec = {.schedule = "1f1b", .ranks = 2, .virtual_stages = 1, .microbatches = 3, .replicas = 1};
    spec.training = spec.optimizer = true;
    spec.checkpoint = PP_CHECKPOINT_LAYERS;
    struct pp_plan *plan = build_plan(&spec);
    for (int c = 0; c < plan->nclasses; c++) {
        const int kind = plan->classes[c].kind;
        const int64_t ms = kind == PP_F ? 10 : kind == PP_B ? 30 : 0;
        assert_int_equal(class_ns(&plain, plan, &plan->classes[c]), ms * 1000000);
    }
    pp_plan_free(plan);
}

/* Each number is possible; what they make together would not fit into 64 bits. */
static void test_too_long(void **state)
{
    (void)state;
    struct pp_plan_spec spec = {.schedule = "gpipe", .ranks = 2, .virtual_stages = 1, .microbatches = 3, .replicas = 1};
    spec.training = true;
    struct pp_plan *plan = build_plan(&spec);
    struct pp_given_times times = {.forward_ms = 1e9, .input_ms = 1e9, .slow_rank = 1, .slow_factor = 1e6};
    struct pp_cost *cost;
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        int64_t ns;
        const bool slow = pp_kinds[cls->kind].computes && cls->stage == 1;
        assert_int_equal(pp_given_class_ns(&times, plan, cls, &ns), slow ? PP_INPUT : PP_OK);
    }
    assert_int_equal(pp_cost_from_times(plan, &times, &cost), PP_USAGE);
    assert_null(cost);
    assert_non_null(strstr(pp_message(), "of stage 1 would take"));
    pp_plan_free(plan);
}

/* Other plans of a job take the times of the plan that was measured: of equal work, else in proportion of rows. */
static void test_measured_times(void **state)
{
    (void)state;
    static const int rows[] = {4, 4, 3};
    struct pp_plan_spec spec = {
        .schedule = "gpipe", .ranks = 2, .virtual_stages = 1, .microbatches = 3, .replicas = 1, .rows = rows};
    spec.training = spec.optimizer = true;
    struct pp_plan *plan = build_plan(&spec);
    struct pp_given_times times = {.slow_rank = 1, .slow_factor = 2, .measured = {.plan = plan}};
    assert_int_equal(PP_NEW(&times.measured.ns, plan->nclasses), PP_OK);
    for (int c = 0; c < plan->nclasses; c++)
        if (pp_kinds[plan->classes[c].kind].computes) times.measured.ns[c] = 1000 * (c + 1);
    for (int c = 0; c < plan->nclasses; c++)
        assert_int_equal(class_ns(&times, plan, &plan->classes[c]),
                         times.measured.ns[c] * (plan->classes[c].stage == 1 ? 2 : 1));
    for (int c = 0; c < plan->nclasses; c++) {
        struct pp_class cls = plan->classes[c];
        if (cls.kind != PP_F || cls.stage != 0 || cls.rows != 4) continue;
        cls.rows = 2;
        assert_int_equal(class_ns(&times, plan, &cls), times.measured.ns[c] / 2);
        cls.kind = PP_R;
        assert_int_equal(class_ns(&times, plan, &cls), 0);
    }
    free(times.measured.ns);
    pp_plan_free(plan);
}

/* Where a step has the only forward of a stage in parts, an evaluation's takes as long as all of them. */
static void test_measured_parts(void **state)
{
    (void)state;
    static const int rows[] = {4}, parts[] = {1, 3};
    struct pp_plan_spec spec = {
        .schedule = "gpipe", .ranks = 2, .virtual_stages = 1, .microbatches = 1, .replicas = 2, .rows = rows};
    spec.training = spec.optimizer = spec.gather_first = true;
    spec.zero = PP_ZERO_OPTIMIZER;
    spec.parts = parts;
    struct pp_plan *plan = build_plan(&spec);
    struct pp_given_times times = {.measured = {.plan = plan}};
    int64_t forward_ns[2] = {0};
    assert_int_equal(PP_NEW(&times.measured.ns, plan->nclasses), PP_OK);
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        times.measured.ns[c] = 1000 << c;
        assert_int_equal(class_ns(&times, plan, cls), 1000 << c);
        if (cls->kind == PP_F) forward_ns[cls->stage] += 1000 << c;
    }
    for (int stage = 0; stage < 2; stage++) {
        const struct pp_class whole = {.kind = PP_F, .stage = stage, .rows = 4};
        const struct pp_class fewer = {.kind = PP_F, .stage = stage, .rows = 2};
        assert_int_equal(class_ns(&times, plan, &whole), forward_ns[stage]);
        assert_int_equal(class_ns(&times, plan, &fewer), forward_ns[stage] / 2);
    }
    free(times.measured.ns);
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

static struct sim_case replicas_case(struct pp_plan_spec spec, struct pp_given_times times, bool events)
{
    spec.training = spec.optimizer = true;
    struct sim_case c = {.plan = build_plan(&spec)};
    if (pp_cost_from_times(c.plan, &times, &c.cost) != PP_OK) fail_msg("%s", pp_message());
    simulate(&c, events);
    return c;
}

/* Replicas of one rank begin each step together, for its update waits for the slowest of them. */
static void test_replicas_wait_for_the_slowest(void **state)
{
    (void)state;
    enum { D = 5, STEPS = 50 };
    struct pp_given_times times = plain;
    times.jitter = 0.2;
    times.seed = 3;
    const struct pp_plan_spec spec = {
        .schedule = "1f1b", .ranks = 1, .virtual_stages = 1, .microbatches = 4, .replicas = D};
    struct sim_case c = replicas_case(spec, times, false);
    int64_t length[STEPS] = {0}, second_half = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int d = 0; d < D; d++) {
            int64_t sum = 0;
            for (int32_t id = 0; id < c.plan->ntasks; id++)
                sum += pp_jitter_ns(c.cost->classes[c.plan->tasks[id].cls].ns, 0.2, 3, step, id, d);
            if (sum > length[step]) length[step] = sum;
        }
        if (step > (STEPS - 1) / 2) second_half += length[step];
    }
    assert_int_equal(c.result.steps, STEPS);
    assert_int_equal(c.result.metrics.makespan_ns, length[STEPS - 1]);
    assert_int_equal(c.result.batch_ns, second_half / (STEPS / 2));
    release_case(&c);
}

static int64_t drawn(const struct sim_case *c, int kind, int stage, int step, int replica)
{
    for (int32_t id = 0; id < c->plan->ntasks; id++) {
        const struct pp_task *t = &c->plan->tasks[id];
        if (t->kind == kind && t->stage == stage)
            return pp_jitter_ns(c->cost->classes[t->cls].ns, c->cost->jitter, c->cost->seed, step, id,
                                replica * c->plan->ranks + t->lane);
    }
    fail_msg("there is no task of kind %d on stage %d", kind, stage);
    return 0;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* One microbatch goes forth and back over two ranks. A rank waits for the same rank of the other replicas; for the
 * other rank at the end of a step only where the gradient is clipped. */
static void test_only_sums_couple_replicas(void **state)
{
    (void)state;
    enum { D = 3, HOP = 1000000 };
    for (int clip = 0; clip < 2; clip++) {
        struct pp_given_times times = plain;
        times.jitter = 0.5;
        const struct pp_plan_spec spec = {
            .schedule = "gpipe", .ranks = 2, .virtual_stages = 1, .microbatches = 1, .replicas = D, .clip = clip};
        struct sim_case c = replicas_case(spec, times, false);
        int64_t free_0 = 0, free_1 = 0, started = 0;
        for (int step = 0; step < c.result.steps; step++) {
            int64_t end_0 = 0, end_1 = 0;
            for (int d = 0; d < D; d++) {
                int64_t at = most(free_0 + drawn(&c, PP_F, 0, step, d) + HOP, free_1);
                at += drawn(&c, PP_F, 1, step, d) + drawn(&c, PP_B, 1, step, d);
                end_1 = most(end_1, at);
                end_0 = most(end_0, at + HOP + drawn(&c, PP_B, 0, step, d));
            }
            started = free_0;
            free_0 = end_0;
            free_1 = clip ? end_0 : end_1;
        }
        assert_int_equal(c.result.metrics.makespan_ns, free_0 - started);
        release_case(&c);
    }
}

static void expect_same_result(const struct sim_case *a, const struct sim_case *b)
{
    assert_int_equal(a->result.batch_ns, b->result.batch_ns);
    assert_int_equal(a->result.metrics.makespan_ns, b->result.metrics.makespan_ns);
    assert_int_equal(a->result.metrics.span_ns, b->result.metrics.span_ns);
    assert_int_equal(a->result.path.length_ns, b->result.path.length_ns);
    assert_int_equal(a->result.trace.nevents, b->result.trace.nevents);
    assert_memory_equal(a->result.trace.events, b->result.trace.events,
                        (size_t)a->result.trace.nevents * sizeof *a->result.trace.events);
}

/* Each schedule with what holds a step back: few buffers, recomputation, the norm. */
static const struct pp_plan_spec shapes[] = {
    {.schedule = "gpipe", .ranks = 3, .virtual_stages = 1, .microbatches = 6, .recv_buffers = 1, .clip = true},
    {.schedule = "1f1b", .ranks = 4, .virtual_stages = 1, .microbatches = 9, .checkpoint = PP_CHECKPOINT_ALWAYS},
    {.schedule = "interleaved", .ranks = 3, .virtual_stages = 2, .microbatches = 6, .clip = true},
    {.schedule = "interleaved", .ranks = 2, .virtual_stages = 2, .microbatches = 4, .checkpoint = PP_CHECKPOINT_LAYERS},
    {.schedule = "1f1b", .ranks = 3, .virtual_stages = 1, .microbatches = 8, .batch_w = 2, .recv_buffers = 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Of one replica the sweep knows what the events come to, to the nanosecond. */
static void test_noisy_sweep_is_noisy_events(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        struct pp_given_times times = plain;
        struct pp_plan_spec spec = shapes[i];
        times.jitter = 0.3;
        spec.replicas = 1;
        struct sim_case swept = replicas_case(spec, times, false), stepped = replicas_case(spec, times, true);
        expect_same_result(&swept, &stepped);
        release_case(&swept);
        release_case(&stepped);
    }
}

/* Replicas that draw the same, because jitter is less than a nanosecond, are one replica. */
static void test_equal_replicas_are_one(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        struct pp_given_times times = plain;
        struct pp_plan_spec spec = shapes[i];
        spec.replicas = 3;
        struct sim_case calm = replicas_case(spec, times, false);
        times.jitter = 1e-12;
        struct sim_case noisy = replicas_case(spec, times, false);
        assert_true(calm.result.steady && !noisy.result.steady);
        assert_int_equal(calm.result.batch_ns, noisy.result.batch_ns);
        assert_int_equal(calm.result.metrics.makespan_ns, noisy.result.metrics.makespan_ns);
        release_case(&calm);
        release_case(&noisy);
    }
}

/* From event to event only one replica is looked at: several that differ are refused. */
static void test_noisy_replicas_need_the_sweep(void **state)
{
    (void)state;
    struct pp_plan_spec spec = shapes[0];
    struct pp_given_times times = plain;
    const struct pp_sim_options events = {.events = true};
    spec.replicas = 2;
    times.jitter = 0.1;
    struct sim_case c = replicas_case(spec, times, false);
    pp_sim_result_free(&c.result);
    assert_int_equal(pp_sim_run(c.plan, c.cost, &events, &c.result), PP_INTERNAL);
    release_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_straggler_text),
        cmocka_unit_test(test_class_times),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_measured_times),
        cmocka_unit_test(test_measured_parts),
        cmocka_unit_test(test_jitter),
        cmocka_unit_test(test_simulated_jitter),
        cmocka_unit_test(test_noisy_pipeline),
        cmocka_unit_test(test_replicas_wait_for_the_slowest),
        cmocka_unit_test(test_only_sums_couple_replicas),
        cmocka_unit_test(test_noisy_sweep_is_noisy_events),
        cmocka_unit_test(test_equal_replicas_are_one),
        cmocka_unit_test(test_noisy_replicas_need_the_sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
