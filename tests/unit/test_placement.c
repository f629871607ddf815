/* SPDX-License-Identifier: Apache-2.0
 *
 * Several hosts: which transfers leave one, and what that takes, against figures counted by hand.
 */
#include "sim/bound.h"
#include "sim/placement.h"
#include "tests/unit/cost_case.h"

static struct pp_cost *cost_by(const struct pp_job *job, const struct pp_machine *m)
{
    struct pp_cost *cost;
    if (pp_cost_from_machine(job, m, &cost) != PP_OK) fail_msg("%s", pp_message());
    return cost;
}

/* Stages whose activation leaves the host, as text: "7" or "0 1"; gradients go the same ways back. */
static void check_transfers(const struct pp_job *job, const struct pp_cost *cost, const char *leaving, const char *what)
{
    for (int c = 0; c < cost->nclasses; c++) {
        const struct pp_class *cls = &job->train->classes[c];
        const struct pp_class_cost *class = &cost->classes[c];
        if (cls->kind != PP_XFER_F && cls->kind != PP_XFER_B) {
            assert_false(class->between_hosts);
            continue;
        }
        char padded[64], stage[16];
        snprintf(padded, sizeof padded, " %s ", leaving);
        snprintf(stage, sizeof stage, " %d ", cls->kind == PP_XFER_F ? cls->stage : cls->stage - 1);
        bool expected = strstr(padded, stage) != NULL;
        if (class->between_hosts != expected)
            fail_msg("%s: %s of stage %d", what, pp_kinds[cls->kind].name, cls->stage);
        int64_t ns = expected ? 5000 + llround((double)class->bytes / 10) : 1000 + llround((double)class->bytes / 100);
        assert_int_equal(pp_sim_alone_ns(job->train, cost, c), ns);
    }
}

