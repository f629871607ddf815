/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's computations of a step, in stretches that all ranks begin together in a profile. With what a task shares the
 * device depends on them: on an H200 a backward is slowed down more by other backwards than by forwards.
 */
#ifndef PP_KERNELS_PROFILE_STRETCHES_H
#define PP_KERNELS_PROFILE_STRETCHES_H

#include "core/plan/plan.h"

enum { PP_STRETCHES = 3 };

struct pp_stretches {
    const struct pp_task **tasks; /* [begin[n]] in the plan's order */
    int n;                        /* 1 .. PP_STRETCHES */
    int begin[PP_STRETCHES + 1];  /* stretch i has the tasks begin[i] .. begin[i+1]-1, at least one */
};

/* The optimizer step is a stretch of its own. Where `split` is true and every rank has all its forwards before its
 * first other task, as in GPipe, they are one, too. All ranks have equally many. Release the tasks with free(). */
pp_status pp_stretches_of(const struct pp_plan *plan, int rank, bool split, struct pp_stretches *out) PP_MUST_CHECK;

#endif
