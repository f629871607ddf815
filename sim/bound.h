/* SPDX-License-Identifier: Apache-2.0
 *
 * A lower bound on the makespan of any order of the plan's tasks, on the same ranks, with unlimited memory and every
 * task alone.
 *
 * For rank r, over its stages s and all microbatches:
 *   head_r  = least time before anything can start on r: forwards of the stages before s, and hops
 *   first_r = least time before a first backward can start on r: all forwards, backwards of the stages after s, hops
 *   work_r  = all computations on r
 *   back_r  = those of them that no order can put before the first backward (B, I, W)
 *   tail_r  = least time after the last B or I of r: backwards of the stages before s, and hops
 *             (plans that only go forward: after the last F, forwards of the stages after s)
 *   done_r  = max(head_r + work_r, first_r + back_r)
 * Backward computations count as B, or as I where W is apart. A rank's last computation is then followed by its tail:
 *   bound = max over r of  done_r                              (+ what follows, see below)
 *                          done_r - W_r + tail_r + least W of stage 0
 * where W_r is the work that may be put off until after the last I (0 if backwards are whole). If the plan has an
 * optimizer, each rank's NORM follows its computations, NORM_ALL follows all NORMs, and STEP follows that. With a
 * sharing domain of fewer cores than workers, all work over the cores is a bound too; where hosts issue, so is the
 * issuing of all that the first rank does, unless replicas have shares: then its first task waits for parameters.
 */
#ifndef PP_SIM_BOUND_H
#define PP_SIM_BOUND_H

#include "core/cost.h"
#include "core/plan.h"

pp_status pp_sim_lower_bound(const struct pp_plan *plan, const struct pp_cost *cost, int64_t *out_ns) PP_MUST_CHECK;

/* Time of a task of the class from start to end with nothing to slow it down: a transfer's from its link, others' as
 * measured alone. */
int64_t pp_sim_alone_ns(const struct pp_plan *plan, const struct pp_cost *cost, int cls);

#endif
