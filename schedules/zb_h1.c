/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-H1 (see zero_bubble.h): delayed weight gradients fill a part of 1F1B's bubble, which leaves (P-1)(F + I - W), with
 * the memory that 1F1B needs on rank 0.
 *
 *   P = 3, M = 4:
 *   rank 0  F0 F1 F2       I0 W0 F3 I1 W1    I2 W2 I3 W3
 *   rank 1     F0 F1    I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
 *   rank 2        F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
 */
#include "schedules/zero_bubble.h"

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    return pp_order_zero_bubble(shape, rank, 1, out);
}

const struct pp_schedule pp_schedule_zb_h1 = {
    .name = "zb-h1", .summary = "1F1B whose weight gradients fill bubbles; every rank holds P", .order = order};
