/* SPDX-License-Identifier: Apache-2.0 */
#include "core/options/listing.h"

#include <stdlib.h>

#include "core/options/config.h"

json_t *pp_list_row(const char *name, const char *summary)
{
    return pp_json_set(pp_json_set(json_object(), "name", json_string(name)), "summary", json_string(summary));
}

json_t *pp_list_row_missing(const char *name, const char *summary, const char *missing)
{
    return pp_json_set(pp_list_row(name, summary), "missing", missing ? json_string(missing) : json_null());
}

static const char *text_of(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }

static void print_rows(const json_t *rows, FILE *out)
{
    json_t *row;
    size_t i;
    if (json_array_size(rows) == 0) fputs("  none\n", out);
    json_array_foreach((json_t *)rows, i, row)
    {
        fprintf(out, "  %-16s %s", text_of(row, "name"), text_of(row, "summary"));
        const char *missing = text_of(row, "missing");
        if (missing) fprintf(out, " (%s)", missing);
        fputc('\n', out);
    }
}

static void print_text(const struct pp_listing *listings, const json_t *all, FILE *out)
{
    for (const struct pp_listing *l = listings; l->key; l++) {
        fprintf(out, "%s:\n", l->heading ? l->heading : l->key);
        print_rows(json_object_get(all, l->key), out);
    }
}

static pp_status print_json(const json_t *all, FILE *out)
{
    char *text;
    PP_TRY(pp_json_dump(all, JSON_INDENT(2), &text));
    fprintf(out, "%s\n", text);
    free(text);
    return PP_OK;
}

pp_status pp_listings_print(const struct pp_listing *listings, int format, FILE *out)
{
    if (format == PP_FORMAT_TSV)
        return pp_fail(PP_USAGE, "--list has several lists, no table: leave --format tsv out, or take --format json");
    json_t *all = json_object();
    for (const struct pp_listing *l = listings; l->key; l++) all = pp_json_set(all, l->key, l->rows());
    pp_status status = all ? PP_OK : pp_fail(PP_NOMEM, "cannot allocate the lists");
    if (all && format == PP_FORMAT_JSON)
        status = print_json(all, out);
    else if (all)
        print_text(listings, all, out);
    json_decref(all);
    return status;
}
