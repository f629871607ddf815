/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON values, made so that a shortage of memory anywhere leaves NULL at the end.
 */
#ifndef PP_CORE_BASE_JSON_H
#define PP_CORE_BASE_JSON_H

#include <jansson.h>
#include <stdint.h>

#include "core/base/status.h"

/* A number, or null if it is not finite: JSON has no NaN. */
json_t *pp_json_real(double value);
/* Appends the value to the array, or sets it in the object, and returns the array or object. They take ownership of
 * both arguments. If memory is short, or if an argument is NULL, they release the other one and return NULL: so one
 * check after many calls is enough. */
json_t *pp_json_append(json_t *array, json_t *value);
json_t *pp_json_set(json_t *object, const char *key, json_t *value);

/* The value as text, which the caller frees. PP_NOMEM if memory is short, or if value is NULL. (json_dumps() is not
 * used: it leaves out a key for which it has no memory, and succeeds.) */
pp_status pp_json_dump(const json_t *value, size_t flags, char **out) PP_MUST_CHECK;

/* Arrays of numbers. */
json_t *pp_json_reals(const double *values, int n);
json_t *pp_json_integers(const int64_t *values, int n);

/* A number, written without a fraction if it is whole; null if it is not finite. */
json_t *pp_json_number(double value);

#endif
