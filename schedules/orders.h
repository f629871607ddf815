/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks on the orders that a schedule (or a file) gives, before a plan is made from them.
 */
#ifndef PP_SCHEDULES_ORDERS_H
#define PP_SCHEDULES_ORDERS_H

#include "core/plan.h"
#include "schedules/schedule.h"

/* Every (stage, microbatch) exactly one F and one B, or one I and one W, on its stage's rank, in that sequence.
 * PP_INPUT with a message that names rank and task. Backwards of a forward-only plan are allowed and ignored. */
pp_status pp_orders_check(const struct pp_plan *plan, const struct pp_order *orders) PP_MUST_CHECK;

/* The computations of one rank as the plan runs them: R directly before its backward where the checkpoint mode says so;
 * forwards only if the plan does not train. Where activation slots hold several microbatches, every B becomes I and W,
 * and the W of all microbatches of a slot become one, at the place of the last of them. *ops is the caller's to free.
 */
pp_status pp_orders_expand(const struct pp_plan *plan, const struct pp_order *order, struct pp_op **ops,
                           int64_t *n) PP_MUST_CHECK;

#endif
