/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "schedules/schedule.h"

pp_status pp_order_add(struct pp_order *order, enum pp_kind kind, int stage, int microbatch)
{
    if (order->n == order->capacity) {
        int64_t capacity = order->capacity ? 2 * order->capacity : 64;
        struct pp_op *ops = realloc(order->ops, (size_t)capacity * sizeof *ops);
        if (!ops) return pp_fail(PP_NOMEM, "cannot allocate an order of %lld computations", (long long)capacity);
        order->ops = ops;
        order->capacity = capacity;
    }
    order->ops[order->n++] = (struct pp_op){.stage = stage, .microbatch = microbatch, .kind = (uint8_t)kind};
    return PP_OK;
}
