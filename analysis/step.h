/* SPDX-License-Identifier: Apache-2.0
 *
 * One traced step of replica 0, of its ranks' first workers, by task, with the edges that data takes. They follow from
 * what the tasks are (core/plan.h, Waiting), so databases of every version have them.
 */
#ifndef PP_ANALYSIS_STEP_H
#define PP_ANALYSIS_STEP_H

#include "core/db_query.h"

struct pp_node {
    int32_t kind, stage, microbatch, count;
    int32_t src, dst;
    bool seen;                /* it has an event */
    int64_t posted_ns;        /* of a transfer: by its sender */
    int64_t start_ns, end_ns; /* of a transfer: end at its receiver; of what several ranks do: the first one's */
    int32_t before;           /* computation before it on its rank; -1 = none */
};

/* When a rank came to what several ranks do together, and when that was over there. */
struct pp_joining {
    int64_t posted_ns, end_ns;
};

struct pp_busy_edge {
    int64_t at_ns;
    int change; /* +1: a worker begins to compute, -1: it ends */
};

struct pp_step {
    int64_t run;
    int ranks, replicas, tensor, microbatches;
    int traced_replicas, traced_tensor; /* a prediction may have one */
    int64_t nnodes;
    struct pp_node *nodes;
    int32_t *made;  /* [stages][microbatches][2] computation that makes an activation, a gradient; -1 = none */
    int32_t *moved; /* ... transfer of it */
    int stages;
    struct pp_joining *norm, *tied; /* [ranks] NORM_ALL, REDUCE_TIED; all 0 where a rank has none */
    int64_t nedges;
    struct pp_busy_edge *edges; /* computations of all workers, in order of time */
};

pp_status pp_step_read(struct pp_db *db, int64_t run, int step, struct pp_step *out) PP_MUST_CHECK;
void pp_step_free(struct pp_step *step);
/* When a rank came to a task, and when it was over there. */
int64_t pp_step_posted_ns(const struct pp_step *step, int32_t task, int rank);
int64_t pp_step_end_ns(const struct pp_step *step, int32_t task, int rank);
/* The transfer, computation of the same rank, or collective that gives the task what it works on; -1 if it waits for
 * nothing but its turn. */
int32_t pp_step_needs(const struct pp_step *step, int32_t task);

#endif
