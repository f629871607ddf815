/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that this process could still get.
 */
#ifndef PP_CORE_BASE_MEMORY_LEFT_H
#define PP_CORE_BASE_MEMORY_LEFT_H

#include <stdint.h>

/* Bytes that the system could still hand out without swapping, but no more than what the limits of the process's
 * control groups leave (a container's memory; cgroups 1 and 2). Cached files do not count as used, since they give way.
 * -1: the system does not say. root: what stands before /proc and /sys, "" but in tests. */
int64_t pp_memory_left(const char *root);

#endif
