/* SPDX-License-Identifier: Apache-2.0
 *
 * One request to stop that comes twice is one; a later one ends the process. What is to be done before the end is done.
 * Of workers that one signal stops, one that knows more tells.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/options/ending.h"
#include "exec/signals.h"
#include "exec/transport.h"

/* In a process of its own: raises `n` signals at once, and a further one `later_ms` later unless that is 0. */
static int end_of(int number, int n, int later_ms)
{
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct timespec pause = {later_ms / 1000, later_ms % 1000 * 1000000L};
        if (pp_signals_catch() != PP_OK || pp_signals_caught()) _exit(2);
        for (int i = 0; i < n; i++) raise(number);
        if (pp_signals_caught() != (n > 0)) _exit(3);
        nanosleep(&pause, NULL);
        if (later_ms) raise(number);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_requests(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n <= 3; n++) assert_int_equal(end_of(numbers[i], n, 0), 0);
        const int status = end_of(numbers[i], 1, 700);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i]);
    }
}

static void pause_ms(int ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

enum { SLOW_MS = 20000 };

struct act {
    int pipe, takes_ms;
};

static void note(void *context)
{
    const struct act *act = context;
    if (write(act->pipe, "a", 1) != 1) _exit(4);
    pause_ms(act->takes_ms);
    if (write(act->pipe, "b", 1) != 1) _exit(4);
}

/* In a process of its own, which gets SIGTERM twice at once while the act is wanted, or after that, and another one
 * later. Its exit code; what was done into done[3]. */
static int ended(bool wanted, int takes_ms, int later_ms, char done[3])
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct act act = {ends[1], takes_ms};
        if (pp_ending_begin(note, &act) != PP_OK) _exit(2);
        if (!wanted && pp_ending_end() != PP_OK) _exit(3);
        raise(SIGTERM);
        raise(SIGTERM);
        pause_ms(later_ms);
        raise(SIGTERM);
        pause_ms(SLOW_MS);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    memset(done, 0, 3);
    for (int n = 0; n < 2 && read(ends[0], done + n, 1) == 1;) n++;
    close(ends[0]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_ending(void **state)
{
    (void)state;
    char done[3];
    assert_int_equal(ended(true, 100, 0, done), pp_exit_code(PP_INTERRUPTED));
    assert_string_equal(done, "ab");
    assert_int_equal(ended(true, SLOW_MS, 700, done), pp_exit_code(PP_INTERRUPTED));
    assert_string_equal(done, "a");
    assert_int_equal(ended(false, 0, 0, done), pp_exit_code(PP_INTERRUPTED));
    assert_string_equal(done, "");
}

/* Catching SIGTERM fails while it is set: CMake has the linker wrap sigaction. */
static bool no_catching;
int __real_sigaction(int number, const struct sigaction *action, struct sigaction *before);
int __wrap_sigaction(int number, const struct sigaction *action, struct sigaction *before);
int __wrap_sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    return no_catching && number == SIGTERM ? -1 : __real_sigaction(number, action, before);
}

/* The links of the folder that has one for each. */
static long threads(void)
{
    struct stat tasks;
    assert_int_equal(stat("/proc/self/task", &tasks), 0);
    return (long)tasks.st_nlink;
}

/* Then nothing of it stays, and it can be tried again. */
static void test_ending_that_cannot_begin(void **state)
{
    (void)state;
    const long before = threads();
    no_catching = true;
    assert_int_equal(pp_ending_begin(note, NULL), PP_IO);
    no_catching = false;
    for (int i = 0; i < 100 && threads() > before; i++) pause_ms(10); /* one that was joined may still be going */
    assert_int_equal(threads(), before);
    assert_int_equal(pp_ending_begin(note, NULL), PP_OK);
    assert_int_equal(pp_ending_end(), PP_OK);
}

/* One signal stops all workers: the first that knows more is told, however few words it has. Other failures stay. */
static void test_told_by_who_knows_more(void **state)
{
    static const struct pp_processes alone = {.count = 1, .on_host = 1, .hosts = 1};
    struct pp_world *world;
    (void)state;
    assert_int_equal(pp_world_open(&pp_transport_inproc, &alone, 2, 1, &world), PP_OK);
    static const char *const told[] = {PP_BY_SIGNAL, "nobody reads", "nobody reads", "nobody reads"},
                             *const said[] = {PP_BY_SIGNAL, "nobody reads", "a signal came while something was done",
                                              PP_BY_SIGNAL};
    for (int i = 0; i < 4; i++) {
        pp_world_stop(world, pp_fail(PP_INTERRUPTED, "%s", said[i]));
        assert_int_equal(pp_world_failure(world), PP_INTERRUPTED);
        assert_string_equal(pp_message(), told[i]);
    }
    pp_world_close(world);
    assert_int_equal(pp_world_open(&pp_transport_inproc, &alone, 2, 1, &world), PP_OK);
    pp_world_stop(world, pp_fail(PP_IO, "a file"));
    pp_world_stop(world, pp_fail(PP_INTERRUPTED, "%s, while a file was written", PP_BY_SIGNAL));
    assert_int_equal(pp_world_failure(world), PP_IO);
    assert_string_equal(pp_message(), "a file");
    pp_world_close(world);
}

int main(void)
{
    signal(SIGINT, SIG_DFL); /* a shell's background job is started to ignore it */
    signal(SIGHUP, SIG_DFL); /* so is what nohup starts */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_requests), cmocka_unit_test(test_ending),
                                       cmocka_unit_test(test_ending_that_cannot_begin),
                                       cmocka_unit_test(test_told_by_who_knows_more)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
