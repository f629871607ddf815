/* SPDX-License-Identifier: Apache-2.0
 *
 * A table that is read from the database and printed in one of three forms. TSV and JSON print values as they are
 * stored, under the keys of their columns. The table for people scales and rounds them. A database may come from
 * anybody, so control characters of texts become '?' (core/base/printable.h) when they are read.
 */
#ifndef PP_ANALYSIS_TABLE_H
#define PP_ANALYSIS_TABLE_H

#include <stdint.h>
#include <stdio.h>

#include "core/database/db_query.h"

struct pp_column {
    const char *key;     /* name in TSV and JSON */
    const char *group;   /* first line of the heading; neighbouring columns with the same group share it */
    const char *heading; /* second line of the heading; NULL: the table for people leaves the column out */
    double scale;        /* the table for people prints value * scale; 0: text or whole number, as it is */
    int decimals;        /* ... with so many digits behind the point; of 2 more, if the group's numbers are small */
    bool bytes;          /* a size of memory, for people in the unit that fits the largest one of the group */
    const char *twin;    /* core/base/text_table.h */
    const char *usual;   /* core/base/text_table.h */
    int spare;           /* core/base/text_table.h */
};

struct pp_cell {
    int type;        /* SQLITE_INTEGER, SQLITE_FLOAT, SQLITE_TEXT or SQLITE_NULL */
    int64_t integer; /* of SQLITE_INTEGER */
    double real;     /* of SQLITE_INTEGER and SQLITE_FLOAT */
    char *text;      /* of SQLITE_TEXT, else NULL; printable; freed with the table */
};

struct pp_table {
    const struct pp_column *columns; /* borrowed */
    int ncolumns;
    int64_t nrows;
    struct pp_cell *cells; /* [nrows][ncolumns] */
};

/* Reads all rows of a statement into a table. columns[i] describes column i of the statement, which may have more
 * columns; at most PP_TEXT_COLUMNS of them have headings. pp_table_free() releases the table, also after a failure. */
pp_status pp_table_read(struct pp_db *db, sqlite3_stmt *statement, const struct pp_column *columns, int ncolumns,
                        struct pp_table *out) PP_MUST_CHECK;
void pp_table_free(struct pp_table *table);

/* What stands in a column, an index into columns[]: as a number, of SQL NULL NAN and -1; as text, of all else "". */
double pp_table_real(const struct pp_table *table, int64_t row, int column);
int64_t pp_table_integer(const struct pp_table *table, int64_t row, int column);
const char *pp_table_text(const struct pp_table *table, int64_t row, int column);
/* Have rows a and b the same whole numbers and texts in these columns? */
bool pp_table_same(const struct pp_table *table, int64_t a, int64_t b, const int *columns, int n);

/* Prints rows first .. first+n-1 for people (core/base/text_table.h). */
void pp_table_print(const struct pp_table *table, int64_t first, int64_t n, FILE *out);
void pp_table_print_tsv(const struct pp_table *table, FILE *out);
/* Prints `"key": value, ...` of one row, without braces. */
void pp_table_print_json(const struct pp_table *table, int64_t row, FILE *out);
/* Prints a text as a JSON string, with its quotes. */
void pp_json_text(const char *text, FILE *out);

#endif
