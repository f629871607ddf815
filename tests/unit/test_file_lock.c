/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of a file: who has it, who waits for it, and who is refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/file_lock.h"

static int flock_error, flock_failures; /* the next calls fail so */

extern int __real_flock(int fd, int operation);
extern int __wrap_flock(int fd, int operation);
int __wrap_flock(int fd, int operation)
{
    if (flock_failures == 0) return __real_flock(fd, operation);
    flock_failures--;
    errno = flock_error;
    return -1;
}

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
        if (pp_file_lock_take("--save", "file", &lock) != PP_OK || write(ready[1], "", 1) != 1) _exit(1);
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
    assert_int_equal(pp_file_lock_take("--save", "file", &lock), PP_OK);
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
    assert_int_equal(pp_file_lock_take("--save", "file", &lock), PP_OK);
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
    assert_int_equal(pp_file_lock_take("--save", "file", &lock), PP_IO);
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
    assert_int_equal(pp_file_lock_take("--save", "file", &first), PP_OK);
    assert_int_equal(unlink("file.lock"), 0);
    assert_int_equal(pp_file_lock_take("--save", "file", &second), PP_OK);
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
    assert_int_equal(pp_file_lock_take("--save", "pipe", &lock), PP_OK);
    assert_null(lock.path);
    assert_int_equal(unlink("pipe.lock"), 0);
}

static void without_a_place_for_it_nothing_is_held(void **state)
{
    (void)state;
    struct pp_file_lock lock;
    assert_int_equal(pp_file_lock_take("--save", "no/such/folder/file", &lock), PP_OK);
    assert_null(lock.path);
    pp_file_lock_release(&lock);
}

/* Takes and releases the lock. What is told on standard error goes to `told`. */
static bool is_held(const char *path, char told[256])
{
    struct pp_file_lock lock;
    FILE *file = tmpfile();
    const int before = dup(STDERR_FILENO);
    assert_true(file && before >= 0);
    assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
    const pp_status status = pp_file_lock_take("--save", path, &lock);
    const bool held = lock.path != NULL;
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    rewind(file);
    told[fread(told, 1, 255, file)] = '\0';
    fclose(file);
    close(before);
    assert_int_equal(status, PP_OK);
    pp_file_lock_release(&lock);
    return held;
}

static void what_a_file_system_has_not_is_not_told(void **state)
{
    (void)state;
    static const int usual[] = {ENOLCK, ENOTSUP, EOPNOTSUPP, ENOSYS, EROFS};
    char told[256];
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        flock_error = usual[i], flock_failures = 1;
        assert_false(is_held("file", told));
        assert_string_equal(told, "");
    }
    assert_false(is_held("no/such/folder/file", told));
    assert_string_equal(told, "");
}

static void a_call_that_a_signal_interrupts_is_repeated(void **state)
{
    (void)state;
    char told[256];
    flock_error = EINTR, flock_failures = 3;
    assert_true(is_held("file", told));
    assert_int_equal(flock_failures, 0);
    assert_string_equal(told, "");
}

static void other_failures_are_told(void **state)
{
    (void)state;
    char told[256];
    struct rlimit before, none;
    flock_error = EIO, flock_failures = 1;
    assert_false(is_held("file", told));
    assert_string_equal(told, "test: warning: --save: file.lock cannot be locked: Input/output error; let no other run "
                              "use file\n");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const int next = dup(STDERR_FILENO); /* is_held() takes two numbers, and the lock finds none left */
    close(next);
    none = (struct rlimit){(rlim_t)next + 2, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_false(is_held("file", told));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_non_null(strstr(told, "file.lock cannot be locked: Too many open files"));
}

/* As nobody, for root opens what it likes: a folder that cannot be written is usual, a lock of somebody else is not. */
static int of_others(void)
{
    char told[256];
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 1;
    if (is_held("closed/file", told) || *told) return 2;
    if (is_held("closed/other", told)) return 3;
    return strstr(told, "closed/other.lock cannot be locked: Permission denied") ? 0 : 4;
}

static void a_lock_of_another_user_is_told_of(void **state)
{
    (void)state;
    char folder[] = "/tmp/ppkit-lock-XXXXXX", here[4096];
    assert_non_null(mkdtemp(folder));
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(mkdir("closed", 0755), 0);
    assert_int_equal(close(open("closed/other.lock", O_WRONLY | O_CREAT, 0444)), 0);
    assert_int_equal(chmod("closed", 0555) + chmod(".", 0777), 0);
    const pid_t pid = fork();
    if (pid == 0) _exit(of_others());
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    chmod("closed", 0755);
    unlink("closed/other.lock"), rmdir("closed");
    assert_int_equal(chdir(here), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(status, 0);
}

int main(void)
{
    pp_log_init("test", false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_is_taken_and_removed),
        cmocka_unit_test(a_process_that_is_about_to_go_is_waited_for),
        cmocka_unit_test(a_process_that_stays_is_not),
        cmocka_unit_test(a_lock_of_another_is_not_removed),
        cmocka_unit_test(a_pipe_is_no_lock),
        cmocka_unit_test(without_a_place_for_it_nothing_is_held),
        cmocka_unit_test(what_a_file_system_has_not_is_not_told),
        cmocka_unit_test(a_call_that_a_signal_interrupts_is_repeated),
        cmocka_unit_test(other_failures_are_told),
        cmocka_unit_test(a_lock_of_another_user_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
