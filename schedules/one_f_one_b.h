/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of 1F1B: a rank runs `ahead` forwards, then one forward and one backward in turn, then the remaining
 * backwards.
 */
#ifndef PP_SCHEDULES_ONE_F_ONE_B_H
#define PP_SCHEDULES_ONE_F_ONE_B_H

#include "schedules/schedule.h"

static inline pp_status pp_order_one_f_one_b(const struct pp_schedule_shape *shape, int rank, int ahead,
                                             struct pp_order *out)
{
    const int m = shape->microbatches;
    if (ahead > m) ahead = m;
    for (int f = 0; f < ahead; f++) PP_TRY(pp_order_add(out, PP_F, rank, f));
    for (int b = 0; b < m; b++) {
        if (ahead + b < m) PP_TRY(pp_order_add(out, PP_F, rank, ahead + b));
        PP_TRY(pp_order_add(out, PP_B, rank, b));
    }
    return PP_OK;
}

#endif
