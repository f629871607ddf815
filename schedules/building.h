/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the builder, shared between its files. Nothing outside schedules/ includes this.
 */
#ifndef PP_SCHEDULES_BUILDING_H
#define PP_SCHEDULES_BUILDING_H

#include "core/base/log.h"
#include "core/plan/plan.h"
#include "core/plan/plan_spec.h"
#include "schedules/schedule.h"

/* A first-in first-out queue of numbers: free slots, or tasks whose results wait to be transferred. */
struct pp_slot_queue {
    int32_t *values;
    int32_t head, n, capacity; /* a ring; the capacity is 0 or a power of two */
};

/* The first task of the step that writes a slot, and the last one that reads it; -1 = none. Of a slot that is the part
 * PP_ACT_LAYERS of activation slots `first` is the newest of these (act_slots.c). */
struct pp_slot_users {
    int32_t first, last;
};

/* A pool that grows while the plan is built. Slot numbers begin with 0 in each pool; finish.c makes them ids of the
 * plan. */
struct pp_builder_pool {
    int kind, rank, key; /* as in struct pp_pool */
    int32_t made;        /* slots so far */
    int32_t first;       /* id of slot 0 in the plan, set by finish.c */
};

/* A pool whose slots are taken and freed, by whoever comes. */
struct pp_slots {
    struct pp_builder_pool pool;
    int32_t eager;     /* a free slot is used again only when this many were made */
    int32_t limit;     /* most slots; 0 = no limit */
    bool oldest_first; /* which free slot is used again: that freed first (transfers), else last (activations: it is
                        * warm in the caches) */
    struct pp_slot_queue free;
    struct pp_slot_users *users; /* [pool.made] */
    int64_t users_room;          /* elements that `users` has room for */
};

/* A directed channel. */
struct pp_builder_channel {
    int32_t lane, src, dst, transfer;
    int32_t next; /* the next channel with the same source and transfer kind; -1 = none */
    struct pp_slots recv, send;
    struct pp_slot_queue pending; /* tasks whose results wait for a free receive slot */
};

/* ZeRO 3: the content of one of a rank's two parameter slots. */
enum { PP_SHARD_SLOTS = 2 };
struct pp_builder_held {
    int32_t stage;
    int32_t part;   /* counted from the stage's first layers on */
    int32_t gather; /* the GATHER_PARAM that brought it; -1: the slot is empty */
};

/* ZeRO 2 and 3: a REDUCE_GRAD whose result no ADD_GRAD has taken yet. */
struct pp_builder_summed {
    int32_t reduce; /* the task; -1: there is none */
    int32_t stage;
    int32_t part;     /* in the order of B: from the stage's last layers on */
    int32_t slot;     /* gradient slot, 0 or 1 */
    bool first, last; /* of the first, and of the last, microbatch of the stage in this step */
};

struct pp_builder_rank {
    const struct pp_op *ops; /* [nops] its order, with R inserted: F, B, I, W and R */
    int64_t nops, next;      /* next: the operation whose turn it is */
    int32_t last_compute;    /* its last compute task; -1 = none yet */
    int32_t last_gather;     /* its last GATHER_PARAM; -1 = none yet */
    int live, peak;          /* pairs of stage and microbatch that are between F and B or I: now, and at most */
    int64_t nissue;          /* entries of its issue list */
    struct pp_slots ckpt, local;
    struct pp_builder_pool param, grad; /* ZeRO 2 and 3: slots 0 and 1 in turns */
    struct pp_builder_held held[PP_SHARD_SLOTS];
    struct pp_builder_summed summed;
    int32_t reading;      /* ZeRO 3: index in `held` of the slot that the last computation reads; -1: none yet */
    struct pp_slots *act; /* [nact] activation pools; plan->act_pool says which stages take from which */
    int nact;
    int32_t *done_stages; /* [ndone] its stages, in the order in which their last backward was appended */
    int ndone, nstages;
};

/* The activation slots so far (act_slots.c): plan->acts, with slot numbers of pools. */
struct pp_act_slots {
    int32_t (*parts)[PP_ACT_PARTS];
    int32_t *stage; /* one whose pools the parts are from */
    int32_t *next;  /* another one with the same PP_ACT_LAYERS, of the same pool; -1: none */
    int64_t parts_room, stage_room, next_room;
    int n;
};

