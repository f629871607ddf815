/* SPDX-License-Identifier: Apache-2.0
 *
 * What main() of every program does: options, --help, --version and --list, the work, and at the end a look whether
 * all that was printed has arrived. Layers do not matter here: the program hands in what it does.
 */
#ifndef PP_CORE_MAIN_H
#define PP_CORE_MAIN_H

#include <stdio.h>

#include "core/config.h"

/* A part of what --list prints. */
struct pp_listing {
    const char *heading;
    void (*print)(FILE *out);
};

/* A row of it. */
void pp_list_row(FILE *out, const char *name, const char *fmt, ...) PP_PRINTF(3, 4);

struct pp_main {
    const struct pp_program_info *info; /* with operands: it takes one at most */
    const struct pp_listing *listings;  /* ends with a heading of NULL; NULL: the program has no --list */
    struct pp_config *config;           /* is there when run() begins */
    /* The work, with the operand of the command line (NULL: none was given). */
    pp_status (*run)(void *session, const char *operand);
    /* After run(), when what was printed has arrived or something failed: tells of the failure, ends what is shared
     * with other processes, releases. NULL: the failure is told here, and there is nothing else to do. */
    void (*leave)(void *session, pp_status status);
    void *session;
};

/* Returns the exit code. A write beyond the file size limit (ulimit -f) fails, with a message, instead of ending the
 * process. SIGINT and SIGTERM end it at once with the exit code of what was interrupted, unless run() catches them. */
int pp_main(const struct pp_main *program, int argc, char **argv) PP_MUST_CHECK;

/* SIGINT and SIGTERM call `handler`, but for those that the process was started to ignore (nohup, background job of a
 * script): these stay ignored. flags: of sigaction(). PP_IO. */
pp_status pp_catch_signals(void (*handler)(int), int flags) PP_MUST_CHECK;

/* For a signal handler: is this one the first, the same request once more (`timeout`, launchers and terminals send it
 * twice at once), or half a second later or more, of a user who does not want to wait? *first_ns is 0 before the first,
 * then when it came (core/clock.h). */
enum pp_turn { PP_TURN_FIRST, PP_TURN_SAME, PP_TURN_IMPATIENT };
enum pp_turn pp_signal_turn(_Atomic int64_t *first_ns);

/* For a signal handler: says that a signal has stopped the program, and ends it with that exit code. */
_Noreturn void pp_end_by_signal(void);

/* Writes out what was printed; a program that tells more afterwards calls it before. PP_IO. */
pp_status pp_flush_output(void) PP_MUST_CHECK;

#endif
