/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases of the backend `cuda`, each in a process of its own: CUDA and the emulator read their environment once. They
 * run on the emulated backend if PPKIT_CUDA_BACKEND names that, else on a GPU; without one the program ends with 77.
 */
#ifndef PP_TESTS_DEVICE_CASE_H
#define PP_TESTS_DEVICE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/model/queue.h"
#include "kernels/backend.h"
#include "kernels/kernels.h"
#include "tests/cuda/emulated.h"

/* In the process of a case: what must hold. */
#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("%s:%d: not so: %s; the last message: %s\n", __FILE__, __LINE__, #condition, pp_message());         \
            fflush(stdout);                                                                                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define MUST_OK(expression) MUST((expression) == PP_OK)
#define MUST_SAY(text) MUST(strstr(pp_message(), text))

static const struct pp_backend *cuda;
static const struct pp_queue_ops *ops;

static inline void load_cuda(void)
{
    MUST_OK(pp_backend_find("cuda", &cuda));
    ops = cuda->queue;
    MUST(ops);
}

static inline struct pp_device *open_device(int worker, int workers)
{
    struct pp_device *device;
    const struct pp_device_spec spec = {.worker = worker, .workers = workers, .on_host = 1, .threads = 1};
    MUST_OK(cuda->open(&spec, &device));
    MUST_OK(ops->use(device));
    return device;
}

/* Runs the program once, by itself. */
static inline pp_status measure(struct pp_device *device, const struct pp_program *program,
                                const struct pp_frame *frame, struct pp_run_time *out, int64_t *kernel_ns)
{
    PP_TRY(ops->measure_begin(device, program, frame, 0, kernel_ns != NULL));
    return ops->measure_end(device, program, 0, out, kernel_ns);
}

/* The host is ahead of a program that takes the device this long: measuring it, it does not wait. A busy machine may
 * take its processor away, but not in all of many measurements; a host that waits is too late in each. */
static inline void must_be_ahead(struct pp_device *device, const struct pp_program *program,
                                 const struct pp_frame *frame, int64_t least_ns)
{
    struct pp_run_time time;
    int measurements = 0;
    do {
        MUST_OK(measure(device, program, frame, &time, NULL));
        MUST(time.device_ns >= least_ns && time.host_ns > 0);
    } while (is_emulated() && time.host_ns >= least_ns && ++measurements < 20);
    MUST(!is_emulated() || time.host_ns < least_ns);
}

/* Polls until what is in the queue has run. */
static inline void drain(struct pp_device *device, struct pp_queue *queue)
{
    struct pp_mark *mark;
    bool reached = false;
    MUST_OK(ops->mark_create(device, false, &mark));
    MUST_OK(ops->record(device, queue, mark));
    while (!reached) MUST_OK(ops->reached(device, mark, &reached));
    ops->mark_destroy(device, mark);
}

/* env: "NAME=value" ..., NULL-terminated. Returns the emulator's account of the process, "" if it wrote none. */
static inline const char *run_case(void (*body)(void), const char *const *env)
{
    static char account[2048];
    char stats[] = "stats-XXXXXX";
    int status;
    close(mkstemp(stats));
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        setenv("PP_EMULATE_STATS", stats, 1);
        for (; env && *env; env++) {
            char text[256];
            snprintf(text, sizeof text, "%s", *env);
            char *value = strchr(text, '=');
            *value = '\0';
            setenv(text, value + 1, 1);
        }
        body();
        exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    FILE *file = fopen(stats, "r");
    assert_non_null(file);
    account[fread(account, 1, sizeof account - 1, file)] = '\0';
    fclose(file);
    unlink(stats);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return account;
}

/* -1: not in the account. */
static inline long long counted(const char *account, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "\"%s\":", what);
    const char *at = strstr(account, name);
    return at ? atoll(at + strlen(name)) : -1;
}

/* All was given back, and nothing was done that CUDA forbids. A GPU keeps no account. */
static inline void assert_clean(const char *account)
{
    static const char *const none[] = {"live_device_bytes", "live_host_bytes", "live_streams", "live_events",
                                       "complaints"};
    for (size_t i = 0; is_emulated() && i < sizeof none / sizeof none[0]; i++)
        assert_int_equal(counted(account, none[i]), 0);
}

/* In a process of its own: a process that has used CUDA cannot fork. */
static inline bool have_gpu(void)
{
    int status;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const struct pp_backend *backend;
        const bool there = pp_backend_find("cuda", &backend) == PP_OK;
        if (!there) printf("skipped: %s\n", pp_message());
        fflush(stdout);
        _exit(there ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The first n tests also on a GPU; the rest make an emulated one fail. */
#define RUN_CASES(tests, n_on_gpu) run_cases(tests, sizeof(tests) / sizeof(tests)[0], n_on_gpu)
static inline int run_cases(const struct CMUnitTest *tests, size_t n, size_t on_gpu)
{
    if (is_emulated()) return _cmocka_run_group_tests("emulated", tests, n, NULL, NULL);
    return have_gpu() ? _cmocka_run_group_tests("gpu", tests, on_gpu, NULL, NULL) : 77;
}

#endif
