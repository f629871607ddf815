/* SPDX-License-Identifier: Apache-2.0
 *
 * What was measured of links: samples, and figures fitted to them (exec/link_profile.h measures).
 */
#ifndef PP_CORE_DATABASE_LINK_PROFILE_H
#define PP_CORE_DATABASE_LINK_PROFILE_H

#include "core/database/db.h"

/* A named figure of a named thing, such as a parameter of a link. Texts are borrowed. */
struct pp_figure {
    const char *of, *name; /* the thing, the figure */
    double value;
};

enum { PP_LINK_SAMPLES = 96, PP_LINK_FIGURES = 32 };

/* The texts of samples and figures are borrowed: they must stay as long as the profile. */
struct pp_link_profile {
    int nsamples, nfigures;
    struct pp_sample samples[PP_LINK_SAMPLES];
    struct pp_figure figures[PP_LINK_FIGURES];
};

#endif
