/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of the schedules with a number, NAME:N: zb-auto and 1f1b-eager, of which ranks hold N microbatches, and
 * interleaved ones, of which N are in turn.
 */
#include "tests/unit/zb_case.h"

static uint8_t kinds[3 * MOST_RANKS * MOST_MICROBATCHES];

/* NAME:N; 0: NAME. */
static const char *with_number(const char *name, int number, char buf[PP_SCHEDULE_NAME])
{
    snprintf(buf, PP_SCHEDULE_NAME, number ? "%s:%d" : "%s", name, number);
    return buf;
}

static struct sim_case limited_case(const char *schedule, int p, int m, struct pp_given_times times, int number,
                                    const struct pp_stage_costs *costs)
{
    char name[PP_SCHEDULE_NAME];
    const struct pp_plan_spec spec = {.schedule = with_number(schedule, number, name),
                                      .ranks = p,
                                      .virtual_stages = 1,
                                      .microbatches = m,
                                      .replicas = 1,
                                      .training = true,
                                      .costs = costs};
    struct sim_case c = {.plan = build_plan(&spec)};
    if (pp_cost_from_times(c.plan, &times, &c.cost) != PP_OK) fail_msg("%s", pp_message());
    simulate(&c, false);
    return c;
}

/* The plan is what the search found: simulated it takes as long, and no rank has more activation slots. Steps of given
 * times overlap, so the least span is sought. */
static void test_plans(void **state)
{
    (void)state;
    static const struct pp_given_times times = {10, 12, 8, 1};
    for (int p = 1; p <= 6; p++)
        for (int m = 1; m <= 16; m += 3)
            for (int k = 1; k <= 2 * p; k++) {
                struct problem t;
                uniform(&t, p, m, 10, 12, 8, 1, k);
                t.p.span = true;
                const struct found found = search(&t, kinds);
                struct sim_case c = limited_case("zb-auto", p, m, times, k, &t.costs);
                expect_near(in_ms(c.result.metrics.makespan_ns), (double)found.makespan, 1e-5, "makespan");
                expect_near(in_ms(c.result.metrics.span_ns), (double)found.span, 1e-5, "span");
                for (int i = 0; i < c.plan->npools; i++)
                    if (c.plan->pools[i].kind == PP_POOL_ACT) assert_true(c.plan->pools[i].slots <= k);
                release_case(&c);
            }
}

/* Kinds of the first tasks of each rank in issue order: all computations of the microbatches. */
static void read_order(const struct pp_plan *plan, uint8_t *out)
{
    for (int r = 0; r < plan->ranks; r++)
        for (int64_t i = plan->issue_start[r]; i < plan->issue_start[r + 1]; i++) {
            const struct pp_task *task = &plan->tasks[pp_issue_task(plan->issue[i])];
            if (task->kind == PP_F || task->kind == PP_I || task->kind == PP_W) *out++ = (uint8_t)task->kind;
        }
}

/* Where all ranks wait for the global norm, the least makespan is sought. */
static void test_norm(void **state)
{
    (void)state;
    enum { P = 4, M = 8, CELLS = 3 * P * M };
    static uint8_t order[CELLS];
    int different = 0;
    for (int clip = 0; clip < 2; clip++) {
        struct problem t;
        uniform(&t, P, M, 8, 1, 5, 2, P);
        const struct pp_plan_spec spec = {.schedule = "zb-auto",
                                          .ranks = P,
                                          .virtual_stages = 1,
                                          .microbatches = M,
                                          .replicas = 1,
                                          .training = true,
                                          .optimizer = true,
                                          .clip = clip,
                                          .costs = &t.costs};
        struct pp_plan *plan = build_plan(&spec);
        read_order(plan, order);
        for (int span = 0; span < 2; span++) {
            t.p.span = span;
            (void)search(&t, kinds);
            if (span != clip)
                assert_memory_equal(order, kinds, CELLS);
            else
                different += memcmp(order, kinds, CELLS) != 0;
        }
        pp_plan_free(plan);
    }
    assert_int_equal(different, 2);
}

/* Without a limit given it is P, and without times all tasks are equally long: then zb-h1 is the best that there is. */
static void test_defaults(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++) {
        struct sim_case a = limited_case("zb-auto", p, 2 * p, (struct pp_given_times){1, 1, 1, 0}, 0, NULL);
        struct sim_case h = times_case("zb-h1", p, 1, 2 * p, (struct pp_given_times){1, 1, 1, 0});
        assert_int_equal(a.result.metrics.makespan_ns, h.result.metrics.makespan_ns);
        for (int i = 0; i < a.plan->npools; i++)
            if (a.plan->pools[i].kind == PP_POOL_ACT) assert_true(a.plan->pools[i].slots <= p);
        release_case(&a);
        release_case(&h);
    }
}

