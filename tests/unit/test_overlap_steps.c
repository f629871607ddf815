/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated steps in which gradients are summed, and parameters gathered, in parts beside the computations.
 */
#include "tests/unit/overlap_case.h"

static void set_ns(struct sim_case *c, int kind, const int64_t *parts, int64_t whole)
{
    for (int k = 0; k < c->plan->nclasses; k++) {
        const struct pp_class *cls = &c->plan->classes[k];
        if (cls->kind != kind) continue;
        c->cost->classes[k].ns = c->cost->classes[k].loaded_ns = cls->parts ? parts[cls->part] : whole;
    }
}

/* inside: the part of computations that their own sums take. */
static void expect_steps(bool zero, bool gather, double taken, double inside, int64_t makespan, int64_t batch)
{
    static const int64_t f[] = {40, 50, 20}, b[] = {90, 100, 110}, sums[] = {150, 20, 200}, gathers[] = {170, 30, 80};
    for (int events = 0; events < 2; events++) {
        struct pp_plan_spec spec = spec_of("gpipe", 1, 1, 2);
        spec.zero = zero;
        spec.gather_first = gather;
        struct sim_case c = {.plan = build_plan(&spec)};
        assert_int_equal(pp_cost_create(c.plan, PP_COST_TIMES, &c.cost), PP_OK);
        set_ns(&c, PP_F, f, 100);
        set_ns(&c, PP_B, b, 300);
        set_ns(&c, PP_REDUCE_GRAD, sums, 0);
        set_ns(&c, PP_GATHER_PARAM, gathers, 280);
        set_ns(&c, PP_STEP, NULL, 13);
        c.cost->taken = taken;
        for (int k = 0; k < c.plan->nclasses; k++)
            if (pp_kinds[c.plan->classes[k].kind].computes)
                c.cost->classes[k].sums_ns = llround(inside * (double)c.cost->classes[k].ns);
        simulate(&c, events);
        assert_int_equal(c.result.metrics.makespan_ns, makespan);
        assert_int_equal(c.result.batch_ns, batch);
        assert_true(c.result.steady);
        release_case(&c);
    }
}

/* One rank, two microbatches, ns. Forwards until 200, the first backward until 500, the parts of the other until 590,
 * 690, 800. Their sums: 590 to 740; when that is done until 760; 800 to 1000. The step until 1013.
 * With gathering behind it, another 280 between two steps. Before it, until 170, 200 and 280: the parts of the first
 * forward from 170 to 210, to 260, from 280 to 300, the other until 400; from there on all as above, 200 later. */
static void test_by_hand(void **state)
{
    (void)state;
    expect_steps(false, false, 0, 0, 1013, 1013);
    expect_steps(true, false, 0, 0, 1013, 1013 + 280);
    expect_steps(true, true, 0, 0, 1213 - 170, 1213);
}

/* The same where sums take half of the speed of what is computed beside them. The second part of the backward has done
 * 75 of 100 when the first sum ends, at 740, and ends 25 later. The third does 10 of 110 in the 20 of the second sum,
 * and ends at 885; the last sum ends 200 later. Of the first forward 15 of 40 are done until 200, and the rest until
 * 250; of the next part 15 of 50 until 280, when all is gathered, and the rest until 315. All forwards are done at 435
 * in place of 200. Behind a step nothing is computed beside the gathering. */
static void test_taken_by_hand(void **state)
{
    (void)state;
    expect_steps(false, false, 0.5, 0, 1098, 1098);
    expect_steps(true, false, 0.5, 0, 1098, 1098 + 280);
    expect_steps(true, true, 0.5, 0, 1098 + 235 - 170, 1098 + 235);
    /* Where half of a computation is sums of its own, what takes two thirds of the other half leaves half as well. */
    expect_steps(false, false, 2.0 / 3, 0.5, 1098, 1098);
    expect_steps(true, true, 0.9, 1, 1213 - 170, 1213);
}

/* The longest chain of one microbatch is all there is: its tasks are there in parts alone, and the bound is the sum of
 * these. */
static void test_bound_is_reached(void **state)
{
    (void)state;
    for (int p = 1; p <= 4; p++)
        for (int split = 0; split < 2; split++) {
            static const int64_t f[] = {40, 50, 20, 10}, b[] = {90, 100, 110, 70};
            struct pp_plan_spec spec = spec_of(split ? "zb-h1" : "gpipe", p, 1, 1);
            spec.gather_first = true;
            spec.zero = PP_ZERO_OPTIMIZER;
            struct sim_case c = {.plan = build_plan(&spec)};
            assert_int_equal(pp_cost_create(c.plan, PP_COST_TIMES, &c.cost), PP_OK);
            for (int k = 0; k < c.cost->nclasses; k++) c.cost->classes[k].ns = c.cost->classes[k].loaded_ns = 0;
            set_ns(&c, PP_F, f, 110);
            set_ns(&c, PP_B, b, 300);
            set_ns(&c, PP_I, NULL, 300);
            set_ns(&c, PP_W, b, 77);
            simulate(&c, false);
            assert_int_equal(c.result.lower_bound_ns, c.result.metrics.makespan_ns);
            release_case(&c);
        }
}

