/* SPDX-License-Identifier: Apache-2.0
 *
 * Two stages on each rank, laid out as a V: stage r and stage 2P-1-r on rank r. So the loss is on rank 0, and stages
 * P-1 and P are neighbours without a transfer.
 */
#ifndef PP_SCHEDULES_V_SHAPE_H
#define PP_SCHEDULES_V_SHAPE_H

#include "schedules/schedule.h"

static inline int pp_v_stage_rank(const struct pp_schedule_shape *shape, int stage)
{
    return stage < shape->ranks ? stage : shape->stages - 1 - stage;
}

#endif
