/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the memory of a process beyond what is known of its job (core/job/process.h): runs small jobs as ppexec
 * would, and subtracts what is known from the resident bytes. Only for devices whose memory is the host's.
 *
 * "inproc process" base_bytes: program, libraries, database, in one process for all workers; worker_bytes: what each
 * worker adds, its thread's stack, buffers of BLAS, small tables. "mpi process", by the name of what joins processes:
 * the same with its library; first_bytes is what the first process has beside the others: the database.
 */
#ifndef PP_EXEC_PROCESS_PROFILE_H
#define PP_EXEC_PROCESS_PROFILE_H

#include "exec/exec.h"
#include "exec/link_profile.h"

/* Resident bytes of this process, as the system counts them; 0 where it does not tell. */
int64_t pp_process_resident_bytes(void);

struct pp_process_setup {
    struct pp_exec exec; /* of the run that is wanted; without data and database */
    int chunks;          /* the smallest number of chunks that is wanted: it has the largest products */
    int64_t mpi_bytes;   /* resident bytes that starting the transport added to this process */
    int64_t own_bytes;   /* bytes that this process keeps, and a process of ppexec would not */
};

/* All processes call it, before anything large is allocated. Only the first one gets figures: those of a process with
 * all workers in threads, and, where there are several processes, those of one of them. */
pp_status pp_process_profile(const struct pp_process_setup *setup, struct pp_link_profile *out) PP_MUST_CHECK;

#endif