static void test_random(void **state)
{
    (void)state;
    int schedules = 0, slower = 0;
    while (pp_schedule_at(schedules)) schedules++;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        uint64_t random = seed;
        struct pp_plan_spec spec =
            spec_of(pp_schedule_at(random_below(&random, schedules))->name, 1 + random_below(&random, 4),
                    1 + random_below(&random, 2), 1 + random_below(&random, 8));
        if (pp_schedule_check(spec.schedule, spec.ranks, spec.virtual_stages, spec.microbatches) != PP_OK) continue;
        spec.zero = random_below(&random, 3) ? PP_ZERO_OPTIMIZER : PP_ZERO_NONE;
        spec.gather_first = random_below(&random, 2);
        spec.recv_buffers = random_below(&random, 3);
        spec.checkpoint = random_below(&random, 3);
        struct sim_case c = {.plan = build_plan(&spec)}, e;
        assert_int_equal(pp_cost_create(c.plan, PP_COST_TIMES, &c.cost), PP_OK);
        for (int k = 0; k < c.cost->nclasses; k++)
            c.cost->classes[k].ns = c.cost->classes[k].loaded_ns = random_below(&random, 1000);
        c.cost->host_issues = random_below(&random, 2);
        for (int k = 0; k < c.cost->nclasses; k++) c.cost->classes[k].host_ns = random_below(&random, 2000);
        e = (struct sim_case){.plan = c.plan, .cost = c.cost};
        simulate(&c, false);
        simulate(&e, true);
        assert_int_equal(c.result.batch_ns, e.result.batch_ns);
        assert_memory_equal(&c.result.metrics, &e.result.metrics, sizeof c.result.metrics);
        assert_memory_equal(c.result.trace.events, e.result.trace.events,
                            (size_t)c.result.trace.nevents * sizeof *c.result.trace.events);
        if (c.result.lower_bound_ns > c.result.metrics.makespan_ns)
            fail_msg("seed %d: bound %lld above %lld", (int)seed, (long long)c.result.lower_bound_ns,
                     (long long)c.result.metrics.makespan_ns);
        c.cost->taken = 0.3;
        simulate(&e, false);
        assert_true(e.result.lower_bound_ns <= e.result.metrics.makespan_ns);
        assert_true(e.result.path.kind_ns[PP_F] + e.result.path.kind_ns[PP_B] <= e.result.metrics.makespan_ns);
        slower += e.result.batch_ns > c.result.batch_ns;
        pp_sim_result_free(&e.result);
        release_case(&c);
    }
    assert_true(slower > 50);
}

/* On a device that waits: each part as long as that part; a whole forward, as evaluation has it, as one that is known,
 * or where there is none as all parts. */
static void test_measured_waits(void **state)
{
    (void)state;
    for (int m = 1; m <= 2; m++) {
        struct pp_plan_spec spec = spec_of("gpipe", 1, 1, m), forwards = spec;
        int64_t ns[32], sum = 0, whole = 0, got;
        spec.gather_first = true;
        spec.zero = PP_ZERO_OPTIMIZER;
        struct pp_plan *plan = build_plan(&spec);
        assert_true(plan->nclasses <= 32);
        for (int c = 0; c < plan->nclasses; c++) {
            ns[c] = 1000 * (c + 1);
            if (plan->classes[c].kind == PP_F) *(plan->classes[c].parts ? &sum : &whole) += ns[c];
        }
        const struct pp_given_times times = {.measured = {.plan = plan, .ns = ns}};
        for (int c = 0; c < plan->nclasses; c++) {
            assert_int_equal(pp_given_class_ns(&times, plan, &plan->classes[c], &got), PP_OK);
            assert_int_equal(got, ns[c]);
        }
        forwards.training = false;
        struct pp_plan *eval = build_plan(&forwards);
        assert_int_equal(pp_given_class_ns(&times, eval, &eval->classes[0], &got), PP_OK);
        assert_int_equal(got, m == 1 ? sum : whole);
        pp_plan_free(eval);
        pp_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_hand), cmocka_unit_test(test_taken_by_hand),
                                       cmocka_unit_test(test_bound_is_reached), cmocka_unit_test(test_random),
                                       cmocka_unit_test(test_measured_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
