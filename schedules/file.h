/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule that is a file (csv_read.h), named by its path where another schedule has a name.
 */
#ifndef PP_SCHEDULES_FILE_H
#define PP_SCHEDULES_FILE_H

#include "core/plan.h"
#include "schedules/schedule.h"

/* Is the name of a schedule the path of a file: does it hold a slash, or end with ".csv"? */
bool pp_schedule_is_file(const char *name);

/* Does the file have so many ranks, stages on each, and microbatches? PP_USAGE; or what reading it gives. An evaluation
 * may have fewer microbatches, and runs the forwards of those. */
pp_status pp_file_check(const char *path, const struct pp_schedule_shape *shape) PP_MUST_CHECK;

/* Are its orders complete, and can they be run if nothing limits receive buffers? *virtual_stages: those of a rank. */
pp_status pp_file_find(const char *path, int *virtual_stages) PP_MUST_CHECK;

/* stage_rank: [stages], of a file that has so many. */
pp_status pp_file_place(const char *path, int stages, int *stage_rank) PP_MUST_CHECK;

/* As pp_plan_build(); the plan's schedule is the file's name without its folder, and a hash of its orders. */
pp_status pp_file_build(const struct pp_plan_spec *spec, struct pp_plan **out) PP_MUST_CHECK;

#endif
