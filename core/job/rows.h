/* SPDX-License-Identifier: Apache-2.0
 *
 * Results: an array of JSON objects, called rows, one for each configuration. They are printed as JSON, as
 * tab-separated values with the same fields, or as a table for people with some of the fields.
 */
#ifndef PP_CORE_JOB_ROWS_H
#define PP_CORE_JOB_ROWS_H

#include <stdio.h>

#include "core/base/json.h"
#include "core/base/status.h"
#include "core/base/text_table.h"
#include "core/options/config.h"

/* Prints rows. format: PP_FORMAT_TSV (a heading, then one line per object; null is empty, elements of arrays are joined
 * with commas, objects are key=value) or PP_FORMAT_JSON; other formats print nothing. PP_NOMEM: nothing was printed.
 * Errors of writing are left in the error flag of `out`. */
pp_status pp_rows_write(const json_t *rows, int format, FILE *out) PP_MUST_CHECK;
/* The same for many small rows: fractional numbers have `digits` significant digits, and JSON has one row per line.
 * `out` should be a stream in memory: after PP_NOMEM it holds a part of the output. */
pp_status pp_rows_write_lines(const json_t *rows, int format, int digits, FILE *out) PP_MUST_CHECK;

/* A column of a table for people. */
struct pp_row_column {
    struct pp_text_column text; /* .unit is NULL if the column has `bytes` */
    const char *key;
    /* One of these two. show() writes the cell of a row to buf. bytes() returns the size of memory that the row has at
     * `key`, or NAN; all sizes of a column are shown in the unit that fits the largest (core/base/memory_text.h). */
    void (*show)(const json_t *row, const char *key, char *buf, size_t size);
    double (*bytes)(const json_t *row, const char *key);
    /* The option that the column shows, a list of numbers or choices: if several values were given, nothing is
     * text.usual. NULL: none. */
    const char *option;
};

/* Ways to write a cell from the row's value at `key`; "-" if that is null. figure: the larger the number, the fewer
 * decimals. short: four digits; of large numbers all before the point, of those below 1 four behind it. */
void pp_show_text(const json_t *row, const char *key, char *buf, size_t size);
void pp_show_count(const json_t *row, const char *key, char *buf, size_t size);
void pp_show_figure(const json_t *row, const char *key, char *buf, size_t size);
void pp_show_short(const json_t *row, const char *key, char *buf, size_t size);
void pp_show_percent(const json_t *row, const char *key, char *buf, size_t size);
/* The largest element of an array; a number itself. */
double pp_json_most(const json_t *value);
/* The same of the row's value at `key`; NAN if that is null. */
double pp_row_most(const json_t *row, const char *key);

/* Prints rows as a table (core/base/text_table.h): the columns of the configuration and of ms/batch, which all programs
 * have, and then columns[n]. config: the options that were given. */
enum { PP_ROW_COLUMNS = 16 }; /* most columns of a caller */
void pp_rows_table(const json_t *rows, const struct pp_config *config, const struct pp_row_column *columns, int n,
                   FILE *out);

#endif
