/* SPDX-License-Identifier: Apache-2.0
 *
 * What main() of every program does: parse the options, answer --help, --version and --list, call the program's work,
 * and check at the end that everything printed has been written.
 */
#ifndef PP_CORE_OPTIONS_MAIN_H
#define PP_CORE_OPTIONS_MAIN_H

#include "core/options/config.h"
#include "core/options/listing.h"

struct pp_main {
    const struct pp_program_info *info; /* if info->operands is not "", the program takes at most one operand */
    const struct pp_listing *listings;  /* ends with a key of NULL; NULL: the program has no --list */
    struct pp_config *config;           /* pp_main() fills it in before it calls run() */
    /* Does the work. operand: that of the command line, or NULL. */
    pp_status (*run)(void *session, const char *operand);
    /* Called after run() and, if that succeeded, the flush of standard output; status: the first failure, if there was
     * one. It reports the failure, ends what the process shares with others, and releases memory. NULL: pp_main()
     * reports the failure. */
    void (*leave)(void *session, pp_status status);
    void *session; /* passed to run() and leave() */
};

/* Returns the exit code. A write beyond the file size limit (ulimit -f) fails, with a message, instead of ending the
 * process. Unless run() catches them, SIGINT, SIGTERM and SIGHUP end the process at once, with the exit code of
 * PP_INTERRUPTED, and a message; but not after a SIGTERM to one of several processes of a launcher, which sends it when
 * another of them has failed. */
int pp_main(const struct pp_main *program, int argc, char **argv) PP_MUST_CHECK;

/* Makes SIGINT, SIGTERM and SIGHUP call `handler`. A signal that the process was started to ignore (nohup, background
 * job of a script) stays ignored. flags: those of sigaction(). PP_IO. */
pp_status pp_catch_signals(void (*handler)(int), int flags) PP_MUST_CHECK;

/* For signal handlers: what to make of this signal. *first_ns must be 0 before the first signal, and is set to the time
 * at which it came (core/base/clock.h). */
enum pp_turn {
    PP_TURN_FIRST,    /* the first signal */
    PP_TURN_SAME,     /* the same request again: `timeout`, launchers and terminals may send it twice at once */
    PP_TURN_IMPATIENT /* half a second after the first one, or later: a user who does not want to wait */
};
enum pp_turn pp_signal_turn(_Atomic int64_t *first_ns);

/* For signal handlers: prints that a signal has stopped the program, and ends it with the exit code of PP_INTERRUPTED.
 */
_Noreturn void pp_end_by_signal(void);

/* Flushes standard output, and checks that it was written. A program that prints to standard error after its results
 * calls it first, so that the order is kept. PP_IO. */
pp_status pp_flush_output(void) PP_MUST_CHECK;

#endif
