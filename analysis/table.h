/* SPDX-License-Identifier: Apache-2.0
 *
 * A table read from the database and printed in one of three forms. TSV and JSON print values as they are stored, under
 * the names of their columns; the table for people scales and rounds them. A database may be anybody's: control
 * characters of texts are '?' (core/printable.h) from when they are read.
 */
#ifndef PP_ANALYSIS_TABLE_H
#define PP_ANALYSIS_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "core/db_query.h"

struct pp_column {
    const char *key;     /* name in TSV and JSON */
    const char *group;   /* first line of the heading; columns that follow each other with the same text share it */
    const char *heading; /* second line; NULL: not in the table for people */
    double scale;        /* table: value * scale; 0: text or whole number, as it is */
    int decimals;
};

struct pp_cell {
    int type; /* SQLITE_INTEGER, SQLITE_FLOAT, SQLITE_TEXT or SQLITE_NULL */
    int64_t integer;
    double real;
    char *text; /* SQLITE_TEXT only; printable; owned */
};

struct pp_table {
    const struct pp_column *columns; /* borrowed */
    int ncolumns;
    int64_t nrows;
    struct pp_cell *cells; /* [nrows][ncolumns] */
};

/* Reads all rows of a statement whose first columns are those of the table. */
pp_status pp_table_read(struct pp_db *db, sqlite3_stmt *statement, const struct pp_column *columns, int ncolumns,
                        struct pp_table *out) PP_MUST_CHECK;
void pp_table_free(struct pp_table *table);

/* NULL if there is no such column. */
const struct pp_cell *pp_table_cell(const struct pp_table *table, int64_t row, const char *key);
/* Have two rows the same whole numbers and texts in these columns? Each is there. */
bool pp_table_same(const struct pp_table *table, int64_t a, int64_t b, const char *const *keys, int n);
/* As numbers; NAN or -1 for NULL. */
double pp_cell_real(const struct pp_cell *cell);
int64_t pp_cell_integer(const struct pp_cell *cell);
/* "" for NULL. */
const char *pp_cell_text(const struct pp_cell *cell);

/* Aligned, with headings. first..first+n-1 are printed. */
pp_status pp_table_print(const struct pp_table *table, int64_t first, int64_t n, FILE *out) PP_MUST_CHECK;
void pp_table_print_tsv(const struct pp_table *table, FILE *out);
/* `"key": value, ...` of one row, without braces. */
void pp_table_print_json(const struct pp_table *table, int64_t row, FILE *out);
/* A JSON string, quoted. */
void pp_json_text(const char *text, FILE *out);

#endif
