/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory --checkpoint saves. It may be nothing: if the backward is split, the activation slot that R fills is
 * kept until W, so a schedule that delays W needs as many slots as without checkpoints, and the second forward only
 * costs time.
 */
#ifndef PP_CORE_JOB_CHECKPOINT_USE_H
#define PP_CORE_JOB_CHECKPOINT_USE_H

#include <stddef.h>

#include "core/job/job.h"

/* The arena of the rank that needs most. */
struct pp_checkpoint_use {
    int64_t bytes;       /* of the job as it is */
    int64_t never_bytes; /* of the same job with PP_CHECKPOINT_NEVER */
};

/* Makes the job once more, without checkpoints. PP_NOMEM; PP_USAGE if the arena would then be larger than a layout can
 * be (pp_layout_create()). */
pp_status pp_checkpoint_use(const struct pp_job *job, const struct pp_schedules *schedules,
                            struct pp_checkpoint_use *out) PP_MUST_CHECK;

/* Writes to buf a line for the user if the job's checkpoint mode saves nothing; else "" (also for a job without a
 * model, or without checkpoints). */
pp_status pp_checkpoint_remark(const struct pp_job *job, const struct pp_schedules *schedules, char *buf,
                               size_t size) PP_MUST_CHECK;

#endif
