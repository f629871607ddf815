/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks' turns (builder.h): appends every computation when its input is there, and every transfer when its receiver
 * has a free slot.
 */
#include <stdio.h>

#include "core/base/text.h"
#include "schedules/building.h"

pp_status pp_builder_task(struct pp_builder *b, const struct pp_task *task, int32_t *id)
{
    struct pp_plan *plan = b->plan;
    const struct pp_lane *lane = &plan->lanes[task->lane];
    if (plan->ntasks == b->task_capacity) return pp_fail(PP_INTERNAL, "the plan has more tasks than were counted");
    pp_progress_tasks("building the plan", plan->ntasks, b->task_capacity);
    *id = (int32_t)plan->ntasks;
    plan->tasks[plan->ntasks++] = *task;
    for (int i = 0; i < pp_lane_ranks(plan, lane); i++) b->ranks[pp_lane_rank(lane, i)].nissue++;
    return PP_OK;
}

enum { WORD = 64 }; /* ranks of a word of pp_builder.awake */

static void wake(struct pp_builder *b, int rank) { b->awake[rank / WORD] |= UINT64_C(1) << rank % WORD; }

/* Appends the oldest pending transfer of the channel; a receive slot must be free. */
static pp_status transfer(struct pp_builder *b, struct pp_builder_channel *c)
{
    struct pp_plan *plan = b->plan;
    int32_t producer = pp_queue_oldest(&c->pending), id = -1;
    const struct pp_task *from = &plan->tasks[producer];
    struct pp_task task = {.kind = (uint8_t)c->transfer,
                           .count = 1,
                           .stage = from->stage,
                           .microbatch = from->microbatch,
                           .lane = c->lane,
                           .dep = {producer, -1, b->ranks[c->dst].last_compute},
                           .act = -1,
                           .ckpt = -1,
                           .in = from->out,
                           .out = -1};
    PP_TRY(pp_builder_class(b, &task, &task.cls));
    if (plan->recv_buffers > 0) {
        PP_TRY(pp_slots_take(&c->recv, &task.out));
        task.dep[1] = c->recv.users[task.out].last;
    }
    PP_TRY(pp_builder_task(b, &task, &id));
    if (plan->recv_buffers > 0) {
        if (c->recv.users[task.out].first < 0) c->recv.users[task.out].first = id;
        c->send.users[task.in].last = id;
        pp_slots_free(&c->send, task.in);
    }
    const int next = pp_transfer_target(c->transfer, task.stage);
    b->delivered[(c->transfer == PP_XFER_B) * pp_cells(plan) + pp_cell(plan, next, task.microbatch)] = id;
    wake(b, c->dst);
    return PP_OK;
}

/* Appends pending transfers of the channel while receive slots are free. */
static pp_status transfers(struct pp_builder *b, struct pp_builder_channel *c)
{
    while (c->pending.n > 0 && (b->plan->recv_buffers == 0 || pp_slots_available(&c->recv))) PP_TRY(transfer(b, c));
    return PP_OK;
}

/* The channel (NULL: the next stage is on the same rank) and the pool that take the output of an operation; false if it
 * has no output. */
static bool output_of(struct pp_builder *b, const struct pp_op *op, int rank, struct pp_builder_channel **channel,
                      struct pp_slots **pool)
{
    bool backward = pp_is_backward(op->kind);
    bool last = backward ? op->stage == 0 : op->stage == b->plan->stages - 1;
    if (last || (op->kind != PP_F && !backward)) return false;
    int32_t c = b->channel_of[2 * op->stage + backward];
    *channel = c < 0 ? NULL : &b->channels[c];
    *pool = c < 0 ? &b->ranks[rank].local : &b->channels[c].send;
    return true;
}

/* The task that delivers the input of an operation; -1: it was not appended yet; -2: the operation needs no input. */
static int32_t input_of(const struct pp_builder *b, const struct pp_op *op)
{
    const struct pp_plan *plan = b->plan;
    int64_t cells = pp_cells(plan);
    if (op->kind == PP_F && op->stage > 0) return b->delivered[pp_cell(plan, op->stage, op->microbatch)];
    if (pp_is_backward(op->kind) && op->stage < plan->stages - 1)
        return b->delivered[cells + pp_cell(plan, op->stage, op->microbatch)];
    return -2;
}

