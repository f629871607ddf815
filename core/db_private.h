/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the database layer share: the connection, its prepared statements, and the one place where an SQLite error
 * becomes a pp_status with a message.
 */
#ifndef PP_CORE_DB_PRIVATE_H
#define PP_CORE_DB_PRIVATE_H

#include <sqlite3.h>

#include "core/db.h"

enum { PP_DB_VERSION = 1 }; /* of core/schema.sql */

/* X(id, text): every statement that is used more than once; prepared when first needed, kept until the file is closed. */
#define PP_SAMPLE_INTO(table) "INSERT INTO " table " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)"
#define PP_NEWEST_RUN "run IN (SELECT id FROM run WHERE device = ?1 AND threads = ?2)"
#define PP_DB_STATEMENTS(X) \
    X(BEGIN, "BEGIN IMMEDIATE") \
    X(COMMIT, "COMMIT") \
    X(RUN_BEGIN, \
      "INSERT INTO run(tool, version, host, started, device, device_text, transport, cost_source, processes, cores, threads, " \
      "preset, workload, schedule, stages, virtual_stages, chunks, microbatches, replicas, checkpoint, parameters, " \
      "accumulation_key, plan, plan_hash) VALUES(?1,?2,?3,strftime('%Y-%m-%dT%H:%M:%fZ','now'),?4,?5,?6,?7,?8,?9,?10,?11,?12," \
      "?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23)") \
    X(RUN_CONFIG, "INSERT INTO run_config VALUES(?1,?2,?3,?4)") \
    X(RUN_END, \
      "UPDATE run SET ended = strftime('%Y-%m-%dT%H:%M:%fZ','now'), status = ?2, ms_per_batch = ?3, makespan_ms = ?4, " \
      "span_ms = ?5, bubble = ?6, bubble_span = ?7, lower_bound_ms = ?8, test_loss = ?9, trace_overhead = ?10, " \
      "reference_ns = ?11 WHERE id = ?1") \
    X(PLAN_ADD, "INSERT OR IGNORE INTO plan(hash, workload, stages, virtual_stages, microbatches, replicas, tasks) " \
                "VALUES(?1,?2,?3,?4,?5,?6,?7)") \
    X(PLAN_FIND, "SELECT id FROM plan WHERE hash = ?1 AND workload = ?2") \
    X(TASK_FIND, "SELECT 1 FROM task WHERE plan = ?1 LIMIT 1") \
    X(TASK, "INSERT INTO task VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)") \
    X(EVENT_NEXT, "SELECT coalesce(max(seq) + 1, 0) FROM event WHERE run = ?1") \
    X(EVENT, "INSERT INTO event VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)") \
    X(STEP, "INSERT INTO step VALUES(?1,?2,?3,?4,?5,?6,?7)") \
    X(EPOCH, "INSERT INTO epoch VALUES(?1,?2,?3,?4)") \
    X(MEMORY, "INSERT OR REPLACE INTO memory VALUES(?1,?2,?3,?4)") \
    X(KERNEL_TIME, PP_SAMPLE_INTO("kernel_time")) \
    X(TASK_TIME, PP_SAMPLE_INTO("task_time")) \
    X(LINK_TIME, PP_SAMPLE_INTO("link_time")) \
    X(LINK, "INSERT OR REPLACE INTO link VALUES(?1,?2,?3,?4)") \
    X(FIND_TASK, "SELECT median_ns, max(run) FROM task_time WHERE name = ?3 AND load = ?4 AND " PP_NEWEST_RUN " HAVING count(*)") \
    X(FIND_LINK, "SELECT value FROM link WHERE link = ?2 AND parameter = ?3 AND run IN (SELECT id FROM run WHERE device = ?1) " \
                 "ORDER BY run DESC LIMIT 1") \
    X(FIND_PROFILE, "SELECT cores FROM run WHERE device = ?1 AND id IN (SELECT run FROM task_time) ORDER BY id DESC LIMIT 1") \
    X(EACH_TASK, "SELECT name, load, median_ns, max(run) FROM task_time WHERE substr(name, 1, length(?3)) = ?3 AND " PP_NEWEST_RUN \
                 " GROUP BY name, load")

enum pp_db_statement {
#define X(id, text) PP_SQL_##id,
    PP_DB_STATEMENTS(X)
#undef X
    PP_SQL_COUNT
};

struct pp_db {
    sqlite3 *sql;
    char *path;
    sqlite3_stmt *statement[PP_SQL_COUNT];
    int64_t last_add_ns;    /* when the newest row was added */
    int64_t transaction_ns; /* when the open transaction began */
};

/* One value to bind. NaN and NULL become SQL NULL. */
struct pp_value {
    int type; /* SQLITE_INTEGER, SQLITE_FLOAT or SQLITE_TEXT */
    int64_t integer;
    double real;
    const char *text; /* borrowed until the statement has run */
};
#define PP_INT(x) {.type = SQLITE_INTEGER, .integer = (x)}
#define PP_REAL(x) {.type = SQLITE_FLOAT, .real = (x)}
#define PP_TEXT(x) {.type = SQLITE_TEXT, .text = (x)}
#define PP_VALUES(...) (const struct pp_value[]){__VA_ARGS__}, (int)(sizeof(struct pp_value[]){__VA_ARGS__} / sizeof(struct pp_value))

/* What is computed, apart from where: runs with equal texts do the same work. Part of what v_compare joins on. */
enum { PP_WORKLOAD_BYTES = 256 };
const char *pp_db_workload(const struct pp_config *config, char *buf, size_t size);

/* The message of an SQLite result code: file, what went wrong while `doing`, what to do. */
pp_status pp_db_error(const struct pp_db *db, int rc, const char *doing);
/* A prepared statement with these values bound; step it with pp_db_row() until there is no row, or sqlite3_reset() it. */
pp_status pp_db_query(struct pp_db *db, enum pp_db_statement which, const struct pp_value *values, int n,
                      sqlite3_stmt **out) PP_MUST_CHECK;
/* The next row; at the end *found is false and the statement is reset. */
pp_status pp_db_row(struct pp_db *db, sqlite3_stmt *statement, bool *found) PP_MUST_CHECK;
/* Runs a statement that returns no rows. */
pp_status pp_db_execute(struct pp_db *db, enum pp_db_statement which, const struct pp_value *values, int n) PP_MUST_CHECK;
/* The first column of the first row as an integer. */
pp_status pp_db_integer(struct pp_db *db, enum pp_db_statement which, const struct pp_value *values, int n, int64_t *out,
                        bool *found) PP_MUST_CHECK;
/* Opens the transaction that rows are added in, if there is none. */
pp_status pp_db_begin(struct pp_db *db) PP_MUST_CHECK;
/* One row that may share a transaction with others (see pp_db_add_step in db.h). */
pp_status pp_db_add(struct pp_db *db, enum pp_db_statement which, const struct pp_value *values, int n) PP_MUST_CHECK;

#endif
