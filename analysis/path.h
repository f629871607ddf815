/* SPDX-License-Identifier: Apache-2.0
 *
 * The critical path of a traced step, and the causes of its length. docs/METRICS.md defines the causes.
 *
 * The path is walked backwards. It begins at the computation that ends last. From each task it goes to the one that let
 * the task start: to the computation before it on its rank, or to the task that made what it works on (struct
 * pp_node.needs), whichever ended later; and so on to the start of the step. Every nanosecond of the way belongs to one
 * cause, so the causes add up to the makespan.
 */
#ifndef PP_ANALYSIS_PATH_H
#define PP_ANALYSIS_PATH_H

#include "core/database/db_query.h"

/* X(id, name) in the order in which they are printed */
#define PP_CAUSE_LIST(X)                                                                                               \
    X(F, "kernels of F")                                                                                               \
    X(B, "kernels of B")                                                                                               \
    X(I, "kernels of I")                                                                                               \
    X(W, "kernels of W")                                                                                               \
    X(R, "kernels of R")                                                                                               \
    X(SHARING, "sharing of cores")                                                                                     \
    X(MOVING, "moving data")                                                                                           \
    X(WAITING, "waiting")                                                                                              \
    X(POLLING, "polling, between tasks")                                                                               \
    X(COMBINING, "norm, reduction")                                                                                    \
    X(STEP, "optimizer step")                                                                                          \
    X(RESIDUAL, "residual")                                                                                            \
    X(OUTSIDE, "between steps")                                                                                        \
    X(UNTRACED, "tracing, other steps")

enum pp_cause {
#define X(id, name) PP_CAUSE_##id,
    PP_CAUSE_LIST(X)
#undef X
        PP_CAUSES
};
extern const char *const pp_cause_names[PP_CAUSES];

/* A computation on the path. */
struct pp_path_task {
    int32_t task, kind, stage, microbatch, count, rank;
    int64_t until_ns; /* when the path goes on to the next task, from the start of the step */
};

/* How much computations that run at the same time slow each other down. */
struct pp_path_sharing {
    double alone[PP_KINDS]; /* time of a task alone / its time with all cores busy; 1: nothing slows it down */
    int cores;              /* that workers share; 0: not known, and nothing is put down to sharing */
};

struct pp_path {
    int64_t run;
    int step;
    int64_t length_ns;              /* makespan of replica 0's first workers */
    int64_t cause_ns[PP_CAUSES];    /* their sum is length_ns; OUTSIDE and UNTRACED are left 0 */
    int64_t cause_count[PP_CAUSES]; /* tasks of the path that have a part of that time */
    int64_t n;
    struct pp_path_task *tasks; /* computations only, in order of time */
};

/* Reads how tasks slow each other down from the newest profile of the predicted run's device and model; without such a
 * profile all of alone[] is 1. */
pp_status pp_path_sharing_read(struct pp_db *db, int64_t predicted_run, struct pp_path_sharing *out) PP_MUST_CHECK;
/* Finds the path of replica 0 in one step of a run, through the first worker of each rank. PP_INPUT if the step was not
 * traced, or as pp_step_read(). pp_path_free() releases it; after a failure nothing is held. */
pp_status pp_path_read(struct pp_db *db, int64_t run, int step, const struct pp_path_sharing *sharing,
                       struct pp_path *out) PP_MUST_CHECK;
void pp_path_free(struct pp_path *path);

#endif
