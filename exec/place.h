/* SPDX-License-Identifier: Apache-2.0
 *
 * Where workers run.
 */
#ifndef PP_EXEC_PLACE_H
#define PP_EXEC_PLACE_H

#include "core/model/backend.h"
#include "core/options/config.h"
#include "exec/transport.h"

/* mpirun binds each process to one or two cores, whatever its number of threads. This gives the whole machine back to a
 * process that has more threads than that. Called before any thread is started. */
void pp_place_process(const struct pp_processes *processes, int64_t threads);

/* Cores of this machine that its processes may use together. */
int pp_processes_cores(const struct pp_processes *processes);

/* Binds the calling thread to a core of its own, if every worker of the machine can have one; else the system
 * decides. */
void pp_place_worker(const struct pp_world *world, int me, int threads);

/* The device of one of this process's `workers`; worker: its index among them. Borrows from the config. */
struct pp_device_spec pp_place_device(const struct pp_processes *processes, const struct pp_config *config, int workers,
                                      int worker);
/* How many workers of this host share that device. */
int pp_place_sharers(const struct pp_backend *backend, const struct pp_device_spec *spec);

#endif
