/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker puts into its compute queue where it meets others inside a task: who waits for which mark. Had one to
 * wait for more, all bits would be the same, and nothing would be hidden.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "exec/worker_queue.h"

enum { MEMBERS = 2, PIECES = 3 };

/* Names of what is handed around, and what was done with it. */
static char compute, after, done, beside[PIECES], route;
static char did[256];

/* What the carrier was given last to exchange, and how many launches the worker counts. */
static struct pp_pieces pieces;
static int launches;

static const char *name_of(const void *thing)
{
    static char text[32];
    if (thing == &after || thing == &done) return thing == &after ? "after" : "done";
    for (int i = 0; i < PIECES; i++)
        if (thing == &beside[i]) snprintf(text, sizeof text, "beside%d", i + 1);
    return text;
}

static void note(const char *what, const void *thing)
{
    const size_t used = strlen(did);
    snprintf(did + used, sizeof did - used, "%s%s %s", used ? ", " : "", what, name_of(thing));
}

static pp_status record(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark)
{
    (void)device;
    assert_ptr_equal(queue, &compute);
    note("record", mark);
    return PP_OK;
}

static pp_status wait_for(struct pp_device *device, struct pp_queue *queue, struct pp_mark *mark)
{
    (void)device;
    assert_ptr_equal(queue, &compute);
    note("wait", mark);
    return PP_OK;
}

/* A carrier that issues at once, in a queue of its own. */
static pp_status start(struct pp_sum *sum, struct pp_parcel *parcel, struct pp_mark *behind)
{
    assert_ptr_equal(sum, &route);
    assert_ptr_equal(behind, &after);
    parcel->issued = true;
    pieces = parcel->pieces ? *parcel->pieces : (struct pp_pieces){0};
    note("sum to", parcel->done);
    return PP_OK;
}

static const char *what_is_done(enum pp_join_op op, int number)
{
    static const struct pp_queue_ops ops = {.record = record, .wait = wait_for};
    static const struct pp_carrier carrier = {.sum_start = start};
    static struct pp_mark *marks[PIECES];
    struct pp_plan plan = {.ranks = 1, .replicas = 1, .members = MEMBERS, .expert_parallel = 1, .context = 1};
    const struct pp_job job = {.train = &plan};
    struct pp_worker_queue queue = {.ops = &ops, .compute = (struct pp_queue *)&compute, .beside = marks};
    struct pp_worker worker = {.job = &job, .queue = &queue};
    struct pp_summing *summing = &queue.joined[PP_JOIN_TENSOR_RANKS];
    for (int i = 0; i < PIECES; i++) marks[i] = (struct pp_mark *)&beside[i];
    summing->marks.done = (struct pp_mark *)&done;
    summing->after = (struct pp_mark *)&after;
    queue.routes.joined[PP_JOIN_TENSOR_RANKS][PP_SUM_FLOAT] = (struct pp_sum_route){&carrier, (struct pp_sum *)&route};
    did[0] = '\0';
    const struct pp_join_call call = {.op = op,
                                      .group = PP_JOIN_TENSOR_RANKS,
                                      .memory = &worker,
                                      .from = &plan,
                                      .elements = MEMBERS,
                                      .type = PP_SUM_FLOAT,
                                      .beside = number};
    pp_worker_queue_join(&worker, &call);
    assert_int_equal(worker.status, PP_OK);
    assert_false(worker.join.failed);
    launches = queue.launches;
    return did;
}

static void a_sum_is_waited_for(void **state)
{
    (void)state;
    assert_string_equal(what_is_done(PP_JOIN_ALL_REDUCE, 0), "record after, sum to done, wait done");
}

static void what_runs_beside_the_queue_is_not(void **state)
{
    (void)state;
    assert_string_equal(what_is_done(PP_JOIN_ALL_REDUCE, 1), "record after, sum to beside1");
    assert_string_equal(what_is_done(PP_JOIN_ALL_REDUCE, 2), "record after, sum to beside2");
    assert_string_equal(what_is_done(PP_JOIN_ALL_REDUCE, 3), "record after, sum to beside3");
}

static void an_await_waits_for_its_piece_alone(void **state)
{
    (void)state;
    assert_string_equal(what_is_done(PP_JOIN_AWAIT, 1), "wait beside1");
    assert_string_equal(what_is_done(PP_JOIN_AWAIT, 2), "wait beside2");
    assert_string_equal(what_is_done(PP_JOIN_AWAIT, 3), "wait beside3");
}

/* All that a worker has goes to the next one at once. */
static void a_shift_is_one_piece(void **state)
{
    (void)state;
    assert_string_equal(what_is_done(PP_JOIN_SHIFT, 0), "record after, sum to done, wait done");
    assert_int_equal(launches, PP_JOIN_LAUNCHES * MEMBERS);
    assert_string_equal(what_is_done(PP_JOIN_SHIFT, 2), "record after, sum to beside2");
    assert_true(pieces.shift && pieces.members == MEMBERS && pieces.each == 1);
    assert_true(pieces.from && pieces.to && pieces.from != pieces.to);
    assert_int_equal(pp_pieces_bytes(&pieces), MEMBERS * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_is_waited_for), cmocka_unit_test(what_runs_beside_the_queue_is_not),
        cmocka_unit_test(an_await_waits_for_its_piece_alone), cmocka_unit_test(a_shift_is_one_piece)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
