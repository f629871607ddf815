/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what was measured: for people as tables, for programs as tsv or json. There each line or object is one record;
 * its field `what` is task, link, parameter or reference. Fields that a record does not have are empty, or null.
 */
#ifndef PP_KERNELS_PROFILE_PRINT_H
#define PP_KERNELS_PROFILE_PRINT_H

#include <stdio.h>

#include "core/database/link_profile.h"
#include "kernels/profile.h"

/* format: enum pp_format. out: a stream into memory of the caller; after PP_NOMEM it may hold a part of the output. */
pp_status pp_profile_print(FILE *out, int format, struct pp_profile *profile,
                           const struct pp_link_profile *links) PP_MUST_CHECK;

#endif