struct pp_builder {
    struct pp_plan *plan;
    struct pp_slots *act; /* activation pools of all ranks */
    struct pp_act_slots acts;
    int64_t task_capacity; /* number of tasks; with ZeRO 2 and 3 an upper bound, as not every part is gathered */
    struct pp_builder_rank *ranks;
    uint64_t *awake;      /* [P / 64 + 1] a bit for each rank whose next operation may have its input */
    struct pp_op *ops;    /* operations of all ranks */
    int32_t *done_stages; /* [stages] memory of pp_builder_rank.done_stages */
    struct pp_builder_channel *channels;
    int nchannels;
    int32_t *first_channel; /* [2 * ranks] first channel of a source, for activations and for gradients; -1 = none */
    /* [2 * stages] channel that takes the output of a stage's F, and of its B or I; -1 = none: the next stage is on the
     * same rank, or there is none */
    int32_t *channel_of;
    int32_t *delivered;      /* [2][pp_cells()] task that delivers the input of F, and of B or I; -1 = not yet */
    int32_t *act_slot;       /* [pp_cells()] activation slot of a microbatch: see pp_act_of() */
    int32_t *ckpt_slot;      /* [pp_cells()] checkpoint slot; NULL if nothing is recomputed */
    int32_t *gradients_left; /* [stages] microbatches whose B or W was not appended yet */
    uint8_t *started;        /* [stages] bit 0: a B or I was appended, bit 1: a W, bit 2: an F */
    int32_t *final_task;     /* [stages] the last task so far that computed, summed or added gradients of the stage */
    int32_t *parts;        /* [stages] parts in which its gradients are summed, or parameters gathered; 1: as a whole */
    int32_t *parts_before; /* [stages] sum of `parts` over earlier stages */
    int32_t *gather_task;  /* [stages] with gathers_first: its first GATHER_PARAM; the other parts follow */
    int32_t *step_task;    /* [stages] */
    int32_t *row_index;    /* [microbatches] index of its number of rows among the nrows distinct numbers */
    int32_t *slot_row_index; /* [microbatches] index of the rows of a whole slot, at the slot's first microbatch */
    int nrows;
    /* [..][nrows][2: adds] -1: none yet */
    int32_t *class_id;      /* [PP_KINDS][stages + 1] class of whole stages (last row: no stage) */
    int32_t *part_class_id; /* [PP_KINDS][nparts] class of parts */
    int nparts;             /* sum of `parts` over all stages */
    int64_t class_room;     /* elements that plan->classes has room for */
};

/* Length of a row in tables that have a row for each stage and a cell for each microbatch. All ranks work on nearly the
 * same microbatch at a time; with rows of a power of two its cells would all be in the same sets of the caches. */
static inline int64_t pp_row_cells(const struct pp_plan *plan) { return (int64_t)plan->microbatches + 16; }

/* Cells of such a table. */
static inline int64_t pp_cells(const struct pp_plan *plan) { return plan->stages * pp_row_cells(plan); }

/* Index of the cell of a stage and a microbatch. */
static inline int64_t pp_cell(const struct pp_plan *plan, int stage, int microbatch)
{
    return stage * pp_row_cells(plan) + microbatch;
}

static inline bool pp_is_backward(int kind) { return kind == PP_B || kind == PP_I; }

/* Does microbatch m keep checkpoints, from which stages or layers are run again? (Modes that change slots only, see
 * pp_checkpoint_in_slots(), do not concern the builder.) */
static inline bool pp_recomputed(const struct pp_plan *plan, int m)
{
    if (!plan->training || plan->checkpoint == PP_CHECKPOINT_NEVER || pp_checkpoint_in_slots(plan->checkpoint))
        return false;
    return plan->checkpoint != PP_CHECKPOINT_EXCEPT_LAST || m < plan->microbatches - 1;
}

/* Is the operation an F whose activations are not kept? It has a slot for itself alone. */
static inline bool pp_passes(const struct pp_plan *plan, const struct pp_op *op)
{
    return op->kind == PP_F && (pp_recomputed(plan, op->microbatch) || !plan->training);
}

/* Does it free its activation slot? */
static inline bool pp_frees_activations(const struct pp_plan *plan, const struct pp_op *op)
{
    return pp_passes(plan, op) || op->kind == PP_B || op->kind == PP_W;
}

/* Where the builder notes which activation slot the microbatches of an operation have; -1: none now. Those that share a
 * slot share the note. */
static inline int32_t *pp_act_of(struct pp_builder *b, const struct pp_op *op)
{
    return &b->act_slot[pp_cell(b->plan, op->stage, pp_slot_first(b->plan, op->microbatch))];
}

/* act_pools.c. Called when the orders are read: sets pp_builder_rank.act and plan->act_pool. act_bytes: see
 * pp_plan_spec. */
pp_status pp_builder_act_pools(struct pp_builder *b, const int64_t (*const act_bytes[2])[PP_ACT_PARTS]) PP_MUST_CHECK;

