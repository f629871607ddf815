/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables for people. They are narrow, so that few terminals break their lines:
 * - A column is left out that is empty ("-") in all rows, has its usual value in all, or repeats another one.
 * - A column that has the same cell in all of two or more rows is told once, in a line above the table.
 * - If the table is wider than PP_WRAP_COLUMNS, headings that are wider than their cells are broken into two lines.
 * - From a table that is still wider than PP_TEXT_TABLE_WIDTH, and than the terminal, if it is printed to one,
 *   columns are left out that its owner has marked as dispensable, and a line below names them.
 * All this needs all rows, so no row is printed before the last one is known. A table without rows is not printed.
 */
#ifndef PP_CORE_BASE_TEXT_TABLE_H
#define PP_CORE_BASE_TEXT_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    PP_TEXT_TABLE_WIDTH = 100, /* more than PP_WRAP_COLUMNS: a narrow table says less, a broken one is worse */
    PP_TEXT_COLUMNS = 40,      /* most columns of a table */
    PP_CELL_BYTES = 64,        /* most bytes of a cell or heading, with the '\0' */
};

struct pp_text_column {
    const char *title; /* the first words of the heading, which may be broken at its spaces */
    const char *unit;  /* its last word, such as "ms" or "%"; NULL: none */
    const char *group; /* heading above the headings of neighbouring columns of the same group; NULL or "": none */
    bool left;         /* cells stand left (texts), else right (numbers) */
    bool stays;        /* is never told above the table */
    bool aside;        /* is told above the table even if this has one row */
    bool gaps; /* "-" means that the column does not apply to the row: all cells are the same if all others are */
    const char *usual; /* if all cells are this text, the column is neither shown nor told; NULL: none */
    const char *twin;  /* if all cells are those of the column of this title, likewise; NULL: none */
    /* From a table that is too wide, columns with the highest number are left out first, and those with the same number
     * together; 0: never. */
    int spare;
};

struct pp_text_table {
    const struct pp_text_column *columns;
    int ncolumns; /* at most PP_TEXT_COLUMNS */
    int64_t nrows;
    int indent; /* spaces before each line */
    /* The text of a cell, which may be written to buf, and is read before the next call. */
    const char *(*cell)(const void *of, int64_t row, int column, char buf[PP_CELL_BYTES]);
    const void *of;
};

void pp_text_table_print(const struct pp_text_table *table, FILE *out);

#endif
