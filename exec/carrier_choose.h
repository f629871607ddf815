/* SPDX-License-Identifier: Apache-2.0
 *
 * Which carrier a run uses: --transport and --device, the processes, and what can be used here.
 */
#ifndef PP_EXEC_CARRIER_CHOOSE_H
#define PP_EXEC_CARRIER_CHOOSE_H

#include "core/options/config.h"
#include "exec/carrier.h"

/* PP_USAGE where --transport cannot mean anything on a device that works through queues: this process alone may have
 * been given such a word, so processes agree on the status before they choose. */
pp_status pp_carrier_check(const struct pp_config *config, const struct pp_backend *backend,
                           const struct pp_processes *processes) PP_MUST_CHECK;

/* Chooses what moves the memory of devices between workers. *out: NULL where devices use the host's memory; `inproc`
 * where all workers are in one process; else a carrier between processes, the same in all of them. workers: of each
 * process, in the largest configuration. Called by the main thread of every process before any other thread is started,
 * for it may set environment variables. Processes meet in it, and after PP_USAGE go on to where they agree on a status.
 * config: as pp_carrier_check() allows. */
pp_status pp_carrier_choose(const struct pp_config *config, const struct pp_backend *backend,
                            const struct pp_transport *transport, const struct pp_processes *processes, int workers,
                            const struct pp_carrier **out) PP_MUST_CHECK;

/* Stores in the world its carrier, and whether workers of this process share devices. Called before the workers
 * start. */
void pp_carrier_set(struct pp_world *world, const struct pp_config *config, const struct pp_backend *backend,
                    const struct pp_carrier *carrier);

#endif
