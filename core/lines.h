/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that users write, line by line: schedules, block times, lists of configurations.
 */
#ifndef PP_CORE_LINES_H
#define PP_CORE_LINES_H

#include <stdio.h>

#include "core/status.h"

/* Begins as {.in = file}, and ends with pp_lines_free(), also after a failure. */
struct pp_lines {
    FILE *in;   /* the caller's */
    int number; /* of the last line, counted from 1; after a failure of the one that it is about */
    char *line;
    size_t capacity;
};

/* *out: the next line without its end (LF, CR LF, or a CR at the end of the text), which the caller may change; NULL
 * behind the last one. The byte order mark that some editors write before UTF-8 is left out. PP_INPUT for a zero byte;
 * PP_IO; messages name neither file nor line. */
pp_status pp_lines_next(struct pp_lines *lines, char **out) PP_MUST_CHECK;
void pp_lines_free(struct pp_lines *lines);

#endif
