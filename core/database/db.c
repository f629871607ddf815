/* SPDX-License-Identifier: Apache-2.0
 *
 * The database file: opening, creating, transactions, and the way from SQLite's errors to ours.
 */
#include "core/database/db.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/database/db_query.h"

enum {
    APPLICATION_ID = 0x70706b74, /* "ppkt": tells our files from other people's */
    /* Rows that come quickly one after another share a transaction of at most this age; a row that comes alone is
     * committed at once, so that no other process waits for a writer that is computing. */
    BATCH_NS = 100000000,
};

extern const char pp_schema_sql[], pp_schema_2_sql[], pp_schema_3_sql[], pp_schema_4_sql[], pp_schema_5_sql[],
    pp_schema_6_sql[], pp_schema_7_sql[], pp_views_sql[];

/* What each primary result code means for the user. */
static const struct {
    int rc;
    pp_status status;
    const char *advice;
} remedies[] = {
    {SQLITE_NOTADB, PP_INPUT, "it is not an SQLite file; name another file with --db"},
    {SQLITE_CORRUPT, PP_INPUT,
     "it is damaged; save what can be read with `sqlite3 FILE .recover`, then write to a new file"},
    {SQLITE_ERROR, PP_INPUT, "its tables are not those of ppkit; name another file with --db"},
    {SQLITE_READONLY, PP_IO,
     "it or its folder may not be written; change the permissions or name another file with --db (ppsim --profile only "
     "reads)"},
    {SQLITE_CANTOPEN, PP_IO, "it cannot be opened; check the path and the permissions of the file and its folder"},
    {SQLITE_PERM, PP_IO, "it cannot be opened; check the permissions of the file and its folder"},
    {SQLITE_FULL, PP_IO, "the disk is full; free space and run again (what was committed before is kept)"},
    {SQLITE_IOERR, PP_IO,
     "the system could not read or write it; check the disk and the limits on file size (what was committed before is "
     "kept)"},
    {SQLITE_BUSY, PP_IO,
     "another process has been writing to it for half a minute (for a moment, where a signal asks the program to "
     "end); wait for that process or name another file"},
    {SQLITE_LOCKED, PP_IO, "it is locked by another user of this process"},
    {SQLITE_PROTOCOL, PP_IO, "its lock could not be had; try again, or use a file on a local disk"},
    {SQLITE_NOMEM, PP_NOMEM, "there is not enough memory"},
    {SQLITE_INTERRUPT, PP_INTERRUPTED, "it was interrupted"},
};

/* Why the system did not open the file. Where it could not be made SQLite tries to read it, and knows only that it is
 * not there: then it is the folder that says why. */
static int reason(const char *path, sqlite3 *sql, int rc)
{
    const int system_error = sql ? sqlite3_system_errno(sql) : 0;
    if ((rc & 0xff) != SQLITE_CANTOPEN || system_error != ENOENT) return system_error;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    const int why = folder && access(folder, W_OK | X_OK) != 0 ? errno : system_error;
    free(folder);
    return why;
}

static pp_status error_text(const char *path, sqlite3 *sql, int rc, const char *doing)
{
    pp_status status = PP_INTERNAL;
    const char *advice = "this is a defect in ppkit, please report it";
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++) {
        if (remedies[i].rc != (rc & 0xff)) continue;
        status = remedies[i].status;
        advice = remedies[i].advice;
    }
    int system_error = reason(path, sql, rc);
    bool by_system = (status == PP_IO && system_error != 0);
    return pp_fail(status, "database %s: %s failed: %s%s%s: %s", path, doing,
                   sql ? sqlite3_errmsg(sql) : sqlite3_errstr(rc), by_system ? ": " : "",
                   by_system ? strerror(system_error) : "", advice);
}

/* The message of an SQLite result code: file, what went wrong while `doing`, what to do. */
static pp_status db_error(const struct pp_db *db, int rc, const char *doing)
{
    return error_text(db->path, db->sql, rc, doing);
}

static pp_status run_script(struct pp_db *db, const char *text, const char *doing)
{
    int rc = sqlite3_exec(db->sql, text, NULL, NULL, NULL);
    return rc == SQLITE_OK ? PP_OK : db_error(db, rc, doing);
}

