/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules that are files (csv_read.h). Their path stands wherever other schedules have a name.
 *
 * A file is read when it is first named, and what was read then holds until the process ends: so all plans of a process
 * are of the same orders. All functions may be called by several threads.
 */
#ifndef PP_SCHEDULES_FILE_H
#define PP_SCHEDULES_FILE_H

#include "core/plan/plan.h"
#include "core/plan/plan_spec.h"
#include "schedules/schedule.h"

/* Is the name of a schedule the path of a file? It is if it has a slash, or ends in ".csv" (in any case). */
bool pp_schedule_is_file(const char *name);

/* PP_USAGE if the file is for another number of ranks, stages per rank or microbatches; else what reading it returns. A
 * forward-only shape may have fewer microbatches than the file. */
pp_status pp_file_check(const char *path, const struct pp_schedule_shape *shape) PP_MUST_CHECK;

/* Checks that the orders of the file are complete and can be run, with unlimited receive buffers. Sets P, V and M of
 * *out. */
pp_status pp_file_find(const char *path, struct pp_schedule_found *out) PP_MUST_CHECK;

/* Writes the rank of each stage to stage_rank[stages]; 0 for stages that the file does not have. */
pp_status pp_file_place(const char *path, int stages, int *stage_rank) PP_MUST_CHECK;

/* As pp_plan_build(). The name of the plan's schedule is a label of the file (core/base/file_label.h), with a hash of
 * its orders. */
pp_status pp_file_build(const struct pp_plan_spec *spec, struct pp_plan **out) PP_MUST_CHECK;

#endif
