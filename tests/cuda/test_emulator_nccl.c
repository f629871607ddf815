/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated NCCL between processes and between threads.
 */
#include "test_emulator.h"

#include <nccl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { NUMBERS = 100000 };

static struct {
    ncclUniqueId id;
    int ranks, reached[8];
} * shared; /* by the processes */

struct rank {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream;
    float *memory;
};

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL); }

static struct rank join(int rank, int device)
{
    struct rank r = {.rank = rank};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    EXPECT(!cudaSetDevice(device));
    EXPECT(!cudaStreamCreateWithFlags(&r.stream, cudaStreamNonBlocking));
    EXPECT(!cudaMalloc((void **)&r.memory, NUMBERS * sizeof(float)));
    EXPECT(!cudaMemsetAsync(r.memory, 0, NUMBERS * sizeof(float), r.stream));
    EXPECT(!test_add(r.memory, (float)(rank + 1), NUMBERS, r.stream));
    EXPECT(!ncclCommInitRankConfig(&r.comm, shared->ranks, shared->id, rank, &config));
    return r;
}

static float number_of(const struct rank *r, size_t i)
{
    float x;
    EXPECT(!cudaStreamSynchronize(r->stream));
    EXPECT(!cudaMemcpy(&x, r->memory + i, sizeof(x), cudaMemcpyDeviceToHost));
    return x;
}

static float last_of(const struct rank *r) { return number_of(r, NUMBERS - 1); }

/* Each rank sums its part of what all have, in place, then has the parts of all; the ends of two parts tell. */
static void shares(const struct rank *r)
{
    const size_t n = NUMBERS / 4, ranks = (size_t)shared->ranks, rank = (size_t)r->rank;
    const float before = last_of(r);
    EXPECT(!test_add(r->memory + rank * n, 1, n, r->stream));
    EXPECT(!ncclGroupStart());
    EXPECT(!ncclReduceScatter(r->memory, r->memory + rank * n, n, ncclFloat, ncclSum, r->comm, r->stream));
    EXPECT(!ncclGroupEnd());
    EXPECT(number_of(r, rank * n + n - 1) == before * (float)ranks + 1);
    EXPECT(!test_add(r->memory + rank * n, (float)rank, n, r->stream));
    EXPECT(!ncclAllGather(r->memory + rank * n, r->memory, n, ncclFloat, r->comm, r->stream));
    EXPECT(number_of(r, n - 1) == before * (float)ranks + 1);
    EXPECT(number_of(r, ranks * n - 1) == before * (float)ranks + (float)ranks);
    EXPECT(ncclGroupEnd() == ncclInvalidUsage);
}

/* Rank i hands on to i + 1; then all add. */
static void chain(int rank)
{
    struct rank r = join(rank, rank);
    if (rank) EXPECT(!ncclRecv(r.memory, NUMBERS, ncclFloat, rank - 1, r.comm, r.stream));
    if (rank + 1 < shared->ranks) EXPECT(!ncclSend(r.memory, NUMBERS, ncclFloat, rank + 1, r.comm, r.stream));
    EXPECT(last_of(&r) == 1);
    EXPECT(!test_add(r.memory, (float)rank, NUMBERS, r.stream));
    EXPECT(!ncclAllReduce(r.memory, r.memory, NUMBERS, ncclFloat, ncclSum, r.comm, r.stream));
    EXPECT(last_of(&r) == (float)(shared->ranks + shared->ranks * (shared->ranks - 1) / 2));
    shares(&r);
    EXPECT(!ncclCommDestroy(r.comm));
}

