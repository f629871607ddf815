/* SPDX-License-Identifier: Apache-2.0
 *
 * What the environment says of the launcher (mpirun, srun) that started this process. It is known before MPI begins,
 * and in programs that never begin it.
 */
#ifndef PP_CORE_BASE_LAUNCHER_H
#define PP_CORE_BASE_LAUNCHER_H

#include <stdbool.h>

/* Did a launcher start this process? */
bool pp_was_launched(void);
/* The number of processes that it started together; 1 without a launcher. */
int pp_launched_processes(void);
/* The place of this process among them, from 0; 0 without a launcher. MPI numbers its processes so, too. */
int pp_launched_rank(void);
/* Waits as long as a launcher takes to end this process by a signal because another one has failed: mpirun takes a
 * second. For a process other than the first before it tells a failure that the first may have told already. A signal
 * that is caught ends the wait. */
void pp_wait_for_launcher(void);

#endif
