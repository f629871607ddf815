/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a configuration fits: made-up devices and processes, each of which is a thread.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/job/process.h"
#include "core/model/queue.h"
#include "exec/fit.h"

enum { PROCESSES = 4, RANKS = 8, PAGES = PP_ARENA_PAGE_BYTES };

/* A run: processes on hosts, workers on devices. */
static struct {
    int count, host[PROCESSES], host_index[PROCESSES], on_host;
    int ranks, sharers;                           /* 0 sharers: the processor */
    int64_t pages[RANKS], left[PROCESSES][RANKS]; /* of a rank's arena; of a device of a host */
} run;

static pthread_barrier_t barrier;
static char gathered[PROCESSES][512];
static _Thread_local int me;

static pp_status gather(const void *mine, int bytes, void *all)
{
    memcpy(gathered[me], mine, (size_t)bytes);
    pthread_barrier_wait(&barrier);
    for (int p = 0; p < run.count; p++) memcpy((char *)all + (size_t)(p * bytes), gathered[p], (size_t)bytes);
    pthread_barrier_wait(&barrier);
    return PP_OK;
}

static int64_t left(const struct pp_device_spec *spec)
{
    assert_int_equal(spec->workers, run.ranks / run.count);
    const int on_host = spec->host_index * spec->workers + spec->worker;
    return run.left[run.host[me]][run.sharers ? on_host / run.sharers : 0];
}

static int sharers(const struct pp_device_spec *spec)
{
    assert_int_equal(spec->on_host, run.on_host);
    return run.sharers;
}

struct answer {
    int index;
    pp_status status;
    bool refused;
    char message[PP_MESSAGE_BYTES];
};

static void *ask(void *arg)
{
    struct answer *answer = arg;
    const struct pp_queue_ops queue = {0};
    const struct pp_backend device = {
        .queue = run.sharers ? &queue : NULL, .sharers = sharers, .available_bytes = left};
    const struct pp_transport transport = {.gather = gather};
    me = answer->index;
    const struct pp_processes processes = {.count = run.count,
                                           .index = me,
                                           .host = run.host[me],
                                           .host_index = run.host_index[me],
                                           .on_host = run.on_host};
    int64_t arenas[RANKS];
    for (int r = 0; r < RANKS; r++) arenas[r] = run.pages[r] * PAGES;
    struct pp_layout layout = {.arena_bytes = arenas};
    struct pp_plan plan = {.replicas = 1, .ranks = run.ranks, .members = 1, .context = 1};
    const struct pp_job job = {.train = &plan, .layout = &layout};
    const struct pp_config config = {0};
    const struct pp_fit_call call = {&transport, &processes, &device, &config, &job, PP_USAGE};
    answer->status = pp_fit_check(&call, &answer->refused);
    strcpy(answer->message, answer->status == PP_OK ? "" : pp_message());
    return NULL;
}

/* What all processes say; they must say the same. "": it fits. */
static const char *answer_of_all(void)
{
    static struct answer answers[PROCESSES];
    pthread_t threads[PROCESSES];
    pthread_barrier_init(&barrier, NULL, (unsigned)run.count);
    for (int p = 0; p < run.count; p++) {
        answers[p] = (struct answer){.index = p};
        assert_int_equal(pthread_create(&threads[p], NULL, ask, &answers[p]), 0);
    }
    for (int p = 0; p < run.count; p++) pthread_join(threads[p], NULL);
    pthread_barrier_destroy(&barrier);
    for (int p = 0; p < run.count; p++) {
        assert_string_equal(answers[p].message, answers[0].message);
        assert_int_equal(answers[p].status, answers[0].message[0] ? PP_USAGE : PP_OK);
        assert_int_equal(answers[p].refused, answers[0].message[0] != '\0');
    }
    return answers[0].message;
}

#define NEEDS(words) assert_non_null(strstr(answer_of_all(), words))
#define FITS() assert_string_equal(answer_of_all(), "")

/* A run of four ranks in so many processes of one machine. */
static void share_four_ranks(int count, int device_sharers)
{
    memset(&run, 0, sizeof run);
    run.count = run.on_host = count;
    run.ranks = 4;
    run.sharers = device_sharers;
    for (int p = 0; p < count; p++) run.host_index[p] = p;
}

/* The processor of one machine: arenas count together, however many processes have them. */
static void workers_of_a_machine_are_added_up(void **state)
{
    (void)state;
    for (int count = 1; count <= 4; count *= 2) {
        share_four_ranks(count, 0);
        for (int r = 0; r < 4; r++) run.pages[r] = 128 << r; /* 0.25, 0.5, 1 and 2 GiB */
        run.left[0][0] = 1920LL * PAGES;
        FITS();
        run.left[0][0]--;
        NEEDS("4 workers of one machine need 3.75 GiB, and it has 3.75 GiB left: ");
        run.left[0][0] = -1; /* the system does not say */
        FITS();
    }
}

/* Two machines, whose processes are numbered in turn: one lacks memory, and all processes know. */
static void machines_count_apart(void **state)
{
    (void)state;
    static const int hosts[] = {0, 1, 0, 1}, indices[] = {0, 0, 1, 1};
    memset(&run, 0, sizeof run);
    run.count = 4;
    run.on_host = 2;
    run.ranks = 8;
    memcpy(run.host, hosts, sizeof hosts);
    memcpy(run.host_index, indices, sizeof indices);
    for (int r = 0; r < 8; r++) run.pages[r] = r % 4 < 2 ? 512 : 256; /* 4 GiB on the first machine, 2 on the other */
    run.left[0][0] = 2048LL * PAGES;
    run.left[1][0] = 1024LL * PAGES;
    FITS();
    run.left[1][0] = 1023LL * PAGES;
    NEEDS("4 workers of one machine need 2.00 GiB, and it has 2.00 GiB left");
    run.left[1][0] = 2048LL * PAGES;
    run.left[0][0] = 1024LL * PAGES;
    NEEDS("4 workers of one machine need 4.00 GiB, and it has 2.00 GiB left");
}

/* Each GPU of a host has the memory of the successive workers that share it, whichever processes they are in. */
static void workers_of_a_gpu_are_added_up(void **state)
{
    (void)state;
    for (int count = 1; count <= 4; count *= 2) {
        share_four_ranks(count, 2);
        for (int r = 0; r < 4; r++) run.pages[r] = r == 2 ? 1024 : 512;
        run.left[0][0] = 1024LL * PAGES;
        run.left[0][1] = 1536LL * PAGES;
        FITS();
        run.left[0][1]--;
        NEEDS("2 workers of one GPU need 3.00 GiB, and it has 3.00 GiB left");
        run.sharers = 1;
        for (int r = 0; r < 4; r++) run.left[0][r] = 512LL * PAGES;
        NEEDS("1 worker of one GPU needs 2.00 GiB, and it has 1.00 GiB left");
        run.left[0][2] *= 2;
        FITS();
    }
}

/* That is refused elsewhere. */
static void workers_must_divide(void **state)
{
    (void)state;
    memset(&run, 0, sizeof run);
    run.count = run.on_host = 2;
    run.ranks = 3;
    run.pages[0] = 1;
    FITS();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_of_a_machine_are_added_up),
        cmocka_unit_test(machines_count_apart),
        cmocka_unit_test(workers_of_a_gpu_are_added_up),
        cmocka_unit_test(workers_must_divide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