/* A send ends when it was received, not before. */
static void rendezvous(int rank)
{
    struct rank r = join(rank, rank);
    if (rank) {
        EXPECT(!ncclRecv(r.memory, 1, ncclFloat, 0, r.comm, r.stream)); /* the first one makes the connection */
        EXPECT(!cudaStreamSynchronize(r.stream));
        nap();
        __atomic_store_n(&shared->reached[1], 1, __ATOMIC_SEQ_CST);
        EXPECT(!ncclRecv(r.memory, 1, ncclFloat, 0, r.comm, r.stream));
        EXPECT(!cudaStreamSynchronize(r.stream));
    } else {
        EXPECT(!ncclSend(r.memory, 1, ncclFloat, 1, r.comm, r.stream));
        EXPECT(!cudaStreamSynchronize(r.stream));
        EXPECT(!ncclSend(r.memory, 1, ncclFloat, 1, r.comm, r.stream));
        EXPECT(!cudaStreamSynchronize(r.stream));
        EXPECT(__atomic_load_n(&shared->reached[1], __ATOMIC_SEQ_CST));
    }
    EXPECT(!ncclCommAbort(r.comm));
}

/* The other end dies: the error shows, the stream stands still, ncclCommAbort frees it. */
static void dead_peer(int rank)
{
    struct rank r = join(rank, rank);
    ncclResult_t error = ncclSuccess;
    if (rank) EXPECT(!ncclRecv(r.memory, 1, ncclFloat, 0, r.comm, r.stream));
    if (!rank) EXPECT(!ncclSend(r.memory, 1, ncclFloat, 1, r.comm, r.stream));
    EXPECT(!cudaStreamSynchronize(r.stream));
    if (rank) _exit(0);
    EXPECT(!ncclSend(r.memory, NUMBERS, ncclFloat, 1, r.comm, r.stream));
    for (int i = 0; i < 50 && error == ncclSuccess; i++) {
        nap();
        EXPECT(!ncclCommGetAsyncError(r.comm, &error));
    }
    EXPECT(error == ncclRemoteError && cudaStreamQuery(r.stream) == cudaErrorNotReady);
    EXPECT(!ncclCommAbort(r.comm));
    EXPECT(!cudaStreamSynchronize(r.stream));
}

static void same_device(int rank)
{
    ncclComm_t comm;
    EXPECT(!cudaSetDevice(0));
    EXPECT(ncclCommInitRankConfig(&comm, 2, shared->id, rank, NULL) == ncclInvalidUsage);
    EXPECT(strstr(ncclGetLastError(NULL), "Duplicate GPU"));
}

static void own_host(int rank)
{
    setenv("NCCL_HOSTID", rank ? "b" : "a", 1);
    struct rank r = join(rank, 0);
    EXPECT(!ncclAllReduce(r.memory, r.memory, NUMBERS, ncclFloat, ncclSum, r.comm, r.stream));
    EXPECT(last_of(&r) == 3);
    EXPECT(!ncclCommAbort(r.comm));
}

static void *thread_main(void *arg)
{
    chain((int)(intptr_t)arg);
    return NULL;
}

static void threads(int process)
{
    pthread_t other;
    (void)process;
    EXPECT(!pthread_create(&other, NULL, thread_main, (void *)(intptr_t)1));
    chain(0);
    EXPECT(!pthread_join(other, NULL));
}

static void run(int processes, int ranks, void (*body)(int))
{
    static const char *const settings[] = {"PP_EMULATE_DEVICES=3", NULL};
    memset(shared, 0, sizeof(*shared));
    shared->ranks = ranks;
    assert_int_equal(ncclGetUniqueId(&shared->id), ncclSuccess);
    in_processes(processes, body, settings);
}

static void test_between_processes(void **state)
{
    (void)state;
    run(2, 2, chain);
    run(3, 3, chain);
    run(2, 2, rendezvous);
}

static void test_between_threads(void **state)
{
    (void)state;
    run(1, 2, threads);
}

static void test_dead_peer(void **state)
{
    (void)state;
    run(2, 2, dead_peer);
}

static void test_same_device(void **state)
{
    (void)state;
    run(2, 2, same_device);
    run(2, 2, own_host);
}

int main(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_between_processes), cmocka_unit_test(test_between_threads),
                                       cmocka_unit_test(test_dead_peer), cmocka_unit_test(test_same_device)};
    return cmocka_run_group_tests_name("emulated NCCL", tests, NULL, NULL);
}
