/* SPDX-License-Identifier: Apache-2.0
 *
 * Accidents of the database: a file that is something else, damage, a killed writer, two writers, a full disk. None
 * harms what was committed, and each gives a message that names the file.
 */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/base/clock.h"
#include "tests/unit/db_case.h"

static void refused(enum pp_db_mode mode, pp_status expected, const char *part)
{
    struct pp_db *db;
    assert_int_equal(pp_db_open(PATH, mode, &db), expected);
    assert_null(db);
    if (!strstr(pp_message(), PATH) || !strstr(pp_message(), part)) fail_msg("message: %s", pp_message());
}

static void test_refused_files(void **state)
{
    refused(PP_DB_READ, PP_IO, "No such file");
    FILE *file = fopen(PATH, "w");
    fclose(file);
    refused(PP_DB_READ, PP_INPUT, "is empty");
    file = fopen(PATH, "w");
    for (int i = 0; i < 1000; i++) fprintf(file, "loss,ms\n%d,%d\n", i, i);
    fclose(file);
    refused(PP_DB_READ, PP_INPUT, "not an SQLite file");
    refused(PP_DB_WRITE, PP_INPUT, "not an SQLite file");
    empty_folder(state);
    script("CREATE TABLE songs(name)");
    refused(PP_DB_WRITE, PP_INPUT, "not made by ppkit");
    refused(PP_DB_READ, PP_INPUT, "not made by ppkit");
    empty_folder(state);
    must(pp_db_close(open_db(PP_DB_WRITE)));
    script("PRAGMA user_version = 99");
    refused(PP_DB_WRITE, PP_INPUT, "newer ppkit");
    refused(PP_DB_READ, PP_INPUT, "newer ppkit");
    script("PRAGMA user_version = -2147483648");
    refused(PP_DB_WRITE, PP_INPUT, "version -2147483648");
    refused(PP_DB_READ, PP_INPUT, "version -2147483648");
    rename(PATH, "kept.db");
    struct pp_db *db;
    assert_int_equal(pp_db_open("no/such/folder/x.db", PP_DB_WRITE, &db), PP_IO);
    assert_non_null(strstr(pp_message(), "no/such/folder/x.db"));
}

extern const char pp_schema_sql[]; /* core/database/schema.sql */

/* A file of schema version 1 is brought up to date by whoever writes to it, and what it holds is still found. */
static void test_older(void **state)
{
    (void)state;
    int64_t ns;
    bool found;
    script(pp_schema_sql);
    script("PRAGMA application_id = 0x70706b74; PRAGMA user_version = 1;"
           "INSERT INTO run(id, tool, version, host, started, device, threads, workload)"
           " VALUES(1, 'ppprof', '0.1.0', 'here', 'then', 'cpu', 1, 'w');"
           "INSERT INTO run(id, tool, version, host, started, workload, stages, replicas)"
           " VALUES(2, 'ppexec', '0.1.0', 'here', 'then', 'w', 2, 2);"
           "INSERT INTO busy VALUES(2, 0, 0, 0, 10, 10, 0), (2, 0, 1, 0, 10, 5, 0), (2, 0, 2, 0, 20, 20, 0),"
           " (2, 0, 3, 0, 20, 5, 0);"
           "INSERT INTO task_time VALUES(1, 'F', '', 1, 0, 9, 500, 490, 510, 480, NULL, NULL);"
           "INSERT INTO plan VALUES(1, '0123456789abcdef', 'w', 1, 1, 1, 1, 2);"
           "INSERT INTO task VALUES(1, 0, 'F', 0, 0, 1, 0, 1, 0, 0, 8, 0), (1, 1, 'B', 0, 0, 1, 0, 1, 0, 0, 0, 8);"
           "CREATE VIEW v_compare AS SELECT id AS process_bytes FROM run");
    refused(PP_DB_READ, PP_INPUT, "schema version 1");
    struct pp_db *db = open_db(PP_DB_WRITE);
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, ""}, "F", 1, &ns, &found));
    assert_true(found && ns == 500);
    near(number(db, "SELECT count(*) FROM pragma_table_info('v_compare') WHERE name = 'measured_process_bytes'"), 1);
    near(number(db, "SELECT tensor FROM run WHERE id = 2"), 1);
    near(number(db, "SELECT edges IS NULL FROM plan"), 1);
    near(number(db, "SELECT sum(id) FROM task WHERE dep0 IS NULL AND NOT dep_range"), 1);
    near(number(db, "SELECT count(*) FROM v_task_edge"), 0);
    near(number(db, "SELECT sum(10 * replica + rank) FROM v_bubble"), 22);
    near(number(db, "SELECT bubble FROM v_bubble WHERE worker = 3"), 0.75);
    struct pp_sample later = {.name = "F", .load = 2, .median_ns = 600, .mean_ns = 620};
    must(pp_db_add_sample(db, 1, PP_SAMPLE_TASK, &later));
    must(pp_db_close(db));
    db = open_db(PP_DB_READ);
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, ""}, "F", 2, &ns, &found));
    assert_true(found && ns == 620);
    must(pp_db_close(db));
}

