/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/checkpoint_use.h"

#include <stdio.h>

static int64_t fullest(const struct pp_layout *layout)
{
    int64_t most = 0;
    for (int r = 0; r < layout->ranks; r++)
        if (layout->arena_bytes[r] > most) most = layout->arena_bytes[r];
    return most;
}

/* The job without checkpoints: of the same model, which is borrowed. */
static pp_status lay_out_never(const struct pp_job *job, const struct pp_schedules *schedules, int64_t *bytes)
{
    struct pp_job *never;
    PP_TRY(PP_NEW(&never, 1));
    *never = (struct pp_job){.config = job->config,
                             .model_ops = job->model_ops,
                             .point = job->point,
                             .model = job->model,
                             .times = job->times,
                             .borrows = true};
    never->point.checkpoint = PP_CHECKPOINT_NEVER;
    const pp_status status = pp_job_complete(never, schedules, job->eval != NULL, NULL);
    if (status == PP_OK) *bytes = fullest(never->layout);
    pp_job_free(never);
    return status;
}

pp_status pp_checkpoint_use(const struct pp_job *job, const struct pp_schedules *schedules,
                            struct pp_checkpoint_use *out)
{
    out->bytes = fullest(job->layout);
    return lay_out_never(job, schedules, &out->never_bytes);
}

pp_status pp_checkpoint_remark(const struct pp_job *job, const struct pp_schedules *schedules, char *buf, size_t size)
{
    struct pp_checkpoint_use use;
    const struct pp_plan *plan = job->train;
    char mode[PP_CHECKPOINT_TEXT];
    buf[0] = '\0';
    if (!job->layout || plan->checkpoint == PP_CHECKPOINT_NEVER) return PP_OK;
    pp_status status = pp_checkpoint_use(job, schedules, &use);
    if (status == PP_USAGE) return PP_OK; /* without checkpoints it is too large for any layout: they are needed */
    if (status != PP_OK || use.bytes < use.never_bytes) return status;
    snprintf(buf, size,
             "%s, %d stage%s, %d chunk%s: --checkpoint %s saves no memory: the fullest rank needs no more with never%s",
             plan->schedule, plan->ranks, pp_plural(plan->ranks), job->point.chunks, pp_plural(job->point.chunks),
             pp_checkpoint_text(plan->checkpoint, mode),
             plan->split_backward && !pp_checkpoint_in_slots(plan->checkpoint)
                 ? ", for what R makes again is kept until W"
                 : "");
    return PP_OK;
}
