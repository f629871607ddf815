/* SPDX-License-Identifier: Apache-2.0
 *
 * Breadth first (Lamy-Poirier 2023, "Breadth-First Pipeline Parallelism"; torch.distributed.pipelining
 * ScheduleLoopedBFS): V stages per rank, stage v*P + r on rank r. A rank runs all microbatches through its first stage,
 * then all through its next one, and so on. It has the bubble of interleaved 1F1B and the memory of GPipe, but each
 * stage's gradients are ready early. Unlike in PyTorch, backwards begin with the first microbatch, not the last one, so
 * that gradients are added in the same order as with all other schedules, and have the same bits.
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
    .leaner = "interleaved",
    .order = order};
