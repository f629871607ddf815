/* SPDX-License-Identifier: Apache-2.0
 *
 * A lower bound on the makespan: no order of the plan's tasks on the same ranks can take less time, even with unlimited
 * memory and if no worker slows down another.
 *
 * For each rank r, with minima taken over its stages s and all microbatches:
 *   head_r   least time before anything can start on r: forwards of the stages before s, and hops
 *   first_r  least time before a backward can start on r: all forwards, backwards of the stages after s, and hops
 *   tail_r   least time after the last B or I of r: backwards of the stages before s, and hops (in forward-only plans,
 *            after the last F: forwards of the stages after s, and hops)
 *   work_r   time of all computations of r
 *   back_r   the part of work_r that no order can put before the first backward: B, I and W
 *   W_r      the part of work_r that can wait until after the last I: W; 0 if backwards are not split
 *   done_r   max(head_r + work_r, first_r + back_r)
 * (A backward in head, first and tail is B, or I if backwards are split.) Each rank gives two bounds:
 *   bound = max over r of  done_r
 *                          done_r - W_r + tail_r + least W of stage 0
 * If the plan has an optimizer, more time follows: on each rank its STEPs, or with clipping its NORMs, then NORM_ALL
 * after all NORMs, and then the STEPs.
 *
 * Two further bounds hold: if workers share fewer cores than they are, the work of all workers divided by the number of
 * cores; and if hosts issue tasks (pp_cost.host_issues), the time to issue all tasks of the rank with the first stage,
 * but not with ZeRO, where its first computation waits for parameters while the host issues more.
 */
#ifndef PP_SIM_BOUND_H
#define PP_SIM_BOUND_H

#include "core/plan/cost.h"
#include "core/plan/plan.h"

/* The bound in ns. PP_NOMEM. */
pp_status pp_sim_lower_bound(const struct pp_plan *plan, const struct pp_cost *cost, int64_t *out_ns) PP_MUST_CHECK;

/* A lower bound on the time from one step to the next, in steady state and without jitter: the time of all tasks of
 * each rank; with clipping also the time until the norm is known, for which the next step waits; and what shared cores
 * give. The engine has pp_sim_least(), which also checks the times. PP_NOMEM. */
pp_status pp_sim_least_batch(const struct pp_plan *plan, const struct pp_cost *cost, int64_t *out_ns) PP_MUST_CHECK;

/* Time of a task of the class from start to end, if nothing slows it down: of a transfer by its link, else
 * pp_class_cost.ns. */
int64_t pp_sim_alone_ns(const struct pp_plan *plan, const struct pp_cost *cost, int cls);

#endif
