/* SPDX-License-Identifier: Apache-2.0
 *
 * Sound database files with other values in them. The input is a list of changes of twelve bytes: table, column, row,
 * type, value.
 */
#include "tests/fuzz/fuzz_db.h"

enum { CHANGE = 12, CHANGES = 16 };

static char tables[FUZZ_TABLES][FUZZ_NAME], columns[FUZZ_TABLES][64][FUZZ_NAME];
static int ntables, ncolumns[FUZZ_TABLES];

static void read_columns(sqlite3 *sql, int table)
{
    sqlite3_stmt *statement;
    char text[64];
    snprintf(text, sizeof text, "PRAGMA table_info(%s)", tables[table]);
    fuzz_must(sqlite3_prepare_v2(sql, text, -1, &statement, NULL) == SQLITE_OK, "columns are known");
    while (sqlite3_step(statement) == SQLITE_ROW)
        snprintf(columns[table][ncolumns[table]++], FUZZ_NAME, "%s", (const char *)sqlite3_column_text(statement, 1));
    sqlite3_finalize(statement);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    sqlite3 *sql;
    (void)argc, (void)argv;
    fuzz_db_make(1);
    ntables = fuzz_db_tables(tables);
    fuzz_must(sqlite3_open(fuzz_db_path(), &sql) == SQLITE_OK, "the database opens");
    for (int i = 0; i < ntables; i++) read_columns(sql, i);
    sqlite3_close(sql);
    return 0;
}

static void bind_value(sqlite3_stmt *statement, int type, const uint8_t *value)
{
    int64_t integer;
    double real;
    memcpy(&integer, value, sizeof integer);
    memcpy(&real, value, sizeof real);
    switch (type) {
    case 0:
        sqlite3_bind_null(statement, 1);
        break;
    case 1:
        sqlite3_bind_int64(statement, 1, integer);
        break;
    case 2:
        sqlite3_bind_int(statement, 1, (int8_t)value[0]);
        break;
    case 3:
        sqlite3_bind_double(statement, 1, real);
        break;
    case 4:
        sqlite3_bind_text(statement, 1, (const char *)value, (int)strnlen((const char *)value, 8), SQLITE_STATIC);
        break;
    default:
        sqlite3_bind_blob(statement, 1, value, 8, SQLITE_STATIC);
    }
}

static void change(sqlite3 *sql, const uint8_t *data)
{
    sqlite3_stmt *statement;
    char text[160];
    int table = data[0] % ntables;
    snprintf(text, sizeof text, "UPDATE %s SET %s = ?1 WHERE %d = 255 OR rowid = %d", tables[table],
             columns[table][data[1] % ncolumns[table]], data[2], data[2]);
    fuzz_must(sqlite3_prepare_v2(sql, text, -1, &statement, NULL) == SQLITE_OK, sqlite3_errmsg(sql));
    bind_value(statement, data[3] % 6, data + 4);
    sqlite3_step(statement);
    sqlite3_finalize(statement);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sqlite3 *sql;
    size_t n;
    const uint8_t *good = fuzz_db_bytes(&n);
    fuzz_write(fuzz_db_path(), good, n);
    fuzz_must(sqlite3_open(fuzz_db_path(), &sql) == SQLITE_OK, "the database opens");
    sqlite3_exec(sql, "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; BEGIN", NULL, NULL, NULL);
    for (int i = 0; i < CHANGES && size >= CHANGE; i++, data += CHANGE, size -= CHANGE) change(sql, data);
    sqlite3_exec(sql, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(sql);
    fuzz_db_read();
    return 0;
}
