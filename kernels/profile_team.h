/* SPDX-License-Identifier: Apache-2.0
 *
 * A team: some ranks of a job, which run their tasks and time them, each in a thread of its own. They run all at once,
 * or in turns, one task each: then each task runs alone, in shared caches that the others have used before.
 */
#ifndef PP_KERNELS_PROFILE_TEAM_H
#define PP_KERNELS_PROFILE_TEAM_H

#include "kernels/profile.h"

/* What a worker measured of one cost class of the plan. */
struct pp_tally {
    bool wanted;           /* the rank computes tasks of this class, and its shape is still to be measured */
    int tasks;             /* of this class in a step of the rank */
    int seen;              /* runs so far, timed or not */
    struct pp_times task;  /* time of whole tasks on the device */
    struct pp_times host;  /* time that issuing a whole task takes the host; queue devices only */
    struct pp_times cpu;   /* for how long of a whole task the thread had a core; other devices only */
    struct pp_times *call; /* [ncalls of the program] single calls, from other runs; NULL until there are any */
};

struct pp_team_member {
    int rank;
    int64_t budget_ns; /* it is content after this time, with a few samples of each wanted class; earlier with many */
    struct pp_tally *tally; /* [nclasses]; `wanted` is set by the caller */
};

/* Runs n members until all are content. With queue devices, each member opens the device of one of the job's workers.
 * Samples count only while all members run; with in_turns they always count, for one runs at a time. *reference_ns: the
 * time of the reference kernel, run by all members at the same moment, averaged over them. PP_INTERRUPTED: stopped
 * early; the samples until then are kept. */
pp_status pp_team_run(const struct pp_profile_setup *setup, const struct pp_job *job, struct pp_team_member *members,
                      int n, bool in_turns, int64_t *reference_ns) PP_MUST_CHECK;

#endif
