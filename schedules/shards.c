/* SPDX-License-Identifier: Apache-2.0
 *
 * The tasks of ZeRO 2 and 3 (struct pp_plan.shards, shard_params). With ZeRO 3, before each part of a computation the
 * parameters of the part after it are gathered. With both, after each part of a B its gradients are summed beside the
 * next part, and after that part added to the own share. In the picture numbers are parts:
 *
 *   compute     ... PUT 2 | F part 1 | PUT 3 | F part 2 | PUT 4 | F part 3 ...
 *   collective        GATHER 2         GATHER 3         GATHER 4
 *
 *   compute     ... B part 3 | B part 2 | ADD 3 | B part 1 | ADD 2 ...
 *   collective                 REDUCE 3         | REDUCE 2         | REDUCE 1
 */
#include "schedules/building.h"

/* An operation was counted as one task. Each of its parts may be 3 tasks (itself, PUT_PARAM, GATHER_PARAM), of a B 5
 * (also REDUCE_GRAD and ADD_GRAD). */
pp_status pp_shards_count(struct pp_builder *b)
{
    const bool params = b->plan->shard_params;
    for (int r = 0; r < b->plan->ranks && (b->plan->shards || params); r++)
        for (int64_t i = 0; i < b->ranks[r].nops; i++) {
            const struct pp_op *op = &b->ranks[r].ops[i];
            if (op->kind == PP_I || op->kind == PP_W)
                return pp_fail(PP_USAGE,
                               "--zero %d: %s cuts backwards into I and W, and %s; choose a schedule that does not, "
                               "such as 1f1b, or --zero 1",
                               params ? 3 : 2, b->plan->slot_microbatches > 1 ? "--batch-w" : b->plan->schedule,
                               params ? "parameters would be gathered for each"
                                      : "gradients are summed behind a whole one");
            b->task_capacity += (int64_t)b->parts[op->stage] * (op->kind == PP_B ? 5 : 3) - 1;
        }
    return PP_OK;
}

/* The number of part i of an operation, counted from the stage's first layers on. */
static int forward_part(const struct pp_builder *b, int kind, int stage, int i)
{
    return pp_goes_back(kind) ? b->parts[stage] - 1 - i : i;
}

/* The parameter slot, 0 or 1, that has this part; -1: none. */
static int32_t slot_with(const struct pp_builder_rank *r, int stage, int part)
{
    for (int32_t slot = 0; slot < PP_SHARD_SLOTS; slot++)
        if (r->held[slot].gather >= 0 && r->held[slot].stage == stage && r->held[slot].part == part) return slot;
    return -1;
}

/* Makes sure that the pool has the slot. */
static void use(struct pp_builder_pool *pool, int32_t slot)
{
    if (slot >= pool->made) pool->made = slot + 1;
}

/* Appends PUT_PARAM and GATHER_PARAM of a part, into the slot that is not being read, unless a slot has the part. Tasks
 * that read that slot before are earlier on the compute lane, so PUT_PARAM needs no edge to them. */
static pp_status fetch(struct pp_builder *b, int stage, int part)
{
    const int rank = b->plan->stage_rank[stage];
    struct pp_builder_rank *r = &b->ranks[rank];
    if (slot_with(r, stage, part) >= 0) return PP_OK;
    const int32_t slot = r->reading == 0 ? 1 : 0;
    struct pp_builder_held *held = &r->held[slot];
    struct pp_task put = pp_builder_plain(PP_PUT_PARAM, stage, rank, -1);
    put.out = slot;
    use(&r->param, slot);
    PP_TRY(pp_builder_part_class(b, &put, part, &put.cls));
    PP_TRY(pp_builder_task(b, &put, &r->last_compute));
    struct pp_task gather = pp_builder_plain(PP_GATHER_PARAM, stage, pp_builder_collective(b, rank), r->last_compute);
    gather.out = slot;
    PP_TRY(pp_builder_part_class(b, &gather, part, &gather.cls));
    *held = (struct pp_builder_held){stage, part, -1};
    return pp_builder_task(b, &gather, &held->gather);
}

/* Gathers the part that the rank computes after part i of `op`: the next part, or the first one of its next operation.
 */
static pp_status fetch_next(struct pp_builder *b, struct pp_builder_rank *r, const struct pp_op *op, int i)
{
    if (i + 1 < b->parts[op->stage]) return fetch(b, op->stage, forward_part(b, op->kind, op->stage, i + 1));
    if (r->next + 1 == r->nops) return PP_OK;
    const struct pp_op *next = &r->ops[r->next + 1];
    return fetch(b, next->stage, forward_part(b, next->kind, next->stage, 0));
}

pp_status pp_shards_before(struct pp_builder *b, const struct pp_op *op, int i, struct pp_task *piece)
{
    struct pp_builder_rank *r = &b->ranks[piece->lane];
    const int part = forward_part(b, op->kind, op->stage, i);
    if (b->plan->shard_params) {
        PP_TRY(fetch(b, op->stage, part));
        r->reading = slot_with(r, op->stage, part);
        piece->dep[2] = r->held[r->reading].gather;
    }
    if (op->kind == PP_B && b->plan->shards) {
        const bool second = r->summed.reduce >= 0 && r->summed.slot == 0;
        if (second) piece->flags |= PP_TASK_SECOND;
        use(&r->grad, second);
    }
    return b->plan->shard_params ? fetch_next(b, r, op, i) : PP_OK;
}

pp_status pp_shards_take(struct pp_builder *b, int rank)
{
    struct pp_builder_rank *r = &b->ranks[rank];
    const struct pp_builder_summed summed = r->summed;
    if (summed.reduce < 0) return PP_OK;
    struct pp_task task = pp_builder_plain(PP_ADD_GRAD, summed.stage, rank, summed.reduce);
    task.in = summed.slot;
    task.flags = summed.first ? PP_TASK_FIRST : 0;
    r->summed.reduce = -1;
    PP_TRY(pp_builder_part_class(b, &task, summed.part, &task.cls));
    PP_TRY(pp_builder_task(b, &task, &r->last_compute));
    b->final_task[summed.stage] = r->last_compute;
    return summed.last ? pp_builder_reduce_share(b, summed.stage, summed.part, r->last_compute) : PP_OK;
}

/* Appends REDUCE_GRAD for part i of a B, which is task `made`. */
static pp_status reduce(struct pp_builder *b, const struct pp_task *piece, int32_t made, int i, bool last)
{
    struct pp_builder_rank *r = &b->ranks[piece->lane];
    struct pp_task task = pp_builder_plain(PP_REDUCE_GRAD, piece->stage, pp_builder_collective(b, piece->lane), made);
    task.in = (piece->flags & PP_TASK_SECOND) != 0;
    PP_TRY(pp_builder_part_class(b, &task, i, &task.cls));
    r->summed = (struct pp_builder_summed){-1, piece->stage, i, task.in, piece->flags & PP_TASK_FIRST, last};
    return pp_builder_task(b, &task, &r->summed.reduce);
}

pp_status pp_shards_behind(struct pp_builder *b, const struct pp_task *piece, int32_t id, int i, bool last)
{
    PP_TRY(pp_shards_take(b, piece->lane));
    return piece->kind == PP_B && b->plan->shards ? reduce(b, piece, id, i, last) : PP_OK;
}
