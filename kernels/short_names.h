/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of programs for tables. What says the same of all tasks, which is most of what describes the model, is left out
 * of the names, and can be told once.
 */
#ifndef PP_KERNELS_SHORT_NAMES_H
#define PP_KERNELS_SHORT_NAMES_H

#include "core/model/program.h"

struct pp_short_names {
    char (*names)[PP_SIGNATURE_BYTES]; /* [n] */
    char left_out[PP_SIGNATURE_BYTES]; /* the words that are left out, with spaces between them; "": none are */
};

/* Shortens names[n] if the longest is wider than `room`. Left out are words that stand in the names of all tasks of
 * microbatches, from these and from the names of other tasks; what is done by how many layers ("F 2l+emb") and the rows
 * stay. PP_NOMEM. Call pp_short_names_free() also after a failure. */
pp_status pp_short_names_make(const char *const *names, int64_t n, int room, struct pp_short_names *out) PP_MUST_CHECK;
void pp_short_names_free(struct pp_short_names *names);

#endif
