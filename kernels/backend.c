/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/backend.h"

#include <string.h>

#include "kernels/cpu/cpu.h"

/* In order of preference; the last works everywhere. */
static const struct pp_backend *const backends[] = {&pp_backend_cpu};

enum { BACKENDS = sizeof backends / sizeof backends[0] };

const struct pp_backend *pp_backend_at(int i) { return i >= 0 && i < BACKENDS ? backends[i] : NULL; }

pp_status pp_backend_find(const char *name, const struct pp_backend **out)
{
    *out = backends[BACKENDS - 1];
    if (!name || !strcmp(name, "auto")) return PP_OK;
    char names[128] = "auto";
    for (int i = 0; i < BACKENDS; i++) {
        *out = backends[i];
        if (!strcmp(name, backends[i]->name)) return PP_OK;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, ", %s", backends[i]->name);
    }
    *out = NULL;
    return pp_fail(PP_USAGE, "--device %s: there is no such device, this build has %s", name, names);
}

void pp_backend_list(FILE *out)
{
    for (int i = 0; i < BACKENDS; i++) fprintf(out, "%-12s %s\n", backends[i]->name, backends[i]->summary);
}
