/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes agree before they train, and end together. Each has read options and files by itself, perhaps from a disk
 * of its own; where these differ, training would hang or be wrong. Threads of one process have nothing to agree on.
 */
#ifndef PP_EXEC_AGREE_H
#define PP_EXEC_AGREE_H

#include "exec/transport.h"

enum { PP_TERM_VALUE = 160, PP_TERMS = 96 };

/* What must be equal: under a name, with what to do where it is not, both for the message. */
struct pp_term {
    const char *name, *advice;
    char value[PP_TERM_VALUE];
};

struct pp_terms {
    int n; /* more than PP_TERMS: some were left out, and pp_agree() refuses */
    struct pp_term v[PP_TERMS];
};

/* Of a value that is too long its beginning is kept, and a number that stands for all of it. name and advice are
 * borrowed. */
void pp_terms_add(struct pp_terms *terms, const char *name, const char *advice, const char *fmt, ...) PP_PRINTF(4, 5);

/* All processes call it, with as many terms in the same order. status: PP_OK, or PP_USAGE with its message: how this
 * process has fared. Returns PP_USAGE where all refuse; PP_INPUT, with one message that is the same in all, where some
 * do or terms differ from those of process 0; PP_INTERNAL where there are more terms than room. terms: NULL or of a
 * process that refuses: there are none. */
pp_status pp_agree(const struct pp_transport *transport, const struct pp_processes *processes, pp_status status,
                   const struct pp_terms *terms) PP_MUST_CHECK;

/* The last that a process does with the others. status: how it has fared, with its message, which is printed once: by
 * the first process where all fail alike, else by who failed by itself, and takes the others along. alike: all have
 * this failure, and know it. transport: NULL: it was not started. Returns, unless others were taken along. */
void pp_end_together(const struct pp_transport *transport, const struct pp_processes *processes, pp_status status,
                     bool alike);

#endif
