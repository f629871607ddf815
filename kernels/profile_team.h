/* SPDX-License-Identifier: Apache-2.0
 *
 * Some ranks of a job running their tasks, each in a thread of its own, and the durations they saw: all at once, or in
 * turns, one task each, so that each runs alone and finds the caches that all share as the others left them.
 */
#ifndef PP_KERNELS_PROFILE_TEAM_H
#define PP_KERNELS_PROFILE_TEAM_H

#include "kernels/profile.h"

/* What a worker saw of one cost class of the plan. */
struct pp_tally {
    bool wanted;           /* the class is the rank's and its shape is still to be measured */
    int seen;              /* runs, timed or not */
    struct pp_times task;  /* whole tasks: on the device */
    struct pp_times host;  /* ... what issuing them takes the host; queue devices only */
    struct pp_times cpu;   /* ... for how long of it their thread had a core; other devices only */
    struct pp_times *call; /* [ncalls of the program] single calls, from runs of their own; NULL until there are any */
};

struct pp_team_member {
    int rank;
    int64_t budget_ns;      /* content after this time with a few samples of each wanted class, or earlier with many */
    struct pp_tally *tally; /* [nclasses]; `wanted` is set by the caller */
};

/* Runs n members until all are content; with queue devices each has a device opened for one of the job's workers.
 * Samples count only while all run; in_turns: always, for one runs at a time. *reference_ns: the mean over the
 * members of the reference kernel's duration, taken in their threads at the same moment. PP_INTERRUPTED: stopped
 * early, the samples so far are there. */
pp_status pp_team_run(const struct pp_profile_setup *setup, const struct pp_job *job, struct pp_team_member *members,
                      int n, bool in_turns, int64_t *reference_ns) PP_MUST_CHECK;

#endif
