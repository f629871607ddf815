/* SPDX-License-Identifier: Apache-2.0
 *
 * Breadth first (Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism"; torch.distributed.pipelining
 * ScheduleLoopedBFS): V stages per rank, stage v*P + r on rank r; all microbatches through one stage, then through the
 * next. The bubble of interleaved 1F1B with GPipe's memory, but each stage's gradients are ready early. Unlike PyTorch,
 * backwards begin with the first microbatch, not the last: so gradients are added up in the same order as by all other
 * schedules, to the same bits.
 */
#include "schedules/schedule.h"

static pp_status order(const struct pp_schedule_shape *shape, int rank, struct pp_order *out)
{
    for (int stage = rank; stage < shape->stages; stage += shape->ranks)
        for (int m = 0; m < shape->microbatches; m++) PP_TRY(pp_order_add(out, PP_F, stage, m));
    for (int stage = shape->stages - shape->ranks + rank; stage >= 0; stage -= shape->ranks)
        for (int m = 0; m < shape->microbatches; m++) PP_TRY(pp_order_add(out, PP_B, stage, m));
    return PP_OK;
}

const struct pp_schedule pp_schedule_bfs = {
    .name = "bfs",
    .torch_name = "LoopedBFS",
    .summary = "breadth first: all microbatches through one of V stages, then through the next",
    .virtual_stages = PP_ANY_STAGES,
    .order = order};
