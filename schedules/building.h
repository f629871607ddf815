/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of the builder between its files. Nothing outside schedules/ includes this.
 */
#ifndef PP_SCHEDULES_BUILDING_H
#define PP_SCHEDULES_BUILDING_H

#include "core/plan.h"
#include "schedules/schedule.h"

/* Numbers in a row, oldest first: slots waiting to be used again, tasks whose transfer waits. */
struct slot_queue {
    int32_t *values;
    int32_t head, n, capacity; /* a ring; the capacity is 0 or a power of two */
};

/* Tasks of this step that wrote a slot first and read it last; -1 = none. */
struct slot_users {
    int32_t first, last;
};

/* A growing set of equal slots. Numbers are local to the pool until the builder lays pools end to end. */
struct slots {
    int kind, rank, key; /* as in struct pp_pool */
    int32_t made;
    int32_t first;     /* id of slot 0 in the plan, set when all are known */
    int32_t eager;     /* make this many before one is used again */
    int32_t limit;     /* most slots ever; 0 = no limit */
    bool oldest_first; /* transfers: the slot freed longest ago; activations: the one freed last (warm caches) */
    struct slot_queue free;
    struct slot_users *users; /* [made] */
    int64_t users_room;
};

/* A directed channel while it is built. */
struct channel {
    int32_t lane, src, dst, transfer;
    int32_t next; /* another one of the same source and kind; -1 = none */
    struct slots recv, send;
    struct slot_queue pending; /* producers of what waits for a free slot at the receiver */
};

/* With shards: whose parameters a slot has been given, counted from a stage's first layers on, and by which task (-1:
 * nobody's yet); a sum that nobody has taken yet (-1: there is none), of part number `part` of B. */
enum { PP_SHARD_SLOTS = 2 };
struct held {
    int32_t stage, part, gather;
};
struct summed {
    int32_t reduce, stage, part, slot;
    bool first, last; /* of its stage in this step */
};

/* A rank while it is built. */
struct rank_state {
    const struct pp_op *ops; /* its order, with R inserted; kinds F B I W R */
    int64_t nops, next;
    int32_t last_compute; /* task; -1 = none yet */
    int32_t last_gather;  /* GATHER_PARAM; -1 = none */
    int live, peak;       /* stage-microbatches between F and B/I */
    int64_t nissue;       /* entries of its issue list */
    struct slots ckpt, local, param, grad;
    struct held held[PP_SHARD_SLOTS];
    struct summed summed;
    int32_t reading;   /* with shards: the slot of parameters that is read; -1: none yet */
    struct slots *act; /* [nact] of the groups of its stages, in ascending order */
    int nact;
    int32_t *done_stages; /* [stages of the rank] in the order in which their gradients became final */
    int ndone, nstages;
};

struct builder {
    struct pp_plan *plan;
    struct slots *act;     /* of all ranks */
    int32_t *act_group;    /* [stages] which of its rank's `act` a stage uses */
    int64_t task_capacity; /* exact; with shards as if all were gathered each time */
    struct rank_state *ranks;
    struct pp_op *ops;    /* of all ranks */
    int32_t *done_stages; /* [stages] of all ranks */
    struct channel *channels;
    int nchannels;
    int32_t *first_channel; /* [2 * ranks] of a source and transfer kind; -1 = none */
    int32_t
        *channel_of; /* [stages * 2] channel that takes a stage's output: forward, backward; -1 = none (local or end) */
    int32_t *delivered;      /* [2][pp_cells()] task that delivers the input of F, of B/I; -1 = not yet */
    int32_t *act_slot;       /* [pp_cells()] */
    int32_t *ckpt_slot;      /* [pp_cells()] where something is recomputed */
    int32_t *gradients_left; /* [stages] B or W still to come */
    uint8_t *started;        /* [stages] bit 0: a first B/I was emitted, bit 1: a first W, bit 2: a first F */
    int32_t *final_task;     /* [stages] after it the stage's gradients are final, but for those of others */
    int32_t *parts;          /* [stages] in which gradients are summed; 1: as a whole */
    int32_t *parts_before;   /* [stages] those of earlier stages */
    int32_t *gather_task;    /* [stages] the first part's */
    int32_t *step_task;      /* [stages] */
    int32_t *row_index;      /* [microbatches] index of its row count among the distinct ones */
    int32_t *slot_row_index; /* [microbatches] the same of all microbatches in its slot, at the slot's first */
    int nrows;
    int32_t *class_id;      /* [PP_KINDS][stages][nrows] */
    int32_t *part_class_id; /* [PP_KINDS][parts of all stages][nrows] */
    int nparts;             /* of all stages */
    int64_t class_room;
};

