/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/json.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

json_t *pp_json_real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *pp_json_number(double value)
{
    const double most = 0x1p53;
    return fabs(value) < most && value == trunc(value) ? json_integer((json_int_t)value) : pp_json_real(value);
}

json_t *pp_json_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) == 0) return array;
    json_decref(array);
    return NULL;
}

json_t *pp_json_reals(const double *values, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++) array = pp_json_append(array, pp_json_real(values[i]));
    return array;
}

json_t *pp_json_integers(const int64_t *values, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++) array = pp_json_append(array, json_integer(values[i]));
    return array;
}

json_t *pp_json_set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) == 0) return object;
    json_decref(object);
    return NULL;
}

struct text {
    char *bytes;
    int64_t n, room;
    bool failed; /* kept, because Jansson ignores a failure to write a key */
};

static int take_part(const char *part, size_t size, void *arg)
{
    struct text *text = arg;
    if (text->failed || PP_GROW(&text->bytes, text->n + (int64_t)size + 1, &text->room) != PP_OK) {
        text->failed = true;
        return -1;
    }
    memcpy(text->bytes + text->n, part, size);
    text->n += (int64_t)size;
    text->bytes[text->n] = '\0';
    return 0;
}

pp_status pp_json_dump(const json_t *value, size_t flags, char **out)
{
    struct text text = {0};
    const int result = json_dump_callback(value, take_part, &text, flags);
    *out = text.bytes;
    if (result == 0 && !text.failed) return PP_OK;
    free(text.bytes);
    *out = NULL;
    return pp_fail(PP_NOMEM, "cannot allocate memory for a text of JSON");
}
