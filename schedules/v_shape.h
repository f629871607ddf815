/* SPDX-License-Identifier: Apache-2.0
 *
 * Two stages on each rank, laid out as a V: rank r has the stages r and 2P-1-r. So the last stage, with the loss, is on
 * rank 0, and the stages P-1 and P are on one rank, without a transfer between them.
 */
#ifndef PP_SCHEDULES_V_SHAPE_H
#define PP_SCHEDULES_V_SHAPE_H

#include "schedules/schedule.h"

static inline int pp_v_stage_rank(const struct pp_schedule_shape *shape, int stage)
{
    return stage < shape->ranks ? stage : shape->stages - 1 - stage;
}

#endif