/* The activation slot. It is taken by the first F (or R) that fills it for a backward, and freed by the B or W that
 * uses it up. An F whose activations are not kept has a slot for itself alone; so has a B that runs its layers again.
 */
static pp_status hold_activations(struct pp_builder *b, const struct pp_op *op, struct pp_task *task)
{
    int32_t passing = -1, *act = pp_passes(b->plan, op) ? &passing : pp_act_of(b, op);
    if (*act < 0) {
        PP_TRY(pp_act_take(b, op->stage, act));
        task->flags |= PP_TASK_TAKE_ACT;
    }
    task->act = *act;
    if (!pp_frees_activations(b->plan, op)) return PP_OK;
    pp_act_free(b, op->stage, task->act);
    task->flags |= PP_TASK_FREE_ACT;
    *act = -1;
    return PP_OK;
}

/* Activation and checkpoint slots of a computation. */
static pp_status hold(struct pp_builder *b, int rank, const struct pp_op *op, struct pp_task *task)
{
    struct pp_plan *plan = b->plan;
    struct pp_slots *ckpt = &b->ranks[rank].ckpt;
    int64_t cell = pp_cell(plan, op->stage, op->microbatch);
    const bool layers = plan->checkpoint == PP_CHECKPOINT_LAYERS;
    PP_TRY(hold_activations(b, op, task));
    if (!pp_recomputed(plan, op->microbatch) || (op->stage == 0 && !layers))
        return PP_OK; /* stage 0 runs again from its tokens */
    if (op->kind == PP_F) {
        PP_TRY(pp_slots_take(ckpt, &b->ckpt_slot[cell]));
        task->ckpt = b->ckpt_slot[cell];
        task->flags |= PP_TASK_TAKE_CKPT;
    } else if (op->kind == (layers ? PP_B : PP_R)) {
        task->ckpt = b->ckpt_slot[cell];
        pp_slots_free(ckpt, task->ckpt);
        task->flags |= PP_TASK_FREE_CKPT;
    }
    return PP_OK;
}

/* Counts live microbatches, and sets PP_TASK_FIRST. */
static void account(struct pp_builder *b, int rank, const struct pp_op *op, struct pp_task *task)
{
    struct pp_builder_rank *r = &b->ranks[rank];
    if (op->kind == PP_F && ++r->live > r->peak) r->peak = r->live;
    if (pp_is_backward(op->kind) || (op->kind == PP_F && !b->plan->training)) r->live--;
    uint8_t bit = op->kind == PP_W ? 2 : pp_is_backward(op->kind) ? 1 : 0;
    if (bit && !(b->started[op->stage] & bit)) {
        b->started[op->stage] |= bit;
        task->flags |= PP_TASK_FIRST;
    }
}

/* Task `id` has been appended, so its input slot can be used again: frees it, and appends transfers that waited. */
static pp_status consumed(struct pp_builder *b, int rank, int32_t id)
{
    const struct pp_plan *plan = b->plan;
    const struct pp_task *task = &plan->tasks[id];
    if (task->dep[0] < 0 || task->in < 0) return PP_OK;
    const struct pp_task *source = &plan->tasks[task->dep[0]];
    if (plan->lanes[source->lane].kind != PP_LANE_CHANNEL) {
        pp_slots_free(&b->ranks[rank].local, task->in);
        return PP_OK;
    }
    struct pp_builder_channel *c = &b->channels[source->lane - plan->ranks];
    c->recv.users[task->in].last = id;
    pp_slots_free(&c->recv, task->in);
    return transfers(b, c);
}

/* Task `id` has been appended: hands its output to the channel, or to the next stage on the same rank (c NULL). */
static pp_status produced(struct pp_builder *b, const struct pp_op *op, int32_t id, struct pp_builder_channel *c)
{
    struct pp_plan *plan = b->plan;
    if (c) {
        PP_TRY(pp_queue_add(&c->pending, id));
        return transfers(b, c);
    }
    bool backward = pp_is_backward(op->kind);
    int64_t cells = pp_cells(plan);
    b->delivered[backward * cells + pp_cell(plan, op->stage + (backward ? -1 : 1), op->microbatch)] = id;
    return PP_OK;
}

