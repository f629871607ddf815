/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/carrier.h"

#include <string.h>

const struct pp_carrier *const pp_carriers[] = {
#if PP_HAVE_NCCL
    &pp_carrier_nccl,
#endif
    &pp_carrier_staged,
    NULL,
};

static const struct pp_carrier *named(const char *name)
{
    for (int i = 0; pp_carriers[i]; i++)
        if (!strcmp(pp_carriers[i]->name, name)) return pp_carriers[i];
    return NULL;
}

pp_status pp_carrier_find(const char *name, const struct pp_carrier **out, const char **why)
{
    if (why) *why = NULL;
    *out = name ? named(name) : NULL;
    if (*out) return (*out)->available();
    if (name && !strcmp(name, "nccl"))
        return pp_fail(PP_UNSUPPORTED, "--transport nccl: this build has no NCCL; build with -DPP_WITH_NCCL=ON, or use "
                                       "--transport staged");
    pp_status status = PP_UNSUPPORTED;
    for (int i = 0; pp_carriers[i] && status != PP_OK; i++) {
        status = pp_carriers[i]->available();
        if (status == PP_OK) *out = pp_carriers[i];
        if (status != PP_OK && why) *why = pp_message();
    }
    return status;
}
