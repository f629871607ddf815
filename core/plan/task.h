/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks, the nodes of a plan, and what a task refers to by index: its lane, its cost class, its slots. core/plan/plan.h
 * says how tasks, lanes and edges make a plan.
 */
#ifndef PP_CORE_PLAN_TASK_H
#define PP_CORE_PLAN_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(id, printed name, does it run on a rank's compute lane?, meaning) */
#define PP_KIND_LIST(X)                                                                                                \
    X(F, "F", true, "forward")                                                                                         \
    X(B, "B", true, "full backward (I and W together)")                                                                \
    X(I, "I", true, "gradient of the stage's input")                                                                   \
    X(W, "W", true, "gradient of the stage's weights")                                                                 \
    X(R, "R", true, "recomputed forward (activation checkpointing)")                                                   \
    X(XFER_F, "XFER_F", false, "transfer of an activation to the next stage (SEND_F + RECV_F)")                        \
    X(XFER_B, "XFER_B", false, "transfer of a gradient to the previous stage (SEND_B + RECV_B)")                       \
    X(REDUCE_GRAD, "REDUCE_GRAD", false, "sum over replicas of the gradients of a stage, or of a part of it")          \
    X(NORM, "NORM", true, "sums of squares of a stage's gradients")                                                    \
    X(NORM_ALL, "NORM_ALL", false, "global gradient norm: all ranks exchange their sums of squares")                   \
    X(STEP, "STEP", true, "gradient clipping and optimizer step of a stage")                                           \
    X(GATHER_PARAM, "GATHER_PARAM", false, "all-gather of parameters of which each replica has a share")               \
    X(REDUCE_TIED, "REDUCE_TIED", false, "sum of the two gradients of a weight tied between embedding and decoder")    \
    X(PUT_PARAM, "PUT_PARAM", true, "ZeRO 3: copies the own share of a part's parameters into the slot to gather")     \
    X(ADD_GRAD, "ADD_GRAD", true, "ZeRO 2, 3: adds the own share of a part's summed gradients to what is kept")        \
    X(REDUCE_SHARE, "REDUCE_SHARE", false, "sum of a share of the gradients over the groups of replicas that shard")

enum pp_kind {
#define X(id, name, computes, meaning) PP_##id,
    PP_KIND_LIST(X)
#undef X
        PP_KINDS
};

struct pp_kind_info {
    const char *name;
    bool computes; /* runs on a rank's compute lane */
};
extern const struct pp_kind_info pp_kinds[PP_KINDS];
/* The kind of this name (enum pp_kind); PP_KINDS: there is none, or name is NULL. */
int pp_kind_named(const char *name);

enum pp_task_flag {
    PP_TASK_FIRST = 1,      /* the first contribution of this step to the stage's gradients: it writes, does not add */
    PP_TASK_TAKE_ACT = 2,   /* the slots of activations `act` come into use when the task starts */
    PP_TASK_FREE_ACT = 4,   /* the slots of activations are free again when the task ends */
    PP_TASK_TAKE_CKPT = 8,  /* the checkpoint slot `ckpt` comes into use when the task starts */
    PP_TASK_FREE_CKPT = 16, /* the checkpoint slot is free again when the task ends */
    PP_TASK_MORE = 32,      /* one part of an F, B, W or R; the rank's next computation is the next part */
    PP_TASK_DEP_RANGE = 64, /* the task waits for all tasks with ids dep[0] .. dep[1]; dep[2] is unused */
    PP_TASK_SECOND = 128,   /* ZeRO 2 and 3: this B writes its gradients into the second of its rank's gradient slots */
};

/* Parts of an activation slot. Each is a slot of some pool, so that the layers of all stages of a rank can use the same
 * memory, whatever else these stages keep (schedules/act_pools.c). */
enum pp_act_part {
    PP_ACT_LAYERS, /* the first layers of the stage: as many as each stage of the rank has */
    PP_ACT_MORE,   /* its other layers */
    PP_ACT_ENDS,   /* what the embedding, the decoder and the loss keep */
    PP_ACT_PARTS
};

struct pp_task {
    uint8_t kind;       /* enum pp_kind */
    uint8_t flags;      /* enum pp_task_flag */
    uint16_t count;     /* number of microbatches, from `microbatch` on; 0 if the task belongs to no microbatch */
    int32_t stage;      /* a transfer has the stage of its sender; NORM_ALL has -1 */
    int32_t microbatch; /* the first one; -1 if the task belongs to no microbatch */
    int32_t lane;       /* index into plan->lanes */
    int32_t cls;        /* cost class: index into plan->classes */
    int32_t dep[3];     /* ids of tasks that must be done before; -1 = none. core/plan/plan.h has the meaning of each */
    /* Slots (struct pp_pool); -1 = none. */
    int32_t act;  /* F, R, B, I, W: activations of the microbatch: index into plan->acts */
    int32_t ckpt; /* checkpoint of the microbatch: F writes it, R or B reads it */
    /* `in` is read, `out` is written:
     *   computation               in: activation or gradient from the neighbour stage; out: for the neighbour stage
     *   transfer                  in: send slot of the sender; out: receive slot of the receiver
     *   PUT_PARAM, GATHER_PARAM   out: parameter slot (ZeRO 3)
     *   REDUCE_GRAD, ADD_GRAD     in: gradient slot (ZeRO 2 and 3)
     * For the parameter and gradient slots of F, R and B see pp_task_param() and pp_task_grad() in core/plan/plan.h. */
    int32_t in, out;
};

