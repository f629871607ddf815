/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements over the database, for core/database/db_*.c and analysis/: values bound by position, rows one by one, and
 * the one place where an SQLite error becomes a pp_status with a message.
 */
#ifndef PP_CORE_DATABASE_DB_QUERY_H
#define PP_CORE_DATABASE_DB_QUERY_H

#include <sqlite3.h>

#include "core/database/db.h"
#include "core/model/task_names.h"

enum { PP_DB_VERSION = 7 }; /* core/database/schema.sql makes 1, core/database/schema_2.sql makes 2 of 1, and so on */

/* A prepared statement. Its text is a string constant, and known by its address. */
struct pp_statement {
    const char *text;
    sqlite3_stmt *handle;
};
enum { PP_DB_STATEMENTS = 32 }; /* so many are kept by one connection; so many can be read from at the same time */

struct pp_db {
    sqlite3 *sql;
    char *path;
    struct pp_statement statement[PP_DB_STATEMENTS]; /* in the order in which they were prepared */
    int nstatements;
    void *known;            /* tree of tsearch(): pp_db_knows() */
    bool sampled;           /* measured times were added */
    pthread_mutex_t *lock;  /* pp_db_share(); NULL: none is needed */
    int64_t last_add_ns;    /* when the newest row was added */
    int64_t transaction_ns; /* when the open transaction began */
    int64_t wait_ns;        /* when it began to wait for another process */
    bool (*hurries)(void);  /* pp_db_hurry() */
};

/* What look-ups do (core/database/db.h): they take the lock of pp_db_share(), if there is one. */
void pp_db_lock(struct pp_db *db);
void pp_db_unlock(struct pp_db *db);

/* Sets how long a connection that was opened waits for another process that writes. */
void pp_db_wait(struct pp_db *db);

/* One value to bind to a statement. A real NAN and a text NULL become SQL NULL. */
struct pp_value {
    int type; /* SQLITE_INTEGER, SQLITE_FLOAT or SQLITE_TEXT */
    int64_t integer;
    double real;
    const char *text; /* borrowed until the statement has run */
};
#define PP_INT(x)                                                                                                      \
    {                                                                                                                  \
        .type = SQLITE_INTEGER, .integer = (x)                                                                         \
    }
#define PP_REAL(x)                                                                                                     \
    {                                                                                                                  \
        .type = SQLITE_FLOAT, .real = (x)                                                                              \
    }
#define PP_TEXT(x)                                                                                                     \
    {                                                                                                                  \
        .type = SQLITE_TEXT, .text = (x)                                                                               \
    }
#define PP_VALUES(...)                                                                                                 \
    (const struct pp_value[]){__VA_ARGS__}, (int)(sizeof(struct pp_value[]){__VA_ARGS__} / sizeof(struct pp_value))

/* Parts of statements over samples. PP_SQL_SHARE is the end of a context that names a share of a GPU (" share 1/4",
 * or nothing), PP_SQL_BEFORE_SHARE the text before it. (The name of a schedule in a context has no blanks, so it
 * cannot look like a share.) PP_SQL_SCHEDULE is the name of the schedule. PP_SQL_EXPECTED is the time of one sample:
 * its mean, or its median in profiles of schema version 1, which have no means. */
#define PP_SQL_SHARE_AT(context) "instr(" context " || '" PP_NAME_SHARE "', '" PP_NAME_SHARE "')"
#define PP_SQL_SHARE(context) "substr(" context ", " PP_SQL_SHARE_AT(context) ")"
#define PP_SQL_BEFORE_SHARE(context) "substr(" context ", 1, " PP_SQL_SHARE_AT(context) " - 1)"
#define PP_SQL_SCHEDULE(context) "substr(" context ", 1, instr(" context " || ' ', ' '))"
#define PP_SQL_EXPECTED "coalesce(mean_ns, median_ns)"
/* The mean of several samples, each weighed by how often it was measured, in whole ns. */
#define PP_SQL_WEIGHTED_MEAN "CAST(round(sum(1.0 * " PP_SQL_EXPECTED " * count) / sum(count)) AS INTEGER)"

/* The profile that the times of prediction ?1 are of, by most of what a look-up goes by (core/database/db.h); NULL:
 * none. Made before it on the same device, with as many threads; one of its model before others, however it was cut
 * there (--split is the last word of a profile's workload); then one that ended well; then the newest. */
