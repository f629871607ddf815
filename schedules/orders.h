/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the orders that a schedule (or a file) gives: checks them, and turns them into what a plan is made from.
 */
#ifndef PP_SCHEDULES_ORDERS_H
#define PP_SCHEDULES_ORDERS_H

#include "core/plan.h"
#include "schedules/schedule.h"

/* Given orders, or a schedule's. Those are made one rank at a time, where the schedule can: of a large plan all orders
 * at once are much. */
struct pp_order_source {
    const struct pp_order *given; /* [ranks]; NULL: by */
    const struct pp_schedule *schedule;
    struct pp_schedule_shape shape;
};

/* The computations of all ranks as the plan runs them, those of rank r from first[r] to first[r + 1] - 1: R directly
 * before its backward where the checkpoint mode says so; forwards only if the plan does not train. If a stage has I and
 * W for one microbatch, each of its Bs becomes I and W. Where activation slots hold several microbatches, every B does,
 * and the W of all microbatches of a slot become one, at the place of the last of them. *ops is the caller's to free,
 * also on failure; first: [ranks + 1].
 *
 * Every (stage, microbatch) must have exactly one F and one B, or one I and one W, on its stage's rank, in that
 * sequence; else PP_INPUT with a message that names rank and task. Backwards of a forward-only plan are allowed and
 * ignored. */
pp_status pp_orders_read(const struct pp_plan *plan, const struct pp_order_source *source, struct pp_op **ops,
                         int64_t *first) PP_MUST_CHECK;

#endif
