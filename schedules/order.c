/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules/schedule.h"

pp_status pp_order_add(struct pp_order *order, enum pp_kind kind, int stage, int microbatch)
{
    PP_TRY(PP_GROW(&order->ops, order->n + 1, &order->capacity));
    order->ops[order->n++] = (struct pp_op){.stage = stage, .microbatch = microbatch, .kind = (uint8_t)kind};
    return PP_OK;
}
