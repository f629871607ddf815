/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor cores that this process may use. A core counts once, however many hardware threads it has (hwloc
 * tells; in a build without it every hardware thread counts): two workers on the two threads of one core would share
 * its arithmetic.
 */
#ifndef PP_CORE_CORES_H
#define PP_CORE_CORES_H

/* Gives the process back the cores that a launcher kept from it, where the system allows it. Before the first of the
 * calls below, and before any thread is started; later it unties the calling thread and those that it starts. */
void pp_cores_widen(void);

/* Usable cores; at least 1. */
int pp_cores_count(void);

/* Ties the calling thread to the n-th usable core, counted round. A refusal costs speed only. */
void pp_cores_pin(int n);

#endif
