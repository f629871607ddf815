/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of one rank for profiling: its arena as in training, with parameters, tokens and received values like
 * those of training.
 */
#ifndef PP_KERNELS_PROFILE_ARENA_H
#define PP_KERNELS_PROFILE_ARENA_H

#include "core/job/job.h"
#include "core/model/backend.h"
#include "core/model/program.h"

struct pp_profile_arena {
    const struct pp_job *job;
    const struct pp_backend *backend;
    struct pp_device *device;
    int rank;
    char *base;
    int64_t bytes;
    double *results; /* in the device's memory: the loss, then a sum of squares for each tensor of the model */
    int64_t results_bytes;
};

/* Allocates the arena on `device`, which is borrowed, and fills it. After a failure there is nothing to close. */
pp_status pp_profile_arena_open(const struct pp_job *job, const struct pp_backend *backend, struct pp_device *device,
                                int rank, struct pp_profile_arena *out) PP_MUST_CHECK;
void pp_profile_arena_close(struct pp_profile_arena *arena);

/* Sets *out to the frame for a compute task of the rank in the training plan. */
void pp_profile_arena_frame(struct pp_profile_arena *arena, const struct pp_task *task, struct pp_frame *out);

#endif
