/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a run, ready to be drawn as bars: one for each computation and collective of a worker, and one for each
 * transfer, made of the events of its two ends.
 */
#ifndef PP_ANALYSIS_TIMELINE_H
#define PP_ANALYSIS_TIMELINE_H

#include "core/database/db_query.h"

struct pp_bar {
    int32_t step, worker; /* of a transfer: the receiving worker */
    int32_t kind;         /* enum pp_kind */
    int32_t task, stage, microbatch, count;
    int64_t start_ns, end_ns;
    int64_t taken_bytes, freed_bytes;
};

struct pp_timeline {
    int64_t run;
    int ranks, virtual_stages, replicas;
    int neighbours;      /* workers of each rank, T N C */
    int expert_parallel; /* N: groups of these workers that have rows of their own */
    int context;         /* C: groups of these workers that have parts of the tokens of the same rows */
    int64_t nbars;
    struct pp_bar *bars; /* in order of start, then task */
};

/* Pictures show the workers of replica 0. All workers of a rank do the same tasks, so only the first one is shown.
 * pp_timeline_worker(): the worker that is shown of a rank. pp_timeline_rank(): the rank of a bar; -1 if the bar's
 * worker is not shown. */
static inline int pp_timeline_worker(const struct pp_timeline *t, int rank) { return rank * t->neighbours; }
static inline int pp_timeline_rank(const struct pp_timeline *t, const struct pp_bar *bar)
{
    return bar->worker % t->neighbours || bar->worker >= t->ranks * t->neighbours ? -1 : bar->worker / t->neighbours;
}

/* Reads one step of the run, or all steps (step = -1). A run without events gives nbars = 0. PP_INPUT if there is no
 * such run, or its rows are damaged. After a failure nothing is held. */
pp_status pp_timeline_read(struct pp_db *db, int64_t run, int step, struct pp_timeline *out) PP_MUST_CHECK;
void pp_timeline_free(struct pp_timeline *timeline);
/* *step: the traced step in which the makespan of replica 0 is the median of all traced steps; -1 if there is none.
 * PP_INPUT if the row is damaged. */
pp_status pp_timeline_typical_step(struct pp_db *db, int64_t run, int *step) PP_MUST_CHECK;

#endif
