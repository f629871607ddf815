/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of processes of ppexec: the sum of what follows from the job (core/job/process.h) and of what ppprof measured.
 */
#ifndef PP_SIM_PROCESS_H
#define PP_SIM_PROCESS_H

#include "core/database/db.h"
#include "core/job/job.h"

/* Memory of processes, in bytes: what was measured, in addition to what follows from the job. */
struct pp_process_cost {
    bool known;     /* it was measured */
    bool alone;     /* each worker has a process of its own (MPI); else all workers are in one */
    double base;    /* of any process */
    double worker;  /* of each worker */
    double first;   /* of the first process, in addition */
    int64_t joined; /* pp_process_joined_bytes() of the job */
};

/* Finds it for a job and a transport. For one between processes, a measurement with as many processes as the job has is
 * preferred. PP_INPUT for figures that cannot have been measured. */
pp_status pp_process_cost_find(struct pp_db *db, const struct pp_job *job, const char *transport,
                               struct pp_process_cost *out) PP_MUST_CHECK;

/* Bytes of the process whose first worker is `worker`; 0 if the worker is not the first one of its process, or if the
 * cost, which is of this job, is not known. data_bytes: training data, which each process has. */
int64_t pp_process_bytes(const struct pp_job *job, const struct pp_process_cost *cost, int64_t data_bytes, int worker);
/* Bytes of the largest process; 0: not known. */
int64_t pp_process_most_bytes(const struct pp_job *job, const struct pp_process_cost *cost, int64_t data_bytes);

#endif
