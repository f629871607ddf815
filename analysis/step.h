/* SPDX-License-Identifier: Apache-2.0
 *
 * One traced step of a run, read from the database: when each task of the plan was posted, started and ended, and which
 * task gave it what it works on (view v_task_edge). Of all workers it has replica 0, and of each rank's workers the
 * first.
 */
#ifndef PP_ANALYSIS_STEP_H
#define PP_ANALYSIS_STEP_H

#include "core/database/db_query.h"

/* A task of the plan. Where `seen` is false, the step has no event of the task, and all other members are 0. */
struct pp_node {
    int32_t kind; /* enum pp_kind */
    int32_t stage, microbatch, count;
    int32_t src; /* the first rank of the task's lane, -1 for NORM_ALL */
    bool seen;
    int64_t posted_ns; /* of a transfer: when the sender posted it */
    int64_t start_ns,
        end_ns;     /* a transfer ends when the receiver has it. Tasks of several ranks: see pp_step_end_ns() */
    int32_t before; /* the computation before this one on its rank; -1: none, or this is no computation */
    /* Of the tasks whose results this one works on (edges "input" and "parameters" of the same step), the one that
     * ended last; -1: there is none. Edges that only keep memory or the order of receives do not count. */
    int32_t needs;
};

/* When one rank came to a task that several ranks do together, and when the task was over on that rank. */
struct pp_joining {
    int64_t posted_ns, end_ns;
};

/* A moment at which a worker begins to compute (change = 1) or ends (change = -1). */
struct pp_busy_change {
    int64_t at_ns;
    int change;
};

struct pp_step {
    int64_t run;
    int ranks, stages, replicas, microbatches;
    int neighbours;                         /* workers of each rank */
    int traced_replicas, traced_neighbours; /* of how many there are events; a prediction may have one of each */
    int64_t nnodes;
    struct pp_node *nodes;          /* [nnodes], by the ids of tasks */
    struct pp_joining *norm, *tied; /* [ranks] of NORM_ALL and of REDUCE_TIED; 0 for a rank that takes no part */
    int64_t nchanges;
    struct pp_busy_change *changes; /* computations of all workers, in order of time */
};

/* Reads the step. PP_INPUT if the rows are not such as ppkit writes, or if the plan was stored without its edges (by a
 * ppkit older than schema version 7). pp_step_free() releases what was read; after a failure nothing is held. */
pp_status pp_step_read(struct pp_db *db, int64_t run, int step, struct pp_step *out) PP_MUST_CHECK;
void pp_step_free(struct pp_step *step);

/* When `rank` came to a task, and when the task was over on that rank. Ranks differ in what they do together. */
int64_t pp_step_posted_ns(const struct pp_step *step, int32_t task, int rank);
int64_t pp_step_end_ns(const struct pp_step *step, int32_t task, int rank);

#endif
