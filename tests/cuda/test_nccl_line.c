/* SPDX-License-Identifier: Apache-2.0
 *
 * What a communicator does first, and last; and one whose other members never come: the thread that joins it is left
 * behind, with all that it uses. And a shift among several GPUs.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "exec/nccl_line.h"
#include "kernels/backend.h"
#include "tests/unit/crew.h"

static struct pp_nccl_line line; /* static: what is left behind is no leak */

static const struct pp_processes alone = {.count = 1, .on_host = 1, .hosts = 1};
static const struct pp_device_spec spec = {.workers = 1, .on_host = 1, .threads = 1};

/* The largest sum, part of a sum, and part that was gathered. */
static struct pp_nccl counting;
static size_t most[3];

static void count(int operation, size_t n) { most[operation] = n > most[operation] ? n : most[operation]; }

static ncclResult_t all_reduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream)
{
    count(0, n);
    return ncclAllReduce(from, to, n, type, operation, comm, stream);
}

static ncclResult_t reduce_scatter(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t operation,
                                   ncclComm_t comm, cudaStream_t stream)
{
    count(1, n);
    return ncclReduceScatter(from, to, n, type, operation, comm, stream);
}

static ncclResult_t all_gather(const void *from, void *to, size_t n, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream)
{
    count(2, n);
    return ncclAllGather(from, to, n, type, comm, stream);
}

/* NCCL connects when it first works in some way, which must not be in a task. */
static void the_largest_sums_are_tried(void **state)
{
    (void)state;
    enum { FLOATS = 5000 };
    static const struct {
        unsigned use;
        size_t most[3];
    } cases[] = {
        {PP_NCCL_SUMS, {FLOATS, 0, 0}},
        {PP_NCCL_SHARES, {0, FLOATS, FLOATS * sizeof(float)}},
        {PP_NCCL_SUMS | PP_NCCL_SHARES, {FLOATS, FLOATS, FLOATS * sizeof(float)}},
    };
    struct pp_port port = {0};
    assert_int_equal(pp_backend_find("cuda", &port.backend), PP_OK);
    assert_int_equal(port.backend->open(&spec, &port.device), PP_OK);
    assert_int_equal(pp_world_open(pp_transports[0], &alone, 1, 1, &port.world), PP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pp_nccl_line own = {0};
        struct pp_nccl_place place = {.ranks = 1,
                                      .use = cases[i].use,
                                      .blocks = 1,
                                      .type = PP_SUM_FLOAT,
                                      .most_bytes = FLOATS * (int64_t)sizeof(float)};
        memset(most, 0, sizeof most);
        assert_int_equal(pp_nccl_line_open(&own, &port), PP_OK);
        counting = *own.nccl;
        counting.all_reduce = all_reduce;
        counting.reduce_scatter = reduce_scatter;
        counting.all_gather = all_gather;
        own.nccl = &counting;
        assert_int_equal(own.nccl->get_unique_id(&place.id), ncclSuccess);
        assert_int_equal(pp_nccl_line_join(&own, &place), PP_OK);
        assert_memory_equal(most, cases[i].most, sizeof most);
        pp_nccl_line_close(&own);
    }
    pp_world_close(port.world);
    port.backend->close(port.device);
}

/* No thread starts while it is set: CMake has the linker wrap pthread_create. Not hidden, for the library of a
 * sanitizer, too, is linked against it. */
static bool no_threads;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg)
    __attribute__((visibility("default")));
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg)
{
    return no_threads ? EAGAIN : __real_pthread_create(thread, attributes, body, arg);
}

static int aborts;

static ncclResult_t comm_abort(ncclComm_t comm)
{
    aborts++;
    return ncclCommAbort(comm);
}

static void it_is_given_up_once(void **state)
{
    (void)state;
    struct pp_port port = {0};
    assert_int_equal(pp_backend_find("cuda", &port.backend), PP_OK);
    assert_int_equal(port.backend->open(&spec, &port.device), PP_OK);
    assert_int_equal(pp_world_open(pp_transports[0], &alone, 1, 1, &port.world), PP_OK);
    for (int without = 0; without < 2; without++) {
        struct pp_nccl_line own = {0};
        struct pp_nccl_place place = {.ranks = 1, .use = PP_NCCL_SUMS, .blocks = 1, .type = PP_SUM_FLOAT};
        assert_int_equal(pp_nccl_line_open(&own, &port), PP_OK);
        counting = *own.nccl;
        counting.comm_abort = comm_abort;
        own.nccl = &counting;
        aborts = 0;
        assert_int_equal(own.nccl->get_unique_id(&place.id), ncclSuccess);
        assert_int_equal(pp_nccl_line_join(&own, &place), PP_OK);
        no_threads = without;
        pp_nccl_line_abort(&own);
        no_threads = false;
        pp_nccl_line_abort(&own); /* and never again */
        pp_nccl_line_close(&own);
        assert_int_equal(aborts, 1);
    }
    pp_world_close(port.world);
    port.backend->close(port.device);
}

