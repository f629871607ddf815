/* SPDX-License-Identifier: Apache-2.0
 *
 * The handcrafted zero-bubble orders (Qi, Wan, Huang, Lin 2024, "Zero Bubble Pipeline Parallelism", section 2.3). The
 * backward is split into I, the gradient of the input, which the previous rank waits for, and W, the gradient of the
 * weights, which no rank waits for, so that it can fill gaps.
 *
 * Rank r runs lead * (P-1-r) forwards ahead. Then it runs one F and one I in turn, and from I number lead * r on
 * (counted from 0) a W after each I. At the end it runs the Ws that are left. So a rank has at most lead * (P-1) + 1
 * microbatches between F and W.
 */
#ifndef PP_SCHEDULES_ZERO_BUBBLE_H
#define PP_SCHEDULES_ZERO_BUBBLE_H

#include "schedules/schedule.h"

static inline pp_status pp_order_zero_bubble(const struct pp_schedule_shape *shape, int rank, int lead,
                                             struct pp_order *out)
{
    const int m = shape->microbatches;
    int ahead = lead * (shape->ranks - 1 - rank), weights = 0;
    if (ahead > m) ahead = m;
    for (int f = 0; f < ahead; f++) PP_TRY(pp_order_add(out, PP_F, rank, f));
    for (int i = 0; i < m; i++) {
        if (ahead + i < m) PP_TRY(pp_order_add(out, PP_F, rank, ahead + i));
        PP_TRY(pp_order_add(out, PP_I, rank, i));
        if (i >= lead * rank) PP_TRY(pp_order_add(out, PP_W, rank, weights++));
    }
    while (weights < m) PP_TRY(pp_order_add(out, PP_W, rank, weights++));
    return PP_OK;
}

#endif
