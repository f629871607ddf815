/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/rows.h"

#include <stdlib.h>

#include "core/options/config.h"

enum { DIGITS = 17 }; /* enough to read back the same double */

static void write_value(const json_t *value, int digits, FILE *out)
{
    const char *key, *separator = "";
    json_t *member;
    size_t i;
    if (json_is_string(value)) fputs(json_string_value(value), out);
    if (json_is_integer(value)) fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (json_is_real(value)) fprintf(out, "%.*g", digits, json_real_value(value));
    if (json_is_boolean(value)) fputs(json_is_true(value) ? "true" : "false", out);
    json_array_foreach((json_t *)value, i, member)
    {
        if (i > 0) fputc(',', out);
        write_value(member, digits, out);
    }
    json_object_foreach((json_t *)value, key, member)
    {
        fprintf(out, "%s%s=", separator, key);
        write_value(member, digits, out);
        separator = ";";
    }
}

static void write_line(json_t *row, bool heading, int digits, FILE *out)
{
    const char *key, *separator = "";
    json_t *value;
    json_object_foreach(row, key, value)
    {
        fputs(separator, out);
        if (heading)
            fputs(key, out);
        else
            write_value(value, digits, out);
        separator = "\t";
    }
    fputc('\n', out);
}

static void write_tsv(const json_t *rows, int digits, FILE *out)
{
    json_t *row;
    size_t i;
    if (json_array_size(rows) > 0) write_line(json_array_get(rows, 0), true, digits, out);
    json_array_foreach((json_t *)rows, i, row) write_line(row, false, digits, out);
}

/* The text is made as a whole first: a part of it could be taken for a result. */
static pp_status write_json(const json_t *value, size_t flags, FILE *out)
{
    char *text;
    PP_TRY(pp_prefix(pp_json_dump(value, flags, &text), "the results"));
    fputs(text, out);
    free(text);
    return PP_OK;
}

pp_status pp_rows_write(const json_t *rows, int format, FILE *out)
{
    if (format == PP_FORMAT_TSV) write_tsv(rows, DIGITS, out);
    if (format != PP_FORMAT_JSON) return PP_OK;
    PP_TRY(write_json(rows, JSON_INDENT(2), out));
    fputc('\n', out);
    return PP_OK;
}

pp_status pp_rows_write_lines(const json_t *rows, int format, int digits, FILE *out)
{
    json_t *row;
    size_t i;
    if (format == PP_FORMAT_TSV) write_tsv(rows, digits, out);
    if (format != PP_FORMAT_JSON) return PP_OK;
    fputc('[', out);
    json_array_foreach((json_t *)rows, i, row)
    {
        fputs(i > 0 ? ",\n  " : "\n  ", out);
        PP_TRY(write_json(row, JSON_REAL_PRECISION(digits), out));
    }
    fputs("\n]\n", out);
    return PP_OK;
}