static void a_queue_that_is_held_stays_open(void **state)
{
    (void)state;
    struct pp_nccl_place place = {.ranks = 2, .use = PP_NCCL_SENDS, .blocks = 1};
    struct pp_port port = {0};
    assert_int_equal(pp_backend_find("cuda", &port.backend), PP_OK);
    assert_int_equal(port.backend->open(&spec, &port.device), PP_OK);
    assert_int_equal(pp_world_open(pp_transports[0], &alone, 1, 1, &port.world), PP_OK);
    assert_int_equal(pp_nccl_line_open(&line, &port), PP_OK);
    assert_int_equal(line.nccl->get_unique_id(&place.id), ncclSuccess);
    assert_false(atomic_load(&port.world->devices_held));
    pp_world_stop(port.world, PP_IO); /* as another worker that fails: nobody waits for the others any more */
    assert_int_equal(pp_nccl_line_join(&line, &place), PP_PEER);
    assert_true(atomic_load(&port.world->devices_held));
    pp_nccl_line_close(&line);
    assert_int_equal(cudaStreamQuery(line.stream), cudaSuccess);
}

enum { WORDS = 1000, WORKERS = 3 };

/* Nothing of a shift stays with the worker that has it. */
static pp_status refuse_copies(struct pp_device *device, struct pp_queue *queue, const struct pp_strided *copies)
{
    (void)device, (void)queue;
    return pp_fail(PP_INTERNAL, "%lld bytes are copied", (long long)copies->bytes);
}

/* Waits until the device has come to a mark that is recorded. */
static pp_status finish(const struct pp_port *port, struct pp_mark *mark)
{
    bool reached = false;
    while (!reached) {
        PP_TRY(port->backend->queue->reached(port->device, mark, &reached));
        PP_TRY(pp_world_check(port->world));
    }
    return PP_OK;
}

/* Word i of worker w is 1000 w + i. to: an address of the device. */
static pp_status check_words(const struct pp_port *port, int of, const void *to)
{
    int32_t words[WORDS];
    PP_TRY(port->backend->download(port->device, words, to, sizeof words));
    for (int i = 0; i < WORDS; i++)
        if (words[i] != 1000 * of + i) return pp_fail(PP_INTERNAL, "worker %d has not got worker %d's", port->me, of);
    return PP_OK;
}

static pp_status shift(const struct pp_port *port, struct pp_sum *sum, struct pp_mark *done)
{
    int32_t words[WORDS];
    const int workers = port->world->workers;
    void *from, *to;
    for (int i = 0; i < WORDS; i++) words[i] = 1000 * port->me + i;
    PP_TRY(port->backend->alloc(port->device, sizeof words, &from));
    PP_TRY(port->backend->alloc(port->device, sizeof words, &to));
    PP_TRY(port->backend->upload(port->device, from, words, sizeof words));
    const struct pp_join_call call = {
        .op = PP_JOIN_SHIFT, .memory = to, .from = from, .elements = WORDS, .type = PP_SUM_FLOAT};
    const struct pp_pieces pieces = pp_pieces_of(&call, workers);
    struct pp_parcel parcel = {.memory = to, .pieces = &pieces, .bytes = pp_pieces_bytes(&pieces), .done = done};
    PP_TRY(pp_carrier_nccl.sum_start(sum, &parcel, NULL));
    PP_TRY(finish(port, done));
    PP_TRY(check_words(port, (port->me + workers - 1) % workers, to));
    PP_TRY(check_words(port, port->me, from));
    port->backend->release(port->device, from, sizeof words);
    port->backend->release(port->device, to, sizeof words);
    return PP_OK;
}

static pp_status shift_as_worker(struct pp_world *world, int me, void *arg)
{
    const struct pp_device_spec device = {.worker = me, .workers = world->workers, .on_host = 1, .threads = 1};
    struct pp_port port = {.world = world, .backend = arg, .me = me};
    struct pp_sum *sum = NULL;
    struct pp_mark *done;
    PP_TRY(port.backend->open(&device, &port.device));
    PP_TRY(port.backend->queue->mark_create(port.device, false, &done));
    const struct pp_sum_spec of = {.port = port,
                                   .group = pp_group_all(world),
                                   .type = PP_SUM_FLOAT,
                                   .pieces = 1,
                                   .exchanged_bytes = WORDS * sizeof(int32_t)};
    PP_TRY(pp_carrier_nccl.sum_open(&of, &sum));
    PP_TRY(pp_barrier(world, me)); /* nobody allocates while another one is in its first exchange (exec/routes.c) */
    PP_TRY(shift(&port, sum, done));
    PP_TRY(pp_barrier(world, me));
    pp_carrier_nccl.sum_close(sum);
    port.backend->queue->mark_destroy(port.device, done);
    port.backend->close(port.device);
    return PP_OK;
}

/* Of two each sends to the other one; of three each receives from another than it sends to. */
static void a_shift_goes_to_the_next(void **state)
{
    (void)state;
    const struct pp_backend *found;
    assert_int_equal(pp_backend_find("cuda", &found), PP_OK);
    struct pp_queue_ops ops = *found->queue;
    struct pp_backend backend = *found;
    ops.copy_strided = refuse_copies;
    backend.queue = &ops;
    for (int workers = 2; workers <= WORKERS; workers++)
        if (crew_run(workers, shift_as_worker, &backend) != PP_OK) fail_msg("%s", pp_message());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_sums_are_tried), cmocka_unit_test(a_shift_goes_to_the_next),
        cmocka_unit_test(it_is_given_up_once), cmocka_unit_test(a_queue_that_is_held_stays_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
