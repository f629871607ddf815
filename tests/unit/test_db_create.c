/* SPDX-License-Identifier: Apache-2.0
 *
 * How a database begins: several processes make one file at once, one that makes it is killed, and it cannot be made.
 */
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/unit/db_case.h"

enum { PROCESSES = 12, ROUNDS = 12 };

/* In a process of its own: nothing of the other connections of this one is shared. */
static void open_and_leave(enum pp_db_mode mode)
{
    struct pp_db *db;
    pp_status status = pp_db_open(PATH, mode, &db);
    /* who reads may find that nobody wrote so far, and nothing worse */
    const bool early = mode == PP_DB_READ && (strstr(pp_message(), "is empty") || strstr(pp_message(), "No such file"));
    if (status != PP_OK && !early) {
        fprintf(stderr, "%s\n", pp_message());
        _exit(1);
    }
    _exit(pp_db_close(db) != PP_OK);
}

/* Every fourth reads. They begin at once: when the last of them has got to the barrier. */
static void test_many_at_once(void **state)
{
    int failed = 0;
    int *there = mmap(NULL, sizeof *there, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(there != MAP_FAILED);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pids[PROCESSES];
        empty_folder(state);
        *there = 0;
        for (int i = 0; i < PROCESSES; i++) {
            pids[i] = fork();
            if (pids[i] > 0) continue;
            __atomic_add_fetch(there, 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(there, __ATOMIC_SEQ_CST) < PROCESSES) usleep(100);
            open_and_leave(i % 4 == 3 ? PP_DB_READ : PP_DB_WRITE);
        }
        for (int i = 0; i < PROCESSES; i++) {
            int status;
            waitpid(pids[i], &status, 0);
            failed += status != 0;
        }
        must(pp_db_close(open_db(PP_DB_READ)));
    }
    munmap(there, sizeof *there);
    assert_int_equal(failed, 0);
}

static int begun, other_comes_before; /* statements of ours; of which another makes the file */

/* Not where we hold a lock: it would wait for us. */
static int on_statement(unsigned event, void *connection, void *statement, void *text)
{
    (void)event, (void)statement, (void)text;
    if (sqlite3_txn_state(connection, NULL) != SQLITE_TXN_NONE || ++begun != other_comes_before) return 0;
    const pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test_db_create", "make", (char *)NULL);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status != 0) _exit(1);
    return 0;
}

static int watch(sqlite3 *connection, char **message, const void *functions)
{
    (void)message, (void)functions;
    return sqlite3_trace_v2(connection, SQLITE_TRACE_STMT, on_statement, connection);
}

/* Another process makes the file before the first statement of ours, before the second, and so on. */
static void test_made_between(void **state)
{
    sqlite3_auto_extension((void (*)(void))watch);
    do {
        empty_folder(state);
        begun = 0;
        other_comes_before++;
        must(pp_db_close(open_db(PP_DB_WRITE)));
    } while (begun >= other_comes_before);
    sqlite3_reset_auto_extension();
    assert_true(other_comes_before > 3);
}

/* Killed at any moment, it leaves a file that others write to: nothing, an empty one, or all tables. */
static void test_killed_maker(void **state)
{
    for (int i = 0; i < 100; i++) {
        empty_folder(state);
        const pid_t pid = fork();
        if (pid == 0) open_and_leave(PP_DB_WRITE);
        nanosleep(&(struct timespec){.tv_nsec = 60000 * i}, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        must(pp_db_close(open_db(PP_DB_WRITE)));
        struct pp_db *db = open_db(PP_DB_READ);
        near(number(db, "SELECT count(*) FROM run"), 0);
        must(pp_db_close(db));
    }
}

static const struct {
    const char *path, *part;
} refusals[] = {
    {"closed/new.db", "Permission denied"},
    {"closed/old.db", "or its folder may not be written"},
    {"missing/new.db", "No such file or directory"},
    {"closed", "Is a directory"},
    {"locked.db", "or its folder may not be written"},
    {"secret.db", "Permission denied"},
    {"locked.db/new.db", "Not a directory"},
};

/* Root may read and write everywhere. */
static void become_nobody(const char *folder)
{
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(1);
    if (chdir(folder) != 0) _exit(1);
}

static void refused_to_nobody(const char *folder)
{
    become_nobody(folder);
    int wrong = 0;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct pp_db *db;
        pp_status status = pp_db_open(refusals[i].path, PP_DB_WRITE, &db);
        if (status == PP_IO && strstr(pp_message(), refusals[i].part) && strstr(pp_message(), refusals[i].path))
            continue;
        fprintf(stderr, "status %d, expected \"%s\": %s\n", status, refusals[i].part, pp_message());
        wrong++;
    }
    _exit(wrong);
}

