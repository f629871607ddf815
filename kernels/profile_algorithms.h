/* SPDX-License-Identifier: Apache-2.0
 *
 * ppprof --algorithms: chooses the algorithms by which a device computes the products of the configurations.
 */
#ifndef PP_KERNELS_PROFILE_ALGORITHMS_H
#define PP_KERNELS_PROFILE_ALGORITHMS_H

#include "kernels/profile.h"

/* For each product in the training of the configurations profile->points: if the file `path` does not name it, the
 * device chooses an algorithm, in the share that a worker of that configuration has, and the choice is added to the
 * file. The file need not exist. At the end it is replaced as a whole, unless it exists and nothing was added. */
pp_status pp_profile_algorithms(const struct pp_profile *profile, const char *path) PP_MUST_CHECK;

#endif
