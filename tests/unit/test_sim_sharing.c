/* SPDX-License-Identifier: Apache-2.0
 *
 * Work that changes its rate: workers that share cores, receivers that copy, overheads, reductions. Small plans by
 * hand.
 * */
#include "tests/unit/sim_hand.h"

static void test_more_workers_than_cores(void **state)
{
    (void)state;
    struct hand h = begin(4, 2, 4);
    int task[4];
    for (int r = 0; r < 4; r++) task[r] = add(&h, PP_F, r, -1, r == 3 ? 3000 : 1000, r == 3 ? 3000 : 1000);
    run(&h, false);
    for (int r = 0; r < 3; r++) assert_int_equal(end_of(&h, task[r]), 2000); /* four on two cores: half speed */
    assert_int_equal(end_of(&h, task[3]), 4000);                             /* then alone */
    finish(&h);
}

static void test_loaded_times(void **state)
{
    (void)state;
    struct hand h = begin(2, 2, 2);
    int a = add(&h, PP_F, 0, -1, 1000, 1500), b = add(&h, PP_F, 1, -1, 3000, 4500);
    run(&h, false);
    assert_int_equal(end_of(&h, a), 1500);
    assert_int_equal(end_of(&h, b), 3500); /* a third done beside the other, two thirds alone */
    finish(&h);
}

static void test_loads_between(void **state)
{
    (void)state;
    struct hand h = begin(3, 4, 4);
    int a = add(&h, PP_F, 0, -1, 1000, 2000);
    for (int r = 1; r < 3; r++) add(&h, PP_F, r, -1, 1000, 2000);
    run(&h, false);
    assert_int_equal(end_of(&h, a), 1500); /* three of four: rate 1 - (1 - 1/2) * 2/3 */
    finish(&h);
}

/* Four workers on two devices: only the two of one device slow each other down. */
static void test_sharers(void **state)
{
    (void)state;
    struct hand h = begin(4, 0, 4);
    h.c.cost->sharers = 2;
    int a = add(&h, PP_F, 0, -1, 1000, 1500), b = add(&h, PP_F, 1, -1, 3000, 4500),
        c = add(&h, PP_F, 3, -1, 1000, 1500);
    run(&h, false);
    assert_int_equal(end_of(&h, a), 1500);
    assert_int_equal(end_of(&h, b), 3500);
    assert_int_equal(end_of(&h, c), 1000);
    finish(&h);
    h = begin(2, 0, 4); /* both replicas on one device */
    h.c.cost->sharers = 4;
    a = add(&h, PP_F, 0, -1, 1000, 2500), b = add(&h, PP_F, 1, a, 1000, 2500);
    run(&h, false);
    assert_int_equal(end_of(&h, a), 1500); /* two of four: a third of the difference */
    finish(&h);
}

/* The workers of a rank do the same at the same time: those on one device slow each other down, and so do the ranks
 * that are on it. */
static void test_tensor_ranks_share(void **state)
{
    (void)state;
    struct hand h = begin(2, 0, 4);
    h.c.cost->members = h.c.cost->sharers = 2; /* a device for each rank */
    int a = add(&h, PP_F, 0, -1, 1000, 1500), b = add(&h, PP_F, 1, -1, 3000, 4500);
    run(&h, false);
    assert_int_equal(end_of(&h, a), 1500);
    assert_int_equal(end_of(&h, b), 4500);
    finish(&h);
    h = begin(4, 0, 8);
    h.c.cost->members = 2, h.c.cost->sharers = 4; /* one for two ranks */
    a = add(&h, PP_F, 0, -1, 1000, 2500), b = add(&h, PP_F, 1, a, 1000, 2500);
    const int c = add(&h, PP_F, 3, a, 1000, 2500);
    run(&h, false);
    assert_int_equal(end_of(&h, a), 1500); /* two of four: a third of the difference */
    assert_int_equal(end_of(&h, b), 3000);
    assert_int_equal(end_of(&h, c), 3000);
    finish(&h);
    h = begin(1, 2, 4);
    h.c.cost->members = 4; /* on two cores */
    a = add(&h, PP_F, 0, -1, 1000, 1200);
    run(&h, false);
    assert_int_equal(end_of(&h, a), 2400);
    finish(&h);
}

static void test_replicas_load_too(void **state)
{
    (void)state;
    struct hand h = begin(2, 2, 4);
    int a = add(&h, PP_F, 0, -1, 1000, 1200), b = add(&h, PP_F, 1, a, 1000, 1200), c = add(&h, PP_F, 0, a, 1000, 1200);
    run(&h, false);
    assert_int_equal(end_of(&h, a), 1200);            /* one rank of two replicas: both cores busy */
    assert_int_equal(end_of(&h, b), 1200 + 2 * 1200); /* two ranks of two replicas on two cores */
    assert_int_equal(end_of(&h, c), 1200 + 2 * 1200);
    finish(&h);
}

