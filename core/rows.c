/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rows.h"

#include <math.h>

#include "core/config.h"

enum { DIGITS = 17 }; /* a double comes back bit for bit */

json_t *pp_json_real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static void write_value(const json_t *value, FILE *out)
{
    const char *key, *separator = "";
    json_t *member;
    size_t i;
    if (json_is_string(value)) fputs(json_string_value(value), out);
    if (json_is_integer(value)) fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (json_is_real(value)) fprintf(out, "%.*g", DIGITS, json_real_value(value));
    if (json_is_boolean(value)) fputs(json_is_true(value) ? "true" : "false", out);
    json_array_foreach((json_t *)value, i, member)
    {
        if (i > 0) fputc(',', out);
        write_value(member, out);
    }
    json_object_foreach((json_t *)value, key, member)
    {
        fprintf(out, "%s%s=", separator, key);
        write_value(member, out);
        separator = ";";
    }
}

static void write_line(json_t *row, bool heading, FILE *out)
{
    const char *key, *separator = "";
    json_t *value;
    json_object_foreach(row, key, value)
    {
        fputs(separator, out);
        if (heading)
            fputs(key, out);
        else
            write_value(value, out);
        separator = "\t";
    }
    fputc('\n', out);
}

void pp_rows_write(const json_t *rows, int format, FILE *out)
{
    json_t *row;
    size_t i;
    if (format == PP_FORMAT_JSON) {
        json_dumpf(rows, out, JSON_INDENT(2));
        fputc('\n', out);
    }
    if (format != PP_FORMAT_TSV || json_array_size(rows) == 0) return;
    write_line(json_array_get(rows, 0), true, out);
    json_array_foreach((json_t *)rows, i, row) write_line(row, false, out);
}
