/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan is told of the stages of a model.
 */
#ifndef PP_CORE_JOB_PLAN_STAGES_H
#define PP_CORE_JOB_PLAN_STAGES_H

#include "core/job/job.h"

/* [stages] pp_plan_spec.act_bytes, of the training and of the evaluation plan, and pp_plan_spec.parts. */
struct pp_plan_stages {
    int64_t (*act_bytes[2])[PP_ACT_PARTS], (*eval_act_bytes)[PP_ACT_PARTS];
    int *parts;
};

/* job: has its model. rows: of the largest microbatch. evaluate: there is an evaluation plan. PP_NOMEM. Call
 * pp_plan_stages_free() also after a failure. */
pp_status pp_plan_stages_make(const struct pp_job *job, int rows, bool evaluate,
                              struct pp_plan_stages *out) PP_MUST_CHECK;
void pp_plan_stages_free(struct pp_plan_stages *stages);

#endif
