/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-H2 (see zero_bubble.h): twice as many forwards ahead as ZB-H1, so that, if F = I = W, each rank is busy from its
 * first to its last task. But ranks begin and end at different times, so this helps only if they need not wait for each
 * other before the optimizer step (--clip 0). A rank holds up to 2P-1 microbatches.
 */
#include "schedules/zero_bubble.h"

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    return pp_order_zero_bubble(shape, rank, 2, out);
}

const struct pp_schedule pp_schedule_zb_h2 = {
    .name = "zb-h2", .summary = "ZB-H1 with more forwards ahead: less bubble, holds 2P-1", .order = order};
