/* SPDX-License-Identifier: Apache-2.0
 *
 * From a schedule's orders to a plan: the same for all schedules.
 *
 * The builder lets all ranks take turns, one computation a turn, each when its input is there. What it appends in this
 * one global order are the tasks, so ids are a topological order. When a computation's result goes to another rank, the
 * transfer is created as soon as the receiver has a free receive slot, and at that moment both ends are put in the two
 * ranks' issue lists: every list is a projection of one global order, hence no deadlock even if nothing is buffered.
 * (torch.distributed.pipelining lowers its schedules in the same manner.)
 */
#ifndef PP_SCHEDULES_BUILDER_H
#define PP_SCHEDULES_BUILDER_H

#include "core/plan.h"
#include "schedules/schedule.h"

/* PP_USAGE for an unknown schedule or a shape that it refuses; PP_INPUT if its orders are wrong (missing or doubled
 * work, deadlock). */
pp_status pp_plan_build(const struct pp_plan_spec *spec, struct pp_plan **out) PP_MUST_CHECK;

/* The same from given orders, one per rank (a schedule read from a file, tests). stage_rank: [stages]; every
 * rank has one. */
pp_status pp_plan_build_orders(const struct pp_plan_spec *spec, const struct pp_order *orders, const int *stage_rank,
                               struct pp_plan **out) PP_MUST_CHECK;

/* Is the shape possible for the schedule in training? */
pp_status pp_schedule_check(const char *schedule, int ranks, int virtual_stages, int microbatches) PP_MUST_CHECK;

#endif