/* Tables of stages and microbatches have rows of this length: all ranks work on nearly the same microbatch at a time,
 * and rows of a power of two would put it into the same sets of the caches for every stage. */
static inline int64_t pp_row_cells(const struct pp_plan *plan) { return (int64_t)plan->microbatches + 16; }

static inline int64_t pp_cells(const struct pp_plan *plan) { return plan->stages * pp_row_cells(plan); }

static inline int64_t pp_cell(const struct pp_plan *plan, int stage, int microbatch)
{
    return stage * pp_row_cells(plan) + microbatch;
}

static inline bool pp_is_backward(int kind) { return kind == PP_B || kind == PP_I; }

/* Does microbatch m of this plan keep inputs only, to be recomputed? */
static inline bool pp_recomputed(const struct pp_plan *plan, int m)
{
    if (!plan->training || plan->checkpoint == PP_CHECKPOINT_NEVER || pp_checkpoint_in_slots(plan->checkpoint))
        return false;
    return plan->checkpoint != PP_CHECKPOINT_EXCEPT_LAST || m < plan->microbatches - 1;
}

/* slots.c */
pp_status pp_slots_take(struct slots *slots, int32_t *out) PP_MUST_CHECK; /* only if one is available */
bool pp_slots_available(const struct slots *slots);
void pp_slots_free(struct slots *slots, int32_t slot);
void pp_slots_release(struct slots *slots);
pp_status pp_queue_add(struct slot_queue *queue, int32_t value) PP_MUST_CHECK;
int32_t pp_queue_oldest(struct slot_queue *queue); /* takes it; only if there is one */

/* emit.c: all computations and transfers. */
pp_status pp_builder_emit(struct builder *b) PP_MUST_CHECK;
pp_status pp_builder_task(struct builder *b, const struct pp_task *task, int32_t *id) PP_MUST_CHECK;

/* classes.c. Numbers the row counts of microbatches, first of all. microbatch: -1 where there is none; count: how many.
 */
pp_status pp_builder_number_rows(struct builder *b) PP_MUST_CHECK;
pp_status pp_builder_class(struct builder *b, int kind, int stage, int microbatch, int count,
                           int32_t *out) PP_MUST_CHECK;
/* The same of a part of the task (b->parts of its stage), in the task's own order. */
pp_status pp_builder_part_class(struct builder *b, const struct pp_task *task, int part, int32_t *out) PP_MUST_CHECK;

/* epilogue.c: REDUCE_GRAD (called by emit.c when a stage's gradients, or a part of them, are final), then REDUCE_TIED,
 * NORM, NORM_ALL, STEP, GATHER_PARAM. */
pp_status pp_builder_reduce(struct builder *b, int stage, int part) PP_MUST_CHECK;
/* Where replicas share in several groups, REDUCE_SHARE of the part, behind that task. */
pp_status pp_builder_reduce_share(struct builder *b, int stage, int part, int32_t after) PP_MUST_CHECK;
/* Before all else, where plan->gathers_first: GATHER_PARAM. */
pp_status pp_builder_gathers(struct builder *b) PP_MUST_CHECK;
pp_status pp_builder_epilogue(struct builder *b) PP_MUST_CHECK;
/* A task without microbatch, input and output. */
struct pp_task pp_builder_plain(int kind, int stage, int lane, int32_t after);
int pp_builder_collective(const struct builder *b, int rank); /* its lane */

/* shards.c, where plan->shards. Room for all its tasks; PP_USAGE where a backward is cut. Before part i of an
 * operation, a task that is not appended yet: its parameters, and those of the part that comes next. Behind it: what
 * was summed meanwhile is taken, and what it has made is summed; last: nobody makes more of that in this step. What is
 * summed and not taken yet. */
pp_status pp_shards_count(struct builder *b) PP_MUST_CHECK;
pp_status pp_shards_before(struct builder *b, const struct pp_op *op, int i, struct pp_task *piece) PP_MUST_CHECK;
pp_status pp_shards_behind(struct builder *b, const struct pp_task *piece, int32_t id, int i, bool last) PP_MUST_CHECK;
pp_status pp_shards_take(struct builder *b, int rank) PP_MUST_CHECK;

/* finish.c: pools, final slot numbers, wrap edges, issue lists, peaks, hash. */
pp_status pp_builder_finish(struct builder *b) PP_MUST_CHECK;

#endif