/* A cost class: tasks of one class do the same work on the same shape, so they share one program and one duration.
 *
 * A task of a whole stage may be split into parts, each of which covers some of the stage's layers:
 *   - the last B or W of a stage, and its REDUCE_GRAD, where gradients are summed beside the backward: each REDUCE_GRAD
 *     sums what the B or W of the same part has made (REDUCE_SHARE follows in the same parts);
 *   - the first F of a stage, and its GATHER_PARAM, where parameters are gathered beside the forward;
 *   - with ZeRO 2 each B, REDUCE_GRAD and ADD_GRAD; with ZeRO 3 also each F, R, PUT_PARAM and GATHER_PARAM.
 * Part 0 is the part that is done first: that of the first layers, or of the last ones (see pp_goes_back()). */
struct pp_class {
    int32_t kind, stage;
    int32_t rows;  /* rows of the microbatch, or of all `count` microbatches; 0 if there is none */
    int32_t part;  /* number of the part, 0 .. parts-1 */
    int32_t parts; /* number of parts; 0: the class covers the whole stage */
    bool rounds;   /* of the first F of a stage, with pp_plan.rounds_weights: it rounds the stage's weights */
    /* Of B, I, W, ADD_GRAD: it adds to gradients of the step. Else it writes them, for it is their first contribution
     * (PP_TASK_FIRST), or has a slot of its own for them (ZeRO 2 and 3). */
    bool adds;
};

enum pp_lane_kind {
    PP_LANE_COMPUTE, /* computations of one rank */
    PP_LANE_CHANNEL, /* transfers of one kind from one rank to another */
    PP_LANE_REDUCE,  /* collectives of one rank's replicas */
    PP_LANE_NORM,    /* the global norm, among all ranks */
    PP_LANE_TIED     /* the sum of tied gradients, between the ranks of the first and of the last stage */
};

struct pp_lane {
    int32_t kind; /* enum pp_lane_kind */
    /* COMPUTE, REDUCE: both are the rank. CHANNEL: sending and receiving rank. TIED: rank of the first and rank of the
     * last stage, which may be the same. NORM: both -1. */
    int32_t src, dst;
    int32_t transfer; /* CHANNEL: PP_XFER_F or PP_XFER_B; else -1 */
};

/* What the slots of a pool hold. core/model/layout.h gives them memory. */
enum pp_pool_kind {
    PP_POOL_ACT,   /* activations, from the F that makes them to the B or W that uses them up */
    PP_POOL_CKPT,  /* checkpoints, from F to the R or B that runs layers again */
    PP_POOL_RECV,  /* received activations or gradients */
    PP_POOL_SEND,  /* activations or gradients to be sent */
    PP_POOL_LOCAL, /* activations or gradients passed between two stages of one rank */
    PP_POOL_PARAM, /* ZeRO 3: gathered parameters of a part */
    PP_POOL_GRAD,  /* ZeRO 2 and 3: gradients of a part */
    PP_POOL_KINDS
};

/* A number of slots of one size on one rank. Their ids are first .. first+slots-1. */
struct pp_pool {
    int32_t kind; /* enum pp_pool_kind */
    int32_t rank;
    int32_t key; /* ACT: plan->act_pool of its stages; SEND, RECV: (src*P + dst)*2 + (XFER_B ? 1 : 0); else 0 */
    int32_t first, slots;
};

/* An edge into the next step: task `to` of step k+1 waits for task `from` of step k. */
struct pp_wrap {
    int32_t from, to;
};

/* The entry of `task` in the issue list of the i-th rank of its lane (see pp_lane_rank()): the task id, shifted left by
 * one, and in the lowest bit whether this is the receiving end of a transfer. */
static inline int32_t pp_issue_entry(const struct pp_lane *lane, int32_t task, int i)
{
    return task << 1 | (lane->kind == PP_LANE_CHANNEL && i == 1);
}
static inline int32_t pp_issue_task(int32_t entry) { return entry >> 1; }
static inline bool pp_issue_is_recv(int32_t entry) { return entry & 1; }

/* The rank of a computation. */
static inline int pp_task_rank(const struct pp_task *t) { return t->lane; }

/* Is the kind a transfer between neighbouring stages? */
static inline bool pp_is_transfer(int kind) { return kind == PP_XFER_F || kind == PP_XFER_B; }
/* The stage that a transfer of this kind from `stage` goes to. */
static inline int pp_transfer_target(int kind, int stage) { return kind == PP_XFER_F ? stage + 1 : stage - 1; }

/* If a task of this kind is done in parts, does part 0 cover the stage's last layers (instead of its first)? */
static inline bool pp_goes_back(int kind)
{
    return kind != PP_F && kind != PP_R && kind != PP_GATHER_PARAM && kind != PP_PUT_PARAM;
}

/* Does the kind write gradients of parameters, or add to them (pp_class.adds)? */
static inline bool pp_makes_gradients(int kind)
{
    return kind == PP_B || kind == PP_I || kind == PP_W || kind == PP_ADD_GRAD;
}

/* Does the kind copy a rank's own shares (ZeRO 2 and 3)? Such a task may stand between two parts of a computation: it
 * does not touch the scratch memory that the parts share. */
static inline bool pp_keeps_shards(int kind) { return kind == PP_PUT_PARAM || kind == PP_ADD_GRAD; }

/* Is the kind a collective on gradients or parameters? Collectives run beside a rank's computations. */
static inline bool pp_combines(int kind)
{
    return kind == PP_REDUCE_GRAD || kind == PP_GATHER_PARAM || kind == PP_REDUCE_SHARE || kind == PP_REDUCE_TIED;
}

/* The task in words, such as "F s3 m2" (stage 3, microbatch 2), into buf; returns buf. */
const char *pp_task_text(const struct pp_task *task, char *buf, size_t size);

#endif
