/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the database share: a file of their own, queries for one number.
 */
#ifndef PP_TESTS_DB_CASE_H
#define PP_TESTS_DB_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/database/db_query.h"
#include "tests/unit/synthetic_db.h"

#define PATH "test.db"

static inline int empty_folder(void **state)
{
    (void)state;
    unlink(PATH), unlink(PATH "-wal"), unlink(PATH "-shm");
    return 0;
}

static inline struct pp_db *open_db(enum pp_db_mode mode)
{
    struct pp_db *db;
    must(pp_db_open(PATH, mode, &db));
    return db;
}

/* The first value of a query; NAN for NULL or no row. */
static inline double number(struct pp_db *db, const char *text)
{
    sqlite3_stmt *statement;
    double value = NAN;
    if (sqlite3_prepare_v2(db->sql, text, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(db->sql));
    if (sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_type(statement, 0) != SQLITE_NULL)
        value = sqlite3_column_double(statement, 0);
    sqlite3_finalize(statement);
    return value;
}

static inline void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected) + 1e-12)) fail_msg("%.12g is not %.12g", value, expected);
}

static inline void script(const char *text)
{
    sqlite3 *sql;
    assert_int_equal(sqlite3_open(PATH, &sql), SQLITE_OK);
    if (sqlite3_exec(sql, text, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(sql));
    sqlite3_close(sql);
}

static inline int64_t begin_run(struct pp_db *db, struct synthetic *s, const char *tool)
{
    int64_t run;
    struct pp_run info = {tool, "cpu", "synthetic", "inproc", NULL, 1, 2};
    must(pp_db_run_begin(db, &info, &s->config, s->job.train ? &s->job : NULL, &run));
    return run;
}

static const struct synthetic_case two_stages = {"1f1b", 2, 1, 4, 1, PP_CHECKPOINT_NEVER, 0.05};

#endif
