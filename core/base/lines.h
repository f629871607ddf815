/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts that users write, line by line: schedules, block times, lists of configurations.
 */
#ifndef PP_CORE_BASE_LINES_H
#define PP_CORE_BASE_LINES_H

#include <stdio.h>

#include "core/base/status.h"

/* What is done with a line, which it may change: without its end (LF, CR LF, or a CR at the end of the text), and
 * without the byte order mark that some editors write before UTF-8. */
typedef pp_status pp_take_line(void *arg, char *line);

/* Gives all lines of `in` to take(arg, ...), until one fails. *number: of the line that it is at, counted from 1; after
 * a failure of the one that it is about. PP_INPUT for a zero byte; PP_IO; what take() returns. Messages of its own name
 * neither file nor line. */
pp_status pp_lines_each(FILE *in, int *number, pp_take_line *take, void *arg) PP_MUST_CHECK;

#endif
