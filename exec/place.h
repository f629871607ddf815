/* SPDX-License-Identifier: Apache-2.0
 *
 * Where workers run.
 */
#ifndef PP_EXEC_PLACE_H
#define PP_EXEC_PLACE_H

#include "exec/transport.h"

/* mpirun ties each process to a core or two, knowing nothing of its threads: a process of more threads gets the whole
 * machine back. Before any thread is started. */
void pp_place_process(const struct pp_processes *processes, int64_t threads);

/* Ties the calling thread to a core of its own if every worker of the machine can have one; else the system decides. */
void pp_place_worker(const struct pp_world *world, int me, int threads);

#endif
