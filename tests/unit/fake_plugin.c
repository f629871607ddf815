/* SPDX-License-Identifier: Apache-2.0
 *
 * Files for kernels/backend.c to load. FAKE: 1 a backend, 2 one of another ppkit, 3 no backend at all, 4 one that
 * needs a library that is not there, 5 one of another version with the same sizes.
 */
#include <stdlib.h>

#include "kernels/plugin.h"

#if FAKE == 4
int pp_function_of_a_missing_library(void);
#endif

static pp_status available(void)
{
#if FAKE == 4
    return pp_function_of_a_missing_library();
#else
    const char *why = getenv("FAKE_WHY");
    return why ? pp_fail(PP_UNSUPPORTED, "because of %s", why) : PP_OK;
#endif
}

static const struct pp_backend backend = {.name = "cuda", .summary = "a fake", .available = available};

#if FAKE != 3
extern const struct pp_plugin pp_plugin;
__attribute__((visibility("default"))) const struct pp_plugin pp_plugin = {
#if FAKE == 2
    .abi = {0},
    .version = "0.0.0",
#else
    .abi = PP_PLUGIN_ABI,
    .version = FAKE == 5 ? "0.0.0" : PP_VERSION,
#endif
    .backend = &backend};
#else
__attribute__((visibility("default"))) const struct pp_backend *const something_else = &backend;
#endif
