/* SPDX-License-Identifier: Apache-2.0
 *
 * Results for programs: an array of JSON objects, one per configuration, printed as JSON or as tab-separated values
 * with the same fields.
 */
#ifndef PP_CORE_ROWS_H
#define PP_CORE_ROWS_H

#include <jansson.h>
#include <stdio.h>

#include "core/status.h"

/* A number, or null where it is not finite: JSON knows no NaN. */
json_t *pp_json_real(double value);
/* The array with the value behind the others, or the object with the value at the key: takes both over, and returns
 * NULL where memory is short (or was: NULL goes in and comes out), so that one check at the end is enough. */
json_t *pp_json_append(json_t *array, json_t *value);
json_t *pp_json_set(json_t *object, const char *key, json_t *value);

/* A number that is whole without a fraction; null where it is not finite. */
json_t *pp_json_number(double value);

/* format: PP_FORMAT_TSV (heading, then one line per object; null is empty, arrays are joined with commas, objects are
 * key=value) or PP_FORMAT_JSON. Other formats print nothing. PP_NOMEM: nothing was printed; what the file refuses, its
 * error flag tells. */
pp_status pp_rows_write(const json_t *rows, int format, FILE *out) PP_MUST_CHECK;
/* The same for many small records: fractions with so many digits, JSON with a record a line. `out` is the caller's own
 * memory: PP_NOMEM leaves a part there. */
pp_status pp_rows_write_lines(const json_t *rows, int format, int digits, FILE *out) PP_MUST_CHECK;

#endif
