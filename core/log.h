/* SPDX-License-Identifier: Apache-2.0
 *
 * Log and progress, on standard error. Results never go through here. Only programs and long-running loops log;
 * libraries return messages (status.h). Of several processes the first alone logs; the others only report errors.
 */
#ifndef PP_CORE_LOG_H
#define PP_CORE_LOG_H

#include <stdbool.h>

#include "core/status.h"

/* The program's name, put before each line ("ppexec: "). quiet = this process only reports errors. Call it first. */
void pp_log_init(const char *program, bool quiet);
void pp_error(const char *fmt, ...) PP_PRINTF(1, 2);
void pp_warn(const char *fmt, ...) PP_PRINTF(1, 2);
void pp_info(const char *fmt, ...) PP_PRINTF(1, 2); /* without the program's name */

/* A status line that is overwritten in place, at most ten times a second, only if standard error is a terminal. fmt
 * NULL clears it. Any other log line clears it first. */
void pp_progress(const char *fmt, ...) PP_PRINTF(1, 2);

#endif
