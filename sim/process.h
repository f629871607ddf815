/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of processes: what the job says (core/process.h) and what ppprof measured, added up.
 */
#ifndef PP_SIM_PROCESS_H
#define PP_SIM_PROCESS_H

#include "core/db.h"
#include "core/job.h"

/* What a process takes beside what its job says, in bytes. */
struct pp_process_cost {
    bool known, alone;          /* alone: one worker in each process (MPI); else all in one */
    double base, worker, first; /* of any process, of each of its workers; what the first process has beside others */
};

/* Of a transport; of one between processes best as measured with as many of them. known = false where they were not
 * measured. PP_INPUT for figures that cannot be. */
pp_status pp_process_cost_find(struct pp_db *db, const struct pp_job *job, const char *transport,
                               struct pp_process_cost *out) PP_MUST_CHECK;

/* Bytes of the process whose first worker this is; 0: it is in another's, or nothing is known. data_bytes: of the
 * training data, which each process has. */
int64_t pp_process_bytes(const struct pp_job *job, const struct pp_process_cost *cost, int64_t data_bytes, int worker);
/* Of the largest process; 0: not known. */
int64_t pp_process_most_bytes(const struct pp_job *job, const struct pp_process_cost *cost, int64_t data_bytes);

#endif
