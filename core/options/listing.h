/* SPDX-License-Identifier: Apache-2.0
 *
 * What --list prints: what there is, listing by listing.
 */
#ifndef PP_CORE_OPTIONS_LISTING_H
#define PP_CORE_OPTIONS_LISTING_H

#include <stdio.h>

#include "core/base/json.h"
#include "core/base/status.h"

struct pp_listing {
    const char *key;       /* of the array in JSON */
    const char *heading;   /* of the text; NULL: the key */
    json_t *(*rows)(void); /* an array of what pp_list_row() returns; NULL if memory is short */
};

/* A row: an object with `name` and `summary`, to which more fields may be added. NULL if memory is short. */
json_t *pp_list_row(const char *name, const char *summary);
/* The same of what cannot be used here, and why not: `missing`, a text, or null if it can be used. */
json_t *pp_list_row_missing(const char *name, const char *summary, const char *missing);

/* Prints all listings, the last of which has no key. format: PP_FORMAT_JSON (an object with an array for each), or
 * PP_FORMAT_TABLE: for people, name, summary, and what is missing. PP_USAGE for others; PP_NOMEM: a text of JSON is
 * printed as a whole or not at all. Errors of writing are left in the error flag of `out`. */
pp_status pp_listings_print(const struct pp_listing *listings, int format, FILE *out) PP_MUST_CHECK;

#endif
