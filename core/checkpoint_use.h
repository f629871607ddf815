/* SPDX-License-Identifier: Apache-2.0
 *
 * What --checkpoint saves. Where the backward is split, the slot that R fills is kept until W, and a schedule that puts
 * W off needs as many slots as without checkpoints: the second forward then costs time and saves nothing.
 */
#ifndef PP_CORE_CHECKPOINT_USE_H
#define PP_CORE_CHECKPOINT_USE_H

#include <stddef.h>

#include "core/job.h"

/* Arena of the fullest rank of the job, and what it would be if the same order recomputed nothing. Transfers have the
 * slots that they have: with other tasks between them a channel may need one more or less. */
struct pp_checkpoint_use {
    int64_t bytes, never_bytes;
};

/* Linear in the tasks. PP_NOMEM; PP_USAGE where nothing has room for the arena without checkpoints. */
pp_status pp_checkpoint_use(const struct pp_job *job, struct pp_checkpoint_use *out) PP_MUST_CHECK;

/* Into buf a line for the user, where the mode that was asked for saves nothing; else "". Of a job without a model, or
 * without checkpoints, nothing is to be said. */
pp_status pp_checkpoint_remark(const struct pp_job *job, char *buf, size_t size) PP_MUST_CHECK;

#endif
