/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows the last backward of a stage or of the step: sums of gradients over replicas (REDUCE_GRAD), over shard
 * groups (REDUCE_SHARE) and over the two stages of a tied weight (REDUCE_TIED), the global norm, the optimizer step,
 * and with ZeRO 1 and 2 GATHER_PARAM, which may also begin the next step instead.
 */
#include "schedules/building.h"

struct pp_task pp_builder_plain(int kind, int stage, int lane, int32_t after)
{
    return (struct pp_task){.kind = (uint8_t)kind,
                            .stage = stage,
                            .microbatch = -1,
                            .lane = lane,
                            .dep = {after, -1, -1},
                            .act = -1,
                            .ckpt = -1,
                            .in = -1,
                            .out = -1};
}

static pp_status append(struct pp_builder *b, struct pp_task *task, int32_t *id)
{
    PP_TRY(pp_builder_class(b, task, &task->cls));
    return pp_builder_task(b, task, id);
}

int pp_builder_collective(const struct pp_builder *b, int rank) { return b->plan->ranks + b->nchannels + rank; }

pp_status pp_builder_reduce_share(struct pp_builder *b, int stage, int part, int32_t after)
{
    const struct pp_plan *plan = b->plan;
    const int lane = pp_builder_collective(b, plan->ranks + plan->stage_rank[stage]);
    struct pp_task task = pp_builder_plain(PP_REDUCE_SHARE, stage, lane, after);
    if (pp_plan_shard_groups(plan) == 1) return PP_OK;
    PP_TRY(pp_builder_part_class(b, &task, part, &task.cls));
    return pp_builder_task(b, &task, &b->final_task[stage]);
}

pp_status pp_builder_reduce(struct pp_builder *b, int stage, int part)
{
    struct pp_plan *plan = b->plan;
    int rank = plan->stage_rank[stage];
    struct pp_builder_rank *r = &b->ranks[rank];
    if (part + 1 == b->parts[stage]) r->done_stages[r->ndone++] = stage;
    if (plan->shards) return PP_OK; /* shards.c sums the gradients of each microbatch */
    b->final_task[stage] = r->last_compute;
    if (!pp_plan_holds_again(plan)) return PP_OK;
    struct pp_task task = pp_builder_plain(PP_REDUCE_GRAD, stage, pp_builder_collective(b, rank), r->last_compute);
    PP_TRY(pp_builder_part_class(b, &task, part, &task.cls));
    PP_TRY(pp_builder_task(b, &task, &b->final_task[stage]));
    return pp_builder_reduce_share(b, stage, part, b->final_task[stage]);
}

static pp_status gather(struct pp_builder *b, int stage, int part)
{
    const int rank = b->plan->stage_rank[stage];
    struct pp_builder_rank *r = &b->ranks[rank];
    struct pp_task task = pp_builder_plain(PP_GATHER_PARAM, stage, pp_builder_collective(b, rank), r->last_compute);
    if (!b->plan->gathers_first) return append(b, &task, &r->last_gather);
    PP_TRY(pp_builder_part_class(b, &task, part, &task.cls));
    return pp_builder_task(b, &task, &r->last_gather);
}

/* Stage by stage, in the order in which the forwards need the parameters. */
pp_status pp_builder_gathers(struct pp_builder *b)
{
    for (int stage = 0; b->plan->gathers_first && stage < b->plan->stages; stage++) {
        b->gather_task[stage] = (int32_t)b->plan->ntasks;
        for (int part = 0; part < b->parts[stage]; part++) PP_TRY(gather(b, stage, part));
    }
    return PP_OK;
}

/* Does the stage have a copy of the tied weight? */
static bool is_tied(const struct pp_plan *plan, int stage)
{
    return plan->tied && (stage == 0 || stage == plan->stages - 1);
}

/* Appends NORM or STEP of a stage. It waits for the global norm (norm >= 0), else for the task that completed the
 * stage's gradients, if that is on another lane. */
static pp_status of_stage(struct pp_builder *b, int kind, int stage, int32_t norm)
{
    const int rank = b->plan->stage_rank[stage];
    struct pp_builder_rank *r = &b->ranks[rank];
    const int32_t final = b->plan->tasks[b->final_task[stage]].lane == rank ? -1 : b->final_task[stage];
    struct pp_task task = pp_builder_plain(kind, stage, rank, norm >= 0 ? norm : final);
    PP_TRY(append(b, &task, &r->last_compute));
    if (kind != PP_STEP) return PP_OK;
    b->step_task[stage] = r->last_compute;
    const bool gathers = b->plan->zero && !b->plan->gathers_first && !b->plan->shard_params;
    return gathers ? gather(b, stage, 0) : PP_OK;
}

/* NORM or STEP for all stages: rank by rank, in the order in which the rank's stages were finished. Stages with a tied
 * weight come last on their rank, since they may wait for another rank. */
static pp_status per_stage(struct pp_builder *b, int kind, int32_t norm)
{
    for (int rank = 0; rank < b->plan->ranks; rank++) {
        const struct pp_builder_rank *r = &b->ranks[rank];
        for (int turn = 0; turn < 2; turn++)
            for (int i = 0; i < r->ndone; i++)
                if (is_tied(b->plan, r->done_stages[i]) == turn) PP_TRY(of_stage(b, kind, r->done_stages[i], norm));
    }
    return PP_OK;
}

/* REDUCE_TIED. It waits for the gradients of the first stage, which has the embedding, and of the last, which has the
 * decoder. */
static pp_status sum_tied(struct pp_builder *b)
{
    const struct pp_plan *plan = b->plan;
    const int last = plan->stages - 1, lane = plan->nlanes - 1 - plan->clip;
    struct pp_task task = pp_builder_plain(PP_REDUCE_TIED, 0, lane, b->final_task[0]);
    task.dep[1] = b->final_task[last];
    PP_TRY(append(b, &task, &b->final_task[0]));
    b->final_task[last] = b->final_task[0];
    return PP_OK;
}

static pp_status norm(struct pp_builder *b, int32_t *all)
{
    struct pp_plan *plan = b->plan;
    int32_t first = (int32_t)plan->ntasks;
    PP_TRY(per_stage(b, PP_NORM, -1));
    struct pp_task task = pp_builder_plain(PP_NORM_ALL, -1, plan->nlanes - 1, first);
    task.dep[1] = (int32_t)plan->ntasks - 1;
    task.flags = PP_TASK_DEP_RANGE;
    return append(b, &task, all);
}

pp_status pp_builder_epilogue(struct pp_builder *b)
{
    int32_t all = -1;
    for (int rank = 0; rank < b->plan->ranks; rank++) PP_TRY(pp_shards_take(b, rank));
    if (!b->plan->training || !b->plan->optimizer) return PP_OK;
    if (b->plan->tied) PP_TRY(sum_tied(b));
    if (b->plan->clip) PP_TRY(norm(b, &all));
    return per_stage(b, PP_STEP, all);
}
