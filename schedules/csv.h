/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules as CSV, in the format "compute_only" of torch.distributed.pipelining (_PipelineScheduleRuntime._load_csv
 * reads it): one row per rank, without a heading, and in it one cell per computation, in order: stage, kind (F, I, W or
 * B), microbatch, as in "0F0,0F1,2F0,...".
 */
#ifndef PP_SCHEDULES_CSV_H
#define PP_SCHEDULES_CSV_H

#include <stdio.h>

#include "core/plan/plan.h"

/* Writes the order of computations of a plan. Recomputations (R) are left out: the format does not have them. PP_IO if
 * the stream fails. */
pp_status pp_plan_csv(const struct pp_plan *plan, FILE *out) PP_MUST_CHECK;

#endif
