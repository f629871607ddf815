/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/fp8_use.h"

#include <stdio.h>

#include "core/calls/fp8.h"

static bool multiplies(const struct pp_job *job, const struct pp_phase *phase)
{
    for (int c = 0; phase->programs && c < phase->plan->nclasses; c++)
        for (int i = 0; i < phase->programs[c].ncalls; i++)
            if (job->model_ops->call_work(&phase->programs[c].calls[i], true).flops[PP_FP8] > 0) return true;
    return false;
}

void pp_fp8_remark(const struct pp_job *job, char *buf, size_t size)
{
    bool any = !job->model || job->config->model.precision != PP_FP8;
    for (int i = 0; i < PP_PHASES && !any; i++) any = job->phase[i].plan && multiplies(job, &job->phase[i]);
    snprintf(buf, size, "%s", "");
    if (!any)
        snprintf(buf, size,
                 "--precision fp8: all products stay in bf16, for none has sizes that are multiples of %d, tokens of a "
                 "microbatch among them",
                 PP_FP8_STEP);
}
