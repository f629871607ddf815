/* SPDX-License-Identifier: Apache-2.0
 *
 * The times that a job gives its schedule to decide by (struct pp_stage_costs). They are a function of the job alone,
 * so that all programs, processes and devices make the same plan.
 */
#ifndef PP_CORE_JOB_STAGE_COSTS_H
#define PP_CORE_JOB_STAGE_COSTS_H

#include "core/job/given_times.h"
#include "core/model/model.h"
#include "core/plan/plan_spec.h"

/* From given times, in ns, without straggler and jitter. If whole stages are recomputed, or all layers (any checkpoint
 * mode from PP_CHECKPOINT_EXCEPT_LAST to PP_CHECKPOINT_LAYERS), the second forward counts as a part of I. *out points
 * into *arrays, which the caller frees. */
pp_status pp_stage_costs_given(const struct pp_given_times *times, int stages, int virtual_stages, int checkpoint,
                               int64_t **arrays, struct pp_stage_costs *out) PP_MUST_CHECK;

/* From the floating-point operations of the model's tasks, for `rows` rows of `seq` tokens; hops take no time, and
 * recomputation counts as above. *out points into *arrays, which the caller frees, also after a failure. */
pp_status pp_stage_costs_counted(const struct pp_model *model, const struct pp_model_ops *ops, int rows, int seq,
                                 int checkpoint, int64_t **arrays, struct pp_stage_costs *out) PP_MUST_CHECK;

#endif
