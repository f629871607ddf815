/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of a database for which there is no memory: a failure, no other answer. And look-ups take the lock.
 */
#include <stdlib.h>
#include <string.h>

#include "core/database/db_profile_text.h"
#include "tests/unit/db_case.h"

/* Texts until one cannot be had; and texts that were asked for while nobody had the lock. */
static int left = INT32_MAX, unlocked;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const unsigned char *__real_sqlite3_column_text(sqlite3_stmt *statement, int column);
const unsigned char *__wrap_sqlite3_column_text(sqlite3_stmt *statement, int column);
const unsigned char *__wrap_sqlite3_column_text(sqlite3_stmt *statement, int column)
{
    if (pthread_mutex_trylock(&lock) == 0) {
        unlocked++;
        pthread_mutex_unlock(&lock);
    }
    return left-- > 0 ? __real_sqlite3_column_text(statement, column) : NULL;
}

/* A profile with two tasks, and a link without a name. */
static struct pp_db *profile(void)
{
    char *argv[] = {"ppprof", NULL};
    struct pp_config config;
    const struct pp_run about = {.tool = "ppprof", .device = "cpu", .device_text = "a", .processes = 1, .cores = 2};
    struct pp_run_result result = pp_result_none;
    const struct pp_quantiles times = {.count = 3, .mean_ns = 10, .median_ns = 10, .p5_ns = 9, .p95_ns = 11};
    struct pp_db *db;
    int64_t run;
    must(pp_config_parse(PP_PPPROF, 1, argv, &config, NULL));
    must(pp_db_open(":memory:", PP_DB_WRITE, &db));
    must(pp_db_run_begin(db, &about, &config, NULL, &run));
    const struct pp_sample one = pp_sample_of("F 1", "gpipe never", 1, &times),
                           two = pp_sample_of("F 2", "gpipe never", 1, &times);
    must(pp_db_add_sample(db, run, PP_SAMPLE_TASK, &one));
    must(pp_db_add_sample(db, run, PP_SAMPLE_TASK, &two));
    must(pp_db_add_link(db, run, "", "ns_per_byte", 3));
    result.status = "ok";
    must(pp_db_run_end(db, run, &result));
    must(pp_db_flush(db));
    return db;
}

/* Everybody who reads has come to the end, or said that he does not. */
static void expect_no_memory(struct pp_db *db, pp_status status)
{
    assert_int_equal(status, PP_NOMEM);
    assert_non_null(strstr(pp_message(), "not enough memory"));
    for (sqlite3_stmt *s = sqlite3_next_stmt(db->sql, NULL); s; s = sqlite3_next_stmt(db->sql, s))
        if (sqlite3_stmt_busy(s)) fail_msg("still read from: %s", sqlite3_sql(s));
}

static void count(void *arg, const char *signature, int load, int64_t ns)
{
    (void)signature, (void)load, (void)ns;
    ++*(int *)arg;
}

static const struct pp_db_setting setting = {"cpu", 1, "gpipe never"};

static void test_no_memory(void **state)
{
    (void)state;
    struct pp_db *db = profile();
    char device[16], *text;
    size_t size;
    int tasks = 0;
    left = 0;
    expect_no_memory(db, pp_db_newest_device(db, device, sizeof device));
    left = 1;
    expect_no_memory(db, pp_db_each_task(db, &setting, "F", count, &tasks));
    assert_int_equal(tasks, 1);
    for (int texts = 0; texts < 10; texts++) {
        FILE *out = open_memstream(&text, &size);
        left = texts;
        expect_no_memory(db, pp_profile_text_write(db, out));
        fclose(out);
        free(text);
    }
    left = INT32_MAX;
    must(pp_db_newest_device(db, device, sizeof device));
    assert_string_equal(device, "cpu");
    must(pp_db_each_task(db, &setting, "F", count, &tasks));
    assert_int_equal(tasks, 1 + 2);
    must(pp_db_close(db));
}

static void test_locked(void **state)
{
    (void)state;
    struct pp_db *db = profile();
    char device[16];
    int tasks = 0;
    pp_db_share(db, &lock);
    left = INT32_MAX;
    unlocked = 0;
    must(pp_db_newest_device(db, device, sizeof device));
    assert_string_equal(device, "cpu");
    must(pp_db_each_task(db, &setting, "F", count, &tasks));
    assert_int_equal(unlocked, 0);
    assert_int_equal(pthread_mutex_trylock(&lock), 0);
    pthread_mutex_unlock(&lock);
    must(pp_db_close(db));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_memory), cmocka_unit_test(test_locked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