/* Steps from version i to i + 1. */
static const char *const upgrades[PP_DB_VERSION] = {pp_schema_sql,   pp_schema_2_sql, pp_schema_3_sql, pp_schema_4_sql,
                                                    pp_schema_5_sql, pp_schema_6_sql, pp_schema_7_sql};

/* In one statement, which sees one state of the file: between two, another process can have made the tables. */
static pp_status read_header(struct pp_db *db, int64_t *version, int64_t *application, int64_t *tables)
{
    static const char text[] = "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)"
                               " FROM pragma_user_version, pragma_application_id";
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db->sql, text, -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    *version = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    *application = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 1) : 0;
    *tables = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 2) : 0;
    sqlite3_finalize(statement);
    return rc == SQLITE_ROW ? PP_OK : db_error(db, rc, "reading");
}

/* *version: 0 for a new file. Refuses files that are not ours, of a later ppkit, or of a version that never was. */
static pp_status read_version(struct pp_db *db, int64_t *version)
{
    int64_t tables, application;
    PP_TRY(read_header(db, version, &application, &tables));
    if (application != APPLICATION_ID && (tables > 0 || *version != 0))
        return pp_fail(PP_INPUT, "database %s: it was not made by ppkit: name another file", db->path);
    if (*version > PP_DB_VERSION)
        return pp_fail(
            PP_INPUT,
            "database %s: it has schema version %lld and this ppkit knows versions up to %d: use a newer ppkit",
            db->path, (long long)*version, PP_DB_VERSION);
    if (*version < 0)
        return pp_fail(
            PP_INPUT, "database %s: it has schema version %lld, which no ppkit wrote: it is damaged; name another file",
            db->path, (long long)*version);
    return PP_OK;
}

/* The views of a file may be of another ppkit. They become those that whoever writes knows; v_views tells which. */
static pp_status renew_views(struct pp_db *db)
{
    char made[80];
    const uint64_t hash = pp_hash_bytes(0, pp_views_sql, strlen(pp_views_sql));
    int64_t one;
    bool current;
    snprintf(made, sizeof made, "CREATE VIEW v_views AS SELECT '%016" PRIx64 "' AS hash", hash);
    PP_TRY(pp_db_integer(db, "SELECT 1 FROM sqlite_master WHERE type = 'view' AND sql = ?1", PP_VALUES(PP_TEXT(made)),
                         &one, &current));
    if (current) return PP_OK;
    PP_TRY(run_script(db, pp_views_sql, "creating the views"));
    PP_TRY(run_script(db, "DROP VIEW IF EXISTS v_views", "creating the views"));
    return run_script(db, made, "creating the views");
}

/* In one transaction, so that of several processes that find a new file one makes the tables and the others see them.
 * */
