/* SPDX-License-Identifier: Apache-2.0
 *
 * The builder: makes a plan from the orders of a schedule, in the same way for all schedules.
 *
 * The ranks take turns. In its turn a rank appends the next computation of its order to the tasks of the plan, if the
 * input is there. So tasks are appended in one global order, and their ids are topological. If the result goes to
 * another rank, the transfer is appended as soon as the receiver has a free receive slot; at that moment both of its
 * ends enter the issue lists of the two ranks. So every issue list is a part of the one global order, and no deadlock
 * is possible, even if nothing is buffered. (torch.distributed.pipelining lowers its schedules in the same manner.)
 */
#ifndef PP_SCHEDULES_BUILDER_H
#define PP_SCHEDULES_BUILDER_H

#include "core/plan/plan.h"
#include "core/plan/plan_spec.h"
#include "schedules/schedule.h"

/* Builds the plan of spec->schedule. PP_USAGE for an unknown schedule, a shape that it refuses, or orders that deadlock
 * with the spec's receive buffers; PP_INPUT if its orders are wrong (missing or repeated work, a deadlock with any
 * buffers). */
pp_status pp_plan_build(const struct pp_plan_spec *spec, struct pp_plan **out) PP_MUST_CHECK;

/* Builds a plan from given orders[ranks] (a schedule file, tests). stage_rank[stages]: the rank of each stage; every
 * rank must have at least one. */
pp_status pp_plan_build_orders(const struct pp_plan_spec *spec, const struct pp_order *orders, const int *stage_rank,
                               struct pp_plan **out) PP_MUST_CHECK;

/* PP_USAGE if the schedule is unknown, or if it refuses this shape in training. */
pp_status pp_schedule_check(const char *schedule, int ranks, int virtual_stages, int microbatches) PP_MUST_CHECK;

#endif
