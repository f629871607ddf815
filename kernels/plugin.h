/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend in a file of its own, loaded when a program asks for its device: programs start without its libraries, and
 * run where these are not installed. It uses the functions of core/base/status.h that the program exports, so its
 * messages are the program's.
 */
#ifndef PP_KERNELS_PLUGIN_H
#define PP_KERNELS_PLUGIN_H

#include "core/model/queue.h"
#include "kernels/kernels.h"

/* What both sides must agree in. The first number changes with the meaning of what the sizes do not show. */
#define PP_PLUGIN_ABI                                                                                                  \
    {                                                                                                                  \
        2, PP_KERNELS, sizeof(struct pp_backend), sizeof(struct pp_queue_ops), sizeof(struct pp_program),              \
            sizeof(struct pp_call), sizeof(struct pp_frame), sizeof(struct pp_device_spec)                             \
    }
enum { PP_PLUGIN_ABI_NUMBERS = 8 };

/* The one symbol that a plugin exports. */
#define PP_PLUGIN_SYMBOL "pp_plugin"
struct pp_plugin {
    int64_t abi[PP_PLUGIN_ABI_NUMBERS]; /* first in every version */
    const char *version;                /* PP_VERSION */
    const struct pp_backend *backend;
};

#endif