/* act_slots.c. Takes a slot for each part of an activation slot of the stage; *act becomes its index in b->acts. */
pp_status pp_act_take(struct pp_builder *b, int stage, int32_t *act) PP_MUST_CHECK;
void pp_act_free(struct pp_builder *b, int stage, int32_t act);
/* Makes plan->acts. Pools have their places in the plan. */
pp_status pp_act_finish(struct pp_builder *b) PP_MUST_CHECK;
void pp_act_release(struct pp_act_slots *acts);

/* slots.c: pools and queues. */
bool pp_slots_available(const struct pp_slots *slots);
/* Takes a slot; one must be available. */
pp_status pp_slots_take(struct pp_slots *slots, int32_t *out) PP_MUST_CHECK;
void pp_slots_free(struct pp_slots *slots, int32_t slot);
void pp_slots_release(struct pp_slots *slots);
pp_status pp_queue_add(struct pp_slot_queue *queue, int32_t value) PP_MUST_CHECK;
/* Takes the oldest number out of the queue, which must not be empty. */
int32_t pp_queue_oldest(struct pp_slot_queue *queue);

/* emit.c: appends all computations and transfers (and what overlaps them: see epilogue.c and shards.c). */
pp_status pp_builder_emit(struct pp_builder *b) PP_MUST_CHECK;
/* Appends a task to the plan; *id is its id. */
pp_status pp_builder_task(struct pp_builder *b, const struct pp_task *task, int32_t *id) PP_MUST_CHECK;

/* classes.c. Called first: sets row_index, slot_row_index and nrows. */
pp_status pp_builder_number_rows(struct pp_builder *b) PP_MUST_CHECK;
/* The cost class of a task of a whole stage, made if it is new. The task's flags must be set. */
pp_status pp_builder_class(struct pp_builder *b, const struct pp_task *task, int32_t *out) PP_MUST_CHECK;
/* The cost class of part number `part` (pp_class.part) of the b->parts parts of the task. */
pp_status pp_builder_part_class(struct pp_builder *b, const struct pp_task *task, int part, int32_t *out) PP_MUST_CHECK;

/* A class that only this task has: the first F of its stage, which rounds weights, or one of its parts. */
pp_status pp_builder_rounding_class(struct pp_builder *b, const struct pp_task *task, int part, int parts,
                                    int32_t *out) PP_MUST_CHECK;

/* epilogue.c. emit.c calls it when the last backward of a part of a stage has been appended: REDUCE_GRAD, if there is
 * something to sum. */
pp_status pp_builder_reduce(struct pp_builder *b, int stage, int part) PP_MUST_CHECK;
/* REDUCE_SHARE of the part, which waits for task `after`; nothing if there is only one shard group. */
pp_status pp_builder_reduce_share(struct pp_builder *b, int stage, int part, int32_t after) PP_MUST_CHECK;
/* Called before pp_builder_emit(): with plan->gathers_first all GATHER_PARAMs. */
pp_status pp_builder_gathers(struct pp_builder *b) PP_MUST_CHECK;
/* Called after it: REDUCE_TIED, NORM, NORM_ALL, STEP, GATHER_PARAM. */
pp_status pp_builder_epilogue(struct pp_builder *b) PP_MUST_CHECK;
/* A task without microbatch, slots, input and output; dep[0] is `after`. */
struct pp_task pp_builder_plain(int kind, int stage, int lane, int32_t after);
/* The lane of the rank's collectives (REDUCE_GRAD, GATHER_PARAM). */
int pp_builder_collective(const struct pp_builder *b, int rank);

/* shards.c, for plans with ZeRO 2 or 3. Adds to task_capacity the tasks that it may append. PP_USAGE if a backward is
 * split. */
pp_status pp_shards_count(struct pp_builder *b) PP_MUST_CHECK;
/* Called before `piece`, part i of operation `op`, is appended: gathers its parameters and those of the rank's next
 * part (ZeRO 3), unless a slot has them, and sets dep[2] and PP_TASK_SECOND of the piece. */
pp_status pp_shards_before(struct pp_builder *b, const struct pp_op *op, int i, struct pp_task *piece) PP_MUST_CHECK;
/* Called when the piece has been appended as task `id`: pp_shards_take(), then, after a B, its REDUCE_GRAD. last: it is
 * the stage's last backward in this step. */
pp_status pp_shards_behind(struct pp_builder *b, const struct pp_task *piece, int32_t id, int i,
                           bool last) PP_MUST_CHECK;
/* ADD_GRAD for the rank's REDUCE_GRAD that has none yet, if there is one. */
pp_status pp_shards_take(struct pp_builder *b, int rank) PP_MUST_CHECK;

/* finish.c: pools, final slot numbers, wrap edges, issue lists, peaks, hash. */
pp_status pp_builder_finish(struct pp_builder *b) PP_MUST_CHECK;

#endif
