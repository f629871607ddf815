/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator against theory: closed formulas of schedules, published bubble rates, the lower bound, the critical
 * path, the trace.
 * */
#include "tests/unit/sim_case.h"

static const struct pp_given_times unequal = {10, 12, 8, 0}, with_hops = {10, 12, 8, 1};

static void expect_cost(const char *schedule, int p, int v, int m, struct pp_given_times times, double make,
                        double span)
{
    struct sim_case c = times_case(schedule, p, v, m, times);
    expect_near(in_ms(c.result.metrics.makespan_ns), make, 1e-5, "makespan");
    expect_near(in_ms(c.result.metrics.span_ns), span, 1e-5, "span");
    assert_true(c.result.steady);
    expect_near(in_ms(c.result.batch_ns), make, 1e-5, "ms per batch"); /* the first rank starts first and ends last */
    release_case(&c);
}

static void test_small_cases(void **state)
{
    (void)state;
    const struct pp_given_times equal = {1, 1, 1, 0};
    expect_cost("gpipe", 4, 1, 8, equal, 33, 33);
    expect_cost("gpipe", 4, 1, 8, unequal, 330, 330);
    expect_cost("gpipe", 4, 1, 8, with_hops, 336, 336);
    expect_cost("1f1b", 4, 1, 8, equal, 33, 33);
    expect_cost("1f1b", 4, 1, 8, unequal, 330, 330);
    expect_cost("1f1b", 4, 1, 8, with_hops, 346, 346);
    expect_cost("interleaved", 4, 2, 8, equal, 28.5, 28.5);
    expect_cost("interleaved", 4, 2, 8, unequal, 285, 285);
    expect_cost("interleaved", 4, 2, 8, with_hops, 299, 299);
}

static void test_formulas_without_hops(void **state)
{
    (void)state;
    const double whole = 10 + 12 + 8;
    for (int p = 1; p <= 9; p++)
        for (int m = 1; m <= 20; m++) {
            expect_cost("gpipe", p, 1, m, unequal, (m + p - 1) * whole, (m + p - 1) * whole);
            expect_cost("1f1b", p, 1, m, unequal, (m + p - 1) * whole, (m + p - 1) * whole);
            for (int v = 1; v <= 4 && m % p == 0; v++) {
                double make = (m * v + p - 1) * whole / v;
                struct sim_case c = times_case("interleaved", p, v, m, unequal);
                expect_near(in_ms(c.result.metrics.makespan_ns), make, 1e-3, "interleaved"); /* stages round to ns */
                release_case(&c);
            }
        }
}

static void test_formulas_with_hops(void **state)
{
    (void)state;
    const double whole = 30, c = 1;
    for (int p = 2; p <= 8; p++)
        for (int m = 2; m <= 24; m++) {
            double base = (m + p - 1) * whole;
            double one = 2 * c * ((p - 1) + (m - 2) - (m - 2) / p); /* (m - 2) / p rounds down */
            expect_cost("gpipe", p, 1, m, with_hops, base + 2 * (p - 1) * c, base + 2 * (p - 1) * c);
            expect_cost("1f1b", p, 1, m, with_hops, base + one, base + one);
        }
    for (int v = 1; v <= 4; v += 3) /* one stage of a rank takes whole ns */
        for (int p = 2; p <= 6; p++) {
            struct sim_case s = times_case("interleaved", p, 2 * v, 4 * p, (struct pp_given_times){8, 16, 8, 1});
            double make = (4 * p * 2 * v + p - 1) * 32.0 / (2 * v) + 2 * (p * 2 * v - 1) * c;
            expect_near(in_ms(s.result.metrics.makespan_ns), make, 1e-5, "interleaved with hops");
            release_case(&s);
        }
}