/* Is the operation the last backward (B or W) of its stage in this step? */
static bool is_last_backward(const struct pp_builder *b, const struct pp_op *op)
{
    return (op->kind == PP_B || op->kind == PP_W) && b->gradients_left[op->stage] == op->count;
}

/* Part number `part` of the task. The first part has the input and takes slots, the last part has the output and frees
 * slots. */
static struct pp_task part_of(const struct pp_task *task, int part, int parts)
{
    enum { TAKES = PP_TASK_TAKE_ACT | PP_TASK_TAKE_CKPT, FREES = PP_TASK_FREE_ACT | PP_TASK_FREE_CKPT };
    struct pp_task piece = *task;
    if (part > 0) {
        piece.flags &= (uint8_t)~TAKES;
        piece.dep[0] = piece.in = -1;
    }
    if (part + 1 == parts) return piece;
    piece.flags = (uint8_t)((piece.flags & ~FREES) | PP_TASK_MORE);
    piece.dep[1] = piece.out = -1;
    return piece;
}

static bool is_first_forward(struct pp_builder *b, const struct pp_op *op)
{
    enum { BEGUN = 4 };
    if (op->kind != PP_F || b->started[op->stage] & BEGUN) return false;
    b->started[op->stage] |= BEGUN;
    return true;
}

/* opens: the piece is the first F of its stage, or part i of it. */
static pp_status set_class(struct pp_builder *b, struct pp_task *piece, int i, int parts, bool opens)
{
    if (opens && b->plan->rounds_weights) return pp_builder_rounding_class(b, piece, i, parts, &piece->cls);
    if (parts > 1) return pp_builder_part_class(b, piece, i, &piece->cls);
    return pp_builder_class(b, piece, &piece->cls);
}

/* Appends the task, in the parts of its stage if it is one of these:
 *   - the last backward of the stage; REDUCE_GRAD follows each part but the last (that one is left to compute());
 *   - the first forward of the stage, if it waits for GATHER_PARAM;
 *   - with ZeRO 3 any task, with ZeRO 2 any B.
 * *first, *last: ids of the first part, which reads the input, and of the last part, which writes the output. */
static pp_status append(struct pp_builder *b, const struct pp_op *op, const struct pp_task *task, int32_t *first,
                        int32_t *last)
{
    const bool ends = is_last_backward(b, op), opens = is_first_forward(b, op);
    const bool begins = opens && b->plan->gathers_first; /* it waits for GATHER_PARAM */
    const bool shards = b->plan->shard_params || (b->plan->shards && op->kind == PP_B);
    const int parts = ends || begins || shards ? b->parts[op->stage] : 1;
    for (int i = 0; i < parts; i++) {
        struct pp_task piece = part_of(task, i, parts);
        if (begins) piece.dep[2] = b->gather_task[op->stage] + i;
        if (shards) PP_TRY(pp_shards_before(b, op, i, &piece));
        PP_TRY(set_class(b, &piece, i, parts, opens));
        PP_TRY(pp_builder_task(b, &piece, last));
        if (i == 0) *first = *last;
        b->ranks[task->lane].last_compute = *last;
        PP_TRY(pp_shards_behind(b, &piece, *last, i, ends));
        if (ends && i + 1 < parts) PP_TRY(pp_builder_reduce(b, op->stage, i));
    }
    return PP_OK;
}

