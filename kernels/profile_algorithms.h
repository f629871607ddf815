/* SPDX-License-Identifier: Apache-2.0
 *
 * ppprof --algorithms: how a device computes the products of the asked configurations.
 */
#ifndef PP_KERNELS_PROFILE_ALGORITHMS_H
#define PP_KERNELS_PROFILE_ALGORITHMS_H

#include "kernels/profile.h"

/* Lets the device choose for all products of the training of profile->points that `path` does not name, each in the
 * share of the device that a worker of its configuration has, and adds what it chose to the file, which may not be
 * there yet. The file is replaced as a whole, in the end, and only if it is new or there is something to add. */
pp_status pp_profile_algorithms(const struct pp_profile *profile, const char *path) PP_MUST_CHECK;

#endif
