/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated steps in which the gradients of tied embeddings are summed: what that delays, ns by ns, and by every way to
 * simulate them.
 */
#include "tests/unit/plan_case.h"
#include "tests/unit/sim_case.h"

/* Without the norm, which all steps would wait for. */
static struct pp_plan_spec tied_spec(const char *schedule, int p, int v, int m)
{
    struct pp_plan_spec spec = spec_of(schedule, p, v, m);
    spec.clip = false;
    spec.tied = true;
    return spec;
}

static struct sim_case begin(const struct pp_plan_spec *spec)
{
    struct sim_case c = {.plan = build_plan(spec)};
    assert_int_equal(pp_cost_create(c.plan, PP_COST_TIMES, &c.cost), PP_OK);
    return c;
}

static void set_ns(struct sim_case *c, int kind, int64_t ns)
{
    for (int k = 0; k < c->plan->nclasses; k++)
        if (c->plan->classes[k].kind == kind) c->cost->classes[k].ns = c->cost->classes[k].loaded_ns = ns;
}

/* The only task of the kind and stage, as rank `rank` sees it. */
static void expect_times(const struct sim_case *c, int rank, int kind, int stage, int64_t start, int64_t end)
{
    int found = 0;
    for (int64_t i = 0; i < c->result.trace.nevents; i++) {
        const struct pp_event *e = &c->result.trace.events[i];
        const struct pp_task *t = &c->plan->tasks[e->task];
        if (t->kind != kind || t->stage != stage || e->worker != rank) continue;
        if (e->start_ns != start || e->end_ns != end)
            fail_msg("%s s%d: %lld to %lld, not %lld to %lld", pp_kinds[kind].name, stage, (long long)e->start_ns,
                     (long long)e->end_ns, (long long)start, (long long)end);
        found++;
    }
    assert_int_equal(found, 1);
}

enum { SUM = 1000 };

/* Three ranks, one microbatch, ns: forwards until 300, backwards until 500, 700 and 900, of each stage a sum over two
 * replicas of 50. So the sum of the first and the last stage is from 950 to 1950. The steps of these two follow, that
 * of the stage between them does not wait: it begins at 750. */
static void test_by_hand(void **state)
{
    (void)state;
    for (int events = 0; events < 2; events++) {
        struct pp_plan_spec spec = tied_spec("gpipe", 3, 1, 1);
        spec.replicas = 2;
        struct sim_case c = begin(&spec);
        set_ns(&c, PP_F, 100);
        set_ns(&c, PP_B, 200);
        set_ns(&c, PP_REDUCE_GRAD, 50);
        set_ns(&c, PP_REDUCE_TIED, SUM);
        set_ns(&c, PP_STEP, 20);
        simulate(&c, events);
        expect_times(&c, 0, PP_REDUCE_TIED, 0, 950, 1950);
        expect_times(&c, 2, PP_REDUCE_TIED, 0, 950, 1950);
        expect_times(&c, 0, PP_STEP, 0, 1950, 1970);
        expect_times(&c, 2, PP_STEP, 2, 1950, 1970);
        expect_times(&c, 1, PP_STEP, 1, 750, 770);
        assert_int_equal(c.result.metrics.makespan_ns, 1970);
        assert_int_equal(c.result.batch_ns, 1970);
        assert_int_equal(c.result.path.kind_ns[PP_REDUCE_TIED], SUM);
        assert_int_equal(c.result.path.kind_ns[PP_REDUCE_GRAD], 50);
        assert_int_equal(c.result.path.kind_ns[PP_STEP], 20);
        assert_int_equal(c.result.path.length_ns, 1970);
        release_case(&c);
    }
}

/* One rank with both stages; where something is clipped, norms wait, and steps for them: 300, the sum, 3, 5, 20. */
static void test_on_one_rank(void **state)
{
    (void)state;
    struct pp_plan_spec spec = tied_spec("gpipe", 1, 1, 1);
    spec.clip = true;
    struct sim_case c = begin(&spec);
    set_ns(&c, PP_F, 100);
    set_ns(&c, PP_B, 200);
    set_ns(&c, PP_REDUCE_TIED, SUM);
    set_ns(&c, PP_NORM, 3);
    set_ns(&c, PP_NORM_ALL, 5);
    set_ns(&c, PP_STEP, 20);
    simulate(&c, false);
    expect_times(&c, 0, PP_REDUCE_TIED, 0, 300, 300 + SUM);
    expect_times(&c, 0, PP_NORM, 0, 300 + SUM, 303 + SUM);
    assert_int_equal(c.result.batch_ns, 328 + SUM);
    release_case(&c);
}

/* Where the host moves the bytes, that takes time of the core, which a step that runs beside it then has half of: two
 * stages on each of two ranks, and of rank 0 the third one's step of 100 while the sum of 1000 runs. */
