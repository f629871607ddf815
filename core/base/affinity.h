/* SPDX-License-Identifier: Apache-2.0
 *
 * The processors that a thread may use, on systems with any number of them: a cpu_set_t has room for 1024.
 */
#ifndef PP_CORE_BASE_AFFINITY_H
#define PP_CORE_BASE_AFFINITY_H

#include <sched.h>
#include <stddef.h>

/* Those of the calling thread, in a set of *bytes bytes, which free() releases. NULL: not known. */
cpu_set_t *pp_affinity(size_t *bytes);
/* How many these are; at least 1. */
int pp_affinity_count(void);
/* Lets the calling thread, and those that it starts afterwards, use all processors that the system allows, also those
 * that a launcher has excluded. If the system refuses, nothing changes, which costs speed only. */
void pp_affinity_widen(void);
/* Ties the calling thread to one. If the system refuses, it stays untied. */
void pp_affinity_tie(int cpu);

#endif