static void test_peaks(void **state)
{
    (void)state;
    const struct {
        const char *schedule;
        int v;
        double peak[4];
    } cases[] = {{"gpipe", 1, {8, 8, 8, 8}}, {"1f1b", 1, {4, 3, 2, 1}},  {"interleaved", 2, {5.5, 4.5, 3.5, 2.5}},
                 {"zb-h1", 1, {4, 3, 2, 1}}, {"zb-h2", 1, {7, 5, 3, 1}}, {"bfs", 2, {8, 8, 8, 8}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim_case c = times_case(cases[i].schedule, 4, cases[i].v, 8, unequal);
        for (int r = 0; r < 4; r++) expect_near(c.plan->peak_microbatches[r], cases[i].peak[r], 0, cases[i].schedule);
        release_case(&c);
    }
}

/* Profiled times and bubble rates of Qi et al., Zero Bubble Pipeline Parallelism (ICLR 2024), tables 5 and 9; the
 * interleaved column with all dependencies kept. Rates are (cost - M a) / cost with cost = span, printed with four
 * digits. */
static void test_published_rates(void **state)
{
    (void)state;
    const struct {
        int p, m;
        struct pp_given_times times;
        double one, interleaved, h1, h2, ms;
    } rows[] = {{8, 24, {18.522, 18.086, 9.337, 0.601}, .2431, .1090, .1585, .1083, 1456.7},
                {8, 32, {18.513, 18.086, 9.331, 0.626}, .1985, .0847, .1242, .0837, 1833.8},
                {8, 64, {18.546, 18.097, 9.321, 0.762}, .1240, .0461, .0674, .0444, 3357.9},
                {16, 48, {11.347, 11.248, 8.132, 0.377}, .2552, .1136, .1397, .0672, 1980.3},
                {16, 64, {11.307, 11.254, 8.101, 0.379}, .2082, .0878, .1088, .0516, 2478.4},
                {16, 128, {11.325, 11.308, 8.109, 0.378}, .1251, .0459, .0576, .0266, 4497.4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sim_case one = times_case("1f1b", rows[i].p, 1, rows[i].m, rows[i].times);
        struct sim_case inter = times_case("interleaved", rows[i].p, 3, rows[i].m, rows[i].times);
        expect_near(one.result.metrics.bubble_span, rows[i].one, 0.5e-4, "1f1b");
        expect_near(in_ms(one.result.metrics.span_ns), rows[i].ms, 0.06, "1f1b ms");
        expect_near(inter.result.metrics.bubble_span, rows[i].interleaved, 0.5e-4, "interleaved");
        struct sim_case h1 = times_case("zb-h1", rows[i].p, 1, rows[i].m, rows[i].times);
        struct sim_case h2 = times_case("zb-h2", rows[i].p, 1, rows[i].m, rows[i].times);
        expect_near(h1.result.metrics.bubble_span, rows[i].h1, 0.5e-4, "zb-h1");
        expect_near(h2.result.metrics.bubble_span, rows[i].h2, 0.5e-4, "zb-h2");
        release_case(&one);
        release_case(&inter);
        release_case(&h1);
        release_case(&h2);
    }
}

/* Makespan and span of small cases, P = 4, M = 8: what an evaluation of the orders that is not ours gave. */
static void test_published_cases(void **state)
{
    (void)state;
    static const struct pp_given_times without = {10, 12, 8, 0}, hop = {10, 12, 8, 1};
    static const struct {
        const char *schedule;
        int v;
        double make, span, hop_make, hop_span;
    } cases[] = {{"gpipe", 1, 330, 330, 336, 336},       {"1f1b", 1, 330, 330, 346, 346},
                 {"interleaved", 2, 285, 285, 299, 299}, {"bfs", 2, 285, 285, 291, 291},
                 {"zb-h1", 1, 282, 282, 294, 294},       {"zb-h2", 1, 270, 258, 273, 264},
                 {"zbv", 2, 258, 252, 271, 268}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const bool hops = i % 2;
        struct sim_case c = times_case(cases[i / 2].schedule, 4, cases[i / 2].v, 8, hops ? hop : without);
        expect_near(in_ms(c.result.metrics.makespan_ns), hops ? cases[i / 2].hop_make : cases[i / 2].make, 1e-5,
                    cases[i / 2].schedule);
        expect_near(in_ms(c.result.metrics.span_ns), hops ? cases[i / 2].hop_span : cases[i / 2].span, 1e-5,
                    cases[i / 2].schedule);
        release_case(&c);
    }
}

/* Published bubble rates of the bound itself, for 1F1B: rows of the same tables. */
static void test_published_bounds(void **state)
{
    (void)state;
    struct sim_case c = times_case("1f1b", 8, 1, 24, (struct pp_given_times){18.522, 18.086, 9.337, 0.601});
    double work = 24 * (18.522 + 18.086 + 9.337), bound = in_ms(c.result.lower_bound_ns);
    expect_near((bound - work) / bound, .2304, 0.5e-4, "bound, 1.5B");
    release_case(&c);
    c = times_case("1f1b", 16, 1, 48, (struct pp_given_times){11.347, 11.248, 8.132, 0.377});
    work = 48 * (11.347 + 11.248 + 8.132);
    bound = in_ms(c.result.lower_bound_ns);
    expect_near((bound - work) / bound, .2425, 0.5e-4, "bound, 14.6B");
    release_case(&c);
}

static void test_bound_is_reached(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int m = 1; m <= 16; m += 3) {
            struct sim_case g = times_case("gpipe", p, 1, m, with_hops), o = times_case("1f1b", p, 1, m, unequal);
            assert_int_equal(g.result.lower_bound_ns, g.result.metrics.makespan_ns);
            assert_int_equal(o.result.lower_bound_ns, o.result.metrics.makespan_ns);
            release_case(&g);
            release_case(&o);
        }
    struct sim_case i = times_case("interleaved", 4, 2, 8, unequal);
    assert_int_equal(i.result.lower_bound_ns, i.result.metrics.makespan_ns);
    release_case(&i);
}

/* The path goes without a gap from the first task to the last, and its parts add up. */
static void test_critical_path(void **state)
{
    (void)state;
    struct sim_case c = times_case("1f1b", 4, 1, 8, with_hops);
    const struct pp_sim_path *path = &c.result.path;
    int64_t sum = path->waiting_ns;
    for (int kind = 0; kind < PP_KINDS; kind++) sum += path->kind_ns[kind];
    assert_int_equal(sum, path->length_ns);
    assert_int_equal(path->length_ns, c.result.metrics.makespan_ns);
    assert_int_equal(path->waiting_ns, 0);
    assert_int_equal(path->kind_ns[PP_XFER_F] + path->kind_ns[PP_XFER_B], 16000000); /* 346 - 330 ms */
    for (int64_t i = 1; i < path->n; i++) assert_true(path->tasks[i] > path->tasks[i - 1]);
    assert_int_equal(c.plan->tasks[path->tasks[0]].kind, PP_F);
    assert_int_equal(c.plan->tasks[path->tasks[path->n - 1]].kind, PP_B);
    release_case(&c);
}

/* Every task has its events, inside the step, and figures made from the trace are those of the result. */
static void test_trace(void **state)
{
    (void)state;
    struct sim_case c = times_case("interleaved", 3, 2, 6, with_hops);
    struct pp_metrics m;
    double bubble[3];
    int64_t events = 0;
    for (int64_t i = 0; i < c.plan->ntasks; i++) events += c.plan->tasks[i].lane < c.plan->ranks ? 1 : 2;
    assert_int_equal(c.result.trace.nevents, events);
    for (int64_t i = 0; i < events; i++) {
        const struct pp_event *e = &c.result.trace.events[i];
        assert_true(e->posted_ns <= e->start_ns && e->start_ns <= e->end_ns);
        assert_true(e->end_ns <= c.result.metrics.makespan_ns && e->step == 0);
    }
    assert_int_equal(pp_trace_metrics(c.plan, &c.result.trace, 0, 0, 1, &m, bubble), PP_OK);
    assert_memory_equal(&m, &c.result.metrics, sizeof m);
    assert_memory_equal(bubble, c.result.rank_bubble, sizeof bubble);
    release_case(&c);
}

/* Of three steps that come mixed, each a thousand times as long as the one before, the last two. */
static void test_trace_of_steps(void **state)
{
    (void)state;
    struct sim_case c = times_case("interleaved", 3, 2, 6, with_hops);
    const struct pp_metrics *one = &c.result.metrics;
    struct pp_metrics m[2];
    double bubble[2][3];
    struct pp_trace trace = {0};
    for (int64_t i = 0; i < c.result.trace.nevents; i++) {
        struct pp_event e = c.result.trace.events[i];
        for (e.step = 7; e.step < 10; e.step++, e.start_ns *= 1000, e.end_ns *= 1000)
            assert_int_equal(pp_trace_add(&trace, &e), PP_OK);
    }
    assert_int_equal(pp_trace_metrics(c.plan, &trace, 0, 8, 2, m, bubble[0]), PP_OK);
    for (int k = 0, factor = 1000; k < 2; k++, factor *= 1000) {
        assert_int_equal(m[k].makespan_ns, factor * one->makespan_ns);
        assert_int_equal(m[k].span_ns, factor * one->span_ns);
        assert_int_equal(m[k].busy_ns, factor * one->busy_ns);
        for (int r = 0; r < 3; r++) assert_true(fabs(bubble[k][r] - c.result.rank_bubble[r]) < 1e-12);
    }
    pp_trace_clear(&trace);
    release_case(&c);
}

/* Without a barrier a rank goes on with the next step as soon as its data is there: ranks that only go forward fill
 * up. */
static void test_steps_without_barrier(void **state)
{
    (void)state;
    struct pp_plan_spec spec = {
        .schedule = "gpipe", .ranks = 4, .virtual_stages = 1, .microbatches = 3, .replicas = 1, .recv_buffers = 2};
    struct sim_case c = {.plan = build_plan(&spec)};
    assert_int_equal(pp_cost_from_times(c.plan, &unequal, &c.cost), PP_OK);
    simulate(&c, false);
    assert_int_equal(c.result.metrics.makespan_ns, 60000000); /* (M + P - 1) F */
    assert_int_equal(c.result.batch_ns, 30000000);            /* M F */
    assert_true(c.result.steady);
    release_case(&c);
}

/* A slow last rank holds back the first only through its receive slots; without any limit the first never stops. */
static void test_steps_drift_apart(void **state)
{
    (void)state;
    struct pp_plan_spec spec = {
        .schedule = "gpipe", .ranks = 2, .virtual_stages = 1, .microbatches = 4, .replicas = 1, .recv_buffers = 0};
    for (int buffers = 0; buffers <= 2; buffers += 2) {
        spec.recv_buffers = buffers;
        struct sim_case c = {.plan = build_plan(&spec)};
        assert_int_equal(pp_cost_from_times(c.plan, &unequal, &c.cost), PP_OK);
        for (int k = 0; k < c.plan->nclasses; k++)
            if (c.plan->classes[k].stage == 1) c.cost->classes[k].ns *= 3;
        simulate(&c, false);
        assert_int_equal(c.result.batch_ns, 120000000); /* the slow rank's 4 x 30 ms */
        assert_int_equal(c.result.steady, buffers > 0);
        release_case(&c);
    }
}

static void test_too_long(void **state)
{
    (void)state;
    struct sim_case c = times_case("gpipe", 2, 1, 4, unequal);
    struct pp_sim_result result;
    const struct pp_sim_options options = {0};
    for (int k = 0; k < c.cost->nclasses; k++) c.cost->classes[k].ns = INT64_MAX / 2;
    assert_int_equal(pp_sim_run(c.plan, c.cost, &options, &result), PP_USAGE);
    /* Their sum is a good one. */
    for (int k = 0; k < c.cost->nclasses; k++) c.cost->classes[k].ns = k == 0 ? -1 : 1000000;
    assert_int_equal(pp_sim_run(c.plan, c.cost, &options, &result), PP_INPUT);
    assert_non_null(strstr(pp_message(), "F of stage 0 takes -1 ns"));
    /* Alone they are short; both ranks busy, 16 of them take more than can be counted. */
    for (int k = 0; k < c.cost->nclasses; k++)
        c.cost->classes[k] = (struct pp_class_cost){.ns = 1, .loaded_ns = (int64_t)1e15};
    c.cost->cores = 2;
    assert_int_equal(pp_sim_run(c.plan, c.cost, &options, &result), PP_USAGE);
    release_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_cases),        cmocka_unit_test(test_formulas_without_hops),
        cmocka_unit_test(test_formulas_with_hops), cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_published_rates),    cmocka_unit_test(test_published_cases),
        cmocka_unit_test(test_published_bounds),   cmocka_unit_test(test_bound_is_reached),
        cmocka_unit_test(test_critical_path),      cmocka_unit_test(test_trace),
        cmocka_unit_test(test_trace_of_steps),     cmocka_unit_test(test_steps_without_barrier),
        cmocka_unit_test(test_steps_drift_apart),  cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
