/* SPDX-License-Identifier: Apache-2.0
 *
 * Log and progress, on standard error. Results never go through here. Only programs and long-running loops log;
 * libraries return messages (status.h). If a run has several processes, only the first one logs; the others report
 * nothing but errors.
 */
#ifndef PP_CORE_BASE_LOG_H
#define PP_CORE_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

/* Call it first. program: the name that is put before each line ("ppexec: "). quiet: this process only reports errors.
 */
void pp_log_init(const char *program, bool quiet);
void pp_error(const char *fmt, ...) PP_PRINTF(1, 2);
void pp_warn(const char *fmt, ...) PP_PRINTF(1, 2);
void pp_info(const char *fmt, ...) PP_PRINTF(1, 2); /* without the program's name */
/* The same in lines of at most PP_WRAP_COLUMNS, for sentences that nobody searches for. */
void pp_info_wrapped(const char *fmt, ...) PP_PRINTF(1, 2);

/* Shows a status line, which the next one overwrites, at most ten times a second; does nothing unless standard error is
 * a terminal. fmt = NULL clears the line; so does any other log line. */
void pp_progress(const char *fmt, ...) PP_PRINTF(1, 2);

/* Shows how far a pass over the n tasks of a plan is, "WHAT: 3 of 25 million tasks", where it takes seconds. Call it
 * for each task; and with i = n at the end, which clears the line. */
enum { PP_MANY_TASKS = 1 << 22, PP_TASKS_BETWEEN = 1 << 18 };
void pp_show_tasks(const char *what, int64_t i, int64_t n);
static inline void pp_progress_tasks(const char *what, int64_t i, int64_t n)
{
    if (n >= PP_MANY_TASKS && (i % PP_TASKS_BETWEEN == 0 || i == n)) pp_show_tasks(what, i, n);
}

#endif
