/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of the schedules that take --in-flight: zb-auto and 1f1b-eager.
 */
#include "tests/unit/zb_case.h"

static uint8_t kinds[3 * MOST_RANKS * MOST_MICROBATCHES];

static struct sim_case limited_case(const char *schedule, int p, int m, struct pp_given_times times, int in_flight,
                                    const struct pp_stage_costs *costs)
{
    const struct pp_plan_spec spec = {.schedule = schedule,
                                      .ranks = p,
                                      .virtual_stages = 1,
                                      .microbatches = m,
                                      .replicas = 1,
                                      .training = true,
                                      .in_flight = in_flight,
                                      .costs = costs};
    struct sim_case c = {.plan = build_plan(&spec)};
    if (pp_cost_from_times(c.plan, &times, &c.cost) != PP_OK) fail_msg("%s", pp_message());
    simulate(&c, false);
    return c;
}

/* The plan is what the search found: simulated it takes as long, and no rank has more activation slots. */
static void test_plans(void **state)
{
    (void)state;
    static const struct pp_given_times times = {10, 12, 8, 1};
    for (int p = 1; p <= 6; p++)
        for (int m = 1; m <= 16; m += 3)
            for (int k = 1; k <= 2 * p; k++) {
                struct problem t;
                uniform(&t, p, m, 10, 12, 8, 1, k);
                const struct found found = search(&t, kinds);
                struct sim_case c = limited_case("zb-auto", p, m, times, k, &t.costs);
                expect_near(in_ms(c.result.metrics.makespan_ns), (double)found.makespan, 1e-5, "makespan");
                expect_near(in_ms(c.result.metrics.span_ns), (double)found.span, 1e-5, "span");
                for (int i = 0; i < c.plan->npools; i++)
                    if (c.plan->pools[i].kind == PP_POOL_ACT) assert_true(c.plan->pools[i].slots <= k);
                release_case(&c);
            }
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

static void refuse(const char *schedule, int in_flight, const char *text)
{
    struct pp_plan *plan = NULL;
    const struct pp_plan_spec spec = {.schedule = schedule,
                                      .ranks = 4,
                                      .virtual_stages = 1,
                                      .microbatches = 8,
                                      .replicas = 1,
                                      .training = true,
                                      .in_flight = in_flight};
    assert_int_equal(pp_plan_build(&spec, &plan), PP_USAGE);
    if (!strstr(pp_message(), text)) fail_msg("\"%s\" does not contain \"%s\"", pp_message(), text);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("1f1b", 4, "schedule 1f1b does not take --in-flight; 1f1b-eager, zb-auto do");
    refuse("1f1b-eager", 3, "at least 4 microbatches: --in-flight 3 is too few");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans), cmocka_unit_test(test_defaults),
                                       cmocka_unit_test(test_eager), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
