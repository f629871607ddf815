/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of a file: who has it, who waits for it, and who is refused.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "exec/file_lock.h"

/* Starts a process that takes the lock, and is killed so many ms later. Returns when the lock is taken. */
static pid_t hold(int ms)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct pp_file_lock lock;
        const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
        if (pp_file_lock_take("file", &lock) != PP_OK || write(ready[1], "", 1) != 1) _exit(1);
        nanosleep(&time, NULL);
        raise(SIGKILL);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void a_lock_is_taken_and_removed(void **state)
{
    (void)state;
    struct pp_file_lock lock;
    assert_int_equal(pp_file_lock_take("file", &lock), PP_OK);
    assert_int_equal(access("file.lock", F_OK), 0);
    pp_file_lock_release(&lock);
    assert_int_not_equal(access("file.lock", F_OK), 0);
    pp_file_lock_release(&lock); /* nothing is held any more */
}

static void a_process_that_is_about_to_go_is_waited_for(void **state)
{
    (void)state;
    struct pp_file_lock lock;
    const pid_t child = hold(300);
    assert_int_equal(pp_file_lock_take("file", &lock), PP_OK);
    assert_int_equal(waitpid(child, NULL, 0), child);
    pp_file_lock_release(&lock);
    assert_int_not_equal(access("file.lock", F_OK), 0);
}

static void a_process_that_stays_is_not(void **state)
{
    (void)state;
    struct pp_file_lock lock;
    const pid_t child = hold(600000);
    const int64_t begin = pp_now_ns();
    assert_int_equal(pp_file_lock_take("file", &lock), PP_IO);
    assert_true(pp_now_ns() - begin >= PP_LOCK_PATIENCE_NS);
    assert_non_null(strstr(pp_message(), "another run uses file;"));
    pp_file_lock_release(&lock); /* nothing is held */
    assert_int_equal(access("file.lock", F_OK), 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Somebody has removed the file of a run that goes on, and another run has begun. */
static void a_lock_of_another_is_not_removed(void **state)
{
    (void)state;
    struct pp_file_lock first, second;
    assert_int_equal(pp_file_lock_take("file", &first), PP_OK);
    assert_int_equal(unlink("file.lock"), 0);
    assert_int_equal(pp_file_lock_take("file", &second), PP_OK);
    pp_file_lock_release(&first);
    assert_int_equal(access("file.lock", F_OK), 0);
    pp_file_lock_release(&second);
    assert_int_not_equal(access("file.lock", F_OK), 0);
}

static void a_pipe_is_no_lock(void **state)
{
    (void)state;
    struct pp_file_lock lock;
    assert_int_equal(mkfifo("pipe.lock", 0666), 0);
    assert_int_equal(pp_file_lock_take("pipe", &lock), PP_OK);
    assert_null(lock.path);
    assert_int_equal(unlink("pipe.lock"), 0);
}

static void without_a_place_for_it_nothing_is_held(void **state)
{
    (void)state;
    struct pp_file_lock lock;
    assert_int_equal(pp_file_lock_take("no/such/folder/file", &lock), PP_OK);
    assert_null(lock.path);
    pp_file_lock_release(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_is_taken_and_removed), cmocka_unit_test(a_process_that_is_about_to_go_is_waited_for),
        cmocka_unit_test(a_process_that_stays_is_not), cmocka_unit_test(a_lock_of_another_is_not_removed),
        cmocka_unit_test(a_pipe_is_no_lock),           cmocka_unit_test(without_a_place_for_it_nothing_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