static void test_receiver_copies(void **state)
{
    (void)state;
    for (int busy = 0; busy < 2; busy++) {
        struct hand h = begin(2, 0, 2);
        h.c.cost->link.receiver_copies = true;
        h.c.cost->link.latency_ns = 100;
        int long_task = busy ? add(&h, PP_F, 1, -1, 5000, 5000) : -1;
        int a = add(&h, PP_F, 0, -1, 1000, 1000), x = send(&h, a, 400), b = add(&h, PP_F, 1, x, 10, 10);
        run(&h, false);
        if (busy) {
            assert_int_equal(end_of(&h, x), 1000 + 100 + 800); /* shares the core with the long task */
            assert_int_equal(end_of(&h, long_task), 5400);     /* which is lengthened by the copy */
            assert_int_equal(end_of(&h, b), 5410);
        } else {
            assert_int_equal(end_of(&h, x), 1000 + 100 + 400); /* an idle receiver: the consumer waits for the copy */
            assert_int_equal(end_of(&h, b), 1510);
        }
        finish(&h);
    }
}

/* A copy engine moves the bytes, so the receiver's task is not touched; latency does not keep the channel. */
static void test_copy_engine(void **state)
{
    (void)state;
    struct hand h = begin(2, 0, 2);
    h.c.cost->link.latency_ns = 100;
    int long_task = add(&h, PP_F, 1, -1, 5000, 5000);
    int a = add(&h, PP_F, 0, -1, 1000, 1000), x = send(&h, a, 400), y = send(&h, a, 400);
    run(&h, true);
    assert_int_equal(end_of(&h, long_task), 5000);
    assert_int_equal(end_of(&h, x), 1500);
    assert_int_equal(end_of(&h, y), 1900);
    finish(&h);
}

static void test_overheads(void **state)
{
    (void)state;
    struct hand h = begin(2, 0, 2);
    h.c.cost->link.send_overhead_ns = 30;
    h.c.cost->link.recv_overhead_ns = 50;
    int a = add(&h, PP_F, 0, -1, 1000, 1000), x = send(&h, a, 400), b = add(&h, PP_F, 1, x, 10, 10);
    int c = add(&h, PP_F, 0, a, 200, 200);
    run(&h, false);
    assert_int_equal(end_of(&h, c), 1230); /* the sender's next task shares its core with the call */
    assert_int_equal(end_of(&h, x), 1000 + 2 * 30 + 400 + 50);
    assert_int_equal(end_of(&h, b), 1520);
    finish(&h);
}

/* Where the host moves bytes, a reduction takes core time from what the rank computes; with an engine it does not. */
static void test_reductions(void **state)
{
    (void)state;
    for (int host = 0; host < 2; host++) {
        struct hand h = begin(1, 0, 2);
        h.c.cost->link.receiver_copies = host;
        int a = add(&h, PP_B, 0, -1, 1000, 1000), r = add(&h, PP_REDUCE_GRAD, 2, a, 300, 300),
            b = add(&h, PP_B, 0, a, 1000, 1000);
        run(&h, true);
        assert_int_equal(end_of(&h, r), host ? 1600 : 1300);
        assert_int_equal(end_of(&h, b), host ? 2300 : 2000);
        finish(&h);
    }
}

/* A whole schedule: four equal ranks on two cores that are never idle take twice as long. */
static void test_schedule_on_half_the_cores(void **state)
{
    (void)state;
    struct pp_plan_spec spec = {
        .schedule = "gpipe", .ranks = 4, .virtual_stages = 1, .microbatches = 200, .replicas = 1, .training = true};
    struct sim_case c = {.plan = build_plan(&spec)};
    const struct pp_given_times times = {1, 1, 1, 0};
    assert_int_equal(pp_cost_from_times(c.plan, &times, &c.cost), PP_OK);
    simulate(&c, false);
    int64_t alone = c.result.metrics.makespan_ns;
    c.cost->cores = 2;
    simulate(&c, false);
    expect_near((double)c.result.metrics.makespan_ns / (double)alone, 2, 0.03,
                "slow-down"); /* but for the few ms in which the pipeline fills and drains */
    assert_true(c.result.lower_bound_ns <= c.result.metrics.makespan_ns);
    assert_int_equal(c.result.lower_bound_ns, 4 * 600000000LL / 2); /* all work over two cores */
    release_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_more_workers_than_cores),
                                       cmocka_unit_test(test_loaded_times),
                                       cmocka_unit_test(test_loads_between),
                                       cmocka_unit_test(test_sharers),
                                       cmocka_unit_test(test_tensor_ranks_share),
                                       cmocka_unit_test(test_replicas_load_too),
                                       cmocka_unit_test(test_receiver_copies),
                                       cmocka_unit_test(test_copy_engine),
                                       cmocka_unit_test(test_overheads),
                                       cmocka_unit_test(test_reductions),
                                       cmocka_unit_test(test_schedule_on_half_the_cores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
