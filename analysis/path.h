/* SPDX-License-Identifier: Apache-2.0
 *
 * The critical path of a traced step, and what its time went into. docs/METRICS.md defines the causes.
 *
 * The path is walked backwards from the computation that ends last: to whatever let it start last, the task before it
 * on its rank or the transfer or collective that it needs, and so on to the start of the step. Every nanosecond of the
 * way belongs to one cause, so the causes add up to the makespan.
 */
#ifndef PP_ANALYSIS_PATH_H
#define PP_ANALYSIS_PATH_H

#include "core/db_query.h"

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

struct pp_path_task {
    int32_t task, kind, stage, microbatch, count, rank;
    int64_t until_ns; /* when the path leaves it, from the start of the step */
};

/* How computations slow each other down. alone[kind]: time alone / time with all cores busy; cores 0: they do not. */
struct pp_path_sharing {
    double alone[PP_KINDS];
    int cores;
};

struct pp_path {
    int64_t run;
    int step, ranks;
    int64_t length_ns;              /* makespan of replica 0's first workers */
    int64_t cause_ns[PP_CAUSES];    /* their sum is length_ns; OUTSIDE and UNTRACED are left 0 */
    int64_t cause_count[PP_CAUSES]; /* tasks of the path */
    int64_t n;
    struct pp_path_task *tasks; /* computations only, in order of time */
};

/* What a profile of the predicted run's device and workload says of sharing. */
pp_status pp_path_sharing_read(struct pp_db *db, int64_t predicted_run, struct pp_path_sharing *out) PP_MUST_CHECK;
/* The path of replica 0 in one step of a run, through the first worker of each rank. PP_INPUT if the step was not
 * traced, or is damaged. */
pp_status pp_path_read(struct pp_db *db, int64_t run, int step, const struct pp_path_sharing *sharing,
                       struct pp_path *out) PP_MUST_CHECK;
void pp_path_free(struct pp_path *path);

#endif