static pp_status bring_up_to_date(struct pp_db *db)
{
    int64_t version;
    PP_TRY(read_version(db, &version));
    if (version == PP_DB_VERSION) return renew_views(db);
    for (; version < PP_DB_VERSION; version++) PP_TRY(run_script(db, upgrades[version], "creating the tables"));
    PP_TRY(renew_views(db));
    char text[96];
    snprintf(text, sizeof text, "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID, PP_DB_VERSION);
    return run_script(db, text, "creating the tables");
}

static pp_status prepare_writing(struct pp_db *db)
{
    int64_t version;
    if (sqlite3_db_readonly(db->sql, "main") == 1) /* what SQLite may not write it opens for reading, and BEGIN works */
        return error_text(db->path, NULL, SQLITE_READONLY, "opening");
    PP_TRY(read_version(db, &version)); /* before the journal mode is touched: it may be someone else's file */
    int rc = sqlite3_exec(db->sql, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
    if (rc != SQLITE_OK && (rc & 0xff) != SQLITE_BUSY)
        return db_error(db, rc, "opening"); /* busy: another process is setting it */
    PP_TRY(run_script(db, "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -16384", "opening"));
    PP_TRY(pp_db_transaction(db));
    return pp_db_finish(db, bring_up_to_date(db));
}

static pp_status check_reading(struct pp_db *db)
{
    int64_t version;
    PP_TRY(read_version(db, &version));
    if (version == PP_DB_VERSION) return PP_OK;
    if (version == 0)
        return pp_fail(PP_INPUT,
                       "database %s: it is empty: write to it first with ppprof --db, ppsim --db or ppexec --db",
                       db->path);
    return pp_fail(PP_INPUT,
                   "database %s: it has schema version %lld: name it once with --db of ppprof, ppsim or ppexec to "
                   "bring it up to date",
                   db->path, (long long)version);
}

static pp_status connect(struct pp_db *db, const char *name, int flags)
{
    int rc = sqlite3_open_v2(name, &db->sql, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) return db_error(db, rc, "opening");
    sqlite3_extended_result_codes(db->sql, 1);
    pp_db_wait(db);
    return PP_OK;
}

/* The URI of a file that nobody writes meanwhile. Each byte of the path is a number there, so that none means
 * anything else. NULL: there is no memory. The caller frees it. */
static char *immutable_uri(const char *path)
{
    const size_t size = sizeof "file:?immutable=1" + 3 * strlen(path);
    char *uri = malloc(size);
    if (!uri) return NULL;
    size_t n = (size_t)snprintf(uri, size, "file:");
    for (; *path; path++) n += (size_t)snprintf(uri + n, size - n, "%%%02x", (unsigned)(unsigned char)*path);
    snprintf(uri + n, size - n, "?immutable=1");
    return uri;
}

/* A file in a folder that may not be written can only be read as one that nobody writes: SQLite could not make its lock
 * file. One that may not be written itself is read so too: the lock file would stay. */
static pp_status connect_immutable(struct pp_db *db)
{
    char *wal = sqlite3_mprintf("%s-wal", db->path);
    char *uri = immutable_uri(db->path);
    pp_status status = PP_OK;
    if (uri && wal && access(wal, F_OK) != 0) {
        sqlite3_close(db->sql);
        db->sql = NULL;
        status = connect(db, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
    }
    free(uri);
    sqlite3_free(wal);
    return status;
}

/* Whoever may write to the file opens it so, though nothing is written: only then SQLite removes FILE-wal and FILE-shm
 * when the last one closes it. */
static pp_status open_reading(struct pp_db *db)
{
    static const char first[] = "PRAGMA query_only = ON; SELECT count(*) FROM sqlite_master";
    if (access(db->path, F_OK) != 0)
        return pp_fail(PP_IO, "database %s: %s: name a file that ppprof, ppsim or ppexec wrote with --db", db->path,
                       strerror(errno));
    PP_TRY(connect(db, db->path, SQLITE_OPEN_READWRITE));
    int rc = access(db->path, W_OK) != 0 ? SQLITE_READONLY : sqlite3_exec(db->sql, first, NULL, NULL, NULL) & 0xff;
    if (rc == SQLITE_CANTOPEN || rc == SQLITE_READONLY) PP_TRY(connect_immutable(db));
    return check_reading(db);
}

pp_status pp_db_open(const char *path, enum pp_db_mode mode, struct pp_db **out)
{
    struct pp_db *db;
    *out = NULL;
    PP_TRY(PP_NEW(&db, 1));
    db->path = strdup(path);
    pp_status status = PP_OK;
    if (!db->path) {
        status = pp_fail(PP_NOMEM, "cannot allocate %zu bytes", strlen(path) + 1);
    } else if (mode == PP_DB_READ) {
        status = open_reading(db);
    } else {
        status = connect(db, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
        if (status == PP_OK) status = prepare_writing(db);
    }
    if (status == PP_OK) {
        *out = db;
        return PP_OK;
    }
    (void)pp_db_close(db); /* nothing is open: it cannot fail */
    return status;
}

static int bind(sqlite3_stmt *statement, int index, const struct pp_value *value)
{
    switch (value->type) {
    case SQLITE_INTEGER:
        return sqlite3_bind_int64(statement, index, value->integer);
    case SQLITE_FLOAT:
        return sqlite3_bind_double(statement, index, value->real);
    default:
        return sqlite3_bind_text(statement, index, value->text, -1, SQLITE_STATIC);
    }
}

/* A place for one more prepared statement. Of too many, the oldest that nobody reads from goes. */
static pp_status find_place(struct pp_db *db, struct pp_statement **out)
{
    int oldest = 0;
    if (db->nstatements == PP_DB_STATEMENTS) {
        while (oldest < db->nstatements && sqlite3_stmt_busy(db->statement[oldest].handle)) oldest++;
        if (oldest == db->nstatements) return pp_fail(PP_INTERNAL, "database %s: too many statements", db->path);
        sqlite3_finalize(db->statement[oldest].handle);
        db->nstatements--;
        memmove(&db->statement[oldest], &db->statement[oldest + 1],
                (size_t)(db->nstatements - oldest) * sizeof *db->statement);
    }
    *out = &db->statement[db->nstatements];
    return PP_OK;
}

static pp_status prepared(struct pp_db *db, const char *text, sqlite3_stmt **out)
{
    struct pp_statement *place = NULL;
    for (int i = 0; i < db->nstatements; i++) {
        *out = db->statement[i].handle;
        if (db->statement[i].text == text) return PP_OK;
    }
    PP_TRY(find_place(db, &place));
    int rc = sqlite3_prepare_v3(db->sql, text, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    if (rc != SQLITE_OK) return db_error(db, rc, "preparing a statement");
    *place = (struct pp_statement){text, *out};
    db->nstatements++;
    return PP_OK;
}

pp_status pp_db_query(struct pp_db *db, const char *text, const struct pp_value *values, int n, sqlite3_stmt **out)
{
    int rc = SQLITE_OK;
    PP_TRY(prepared(db, text, out));
    for (int i = 0; i < n && rc == SQLITE_OK; i++) rc = bind(*out, i + 1, &values[i]);
    return rc == SQLITE_OK ? PP_OK : db_error(db, rc, "binding a value");
}

pp_status pp_db_row(struct pp_db *db, sqlite3_stmt *statement, bool *found)
{
    int rc = sqlite3_step(statement);
    *found = rc == SQLITE_ROW;
    if (rc == SQLITE_ROW) return PP_OK;
    pp_status status =
        rc == SQLITE_DONE ? PP_OK : db_error(db, rc, sqlite3_column_count(statement) ? "reading" : "writing");
    sqlite3_reset(statement);
    return status;
}

pp_status pp_db_text(struct pp_db *db, sqlite3_stmt *statement, int column, const char **out)
{
    const bool none = sqlite3_column_type(statement, column) == SQLITE_NULL;
    *out = none ? NULL : (const char *)sqlite3_column_text(statement, column);
    if (*out || none) return PP_OK;
    sqlite3_reset(statement);
    return pp_fail(PP_NOMEM, "database %s: there is not enough memory to read it", db->path);
}

pp_status pp_db_execute(struct pp_db *db, const char *text, const struct pp_value *values, int n)
{
    sqlite3_stmt *statement;
    bool found;
    PP_TRY(pp_db_query(db, text, values, n, &statement));
    return pp_db_row(db, statement, &found);
}

pp_status pp_db_integer(struct pp_db *db, const char *text, const struct pp_value *values, int n, int64_t *out,
                        bool *found)
{
    sqlite3_stmt *statement;
    PP_TRY(pp_db_query(db, text, values, n, &statement));
    PP_TRY(pp_db_row(db, statement, found));
    if (*found) *out = sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    return PP_OK;
}

/* Opens the transaction that rows are added in, if there is none. */
static pp_status begin(struct pp_db *db)
{
    if (!sqlite3_get_autocommit(db->sql)) return PP_OK;
    PP_TRY(pp_db_execute(db, "BEGIN IMMEDIATE", NULL, 0));
    db->transaction_ns = pp_now_ns();
    return PP_OK;
}

pp_status pp_db_transaction(struct pp_db *db)
{
    PP_TRY(pp_db_flush(db));
    return begin(db);
}

pp_status pp_db_finish(struct pp_db *db, pp_status status)
{
    if (status == PP_OK) status = pp_db_execute(db, "COMMIT", NULL, 0);
    if (!sqlite3_get_autocommit(db->sql)) sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

pp_status pp_db_add(struct pp_db *db, const char *text, const struct pp_value *values, int n)
{
    int64_t now = pp_now_ns();
    bool alone = now - db->last_add_ns > BATCH_NS;
    PP_TRY(begin(db));
    PP_TRY(pp_db_execute(db, text, values, n));
    db->last_add_ns = now;
    return alone || now - db->transaction_ns > BATCH_NS ? pp_db_flush(db) : PP_OK;
}
