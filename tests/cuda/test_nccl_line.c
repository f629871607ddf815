/* SPDX-License-Identifier: Apache-2.0
 *
 * What a communicator does first, and last; and one whose other members never come: the thread that joins it is left
 * behind, with all that it uses.
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_sums_are_tried),
                                       cmocka_unit_test(it_is_given_up_once),
                                       cmocka_unit_test(a_queue_that_is_held_stays_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
