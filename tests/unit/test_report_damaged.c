/* SPDX-License-Identifier: Apache-2.0
 *
 * Databases with values that no program writes: SQLite keeps any value in any column, and a file may be damaged without
 * SQLite seeing it. Each is refused with a message, or makes no difference; found by tests/fuzz/.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "analysis/chrome.h"
#include "analysis/compare.h"
#include "analysis/plot.h"
#include "tests/unit/synthetic_db.h"

#define PATH "damaged.db"

static const struct synthetic_case sample = {"interleaved", 2, 2, 4, 2, PP_CHECKPOINT_NEVER, 0.05};

/* All that ppreport does but for starting gnuplot. */
static pp_status report(void)
{
    struct pp_db *db;
    struct pp_table table = {0};
    FILE *out = fopen("report.txt", "w");
    mkdir("plots", 0777);
    must(pp_db_open(PATH, PP_DB_READ, &db));
    pp_status status = pp_compare_read(db, 0, &table);
    for (int format = PP_FORMAT_TABLE; format <= PP_FORMAT_JSON && status == PP_OK; format++)
        status = pp_compare_print(db, &table, format, out);
    int64_t row = status == PP_OK ? pp_compare_main(&table) : 0;
    struct pp_plots plots = {.db = db, .table = &table, .folder = "plots"};
    for (int kind = 0; kind < PP_PLOT_KINDS && status == PP_OK; kind++) status = pp_plot_draw(&plots, kind, row);
    if (status == PP_OK) status = pp_chrome_write(db, &table, row, "trace.json");
    pp_table_free(&table);
    fclose(out);
    must(pp_db_close(db));
    return status;
}

static void script(const char *text)
{
    sqlite3 *sql;
    assert_int_equal(sqlite3_open(PATH, &sql), SQLITE_OK);
    if (sqlite3_exec(sql, text, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(sql));
    sqlite3_close(sql);
}

static void make_file(void)
{
    struct pp_db *db;
    unlink(PATH);
    must(pp_db_open(PATH, PP_DB_WRITE, &db));
    synthetic_run(db, &sample, true, NULL);
    synthetic_run(db, &sample, false, NULL);
    must(pp_db_close(db));
}

static void test_impossible_values_are_refused(void **state)
{
    static const struct {
        const char *change, *message;
    } cases[] = {
        {"UPDATE run SET stages = 0", "0 stages"},
        {"UPDATE run SET stages = -7", "-7 stages"},
        {"UPDATE run SET stages = NULL", "-1 stages"},
        {"UPDATE run SET stages = 1 << 40", "1099511627776 stages"},
        {"UPDATE run SET virtual_stages = (1 << 32) + 1", "4294967297 virtual"},
        {"UPDATE run SET replicas = 0", "0 replicas"},
        {"UPDATE run SET virtual_stages = 'many'", "0 virtual"},
        {"UPDATE run SET stages = 65536, replicas = 65536", "numbers of stages or workers"},
        {"UPDATE run SET tensor = 65536, replicas = 65536", "numbers of stages or workers"},
        {"UPDATE run SET tensor = 0", "0 tensor"},
        {"UPDATE run SET expert_parallel = 0", "0 replicas"},
        {"UPDATE run SET expert_parallel = 2", "0 tensor"},
        {"UPDATE run SET expert_parallel = 2, tensor = 3", "numbers of stages or workers"},
        {"UPDATE run SET context_parallel = 0", "-1 tensor"},
        {"UPDATE run SET context_parallel = -1", "-1 tensor"},
        {"UPDATE run SET context_parallel = 'two'", "-1 tensor"},
        {"UPDATE run SET context_parallel = 2", "0 tensor"},
        {"UPDATE run SET context_parallel = 2, expert_parallel = 2, tensor = 2", "0 tensor"},
        {"UPDATE run SET context_parallel = 2, tensor = 3", "numbers of stages or workers"},
        {"UPDATE run SET context_parallel = 3, expert_parallel = 2, tensor = 8", "numbers of stages or workers"},
        {"UPDATE run SET context_parallel = 1 << 32, tensor = 1 << 32", "4294967296 context_parallel"},
        {"UPDATE run SET stages = 60000", "so few events"},
        {"UPDATE run SET stages = 1", "an event that no ppkit writes"},
        {"UPDATE event SET worker = 1000000000 WHERE seq = 5", "an event that no ppkit writes"},
        {"UPDATE event SET worker = 1 << 32 WHERE seq = 5", "an event that no ppkit writes"},
        {"UPDATE event SET worker = -1 WHERE seq = 5", "an event that no ppkit writes"},
        {"UPDATE event SET start_ns = -9223372036854775807 WHERE seq = 5", "an event that no ppkit writes"},
        {"UPDATE event SET step = -3 WHERE seq = 5", "an event that no ppkit writes"},
        {"UPDATE event SET step = 2147483647 WHERE seq = 5", "only a part of its events"},
        {"UPDATE task SET microbatch = 10000000 WHERE id = 5", "only a part of its events"},
        {"UPDATE task SET microbatch = 2147483647 WHERE id = 5", "an event that no ppkit writes"},
        {"UPDATE task SET stage = -5 WHERE id = 3", "an event that no ppkit writes"},
        {"UPDATE task SET stage = 4 WHERE id = 3", "an event that no ppkit writes"},
        {"UPDATE task SET taken_bytes = 9223372036854775807", "impossible numbers of bytes"},
        {"UPDATE task SET kind = 'G' WHERE id = 3", "kind \"G\""},
        {"UPDATE task SET kind = x'46' WHERE id = 3", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_file();
        script(cases[i].change);
        pp_status status = report();
        if (!cases[i].message) continue;
        if (status != PP_INPUT || !strstr(pp_message(), cases[i].message))
            fail_msg("%s: status %d, message: %s", cases[i].change, (int)status, pp_message());
    }
}

/* Odd, but it can be drawn. */
static void test_odd_values_are_drawn(void **state)
{
    static const char *const changes[] = {
        "UPDATE task SET stage = -1, microbatch = -1",
        "UPDATE event SET end_ns = start_ns - 1000",
        "UPDATE task SET count = 0",
        "UPDATE task SET kind = 'STEP'",
        "UPDATE task SET kind = 'XFER_F'",
        "UPDATE busy SET worker = worker - 3",
        "DELETE FROM busy",
        "DELETE FROM memory",
        "DELETE FROM event WHERE task < 3",
        "UPDATE run SET ms_per_batch = 9e999",
        "UPDATE run SET preset = x'00ff', transport = NULL",
    };
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        make_file();
        script(changes[i]);
        if (report() != PP_OK) fail_msg("%s: %s", changes[i], pp_message());
    }
}

/* JSON knows no infinity. */
static void test_infinities_are_null(void **state)
{
    char text[1 << 16];
    (void)state;
    make_file();
    script("UPDATE run SET ms_per_batch = 9e999");
    must(report());
    FILE *in = fopen("report.txt", "r");
    assert_non_null(in);
    text[fread(text, 1, sizeof text - 1, in)] = '\0';
    fclose(in);
    const char *json = strstr(text, "\n[");
    assert_non_null(json);
    assert_null(strstr(json, "inf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_impossible_values_are_refused),
        cmocka_unit_test(test_odd_values_are_drawn),
        cmocka_unit_test(test_infinities_are_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