#define PP_SQL_PROFILE                                                                                                 \
    "(SELECT p.id FROM run p JOIN run s ON s.id = ?1 WHERE p.tool = 'ppprof' AND p.device IS s.device "                \
    "AND p.threads IS s.threads AND p.id < s.id AND EXISTS (SELECT 1 FROM task_time WHERE run = p.id) "                \
    "AND NOT EXISTS (SELECT 1 FROM run_config c WHERE c.run = s.id AND c.name = 'profile' AND c.given) "               \
    "ORDER BY instr(s.workload, rtrim(nullif(p.workload, ''), replace(p.workload, ' ', ''))) = 1 DESC, "               \
    "p.status IS 'ok' DESC, p.id DESC LIMIT 1)"

/* Writes the text of run.workload: model and data, without where they run. Runs with equal texts do the same work, and
 * runs that do the same work have equal texts; v_pair relies on it. (--vocab-multiple and --host-order stand there also
 * where they change nothing.) With a job the text says how the job's model is cut into stages; with job NULL (ppprof),
 * what --split asks for. PP_USAGE if the value of --times or --straggler cannot be parsed. The longest text fits: one
 * that was cut off could make unequal work look equal. */
enum { PP_WORKLOAD_BYTES = 704 };
pp_status pp_db_workload(const struct pp_config *config, const struct pp_job *job,
                         char buf[PP_WORKLOAD_BYTES]) PP_MUST_CHECK;

/* Prepares a statement and binds values[n] as ?1, ?2, ... `text` must be a string constant: prepared statements are
 * kept, and found by its address. Call pp_db_row() for each row. A caller that stops before the last row calls
 * sqlite3_reset(). The statement belongs to db. */
pp_status pp_db_query(struct pp_db *db, const char *text, const struct pp_value *values, int n,
                      sqlite3_stmt **out) PP_MUST_CHECK;
/* Steps to the next row. At the end *found is false and the statement is reset. */
pp_status pp_db_row(struct pp_db *db, sqlite3_stmt *statement, bool *found) PP_MUST_CHECK;
/* The text of a column, which the statement has until its next row; NULL: there is none. PP_NOMEM: the statement is
 * reset. */
pp_status pp_db_text(struct pp_db *db, sqlite3_stmt *statement, int column, const char **out) PP_MUST_CHECK;
/* Runs a statement that returns no rows. */
pp_status pp_db_execute(struct pp_db *db, const char *text, const struct pp_value *values, int n) PP_MUST_CHECK;
/* The first column of the first row as an integer. If there is no row, *found is false and *out is left alone. */
pp_status pp_db_integer(struct pp_db *db, const char *text, const struct pp_value *values, int n, int64_t *out,
                        bool *found) PP_MUST_CHECK;
/* What was found out about measured times is kept as the answer to a question, a text of any kind, until
 * pp_db_forget(), which whatever changes these times through this connection calls. The caller has the lock.
 * pp_db_knows() copies an answer of that size, if there is one; pp_db_keep() keeps the first answer. */
bool pp_db_knows(struct pp_db *db, const char *question, void *answer, size_t size);
void pp_db_keep(struct pp_db *db, const char *question, const void *answer, size_t size);
void pp_db_forget(struct pp_db *db);
/* As pp_db_integer(), which is asked only once. */
pp_status pp_db_recall(struct pp_db *db, const char *text, const struct pp_value *values, int n, int64_t *out,
                       bool *found) PP_MUST_CHECK;
/* pp_db_transaction() commits what is open and begins a transaction for rows that belong together. pp_db_finish()
 * commits it if `status` is PP_OK, else undoes it. It returns `status`, or the error of the commit. */
pp_status pp_db_transaction(struct pp_db *db) PP_MUST_CHECK;
pp_status pp_db_finish(struct pp_db *db, pp_status status) PP_MUST_CHECK;
/* Runs a statement that adds a row, in a transaction that it may share with other rows ("Transactions" in
 * core/database/db.h). */
pp_status pp_db_add(struct pp_db *db, const char *text, const struct pp_value *values, int n) PP_MUST_CHECK;

#endif
