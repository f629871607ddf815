/* SPDX-License-Identifier: Apache-2.0
 *
 * One request to stop that comes twice is one; a later one ends the process.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/signals.h"

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
    static const int numbers[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n <= 3; n++) assert_int_equal(end_of(numbers[i], n, 0), 0);
        const int status = end_of(numbers[i], 1, 700);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i]);
    }
}

int main(void)
{
    signal(SIGINT, SIG_DFL); /* a shell's background job is started to ignore it */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_requests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
