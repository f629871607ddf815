/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/lines.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char mark[] = "\xef\xbb\xbf";

struct text {
    FILE *in;
    char *line;
    size_t capacity;
};

/* *out: the next line, NULL behind the last one. */
static pp_status next(struct text *text, bool is_first, char **out)
{
    *out = NULL;
    errno = 0;
    const ssize_t length = getline(&text->line, &text->capacity, text->in);
    /* Of a line that cannot be read to its end getline() returns the beginning; without memory it sets errno alone. */
    if (ferror(text->in) || (length < 0 && errno))
        return pp_fail(PP_IO, "the file cannot be read: %s", strerror(errno));
    if (length < 0) return PP_OK;
    if (strlen(text->line) != (size_t)length) return pp_fail(PP_INPUT, "there is a zero byte; this is no text");
    char *line = text->line;
    if (is_first && strncmp(line, mark, sizeof mark - 1) == 0) line += sizeof mark - 1;
    size_t n = strlen(line);
    if (n > 0 && line[n - 1] == '\n') line[--n] = '\0';
    if (n > 0 && line[n - 1] == '\r') line[--n] = '\0';
    *out = line;
    return PP_OK;
}

pp_status pp_lines_each(FILE *in, int *number, pp_take_line *take, void *arg)
{
    struct text text = {.in = in};
    pp_status status;
    char *line;
    *number = 0;
    do {
        ++*number;
        status = next(&text, *number == 1, &line);
        if (status == PP_OK && line) status = take(arg, line);
    } while (status == PP_OK && line);
    free(text.line);
    return status;
}
