/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char mark[] = "\xef\xbb\xbf";

pp_status pp_lines_next(struct pp_lines *lines, char **out)
{
    *out = NULL;
    lines->number++;
    errno = 0;
    const ssize_t length = getline(&lines->line, &lines->capacity, lines->in);
    if (length < 0 && (ferror(lines->in) || errno)) /* without memory getline() sets errno alone */
        return pp_fail(PP_IO, "the file cannot be read: %s", strerror(errno));
    if (length < 0) return PP_OK;
    if (strlen(lines->line) != (size_t)length) return pp_fail(PP_INPUT, "there is a zero byte; this is no text");
    char *line = lines->line;
    if (lines->number == 1 && strncmp(line, mark, sizeof mark - 1) == 0) line += sizeof mark - 1;
    size_t n = strlen(line);
    if (n > 0 && line[n - 1] == '\n') line[--n] = '\0';
    if (n > 0 && line[n - 1] == '\r') line[--n] = '\0';
    *out = line;
    return PP_OK;
}

void pp_lines_free(struct pp_lines *lines)
{
    free(lines->line);
    lines->line = NULL;
}