/* A traced step that was interrupted among others does not count. */
static void test_interrupted_step(void **state)
{
    (void)state;
    struct pp_db *db = open_db(PP_DB_WRITE);
    script("INSERT INTO run(id, tool, version, host, started, workload, stages, replicas, tensor)"
           " VALUES(1, 'ppexec', '0.1.0', 'here', 'then', 'w', 1, 1, 1);"
           "INSERT INTO busy VALUES(1, 0, 0, 0, 1000000, 500000, 100000), (1, 1, 0, 0, 99000000, 700000, 0),"
           " (1, 2, 0, 0, 1000000, 600000, 200000), (1, 3, 0, 0, 2000000, 600000, 0);");
    near(number(db, "SELECT steps FROM v_bubble"), 4);
    near(number(db, "SELECT busy_ms FROM v_bubble"), 0.6);
    near(number(db, "SELECT makespan_ms FROM v_bubble"), 1.5);
    near(number(db, "SELECT bubble FROM v_bubble"), (0.5 + 0.7) / 2);
    near(number(db, "SELECT useful_bubble FROM v_bubble"), (0.6 + 0.7) / 2);
    must(pp_db_close(db));
}

/* Pages that were overwritten are noticed, not believed. */
static void test_damaged(void **state)
{
    (void)state;
    struct pp_db *db = open_db(PP_DB_WRITE);
    for (int i = 0; i < 3; i++) synthetic_run(db, &two_stages, true, NULL);
    must(pp_db_close(db));
    FILE *file = fopen(PATH, "r+");
    fseek(file, 4096, SEEK_SET);
    for (int i = 0; i < 60000; i++) fputc(i * 7 & 0xff, file);
    fclose(file);
    if (pp_db_open(PATH, PP_DB_READ, &db) == PP_OK) { /* the damage is met when it is read */
        int64_t ns;
        bool found;
        assert_int_equal(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, ""}, "F", 1, &ns, &found), PP_INPUT);
        (void)pp_db_close(db);
    }
    if (!strstr(pp_message(), "damaged")) fail_msg("message: %s", pp_message());
}

static pid_t child(void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    return pid;
}

static void write_for_ever(void)
{
    struct synthetic s;
    synthetic_open(&s, &two_stages);
    struct pp_db *db = open_db(PP_DB_WRITE);
    int64_t run = begin_run(db, &s, "ppexec");
    for (int step = 0;; step++)
        must(pp_db_add_step(db, run, &(struct pp_db_step){.step = step, .ns = 1000, .tokens = 700, .loss = 1}));
}

/* What a reader sees at this moment. */
static double steps_now(void)
{
    struct pp_db *db = open_db(PP_DB_READ);
    const double steps = number(db, "SELECT count(*) FROM step");
    must(pp_db_close(db));
    return steps;
}

