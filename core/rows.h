/* SPDX-License-Identifier: Apache-2.0
 *
 * Results: an array of JSON objects, one per configuration, printed as JSON or as tab-separated values with the same
 * fields, or as a table for people with some of them.
 */
#ifndef PP_CORE_ROWS_H
#define PP_CORE_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/config.h"
#include "core/status.h"

/* A number, or null where it is not finite: JSON knows no NaN. */
json_t *pp_json_real(double value);
/* The array with the value behind the others, or the object with the value at the key: takes both over, and returns
 * NULL where memory is short (or was: NULL goes in and comes out), so that one check at the end is enough. */
json_t *pp_json_append(json_t *array, json_t *value);
json_t *pp_json_set(json_t *object, const char *key, json_t *value);

/* The value as text, to be freed. PP_NOMEM: there is none, as there is of NULL. Not by json_dumps(), which goes on
 * where there was no memory for a key, and leaves that out. */
pp_status pp_json_dump(const json_t *value, size_t flags, char **out) PP_MUST_CHECK;

/* Arrays of numbers. */
json_t *pp_json_reals(const double *values, int n);
json_t *pp_json_integers(const int64_t *values, int n);

/* A number that is whole without a fraction; null where it is not finite. */
json_t *pp_json_number(double value);

/* format: PP_FORMAT_TSV (heading, then one line per object; null is empty, arrays are joined with commas, objects are
 * key=value) or PP_FORMAT_JSON. Other formats print nothing. PP_NOMEM: nothing was printed; what the file refuses, its
 * error flag tells. */
pp_status pp_rows_write(const json_t *rows, int format, FILE *out) PP_MUST_CHECK;
/* The same for many small records: fractions with so many digits, JSON with a record a line. `out` is the caller's own
 * memory: PP_NOMEM leaves a part there. */
pp_status pp_rows_write_lines(const json_t *rows, int format, int digits, FILE *out) PP_MUST_CHECK;

/* A column of a table for people: how the cell of a row is written. */
struct pp_row_column {
    const char *heading, *key;
    void (*show)(const json_t *row, const char *key, char *buf, size_t size);
    bool left;          /* texts stand left, numbers right */
    bool if_known;      /* left out where all its cells are "-" */
    bool if_mixed;      /* left out where all its cells but "-" are alike */
    const char *usual;  /* left out where all its cells are that; NULL: of no text */
    const char *option; /* of numbers or choices: never left out where a list of it was given; NULL: there is none */
};

/* Of a row's value; "-" where it is null. A figure has fewer decimals where it is large; mib takes bytes, of an array
 * the most. */
void pp_show_text(const json_t *row, const char *key, char *buf, size_t size);
void pp_show_count(const json_t *row, const char *key, char *buf, size_t size);
void pp_show_figure(const json_t *row, const char *key, char *buf, size_t size);
void pp_show_percent(const json_t *row, const char *key, char *buf, size_t size);
void pp_show_mib(const json_t *row, const char *key, char *buf, size_t size);
/* The most of an array; a number as it is. */
double pp_json_most(const json_t *value);

/* Aligned, with headings: the configuration and its ms/batch, which every program has, and n columns more. config:
 * what was asked for. */
enum { PP_ROW_COLUMNS = 16 }; /* at most */
void pp_rows_table(const json_t *rows, const struct pp_config *config, const struct pp_row_column *columns, int n,
                   FILE *out);

#endif