static void make(const char *path, mode_t mode)
{
    struct pp_db *db;
    must(pp_db_open(path, PP_DB_WRITE, &db));
    must(pp_db_close(db));
    assert_int_equal(chmod(path, mode), 0);
}

/* Goes to a new folder that others can go through, whatever this one lies in. folder: a template of mkdtemp(). */
static void enter(char *folder, char here[4096])
{
    assert_non_null(mkdtemp(folder));
    assert_non_null(getcwd(here, 4096));
    assert_int_equal(chdir(folder), 0);
}

static void test_refusals(void **state)
{
    (void)state;
    char folder[] = "/tmp/ppkit-db-XXXXXX", here[4096];
    enter(folder, here);
    assert_int_equal(mkdir("closed", 0755), 0);
    make("closed/old.db", 0666), make("locked.db", 0444), make("secret.db", 0);
    assert_int_equal(chmod("closed", 0555) + chmod(".", 0777), 0);
    const pid_t pid = fork();
    if (pid == 0) refused_to_nobody(folder);
    int status;
    waitpid(pid, &status, 0);
    chmod("closed", 0755);
    unlink("closed/old.db"), unlink("locked.db"), unlink("secret.db"), rmdir("closed");
    assert_int_equal(chdir(here), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(status, 0);
}

/* The name of a file is a path in any encoding, and the same path as a part of a URI. */
static const char *const names[] = {"\xc3\xa9.db", "\xe9\xff.db", "100%41?a=b#c&d.db", ".//x y+z.db"};
enum { NAMES = sizeof names / sizeof *names };

static void read_by_nobody(const char *folder)
{
    become_nobody(folder);
    int wrong = 0;
    for (int i = 0; i < 2 * NAMES; i++) {
        char path[PATH_MAX];
        struct pp_db *db;
        snprintf(path, sizeof path, "/%s/", folder); /* begins with two slashes, as the name of a host does in a URI */
        snprintf(path + (i < NAMES ? 0 : strlen(path)), NAME_MAX, "%s", names[i % NAMES]);
        if (pp_db_open(path, PP_DB_READ, &db) == PP_OK && pp_db_close(db) == PP_OK) continue;
        fprintf(stderr, "%s\n", pp_message());
        wrong++;
    }
    _exit(wrong);
}

static void test_read_only(void **state)
{
    (void)state;
    char folder[] = "/tmp/ppkit-db-XXXXXX", here[4096];
    enter(folder, here);
    for (int i = 0; i < NAMES; i++) make(names[i], 0444);
    assert_int_equal(chmod(".", 0555), 0);
    const pid_t pid = fork();
    if (pid == 0) read_by_nobody(folder);
    int status;
    waitpid(pid, &status, 0);
    chmod(".", 0755);
    for (int i = 0; i < NAMES; i++) unlink(names[i]);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) open_and_leave(PP_DB_WRITE);
#define TEST(name) cmocka_unit_test_setup(name, empty_folder)
    const struct CMUnitTest tests[] = {TEST(test_many_at_once), TEST(test_made_between), TEST(test_killed_maker),
                                       TEST(test_refusals), TEST(test_read_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
