/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes agree before they train, and end together. Each has read options and files by itself, perhaps from a disk
 * of its own; where these differ, training would hang or be wrong. Threads of one process have nothing to agree on.
 */
#ifndef PP_EXEC_AGREE_H
#define PP_EXEC_AGREE_H

#include "exec/transport.h"

enum { PP_TERM_VALUE = 160, PP_TERMS = 128 };

/* One value that must be equal in all processes. Where it is not, the message gives its name, and `advice`: what the
 * user should do. */
struct pp_term {
    const char *name, *advice;
    char value[PP_TERM_VALUE];
};

struct pp_terms {
    int n; /* more than PP_TERMS: some were left out, and pp_agree() refuses */
    struct pp_term v[PP_TERMS];
};

/* Adds a term with a formatted value. A value that is too long is replaced by its beginning and a hash of all of it.
 * name and advice are borrowed. */
void pp_terms_add(struct pp_terms *terms, const char *name, const char *advice, const char *fmt, ...) PP_PRINTF(4, 5);

/* Compares the terms of all processes. All processes call it, with equally many terms in the same order.
 *
 * status: PP_OK, or PP_USAGE where this process refuses to run; pp_message() then says why. terms: NULL where only the
 * statuses are compared; the terms of a process that refuses are ignored.
 *
 * Returns PP_OK where all processes accept and their terms are equal; PP_USAGE where all refuse; PP_INPUT where only
 * some refuse, or the terms of some process differ from those of process 0 (the message is the same in all processes);
 * PP_INTERNAL where there are more than PP_TERMS terms. */
pp_status pp_agree(const struct pp_transport *transport, const struct pp_processes *processes, pp_status status,
                   const struct pp_terms *terms) PP_MUST_CHECK;

/* Ends this process's part in the run; each process calls it last. status: the result of this process; of a failure
 * pp_message() is printed. alike: all processes have this same failure, and know it.
 *
 * The first process prints its message. Another process prints its own only where not all fail alike, and it failed by
 * itself, not because another process did. Where not all fail alike, a process that failed aborts the whole run, so the
 * call does not return. transport: NULL where it was not started: then the first process of the launcher is the first,
 * and the others wait a moment for the launcher to end them before they print. */
void pp_end_together(const struct pp_transport *transport, const struct pp_processes *processes, pp_status status,
                     bool alike);

#endif
