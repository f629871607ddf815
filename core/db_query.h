/* SPDX-License-Identifier: Apache-2.0
 *
 * Statements over the database, for core/db_*.c and analysis/: values bound by position, rows one by one, and the one
 * place where an SQLite error becomes a pp_status with a message.
 */
#ifndef PP_CORE_DB_QUERY_H
#define PP_CORE_DB_QUERY_H

#include <sqlite3.h>

#include "core/db.h"

enum { PP_DB_VERSION = 7 }; /* core/schema.sql makes 1, core/schema_2.sql makes 2 of 1, and so on */

enum { PP_DB_STATEMENTS = 32 };

struct pp_db {
    sqlite3 *sql;
    char *path;
    /* Prepared statements, found again by the address of their text, which is a string constant. */
    struct {
        const char *text;
        sqlite3_stmt *handle;
    } statement[PP_DB_STATEMENTS];
    int nstatements;
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

/* Parts of statements over samples. Of a context the part that names the share of a GPU (" share 1/4", or nothing) and
 * the part before it: the names of schedules in it have no blanks, whatever their files are called. What one sample
 * adds to a sum of many: profiles of schema version 1 have no means. */
#define PP_SQL_SHARE(context) "substr(" context ", instr(" context " || ' share ', ' share '))"
#define PP_SQL_BEFORE_SHARE(context) "substr(" context ", 1, instr(" context " || ' share ', ' share ') - 1)"
#define PP_SQL_EXPECTED "coalesce(mean_ns, median_ns)"
/* ... and their mean, in whole ns. */
#define PP_SQL_WEIGHTED_MEAN "CAST(round(sum(1.0 * " PP_SQL_EXPECTED " * count) / sum(count)) AS INTEGER)"

/* What is computed, apart from where: runs with equal texts do the same work, and equal numbers have equal texts. Part
 * of what v_compare joins on. With a job the text says how its model is cut; without one (ppprof; NULL) what --split
 * asks for. PP_USAGE where --times or --straggler is no such thing. There is room for the longest that a job has: what
 * is cut off would make unequal work look equal. */
enum { PP_WORKLOAD_BYTES = 640 };
pp_status pp_db_workload(const struct pp_config *config, const struct pp_job *job,
                         char buf[PP_WORKLOAD_BYTES]) PP_MUST_CHECK;

/* A statement (`text`: a string constant) with these values bound as ?1, ?2, ...; step it with pp_db_row() until there
 * is no row, or sqlite3_reset() it. */
pp_status pp_db_query(struct pp_db *db, const char *text, const struct pp_value *values, int n,
                      sqlite3_stmt **out) PP_MUST_CHECK;
/* The next row; at the end *found is false and the statement is reset. */
pp_status pp_db_row(struct pp_db *db, sqlite3_stmt *statement, bool *found) PP_MUST_CHECK;
/* Runs a statement that returns no rows. */
pp_status pp_db_execute(struct pp_db *db, const char *text, const struct pp_value *values, int n) PP_MUST_CHECK;
/* The first column of the first row as an integer. */
pp_status pp_db_integer(struct pp_db *db, const char *text, const struct pp_value *values, int n, int64_t *out,
                        bool *found) PP_MUST_CHECK;
/* A transaction of its own for rows that belong together: pp_db_finish() commits it if status is PP_OK, else undoes it,
 * and returns the status. */
pp_status pp_db_transaction(struct pp_db *db) PP_MUST_CHECK;
pp_status pp_db_finish(struct pp_db *db, pp_status status) PP_MUST_CHECK;
/* One row that may share a transaction with others (see pp_db_add_step in db.h). */
pp_status pp_db_add(struct pp_db *db, const char *text, const struct pp_value *values, int n) PP_MUST_CHECK;

#endif
