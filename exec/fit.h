/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a configuration fit into memory? Workers take their memory one after the other, some perhaps in vain after
 * seconds; of a sweep, a configuration that does not fit is left out before any of them has begun.
 */
#ifndef PP_EXEC_FIT_H
#define PP_EXEC_FIT_H

#include "core/job/job.h"
#include "core/model/backend.h"
#include "exec/transport.h"

struct pp_fit_call {
    const struct pp_transport *transport;
    const struct pp_processes *processes;
    const struct pp_backend *backend;
    const struct pp_config *config;
    const struct pp_job *job;
    pp_status refusal; /* what to return where it does not fit */
};

/* Compares what the arenas of all workers of a machine, or of a GPU, take together with what it has left. (A limit that
 * each process of a machine has for itself is taken for one that they share.) All processes call it while no worker of
 * any of them has an arena. *refused: all get `refusal` as the result, with the same message, about the first device
 * that has too little; after any other failure of one process the others must be aborted. PP_OK does not mean that
 * there will be room: a device need not tell what it has left (pp_backend.available_bytes), and other things take
 * memory, too. */
pp_status pp_fit_check(const struct pp_fit_call *call, bool *refused) PP_MUST_CHECK;

#endif
