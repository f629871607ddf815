/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor cores that this process may use. A core counts once, however many hardware threads it has, because two
 * workers on two hardware threads of one core would share its arithmetic units. hwloc tells which threads belong to one
 * core; in a build without hwloc every hardware thread counts as a core.
 */
#ifndef PP_CORE_BASE_CORES_H
#define PP_CORE_BASE_CORES_H

#include <sched.h>
#include <stddef.h>

/* Cores that the thread may use which calls any of these first: pp_affinity_widen() before that counts. At least 1. */
int pp_cores_count(void);
/* Cores of which any hardware thread is in a set of so many bytes. At least 1. */
int pp_cores_in(const cpu_set_t *usable, size_t bytes);

/* Ties the calling thread to usable core number n modulo pp_cores_count(). If the system refuses, the thread stays
 * untied, which costs speed only. */
void pp_cores_pin(int n);

#endif
