/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry of devices. struct pp_backend (core/program.h) is what a device offers.
 */
#ifndef PP_KERNELS_BACKEND_H
#define PP_KERNELS_BACKEND_H

#include <stdio.h>

#include "core/program.h"

/* A registered name, or "auto" (or NULL): the first that this machine can use. PP_USAGE if unknown, naming those
 * there are. */
pp_status pp_backend_find(const char *name, const struct pp_backend **out) PP_MUST_CHECK;

/* One line each, for --list. */
void pp_backend_list(FILE *out);

/* The i-th backend; NULL past the end. */
const struct pp_backend *pp_backend_at(int i);

#endif
