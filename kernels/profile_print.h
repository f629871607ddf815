/* SPDX-License-Identifier: Apache-2.0
 *
 * What was measured, for people (table) and programs (tsv, json: one record per line or object, `what` = task, link,
 * parameter or reference; figures that a record does not have are empty or null).
 */
#ifndef PP_KERNELS_PROFILE_PRINT_H
#define PP_KERNELS_PROFILE_PRINT_H

#include <stdio.h>

#include "kernels/profile.h"

/* What exec/ measured of the links. */
struct pp_profile_links {
    const struct pp_sample *samples;
    int nsamples;
    const struct pp_figure *parameters;
    int nparameters;
};

/* format: enum pp_format. `out` is the caller's own memory: after PP_NOMEM there may be a part of it. */
pp_status pp_profile_print(FILE *out, int format, struct pp_profile *profile,
                           const struct pp_profile_links *links) PP_MUST_CHECK;

#endif