static void test_killed_writer(void **state)
{
    (void)state;
    must(pp_db_close(open_db(PP_DB_WRITE)));
    pid_t pid = child(write_for_ever);
    while (steps_now() < 1000) usleep(10000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    struct pp_db *db = open_db(PP_DB_READ);
    double steps = number(db, "SELECT count(*) FROM step");
    assert_true(steps >= 1000);
    near(number(db, "SELECT max(step) + 1 FROM step"), steps); /* none is missing */
    near(number(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
    must(pp_db_close(db));
    must(pp_db_close(open_db(PP_DB_WRITE)));
}

enum { RUNS = 40 };

static void write_runs(void)
{
    struct pp_db *db = open_db(PP_DB_WRITE);
    for (int i = 0; i < RUNS; i++) synthetic_run(db, &two_stages, i % 2, NULL);
    must(pp_db_close(db));
}

/* Both also race to create the file. */
static void test_two_writers(void **state)
{
    (void)state;
    pid_t a = child(write_runs), b = child(write_runs);
    int status_a, status_b;
    waitpid(a, &status_a, 0);
    waitpid(b, &status_b, 0);
    assert_int_equal(status_a, 0);
    assert_int_equal(status_b, 0);
    struct pp_db *db = open_db(PP_DB_READ);
    near(number(db, "SELECT count(*) FROM run WHERE status = 'ok'"), 2 * RUNS);
    near(number(db, "SELECT count(*) FROM plan"), 1);
    near(number(
             db,
             "SELECT count(DISTINCT n) FROM (SELECT count(*) AS n FROM event JOIN run ON id = run GROUP BY run, tool)"),
         2);
    must(pp_db_close(db));
}

static bool at_an_end(void) { return true; }
static bool not_at_an_end(void) { return false; }

static int64_t begun_ns;
static bool soon_at_an_end(void) { return pp_now_ns() - begun_ns > 500000000; }

/* Another connection writes all the time: whoever is to end waits for a moment only. */
static void test_in_a_hurry(void **state)
{
    (void)state;
    static bool (*const hurries[])(void) = {at_an_end, soon_at_an_end};
    struct pp_db *db = open_db(PP_DB_WRITE);
    sqlite3 *other;
    assert_int_equal(sqlite3_open(PATH, &other), SQLITE_OK);
    for (size_t i = 0; i < sizeof hurries / sizeof *hurries; i++) {
        assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        begun_ns = pp_now_ns();
        pp_db_hurry(db, hurries[i]);
        assert_int_equal(pp_db_add_link(db, 1, "run", "taken", 1), PP_IO);
        assert_non_null(strstr(pp_message(), PATH));
        assert_in_range(pp_now_ns() - begun_ns, 250000000, 20000000000);
        assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    }
    sqlite3_close(other);
    pp_db_hurry(db, not_at_an_end);
    must(pp_db_add_link(db, 1, "run", "taken", 1));
    must(pp_db_close(db));
}

/* Writes until the file may not grow any more; the message must name the file and the reason. */
static void fill_disk(void)
{
    struct pp_db *db = open_db(PP_DB_WRITE);
    synthetic_run(db, &two_stages, true, NULL);
    must(pp_db_flush(db));
    struct rlimit limit = {600000, 600000};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);
    pp_status status = PP_OK;
    for (int i = 0; i < 1000000 && status == PP_OK; i++)
        status = pp_db_add_step(db, 1, &(struct pp_db_step){.step = i, .ns = 1, .tokens = 1, .loss = 1});
    if (status != PP_IO || !strstr(pp_message(), PATH) || !strstr(pp_message(), "limits on file size")) _exit(3);
    (void)pp_db_close(db);
}

static void test_full_disk(void **state)
{
    (void)state;
    int status;
    pid_t pid = child(fill_disk);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    struct pp_db *db = open_db(PP_DB_READ);
    near(number(db, "SELECT count(*) FROM run WHERE status = 'ok'"), 1);
    near(number(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
    must(pp_db_close(db));
}

/* A database that cannot be closed without a failure: what is in it does not fit together. */
static struct pp_db *broken_db(void)
{
    struct pp_db *db = open_db(PP_DB_WRITE);
    static const char text[] = "PRAGMA foreign_keys = ON; CREATE TABLE IF NOT EXISTS a(x PRIMARY KEY);"
                               "CREATE TABLE IF NOT EXISTS b(x REFERENCES a DEFERRABLE INITIALLY DEFERRED);"
                               "BEGIN; INSERT INTO b VALUES(1)";
    assert_int_equal(sqlite3_exec(db->sql, text, NULL, NULL, NULL), SQLITE_OK);
    return db;
}

/* A failure that comes first is told, with its own message. */
static void test_close_after(void **state)
{
    (void)state;
    assert_int_equal(pp_db_close_after(broken_db(), pp_fail(PP_USAGE, "the first failure")), PP_USAGE);
    assert_string_equal(pp_message(), "the first failure");
    assert_int_equal(pp_db_close_after(broken_db(), PP_OK), PP_INTERNAL);
    assert_non_null(strstr(pp_message(), PATH));
    assert_int_equal(pp_db_close_after(open_db(PP_DB_WRITE), pp_fail(PP_USAGE, "the only failure")), PP_USAGE);
    assert_string_equal(pp_message(), "the only failure");
    assert_int_equal(pp_db_close_after(open_db(PP_DB_WRITE), PP_OK), PP_OK);
    assert_int_equal(pp_db_close_after(NULL, PP_OK), PP_OK);
    assert_int_equal(pp_db_end(NULL), PP_OK); /* after a signal, for instance, that comes when it has been closed */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, empty_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_refused_files), TEST(test_older),       TEST(test_damaged),
        TEST(test_killed_writer), TEST(test_two_writers), TEST(test_in_a_hurry),
        TEST(test_full_disk),     TEST(test_close_after), TEST(test_interrupted_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
