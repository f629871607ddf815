/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry of devices. struct pp_backend (core/model/backend.h) is what a device offers. Some are loaded when they
 * are asked for (kernels/plugin.h).
 */
#ifndef PP_KERNELS_BACKEND_H
#define PP_KERNELS_BACKEND_H

#include "core/base/json.h"
#include "core/model/backend.h"

/* A device that this machine can use, loaded if need be. NULL: the cpu. "auto": the first that can be used; a line of
 * the log says why, if that is not the first of all. PP_USAGE if unknown, naming those there are; PP_UNSUPPORTED if
 * this build or machine cannot use it, saying what is missing. From one thread at a time, before others run it. */
pp_status pp_backend_find(const char *name, const struct pp_backend **out) PP_MUST_CHECK;

/* For programs that predict what a device does and need none: its name and summary, and nothing else; nothing
 * is loaded. "auto" and NULL: the cpu. PP_USAGE if unknown. */
pp_status pp_backend_named(const char *name, const struct pp_backend **out) PP_MUST_CHECK;

/* PP_USAGE where a file of algorithms is given to a device that has none to choose from. path: NULL is fine. */
pp_status pp_backend_check_algorithms(const struct pp_backend *backend, const char *path) PP_MUST_CHECK;

/* Their rows for --list (core/options/listing.h). */
json_t *pp_backend_list(void);

#endif
