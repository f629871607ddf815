/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the orders of a schedule (or of a file), and turns them into the operations from which a plan is built.
 */
#ifndef PP_SCHEDULES_ORDERS_H
#define PP_SCHEDULES_ORDERS_H

#include "core/plan/plan.h"
#include "schedules/schedule.h"

/* Where orders come from. */
struct pp_order_source {
    const struct pp_order *given; /* [ranks] these orders; NULL: those of `schedule` for `shape` */
    /* Its orders are made one rank at a time, if it can do that: all orders of a large plan together take much memory.
     */
    const struct pp_schedule *schedule;
    struct pp_schedule_shape shape;
};

/* Makes the operations of all ranks, as the plan runs them: those of rank r are ops[first[r]] .. ops[first[r + 1] - 1].
 *   - An R stands directly before the backward of each microbatch whose stages are recomputed.
 *   - A plan that does not train has forwards alone.
 *   - If a stage has I and W for one microbatch, all its Bs become I and W.
 *   - If activation slots hold several microbatches (batched W), all Bs become I and W, and all Ws of a slot become
 *     one, at the place of the last of them.
 * The caller frees *ops, also after a failure. first: [ranks + 1].
 *
 * PP_INPUT, with a message that names rank and task, unless every stage has for every microbatch exactly one F and then
 * one B, or one F, one I and one W in this sequence, all on the stage's rank. A plan that does not train ignores
 * backwards, and needs none. */
pp_status pp_orders_read(const struct pp_plan *plan, const struct pp_order_source *source, struct pp_op **ops,
                         int64_t *first) PP_MUST_CHECK;

#endif
