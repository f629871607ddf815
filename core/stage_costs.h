/* SPDX-License-Identifier: Apache-2.0
 *
 * What a job tells its schedule to decide by (struct pp_stage_costs): a function of the job alone, so that all
 * programs, processes and devices make the same plan.
 */
#ifndef PP_CORE_STAGE_COSTS_H
#define PP_CORE_STAGE_COSTS_H

#include "core/given_times.h"
#include "core/plan.h"
#include "core/program.h"

/* Given times, in ns; no straggler, no jitter. I with a checkpoint (any but never) begins with a second forward.
 * *arrays is what *out points to, the caller's to free. */
pp_status pp_stage_costs_given(const struct pp_given_times *times, int stages, int virtual_stages, int checkpoint,
                               int64_t **arrays, struct pp_stage_costs *out) PP_MUST_CHECK;

/* Floating-point operations of the model's tasks on so many rows of `seq` tokens; hops take no time. *arrays is the
 * caller's to free, also on failure. */
pp_status pp_stage_costs_counted(const struct pp_model *model, const struct pp_model_ops *ops, int rows, int seq,
                                 int checkpoint, int64_t **arrays, struct pp_stage_costs *out) PP_MUST_CHECK;

#endif
