/* SPDX-License-Identifier: Apache-2.0
 *
 * Channels and sums of workers on devices: which of them cross processes, and how many of these a worker is told to
 * have before they are opened.
 */
#include "exec/routes.h"

#include "tests/unit/cost_case.h"

/* The carriers count what they open. */
static int within, between;

static pp_status open_within(const struct pp_channel_spec *spec, struct pp_channel **out)
{
    assert_true(spec->port.me == spec->src || spec->port.me == spec->dst);
    *out = NULL;
    within++;
    return PP_OK;
}

static pp_status sum_within(const struct pp_sum_spec *spec, struct pp_sum **out)
{
    assert_true(spec->group.n > 1);
    *out = NULL;
    within++;
    return PP_OK;
}

static pp_status open_between(const struct pp_channel_spec *spec, struct pp_channel **out)
{
    within--;
    between++;
    return open_within(spec, out);
}

static pp_status sum_between(const struct pp_sum_spec *spec, struct pp_sum **out)
{
    within--;
    between++;
    return sum_within(spec, out);
}

static void close_channel(struct pp_channel *channel) { assert_null(channel); }
static void close_sum(struct pp_sum *sum) { assert_null(sum); }

/* exec/routes.c finds these here. */
const struct pp_carrier pp_carrier_inproc = {
    .name = "within", .open = open_within, .close = close_channel, .sum_open = sum_within, .sum_close = close_sum};
static const struct pp_carrier other = {
    .name = "between", .open = open_between, .close = close_channel, .sum_open = sum_between, .sum_close = close_sum};

pp_status pp_barrier(struct pp_world *world, int me)
{
    (void)world;
    return pp_fail(PP_INTERNAL, "worker %d is to meet others", me);
}

/* All workers of all processes, one after the other. */
static void check(const char *options, int processes, int *inside, int *across)
{
    struct pp_job *job = create_job(options);
    struct pp_world world = {.workers = pp_plan_workers(job->train), .carrier = &other};
    assert_int_equal(world.workers % processes, 0);
    world.count = world.workers / processes;
    *inside = *across = 0;
    for (int me = 0; me < world.workers; me++) {
        const struct pp_port port = {.world = &world, .me = me};
        struct pp_routes routes = {0};
        within = between = 0;
        world.first = me / world.count * world.count;
        assert_int_equal(pp_routes_open(&port, job, &routes), PP_OK);
        if (pp_routes_crossing(&world, job, me) != between)
            fail_msg("%s, %d processes: worker %d has %d, not %d", options, processes, me, between,
                     pp_routes_crossing(&world, job, me));
        *inside += within;
        *across += between;
        pp_routes_close(&routes);
    }
    pp_job_free(job);
}

static const char *const cases[] = {
    "--preset lab --d-ff 32 --stages 1 --tensor 4",
    "--preset lab --stages 2 --tensor 2",
    "--preset lab --stages 1 --replicas 2 --tensor 2 --sequence-parallel",
    "--preset lab --stages 2 --replicas 2",
    "--preset lab --stages 2 --replicas 2 --zero 1 --clip 1",
    "--preset lab --stages 1 --replicas 4 --zero 3 --shard-degree 2 --clip 1",
    "--preset lab --stages 2 --replicas 2 --tie-embeddings yes --clip 1",
    "--preset lab --layers 4 --stages 2 --virtual 2 --schedule interleaved --replicas 2",
    "--preset lab --layers 4 --stages 2 --virtual 2 --schedule zbv --replicas 2",
    "--preset lab --stages 1 --replicas 4 --experts 4 --expert-parallel 2 --activation gelu --bias no --clip 1",
    "--preset lab --stages 2 --context-parallel 2 --tokens 8",
};
enum { CASES = sizeof cases / sizeof *cases };

static void counts_are_those_of_what_is_opened(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        int inside, across, all;
        check(cases[i], 4, &inside, &all);
        assert_int_equal(inside, 0);
        assert_true(all > 0);
        check(cases[i], 2, &inside, &across);
        assert_int_equal(inside + across, all);
        check(cases[i], 1, &inside, &across);
        assert_true(inside == all && across == 0);
    }
}

/* Tensor ranks of one process need no communicator. */
static void what_stays_in_a_process_does_not_count(void **state)
{
    (void)state;
    int inside, across;
    check("--preset lab --stages 2 --tensor 2", 2, &inside, &across);
    assert_int_equal(across, 4 * 2); /* of each worker the two channels between the ranks */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_are_those_of_what_is_opened),
                                       cmocka_unit_test(what_stays_in_a_process_does_not_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
