/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a run, ready to be drawn: compute and collectives as they are, the two ends of a transfer made one.
 */
#ifndef PP_ANALYSIS_TIMELINE_H
#define PP_ANALYSIS_TIMELINE_H

#include "core/db_query.h"

struct pp_bar {
    int32_t step, worker; /* of a transfer: the receiving worker */
    int32_t kind;         /* enum pp_kind */
    int32_t task, stage, microbatch, count;
    int32_t src, dst; /* ranks of a transfer; elsewhere both the lane's rank, -1 for the global norm */
    int64_t start_ns, end_ns;
    int64_t taken_bytes, freed_bytes;
};

struct pp_timeline {
    int64_t run;
    int ranks, virtual_stages, replicas;
    int tensor;                   /* workers of a rank */
    int expert_parallel, context; /* so many groups of these have rows of their own, or parts of the same rows */
    int64_t nbars;
    struct pp_bar *bars; /* in order of start, then task */
};

/* Pictures show replica 0, and of the workers of a rank, which do the same tasks, the first: that of rank r is worker
 * pp_timeline_worker(). The rank of a bar; -1: of a worker that is not shown. */
static inline int pp_timeline_worker(const struct pp_timeline *t, int rank) { return rank * t->tensor; }
static inline int pp_timeline_rank(const struct pp_timeline *t, const struct pp_bar *bar)
{
    return bar->worker % t->tensor || bar->worker >= t->ranks * t->tensor ? -1 : bar->worker / t->tensor;
}

/* step: one step of the run, or -1 for all. A run without events gives nbars = 0. */
pp_status pp_timeline_read(struct pp_db *db, int64_t run, int step, struct pp_timeline *out) PP_MUST_CHECK;
void pp_timeline_free(struct pp_timeline *timeline);
/* The traced step of replica 0 whose makespan is the median; -1 if there is none. */
pp_status pp_timeline_typical_step(struct pp_db *db, int64_t run, int *step) PP_MUST_CHECK;

#endif