/* Appends the operation, whose input task is `input` (negative: none), and what follows from it. */
static pp_status compute(struct pp_builder *b, int rank, const struct pp_op *op, int32_t input)
{
    struct pp_plan *plan = b->plan;
    struct pp_task task = {.kind = op->kind,
                           .count = op->count,
                           .stage = op->stage,
                           .microbatch = op->microbatch,
                           .lane = rank,
                           .dep = {input < 0 ? -1 : input, -1, -1},
                           .act = -1,
                           .ckpt = -1,
                           .in = -1,
                           .out = -1};
    struct pp_builder_channel *channel = NULL;
    struct pp_slots *pool = NULL;
    bool output = output_of(b, op, rank, &channel, &pool);
    if (input >= 0) task.in = plan->tasks[input].out;
    if (output && (plan->recv_buffers > 0 || !channel)) {
        PP_TRY(pp_slots_take(pool, &task.out));
        if (channel) task.dep[1] = pool->users[task.out].last;
    }
    const bool ends = is_last_backward(b, op);
    PP_TRY(hold(b, rank, op, &task));
    account(b, rank, op, &task);
    int32_t first = -1, last = -1;
    PP_TRY(append(b, op, &task, &first, &last));
    if (op->kind == PP_B || op->kind == PP_W) b->gradients_left[op->stage] -= op->count;
    if (task.out >= 0 && channel && pool->users[task.out].first < 0) pool->users[task.out].first = last;
    PP_TRY(consumed(b, rank, first));
    if (output) PP_TRY(produced(b, op, last, channel));
    return ends ? pp_builder_reduce(b, op->stage, b->parts[op->stage] - 1) : PP_OK;
}

/* No rank can go on: fails with a message that says what the first few of them wait for. */
static pp_status stuck(const struct pp_builder *b)
{
    enum { TOLD = 6 };
    char buf[512];
    struct pp_text text = pp_text_in(buf, sizeof buf);
    for (int r = 0, told = 0; r < b->plan->ranks && told < TOLD; r++) {
        const struct pp_builder_rank *rank = &b->ranks[r];
        if (rank->next == rank->nops) continue;
        const struct pp_op *op = &rank->ops[rank->next];
        told++;
        pp_text_add(&text, "%srank %d waits for the input of %s of stage %d, microbatch %d",
                    pp_text_between(&text, "; "), r, pp_kinds[op->kind].name, op->stage, op->microbatch);
    }
    if (b->plan->recv_buffers == 0) return pp_fail(PP_INPUT, "schedule %s deadlocks: %s", b->plan->schedule, buf);
    return pp_fail(PP_USAGE, "schedule %s deadlocks with %d receive buffer%s per channel (--recv-buffers): %s",
                   b->plan->schedule, b->plan->recv_buffers, pp_plural(b->plan->recv_buffers), buf);
}

static void put_to_sleep(struct pp_builder *b, int rank) { b->awake[rank / WORD] &= ~(UINT64_C(1) << rank % WORD); }

/* The first rank that is awake, from `rank` on; P: there is none. */
static int next_awake(const struct pp_builder *b, int rank)
{
    const int ranks = b->plan->ranks;
    while (rank < ranks) {
        const uint64_t bits = b->awake[rank / WORD] >> rank % WORD;
        if (bits) return rank + __builtin_ctzll(bits);
        rank += WORD - rank % WORD;
    }
    return ranks;
}

/* Appends the rank's next operation if its input is there. A rank that waits, or has no more operations, sleeps until
 * something is delivered to it. */
static pp_status take_turn(struct pp_builder *b, int r)
{
    struct pp_builder_rank *rank = &b->ranks[r];
    const struct pp_op *op = &rank->ops[rank->next];
    const int32_t input = rank->next < rank->nops ? input_of(b, op) : -1;
    if (input == -1) {
        put_to_sleep(b, r);
        return PP_OK;
    }
    PP_TRY(compute(b, r, op, input));
    rank->next++;
    return PP_OK;
}

/* In rounds over all ranks, in each of which a rank has one turn. */
pp_status pp_builder_emit(struct pp_builder *b)
{
    const int ranks = b->plan->ranks;
    PP_TRY(PP_NEW(&b->awake, ranks / WORD + 1));
    for (int r = 0; r < ranks; r++) wake(b, r);
    for (int r = next_awake(b, 0); r < ranks;) {
        PP_TRY(take_turn(b, r));
        r = next_awake(b, r + 1);
        if (r == ranks) r = next_awake(b, 0);
    }
    for (int r = 0; r < ranks; r++)
        if (b->ranks[r].next < b->ranks[r].nops) return stuck(b);
    return PP_OK;
}
