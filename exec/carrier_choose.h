/* SPDX-License-Identifier: Apache-2.0
 *
 * Which carrier a run uses: --transport and --device, the processes, and what can be used here.
 */
#ifndef PP_EXEC_CARRIER_CHOOSE_H
#define PP_EXEC_CARRIER_CHOOSE_H

#include "core/config.h"
#include "exec/carrier.h"

/* *out: inproc where all workers are in one process, NULL where the host's memory is the device's, else the one between
 * processes, the same in all of them. workers: of a process, in the largest configuration. By the main thread of every
 * process, before any other thread is started: the environment is set for it. PP_USAGE: the same in all processes. */
pp_status pp_carrier_choose(const struct pp_config *config, const struct pp_backend *backend,
                            const struct pp_transport *transport, const struct pp_processes *processes, int workers,
                            const struct pp_carrier **out) PP_MUST_CHECK;

/* Has the world this carrier, and do workers of this process share devices? Before the workers start. */
void pp_carrier_set(struct pp_world *world, const struct pp_config *config, const struct pp_backend *backend,
                    const struct pp_carrier *carrier);

#endif