static void test_on_a_core(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        const struct pp_plan_spec spec = tied_spec("interleaved", 2, 2, 2);
        struct sim_case c = begin(&spec);
        set_ns(&c, PP_B, 200);
        set_ns(&c, PP_REDUCE_TIED, SUM);
        set_ns(&c, PP_STEP, 100);
        c.cost->link.receiver_copies = copies;
        simulate(&c, true);
        for (int64_t i = 0; i < c.result.trace.nevents; i++) {
            const struct pp_event *e = &c.result.trace.events[i];
            const struct pp_task *t = &c.plan->tasks[e->task];
            const int64_t ns = e->end_ns - e->start_ns;
            if (t->kind == PP_STEP) assert_int_equal(ns, t->stage == 2 && copies ? 200 : 100);
            if (t->kind == PP_REDUCE_TIED) assert_int_equal(ns, copies ? SUM + 100 : SUM);
        }
        release_case(&c);
    }
}

static int random_spec(uint64_t *random, struct pp_plan_spec *spec)
{
    int schedules = 0;
    while (pp_schedule_at(schedules)) schedules++;
    *spec = tied_spec(pp_schedule_at(random_below(random, schedules))->name, 1 + random_below(random, 4),
                      1 + random_below(random, 2), 1 + random_below(random, 8));
    spec->replicas = 1 + random_below(random, 2);
    spec->clip = random_below(random, 2);
    spec->zero = random_below(random, 2);
    spec->gather_first = random_below(random, 2);
    spec->checkpoint = random_below(random, 3);
    return pp_schedule_check(spec->schedule, spec->ranks, spec->virtual_stages, spec->microbatches) == PP_OK;
}

static void random_costs(struct sim_case *c, uint64_t *random)
{
    for (int k = 0; k < c->plan->nclasses; k++)
        c->cost->classes[k].ns = c->cost->classes[k].loaded_ns = random_below(random, 1000);
    c->cost->link = (struct pp_link_cost){.latency_ns = random_below(random, 300), .ns_per_byte = 0.5};
    for (int k = 0; k < c->plan->nclasses; k++) c->cost->classes[k].bytes = random_below(random, 200);
}

static void expect_same(const struct pp_sim_result *a, const struct pp_sim_result *b, bool whole)
{
    assert_int_equal(a->batch_ns, b->batch_ns);
    assert_int_equal(a->metrics.makespan_ns, b->metrics.makespan_ns);
    if (!whole) return;
    assert_memory_equal(&a->metrics, &b->metrics, sizeof a->metrics);
    assert_int_equal(a->trace.nevents, b->trace.nevents);
    assert_memory_equal(a->trace.events, b->trace.events, (size_t)a->trace.nevents * sizeof *a->trace.events);
}

/* Sweep, events, replicas (with so little jitter that nothing changes), and hosts that issue, by both ways. */
static void check_ways(struct sim_case *c, uint64_t *random)
{
    struct sim_case other = {.plan = c->plan, .cost = c->cost};
    simulate(c, false);
    simulate(&other, true);
    expect_same(&c->result, &other.result, true);
    c->cost->jitter = 1e-9;
    simulate(&other, false);
    expect_same(&c->result, &other.result, false);
    c->cost->jitter = 0;
    c->cost->host_issues = true;
    for (int k = 0; k < c->plan->nclasses; k++) c->cost->classes[k].host_ns = random_below(random, 400);
    c->cost->issue_latency_ns = random_below(random, 100);
    struct sim_case hosts = {.plan = c->plan, .cost = c->cost};
    simulate(&hosts, false);
    simulate(&other, true);
    expect_same(&hosts.result, &other.result, true);
    assert_true(hosts.result.lower_bound_ns <= hosts.result.metrics.makespan_ns);
    pp_sim_result_free(&hosts.result);
    pp_sim_result_free(&other.result);
    c->cost->host_issues = false;
}

/* A sum that is longer than all else together is on the path, and all of it is seen. */
static void check_growth(struct sim_case *c)
{
    int64_t makespan[2];
    for (int i = 0; i < 2; i++) {
        set_ns(c, PP_REDUCE_TIED, (1 + i) * 10000000);
        simulate(c, i);
        makespan[i] = c->result.metrics.makespan_ns;
        assert_int_equal(c->result.path.kind_ns[PP_REDUCE_TIED], (1 + i) * 10000000);
        assert_true(c->result.lower_bound_ns <= makespan[i]);
    }
    assert_int_equal(makespan[1] - makespan[0], 10000000);
}

static void test_random(void **state)
{
    (void)state;
    int n = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        uint64_t random = seed;
        struct pp_plan_spec spec;
        if (!random_spec(&random, &spec)) continue;
        struct sim_case c = begin(&spec);
        random_costs(&c, &random);
        check_ways(&c, &random);
        if (c.result.lower_bound_ns > c.result.metrics.makespan_ns)
            fail_msg("seed %d: bound %lld above %lld", (int)seed, (long long)c.result.lower_bound_ns,
                     (long long)c.result.metrics.makespan_ns);
        check_growth(&c);
        release_case(&c);
        n++;
    }
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_by_hand), cmocka_unit_test(test_on_one_rank),
                                       cmocka_unit_test(test_on_a_core), cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
