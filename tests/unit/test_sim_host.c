/* SPDX-License-Identifier: Apache-2.0
 *
 * Hosts that issue ahead of their devices: small plans by hand. Times count from the start of the first computation.
 */
#include "tests/unit/sim_hand.h"

enum { LATENCY = 50 };

static struct hand begin_issuing(int ranks)
{
    struct hand h = begin(ranks, 0, ranks);
    h.c.cost->host_issues = true;
    h.c.cost->issue_latency_ns = LATENCY;
    return h;
}

static int issue(struct hand *h, int task, int64_t host_ns)
{
    h->c.cost->classes[task].host_ns = host_ns;
    return task;
}

static void expect_path(const struct hand *h, int64_t computing, int64_t host)
{
    const struct pp_sim_path *path = &h->c.result.path;
    assert_int_equal(path->kind_ns[PP_F], computing);
    assert_int_equal(path->host_ns, host);
    assert_int_equal(path->waiting_ns + path->host_ns + path->kind_ns[PP_F] + path->kind_ns[PP_XFER_F],
                     path->length_ns);
    assert_int_equal(path->length_ns, h->c.result.metrics.makespan_ns);
}

/* The host is far ahead: only the latency of the first issue is seen, once a step, before the path. */
static void test_device_bound(void **state)
{
    (void)state;
    for (int events = 0; events < 2; events++) {
        struct hand h = begin_issuing(1);
        int task[4];
        for (int i = 0; i < 4; i++) task[i] = issue(&h, add(&h, PP_F, 0, -1, 1000, 1000), 100);
        run(&h, events);
        for (int i = 0; i < 4; i++) assert_int_equal(end_of(&h, task[i]), 1000 * (i + 1));
        assert_int_equal(h.c.result.batch_ns, 4000 + LATENCY);
        assert_int_equal(h.c.result.lower_bound_ns, 4000);
        expect_path(&h, 4000, 0);
        finish(&h);
    }
}

/* The device is faster than the host: each task is spread over the time that its issue takes. */
static void test_host_bound(void **state)
{
    (void)state;
    for (int events = 0; events < 2; events++) {
        struct hand h = begin_issuing(1);
        int task[4];
        for (int i = 0; i < 4; i++) task[i] = issue(&h, add(&h, PP_F, 0, -1, 100, 100), 300);
        h.c.cost->step_overhead_ns = 70;
        run(&h, events);
        for (int i = 0; i < 4; i++) assert_int_equal(end_of(&h, task[i]), 300 * (i + 1));
        assert_int_equal(h.c.result.batch_ns, 4 * 300 + LATENCY + 70);
        assert_int_equal(h.c.result.lower_bound_ns, 1200);
        expect_path(&h, 300, 3 * 300);
        finish(&h);
    }
}

/* A long task lets the host get ahead; what follows is not held up. */
static void test_catching_up(void **state)
{
    (void)state;
    struct hand h = begin_issuing(1);
    issue(&h, add(&h, PP_F, 0, -1, 1000, 1000), 300);
    int b = issue(&h, add(&h, PP_F, 0, -1, 100, 100), 300), c = issue(&h, add(&h, PP_F, 0, -1, 100, 100), 300),
        d = issue(&h, add(&h, PP_F, 0, -1, 100, 100), 300);
    run(&h, false);
    assert_int_equal(end_of(&h, b), 1100);
    assert_int_equal(end_of(&h, c), 1200);
    assert_int_equal(end_of(&h, d), 1300);
    finish(&h);
}

static int64_t consumer_end(int host_wait, int64_t producer_ns, bool events)
{
    struct hand h = begin_issuing(2);
    h.c.cost->link.host_wait = host_wait;
    int a = issue(&h, add(&h, PP_F, 0, -1, producer_ns, producer_ns), 100), x = issue(&h, send(&h, a, 400), 20),
        b = issue(&h, add(&h, PP_F, 1, x, 10, 10), 40);
    run(&h, events);
    int64_t end = end_of(&h, b);
    finish(&h);
    return end;
}

/* What a host may issue before the data is there. */
static void test_transfers(void **state)
{
    (void)state;
    for (int events = 0; events < 2; events++) {
        assert_int_equal(consumer_end(PP_HOST_AHEAD, 1000, events), 1000 + 400 + 10);
        assert_int_equal(consumer_end(PP_HOST_MEETS, 1000, events), 1000 + 400 + 10);
        assert_int_equal(consumer_end(PP_HOST_FOLLOWS, 1000, events), 1000 + 400 + LATENCY + 40);
        /* The receiver's host begins when its device has ended the step before, which is when the producer starts. */
        assert_int_equal(consumer_end(PP_HOST_AHEAD, 10, events), LATENCY + 20 + 400 + 10);
    }
}

/* Hosts that meet hand the work on like a pipeline; hosts that are ahead do not wait for each other. */
static void test_meeting(void **state)
{
    (void)state;
    for (int wait = PP_HOST_AHEAD; wait <= PP_HOST_MEETS; wait++) {
        struct hand h = begin_issuing(2);
        h.c.cost->link.host_wait = wait;
        int a = issue(&h, add(&h, PP_F, 0, -1, 1, 1), 500), x = issue(&h, send(&h, a, 1), 0),
            b = issue(&h, add(&h, PP_F, 1, x, 1, 1), 300), c = issue(&h, add(&h, PP_F, 1, b, 1, 1), 300);
        add(&h, PP_F, 0, c, 0, 0); /* so that both hosts begin the step together */
        run(&h, false);
        assert_int_equal(end_of(&h, c), wait == PP_HOST_AHEAD ? 600 : 500 + 600);
        finish(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_device_bound), cmocka_unit_test(test_host_bound),
                                       cmocka_unit_test(test_catching_up), cmocka_unit_test(test_transfers),
                                       cmocka_unit_test(test_meeting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