static void test_placement(void **state)
{
    (void)state;
#define SHAPE "--device cuda --clip 1 --layers 16 --rows 48 --chunks 2 "
#define REPLICAS "--host-order replicas "
#define TENSOR "--heads 8 --d-model 64 --d-ff 64 "
    static const struct {
        const char *options;
        int devices;
        const char *leaving;
        int64_t reduce_latency_ns; /* 3 us, and 2 (hosts - 1) times 5 us */
        double reduce_rate;        /* bytes/ns: 200, or 10 for each member on the host that has fewest */
        int64_t norm_ns;
    } cases[] = {
        {SHAPE "--stages 8 --replicas 4", 8, "", 33000, 10, 3 * 1000},    /* a replica on each host */
        {SHAPE "--stages 4 --replicas 8", 8, "", 33000, 20, 2 * 1000},    /* two on each */
        {SHAPE "--stages 1 --replicas 48", 24, "", 13000, 200, 0},        /* 24 members: the sum itself is slower */
        {SHAPE "--stages 4 --replicas 2", 8, "", 3000, 200, 2 * 1000},    /* one host */
        {SHAPE "--stages 4 --replicas 8", 0, "", 3000, 200, 2 * 1000},    /* one that holds all */
        {SHAPE "--stages 16 --replicas 1", 8, "7", 0, 0, 4 * 5000},       /* half a replica on each */
        {SHAPE "--stages 16 --replicas 2", 8, "7", 13000, 10, 4 * 5000},  /* hosts 0 and 2, or 1 and 3 */
        {SHAPE "--stages 3 --replicas 8", 8, "0 1", 23000, 20, 2 * 5000}, /* 6 7|8 and 15|16 17: 3, 3 and 2 members */
        {SHAPE "--stages 2 --replicas 1 --virtual 2 --schedule interleaved", 1, "0 1 2", 0, 0, 5000},
        {SHAPE "--stages 4 --replicas 4 --gpus 2", 1, "", 13000, 10, 2 * 1000}, /* two replicas on each GPU */
        {SHAPE "--stages 8 --replicas 2 --gpus 4", 1, "3", 13000, 10, 3 * 5000},
        {SHAPE TENSOR "--stages 2 --replicas 1 --tensor 8", 8, "0", 0, 0, 4 * 5000}, /* a host for each rank */
        {SHAPE TENSOR "--stages 2 --replicas 2 --tensor 8", 8, "0", 13000, 10, 4 * 5000},
        {SHAPE TENSOR "--stages 2 --replicas 4 --tensor 2", 8, "", 13000, 20, 2 * 1000}, /* two replicas in each */
        {SHAPE TENSOR "--stages 4 --replicas 1 --tensor 4", 8, "1", 0, 0, 4 * 5000},
        {SHAPE TENSOR "--stages 4 --replicas 3 --tensor 2", 4, "1", 23000, 10, 3 * 5000},
        /* those with parts of the same rows are next to each other, and sum gradients as replicas */
        {SHAPE TENSOR "--tokens 40 --stages 4 --replicas 2 --context-parallel 2", 8, "", 13000, 20, 2 * 1000},
        {SHAPE TENSOR "--tokens 40 --stages 4 --replicas 1 --context-parallel 4", 8, "1", 3000, 200, 2 * 5000},
        {SHAPE TENSOR "--tokens 40 --stages 2 --replicas 1 --context-parallel 8", 4, "0", 13000, 40, 5000},
        /* a host for each that has parts of rows: the tensor ranks of each add up their norms by themselves */
        {SHAPE TENSOR "--tokens 40 --stages 1 --tensor 4 --replicas 2 --context-parallel 2", 4, "", 33000, 10, 2000},
        /* a host for all replicas of a rank; of two ranks */
        {SHAPE REPLICAS "--stages 4 --replicas 8", 8, "0 1 2", 3000, 200, 2 * 5000},
        {SHAPE REPLICAS TENSOR "--stages 2 --replicas 4 --tensor 2", 8, "0", 3000, 200, 2 * 5000},
        {SHAPE REPLICAS TENSOR "--stages 4 --replicas 2 --tensor 2", 8, "1", 3000, 200, 3 * 5000},
        {SHAPE REPLICAS TENSOR "--tokens 40 --stages 4 --replicas 2 --context-parallel 2", 8, "1", 3000, 200,
         2 * 5000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_job *job = create_job(cases[i].options);
        const struct pp_machine m = round_machine(cases[i].devices);
        struct pp_cost *cost = cost_by(job, &m);
        check_transfers(job, cost, cases[i].leaving, cases[i].options);
        for (int c = 0; c < cost->nclasses; c++) {
            const int kind = job->train->classes[c].kind, others = job->train->replicas - 1;
            const double bytes = (double)cost->classes[c].bytes * 2 * others / (others + 1);
            if (kind == PP_NORM_ALL) assert_int_equal(cost->classes[c].ns, cases[i].norm_ns);
            if (kind == PP_REDUCE_GRAD)
                expect_near((double)cost->classes[c].ns,
                            (double)cases[i].reduce_latency_ns + bytes / cases[i].reduce_rate, 0.51, cases[i].options);
        }
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

/* Ranks that are on one host in some replicas only: the slower way counts, whichever it is. */
static void test_faster_between_hosts(void **state)
{
    (void)state;
    struct pp_job *job = create_job(SHAPE "--stages 3 --replicas 8");
    struct pp_machine m = round_machine(8);
    m.network_latency_ns = 0, m.network_bytes_per_ns = 1000;
    struct pp_cost *cost = cost_by(job, &m);
    check_transfers(job, cost, "", "a fast network");
    pp_cost_free(cost);
    pp_job_free(job);
}

/* 0 -> 1 takes 1 ms, 1 -> 2 over the network 4 ms: 3 (10 + 20) + 2 (1 + 4). */
static void test_two_speeds(void **state)
{
    (void)state;
    for (int events = 0; events < 2; events++)
        for (int hosts = 0; hosts < 2; hosts++) {
            struct sim_case c = times_case("gpipe", 3, 1, 1, (struct pp_given_times){10, 12, 8, 1});
            for (int k = 0; k < c.plan->nclasses; k++) {
                const struct pp_class *cls = &c.plan->classes[k];
                c.cost->classes[k].between_hosts =
                    (cls->kind == PP_XFER_F && cls->stage == 1) || (cls->kind == PP_XFER_B && cls->stage == 2);
            }
            c.cost->network.latency_ns = 4000000;
            c.cost->host_issues = hosts;
            simulate(&c, events);
            expect_near(in_ms(c.result.metrics.makespan_ns), 100, 0, "makespan");
            expect_near(in_ms(c.result.lower_bound_ns), 100, 0, "bound");
            release_case(&c);
        }
}

static const struct pp_sum_link sums = {.latency_ns = 3000, .ns_per_byte = 1.0 / 200};

/* All to all of 8000 bytes: by the links to those of a host, by the network to all others at the same time. Before that
 * a GPU copies its own part, with its memory of 16 bytes/ns: each byte is read and written. */
static void test_all_to_all(void **state)
{
    (void)state;
    static const struct {
        int devices, members;
        int64_t ns;
    } cases[] = {{8, 4, 2000 + 2000 / 8 + 1500 + 3 * 2000 / 200}, /* one host */
                 {4, 8, 2000 + 1000 / 8 + 5000 + 4 * 1000 / 10},  /* two: of eight parts four leave it */
                 {2, 8, 2000 + 1000 / 8 + 5000 + 6 * 1000 / 10},
                 {0, 8, 2000 + 1000 / 8 + 1500 + 7 * 1000 / 200}};
    const struct pp_join_work work = {.op = PP_JOIN_ALL_TO_ALL, .bytes = 8000, .rounds = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_machine m = round_machine(cases[i].devices);
        m.call_overhead_ns = 2000, m.bytes_per_ns = 16;
        const struct pp_placement p = pp_placement_on(&m);
        const struct pp_ring ring = pp_placement_ring(&p, &(struct pp_group){0, 1, cases[i].members, 0, 0});
        assert_int_equal(pp_placement_join_ns(&p, &ring, &work, sums), cases[i].ns);
    }
    struct pp_machine near = round_machine(4);
    near.network_latency_ns = 1;
    near.network_bytes_per_ns = 1000;
    near.call_overhead_ns = 2000, near.bytes_per_ns = 16;
    const struct pp_placement p = pp_placement_on(&near);
    const struct pp_ring ring = pp_placement_ring(&p, &(struct pp_group){0, 1, 8, 0, 0});
    assert_int_equal(pp_placement_join_ns(&p, &ring, &work, sums), 2000 + 1000 / 8 + 1500 + 3 * 1000 / 200);
    assert_int_equal(pp_placement_join_ns(&p, &ring, &(struct pp_join_work){0}, sums), 0);
}

/* Two workers on each GPU: four of eight on each host, and two for each way to the network. */
static void test_all_to_all_of_sharers(void **state)
{
    (void)state;
    const struct pp_join_work work = {.op = PP_JOIN_ALL_TO_ALL, .bytes = 8000, .rounds = 1};
    const struct pp_machine m = round_machine(2);
    struct pp_placement p = pp_placement_on(&m);
    p.sharers = 2;
    p.own_ns = p.own_ns_per_byte = 0;
    const struct pp_ring ring = pp_placement_ring(&p, &(struct pp_group){0, 1, 8, 0, 0});
    assert_int_equal(ring.hosts, 2);
    assert_int_equal(ring.fewest, 2);
    assert_int_equal(ring.least, 4);
    assert_int_equal(pp_placement_join_ns(&p, &ring, &work, sums), 5000 + 2 * 4 * 1000 / 10);
}

/* All 8000 bytes go to the next worker: by the links of a host, and over the network from the last worker of each. Each
 * of the two may be the slower one. No worker copies any for itself. */
static void test_shift(void **state)
{
    (void)state;
    static const struct {
        int devices, sharers;
        double latency_ns, bytes_per_ns; /* of the network */
        int64_t ns;
    } cases[] = {{8, 1, 5000, 10, 1500 + 8000 / 200}, /* one host */
                 {0, 1, 5000, 10, 1500 + 8000 / 200},
                 {4, 1, 5000, 10, 5000 + 8000 / 10}, /* two: as long as with more */
                 {2, 1, 5000, 10, 5000 + 8000 / 10},
                 {2, 2, 5000, 10, 5000 + 2 * 8000 / 10}, /* the sharers of a GPU divide its port */
                 {4, 2, 5000, 10, 1500 + 8000 / 200},
                 {4, 1, 1, 1000, 1500 + 8000 / 200}};
    const struct pp_join_work work = {.op = PP_JOIN_SHIFT, .bytes = 8000, .rounds = 1, .pieces = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_machine m = round_machine(cases[i].devices);
        m.network_latency_ns = cases[i].latency_ns, m.network_bytes_per_ns = cases[i].bytes_per_ns;
        m.call_overhead_ns = 2000, m.bytes_per_ns = 16;
        struct pp_placement p = pp_placement_on(&m);
        p.sharers = cases[i].sharers;
        const struct pp_ring ring = pp_placement_ring(&p, &(struct pp_group){0, 1, 8, 0, 0});
        assert_int_equal(pp_placement_join_ns(&p, &ring, &work, sums), cases[i].ns);
    }
}

/* Of processors, and where no machine is named, the copy is in what was measured. */
static void test_own_pieces_are_copied_by_gpus_of_a_machine_alone(void **state)
{
    (void)state;
    const struct pp_join_work work = {.op = PP_JOIN_ALL_TO_ALL, .bytes = 8000, .rounds = 1};
    struct pp_machine processor;
    assert_int_equal(pp_machine_find("epyc-zen5", &processor), PP_OK);
    const struct pp_machine *machines[] = {NULL, &processor};
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const struct pp_placement p = pp_placement_on(machines[i]);
        const struct pp_ring ring = pp_placement_ring(&p, &(struct pp_group){0, 1, 8, 0, 0});
        assert_int_equal(pp_placement_join_ns(&p, &ring, &work, sums), 1500 + 7 * 1000 / 200);
    }
}

/* ---- workers that have parts of the same rows ---- */

#define CONTEXT "--device cuda --layers 12 --heads 24 --d-model 96 --d-ff 64 --tokens 60 "

/* Rings of a worker, by hand: so many members, on so many hosts, at least so many of them on each. Hosts are written as
 * 0 1|2 3. */
static void test_rings_of_parts_of_rows(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        int devices, worker;
        struct pp_ring context, replicas;
    } cases[] = {
        {"--stages 2 --replicas 1 --context-parallel 4", 4, 5, {4, 1, 4}, {4, 1, 4}}, /* 4 5 6 7 */
        {"--stages 2 --replicas 1 --context-parallel 4", 2, 0, {4, 2, 2}, {4, 2, 2}}, /* 0 1|2 3 */
        {"--stages 3 --replicas 1 --context-parallel 2", 3, 1, {2, 1, 2}, {2, 1, 2}}, /* 0 1 */
        {"--stages 3 --replicas 1 --context-parallel 2", 3, 3, {2, 2, 1}, {2, 2, 1}}, /* 2|3 */
        {"--stages 1 --replicas 2 --context-parallel 3", 4, 1, {3, 1, 3}, {6, 2, 2}}, /* 0 1 2; 0 1 2 3|4 5 */
        {"--stages 1 --replicas 2 --context-parallel 3", 4, 3, {3, 2, 1}, {6, 2, 2}}, /* 3|4 5 */
        {"--stages 2 --replicas 2 --context-parallel 2", 3, 4, {2, 1, 2}, {4, 2, 2}}, /* 4 5; 0 1|4 5 */
        {"--stages 2 --replicas 2 --context-parallel 2", 3, 2, {2, 2, 1}, {4, 3, 1}}, /* 2|3; 2|3|6 7 */
        {"--stages 2 --replicas 2 --context-parallel 2", 0, 2, {2, 1, 2}, {4, 1, 4}}, /* one host that holds all */
        {"--stages 1 --replicas 1 --context-parallel 4 --gpus 2", 1, 0, {4, 2, 1}, {4, 2, 1}}, /* 0 and 1 share one */
        /* 0 .. 7, 8 .. 15; 16 .. 23, 24 .. 31: tensor ranks are next to each other */
        {"--stages 2 --replicas 2 --tensor 2 --context-parallel 4", 8, 1, {4, 1, 4}, {8, 2, 4}}, /* 1 3 5 7|17 19 .. */
        {"--stages 2 --replicas 2 --tensor 2 --context-parallel 4", 4, 24, {4, 2, 2}, {8, 4, 2}},
        {"--stages 2 --replicas 2 --tensor 2 --context-parallel 4", 3, 0, {4, 3, 1}, {8, 6, 1}}, /* 0 2|4|6 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[200];
        snprintf(options, sizeof options, CONTEXT "%s", cases[i].options);
        struct pp_job *job = create_job(options);
        const struct pp_machine m = round_machine(cases[i].devices);
        const struct pp_placement p = pp_placement_of(job, &m);
        const struct pp_group groups[] = {pp_join_members(job->train, cases[i].worker, PP_JOIN_CONTEXT_RANKS),
                                          pp_replica_group(job->train, cases[i].worker, PP_DENSE)};
        for (int k = 0; k < 2; k++) {
            const struct pp_ring ring = pp_placement_ring(&p, &groups[k]), *by_hand = &cases[i].context + k;
            if (ring.members != by_hand->members || ring.hosts != by_hand->hosts || ring.fewest != by_hand->fewest)
                fail_msg("%s: %d members, %d hosts, %d at least", options, ring.members, ring.hosts, ring.fewest);
        }
        pp_job_free(job);
    }
}

/* Two exchanges, of so many bytes for each worker: copied for the own one, and sent by links, or by the network to so
 * many others. */
#define OWN (2000 + 2 * 103680 / 3000 + 2000 + 2 * 34560 / 3000)
#define BY_LINKS (OWN + 1500 + 3 * 103680 / 200 + 1500 + 3 * 34560 / 200)
#define BY_NETWORK(others) (OWN + 5000 + (others)*103680 / 10 + 5000 + (others)*34560 / 10)

/* In each of 6 layers of a stage queries, keys and values, and what attention makes of them, are exchanged forward, and
 * their gradients backward. A worker has 15 tokens of each of 24 rows: 414720 and 138240 bytes, a quarter of which is
 * for each other worker. */
static void test_exchanges_of_parts_of_rows(void **state)
{
    (void)state;
    static const struct {
        const char *replicas;
        int devices;
        int64_t ns[2]; /* in each stage */
    } cases[] = {
        {"1", 8, {BY_LINKS, BY_LINKS}},
        {"1", 2, {BY_NETWORK(2), BY_NETWORK(2)}}, /* half of it to the other host */
        {"1", 1, {BY_NETWORK(3), BY_NETWORK(3)}},
        {"1", 6, {BY_LINKS, BY_NETWORK(2)}}, /* 0 1 2 3; 4 5|6 7 */
        {"2", 8, {BY_LINKS, BY_LINKS}},
        {"2", 6, {BY_LINKS, BY_NETWORK(2)}},      /* the slower one counts: those, not 12 13 14 15 */
        {"2", 5, {BY_NETWORK(2), BY_NETWORK(3)}}, /* 8 9|10 11, not 0 1 2 3; 4|5 6 7 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[200];
        snprintf(options, sizeof options, CONTEXT "--stages 2 --rows 48 --chunks 2 --context-parallel 4 --replicas %s",
                 cases[i].replicas);
        struct pp_job *job = create_job(options);
        const struct pp_machine m = round_machine(cases[i].devices);
        struct pp_cost *cost = cost_by(job, &m);
        for (int c = 0; c < cost->nclasses; c++) {
            const struct pp_class *cls = &job->train->classes[c];
            const bool exchanges = cls->kind == PP_F || cls->kind == PP_B;
            assert_int_equal(cost->classes[c].sums_ns, exchanges ? 6 * cases[i].ns[cls->stage] : 0);
        }
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_placement),
                                       cmocka_unit_test(test_faster_between_hosts),
                                       cmocka_unit_test(test_two_speeds),
                                       cmocka_unit_test(test_all_to_all),
                                       cmocka_unit_test(test_all_to_all_of_sharers),
                                       cmocka_unit_test(test_shift),
                                       cmocka_unit_test(test_own_pieces_are_copied_by_gpus_of_a_machine_alone),
                                       cmocka_unit_test(test_rings_of_parts_of_rows),
                                       cmocka_unit_test(test_exchanges_of_parts_of_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
