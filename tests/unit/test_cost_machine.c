/* SPDX-License-Identifier: Apache-2.0
 *
 * What a data sheet says of transfers, and of tasks that only pass on or add what others have computed.
 */
#include "tests/unit/cost_case.h"

enum { LATENCY = 1000, OVERHEAD = 70, BANDWIDTH = 25 };

static struct pp_cost *predict(const struct pp_job *job, const struct pp_machine *m)
{
    struct pp_cost *cost;
    if (pp_cost_from_machine(job, m, &cost) != PP_OK) fail_msg("%s", pp_message());
    return cost;
}

static struct pp_machine machine(void)
{
    struct pp_machine m = round_machine(0);
    m.link_latency_ns = LATENCY, m.link_overhead_ns = OVERHEAD, m.link_bytes_per_ns = BANDWIDTH;
    return m;
}

static void test_links(void **state)
{
    (void)state;
    struct pp_job *job = create_job("--stages 2");
    for (int i = 0; i < 4; i++) {
        struct pp_machine m = machine();
        m.receiver_copies = i & 1;
        m.posts_in_order = i & 2;
        struct pp_cost *cost = predict(job, &m);
        const struct pp_link_cost *link = &cost->link;
        assert_int_equal(link->latency_ns, LATENCY);
        assert_int_equal(link->send_overhead_ns, OVERHEAD);
        assert_int_equal(link->recv_overhead_ns, OVERHEAD);
        assert_true(link->ns_per_byte == 1.0 / BANDWIDTH);
        assert_true(link->receiver_copies == m.receiver_copies && link->posts_in_order == m.posts_in_order);
        pp_cost_free(cost);
    }
    pp_job_free(job);
}

static const struct pp_class_cost *cost_of_kind(const struct pp_job *job, const struct pp_cost *cost, int kind)
{
    const struct pp_class_cost *found = NULL;
    for (int c = 0; c < cost->nclasses; c++) {
        if (job->train->classes[c].kind != kind) continue;
        assert_null(found);
        found = &cost->classes[c];
    }
    assert_non_null(found);
    return found;
}

/* Workers meet in pairs, so for twice as many there is one meeting more. In each both send, and both receive. */
static void test_norm_of_all(void **state)
{
    (void)state;
    for (int hops = 1; hops <= 3; hops++) {
        char options[64];
        snprintf(options, sizeof options, "--layers 8 --stages %d --clip 1", 1 << hops);
        struct pp_job *job = create_job(options);
        const struct pp_machine m = machine();
        struct pp_cost *cost = predict(job, &m);
        assert_int_equal(cost_of_kind(job, cost, PP_NORM_ALL)->ns, hops * (LATENCY + 2 * OVERHEAD));
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

/* One rank has the first stage and the last: a sum reads both gradients and writes one, which a copy reads and writes
 * over the other. */
static void test_tied_on_one_rank(void **state)
{
    (void)state;
    const int64_t vocab = 96, d = 32, bytes = vocab * d * (int64_t)sizeof(float);
    struct pp_job *job = create_job("--schedule zbv --stages 2 --layers 4 --tie-embeddings yes --vocab 96 --d-model 32 "
                                    "--heads 2 --d-ff 32");
    const struct pp_machine m = machine();
    struct pp_cost *cost = predict(job, &m);
    const struct pp_class_cost *sum = cost_of_kind(job, cost, PP_REDUCE_TIED);
    assert_int_equal(sum->bytes, bytes);
    assert_int_equal(sum->ns, llround((3 + 2) * (double)bytes / m.bytes_per_ns));
    assert_int_equal(sum->loaded_ns, sum->ns);
    pp_cost_free(cost);
    pp_job_free(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_links), cmocka_unit_test(test_norm_of_all),
                                       cmocka_unit_test(test_tied_on_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
