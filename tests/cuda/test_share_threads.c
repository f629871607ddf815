/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers open and close their shares of a GPU at the same time, again and again, as threads of one process: for
 * ThreadSanitizer, which sees nothing in the processes of device_case.h.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/model/queue.h"
#include "kernels/backend.h"

enum { WORKERS = 4, ROUNDS = 6 };

static const struct pp_backend *cuda;
static pthread_barrier_t all;

struct worker {
    pthread_t thread;
    int index, failures;
};

static void use_share(struct worker *w)
{
    const struct pp_device_spec spec = {.worker = w->index, .workers = WORKERS, .on_host = 1, .threads = 1, .gpus = 1};
    struct pp_device *device;
    struct pp_queue *queue;
    void *memory;
    if (cuda->open(&spec, &device) != PP_OK) {
        w->failures++;
        return;
    }
    w->failures += cuda->queue->use(device) != PP_OK;
    w->failures += !strstr(cuda->describe(device), "share 1/4 (32 SMs)");
    w->failures += cuda->alloc(device, 1000, &memory) != PP_OK;
    w->failures += cuda->queue->queue_create(device, &queue) != PP_OK;
    cuda->queue->queue_destroy(device, queue);
    cuda->release(device, memory, 1000);
    cuda->close(device);
}

/* The first round begins together, the others as it comes. */
static void *worker_main(void *arg)
{
    struct worker *w = arg;
    pthread_barrier_wait(&all);
    for (int i = 0; i < ROUNDS; i++) use_share(w);
    return NULL;
}

static void shares_open_and_close_in_any_order(void **state)
{
    struct worker workers[WORKERS];
    (void)state;
    assert_int_equal(pp_backend_find("cuda", &cuda), PP_OK);
    pthread_barrier_init(&all, NULL, WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.index = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < WORKERS; i++) assert_int_equal(workers[i].failures, 0);
    pthread_barrier_destroy(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares_open_and_close_in_any_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