/* Published: what hops add to (M + P - 1)(F + B), in hops, with so many microbatches more than 1F1B. */
static void test_eager(void **state)
{
    (void)state;
    static const struct {
        int p, m;
        struct pp_given_times times;
        int hops[5];
    } rows[] = {{8, 24, {18.522, 18.086, 9.337, 0.601}, {54, 14, 14, 14, 14}},
                {8, 64, {18.546, 18.097, 9.321, 0.762}, {124, 69, 15, 14, 14}},
                {16, 128, {11.325, 11.308, 8.109, 0.378}, {268, 202, 138, 72, 30}}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int e = 0; e <= 5; e++) {
            const struct pp_given_times *t = &rows[k].times;
            const int p = rows[k].p, m = rows[k].m, hops = e < 5 ? rows[k].hops[e] : 2 * (p - 1);
            const double whole = t->forward_ms + t->input_ms + t->weight_ms;
            struct sim_case c = limited_case("1f1b-eager", p, m, *t, e < 5 ? p + e : 0, NULL);
            const double makespan = in_ms(c.result.metrics.makespan_ns);
            expect_near((makespan - (m + p - 1) * whole) / t->hop_ms, hops, 0.5, "hops");
            for (int r = 0; r < p; r++) {
                const int after = p - 1 - r, more = e < 5 && e < after ? e : after;
                expect_near(c.plan->peak_microbatches[r], after + more + 1, 0, "peak");
            }
            release_case(&c);
        }
}

/* Turns of any length: where hops take no time the bubble is interleaved 1F1B's, and what rank 0 holds is Megatron-LM's
 * warm-up and one more; where they do, longer turns hide more of it. */
static void test_turns(void **state)
{
    (void)state;
    char name[PP_SCHEDULE_NAME];
    for (int p = 1; p <= 6; p++)
        for (int v = 1; v <= 4; v++)
            for (int m = p; m <= 4 * p; m++)
                for (int n = p; n <= m; n++) {
                    if (m % n > 0 && m % n < p) continue;
                    with_number("interleaved", n, name);
                    struct sim_case c = times_case(name, p, v, m, (struct pp_given_times){10, 12, 8, 0});
                    const double step = 30.0 / v, ahead = (v - 1) * n + 2 * (p - 1) + 1;
                    expect_near(in_ms(c.result.metrics.makespan_ns), (m * v + p - 1) * step, 1e-5, "makespan");
                    expect_near(c.plan->peak_microbatches[0], (ahead < m * v ? ahead : m * v) / v, 1e-9, "peak");
                    release_case(&c);
                }
    double before = 1e9;
    for (int n = 4; n <= 16; n *= 2) {
        struct sim_case c =
            times_case(with_number("interleaved", n, name), 4, 4, 16, (struct pp_given_times){10, 12, 8, 3});
        const double makespan = in_ms(c.result.metrics.makespan_ns);
        assert_true(makespan < before - 1);
        before = makespan;
        release_case(&c);
    }
}

static void refuse(const char *schedule, int virtual_stages, const char *text)
{
    struct pp_plan *plan = NULL;
    const struct pp_plan_spec spec = {.schedule = schedule,
                                      .ranks = 4,
                                      .virtual_stages = virtual_stages,
                                      .microbatches = 9,
                                      .replicas = 1,
                                      .training = true};
    assert_int_equal(pp_plan_build(&spec, &plan), PP_USAGE);
    if (!strstr(pp_message(), text)) fail_msg("\"%s\" does not contain \"%s\"", pp_message(), text);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("1f1b:4", 1, "schedule 1f1b takes no number, such as :4; "); /* who does: cli.schedule_numbers */
    refuse("1f1b-eager:3", 1, "at least 4 microbatches: 1f1b-eager:3 is too few");
    refuse("interleaved:3", 2, "on 4 ranks take from 4 to the 9 microbatches in turn, not 3");
    refuse("interleaved-zb:10", 2, "take from 4 to the 9 microbatches in turn, not 10");
    refuse("interleaved:12", 3, "take from 4 to the 9 microbatches");
    refuse("interleaved:8", 2, "of 9 microbatches, 8 in turn, 1 is left for the last turn, fewer than ranks");
    refuse("interleaved:6", 2, "3 are left for the last turn");
    static const char *const unknown[] = {"zb-auto:",
                                          "zb-auto:0",
                                          "zb-auto:-4",
                                          "zb-auto: 4",
                                          "zb-auto:4x",
                                          "zb-auto:16777217",
                                          "zb-auto:99999999999999999999",
                                          ":4",
                                          "zb-auto:4:4"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) refuse(unknown[i], 1, "there is no schedule");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans),    cmocka_unit_test(test_norm),
                                       cmocka_unit_test(test_defaults), cmocka_unit_test(test_eager),
                                       cmocka_unit_test(test_turns),    cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
