/* SPDX-License-Identifier: Apache-2.0
 *
 * The CSV dialect of torch.distributed.pipelining, "compute_only": one row per rank, one cell per computation in order
 * ("0F0,0F1,2F0,..."): stage, kind (F, I, W, B), microbatch. No header. `_PipelineScheduleRuntime._load_csv` reads it.
 */
#ifndef PP_SCHEDULES_CSV_H
#define PP_SCHEDULES_CSV_H

#include <stdio.h>

#include "core/plan.h"

/* Recomputations are not part of the dialect and are left out. PP_IO if the stream fails. */
pp_status pp_plan_csv(const struct pp_plan *plan, FILE *out) PP_MUST_CHECK;

#endif
