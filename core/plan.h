/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: what must run, where, in which order, needing what. One replica, one training step (or one forward pass).
 *
 * A plan is a DAG of tasks in flat arrays. Task ids are a topological order: every task that a task waits for has a
 * smaller id, so a sweep over ids visits the DAG in a legal order. Simulator and executor walk the same arrays; the id
 * is the key of a task in the database, and `hash` names the plan.
 *
 * Lanes. Each task runs on one lane, and a lane runs its tasks one after another in the order of their ids:
 *   - lanes 0 .. ranks-1 are the compute lanes of the ranks;
 *   - then one lane per directed channel (source rank, destination rank, activation or gradient) that is used;
 *   - then, if there are replicas, one collective lane per rank (sums of gradients, and what shares of the optimizer's
 *     work make of the parameters), and, if they share in several groups, one more for the sums between groups;
 *   - then, if embedding and decoder are tied, one collective lane for the sum of their gradients;
 *   - then, if the gradient is clipped, one collective lane for the global norm.
 * A transfer is one task, on its channel's lane. Its two ends stand in the issue lists of two ranks.
 *
 * Waiting. A task may start when its lane is free and all of dep[] are done:
 *   - compute: dep[0] = the task that delivers its input (a transfer, or a task of the neighbour stage on the same
 *     rank), dep[1] = the transfer that must have emptied the send slot it writes, dep[2] = of the first F of a stage,
 *     or of a part of it, the GATHER_PARAM that brings its parameters, where that begins the step; with shards of
 *     parameters of every F, R and B;
 *   - transfer: dep[0] = the task that produces the data, dep[1] = the reader that must have emptied the receive slot,
 *     dep[2] = the compute task that precedes its RECV end in the receiver's issue list. dep[2] holds for transports
 *     that post a receive at its place in the list (NCCL); those that post as soon as the slot is free (host memory)
 *     wait for dep[1] only, which always comes earlier;
 *   - REDUCE_TIED: dep[0], dep[1] = what made, or summed over replicas, the last gradients of the first and of the last
 *     stage; their NORM (where nothing is clipped, their STEP) waits for it;
 *   - a part of a task that is not the first has no input but what the one before left; the last one writes the output;
 *   - with shards: GATHER_PARAM waits for the PUT_PARAM before it, if any, REDUCE_GRAD for the B that made its
 *     gradients, ADD_GRAD for its REDUCE_GRAD;
 *   - REDUCE_SHARE waits for its REDUCE_GRAD, which stands directly before it, with shards for the last ADD_GRAD of its
 *     part;
 *   - a task with PP_TASK_DEP_RANGE waits for all tasks with ids dep[0] .. dep[1].
 * A dep of -1 is none. Edges into the next step are listed in wraps[]: `to` of step k+1 waits for `from` of step k.
 *
 * Proof. pp_plan_check() walks each rank's issue list as one in-order queue with unbuffered rendezvous at both ends of
 * every transfer; a plan that passes can not deadlock on a transport that buffers nothing, and posting earlier only
 * helps.
 *
 * Slots. Memory that is used again and again is numbered: `act`, `ckpt`, `in`, `out` are slot ids of the plan (see
 * pools[]); where a slot lies and how large it is, core/layout.h says. They do not depend on time.
 *
 * Orders follow torch.distributed.pipelining (PyTorch 2.15); see schedules/.
 */
#ifndef PP_CORE_PLAN_H
#define PP_CORE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

/* X(id, printed name, computes: runs on a rank's compute lane, what it is) */
#define PP_KIND_LIST(X)                                                                                                \
    X(F, "F", true, "forward")                                                                                         \
    X(B, "B", true, "full backward (I and W together)")                                                                \
    X(I, "I", true, "gradient of the input")                                                                           \
    X(W, "W", true, "gradient of the weights")                                                                         \
    X(R, "R", true, "recomputed forward (activation checkpointing)")                                                   \
    X(XFER_F, "XFER_F", false, "transfer of an activation (SEND_F + RECV_F)")                                          \
    X(XFER_B, "XFER_B", false, "transfer of a gradient (SEND_B + RECV_B)")                                             \
    X(REDUCE_GRAD, "REDUCE_GRAD", false, "data-parallel sum of a stage's gradients, or of a part of them")             \
    X(NORM, "NORM", true, "sums of squares of a stage's gradients")                                                    \
    X(NORM_ALL, "NORM_ALL", false, "global gradient norm, from all ranks")                                             \
    X(STEP, "STEP", true, "clip and optimizer step of a stage")                                                        \
    X(GATHER_PARAM, "GATHER_PARAM", false, "a stage's parameters, of which each replica has stepped a share")          \
    X(REDUCE_TIED, "REDUCE_TIED", false, "sum of the gradients of embedding and decoder, which are one tensor")        \
    X(PUT_PARAM, "PUT_PARAM", true, "a replica's share of the parameters of a part, to where they are gathered")       \
    X(ADD_GRAD, "ADD_GRAD", true, "its share of the summed gradients of a part, to those of other microbatches")       \
    X(REDUCE_SHARE, "REDUCE_SHARE", false, "sum of a share of gradients over the groups of replicas that share")

enum pp_kind {
#define X(id, name, computes, meaning) PP_##id,
    PP_KIND_LIST(X)
#undef X
        PP_KINDS
};

struct pp_kind_info {
    const char *name;
    bool computes;
};
extern const struct pp_kind_info pp_kinds[PP_KINDS];

enum pp_task_flag {
    PP_TASK_FIRST = 1,     /* first contribution of this step to its stage's gradients: write, do not add */
    PP_TASK_TAKE_ACT = 2,  /* the activation slot comes into use with this task */
    PP_TASK_FREE_ACT = 4,  /* ... is free again when it ends */
    PP_TASK_TAKE_CKPT = 8, /* the same for what is checkpointed */
    PP_TASK_FREE_CKPT = 16,
    PP_TASK_MORE = 32,      /* a part of an F, B or W, of which the rank's next computation is the next part */
    PP_TASK_DEP_RANGE = 64, /* dep[0] .. dep[1] is a range */
    PP_TASK_SECOND = 128,   /* with shards: B writes its gradients into its rank's second slot for them */
};

struct pp_task {
    uint8_t kind;       /* enum pp_kind */
    uint8_t flags;      /* enum pp_task_flag */
    uint16_t count;     /* microbatches, from `microbatch` on; 0 where there is none */
    int32_t stage;      /* of a transfer: the sender's stage. -1 for NORM_ALL */
    int32_t microbatch; /* first one; -1 where there is none */
    int32_t lane;
    int32_t cls; /* cost class: index into classes[] */
    int32_t dep[3];
    int32_t act, ckpt; /* slots; -1 = none. F, R, B, I, W: activations. ckpt: F writes it, R or B reads it */
    /* slots; -1 = none. compute: read and written; transfer: slot at the sender, slot at the receiver. With shards:
     * PUT_PARAM and GATHER_PARAM write parameters, REDUCE_GRAD and ADD_GRAD read gradients; what F, R and B read and
     * write of these say pp_task_param() and pp_task_grad() */
    int32_t in, out;
};

/* Tasks of one class do the same work on the same shape: one duration table, one program. Where gradients are summed
 * beside the backward that makes them, the last B or W of a stage is done in parts, from the last layers to the first,
 * and so is REDUCE_GRAD: each sums what the part before it has made. Where parameters are gathered beside the forward
 * that reads them, so are GATHER_PARAM and the first F of a stage, from the first layers to the last. With shards all
 * are done so, and PUT_PARAM as GATHER_PARAM, ADD_GRAD as REDUCE_GRAD. */
struct pp_class {
    int32_t kind, stage;
    int32_t rows;        /* rows of the microbatch(es); 0 where there is none */
    int32_t part, parts; /* of so many; parts 0: all of it */
};

enum pp_lane_kind { PP_LANE_COMPUTE, PP_LANE_CHANNEL, PP_LANE_REDUCE, PP_LANE_NORM, PP_LANE_TIED };

struct pp_lane {
    int32_t kind; /* enum pp_lane_kind */
    /* channel: ranks. compute, reduce: src = dst = the rank. norm: -1. tied: the ranks of the first and the last stage,
     * which may be one */
    int32_t src, dst;
    int32_t transfer; /* channel: PP_XFER_F or PP_XFER_B; else -1 */
};

enum pp_pool_kind {
    PP_POOL_ACT,
    PP_POOL_CKPT,
    PP_POOL_RECV,
    PP_POOL_SEND,
    PP_POOL_LOCAL,
    PP_POOL_PARAM,
    PP_POOL_GRAD,
    PP_POOL_KINDS
};

/* Equal slots of one rank. Ids first .. first+slots-1. */
struct pp_pool {
    int32_t kind; /* enum pp_pool_kind */
    int32_t rank;
    int32_t key; /* ACT: slot group of the stages; SEND, RECV: src*ranks*2 + dst*2 + (transfer == PP_XFER_B); else 0 */
    int32_t first, slots;
};

struct pp_wrap {
    int32_t from, to;
};

/* What a microbatch keeps for its backward: all activations; but for the last one, or always, its stage's input alone,
 * from which R runs the stage's forward again (torchgpipe's modes); the input of each layer, from which B runs one
 * layer again before it goes back through it (Megatron-LM's full recomputation, uniform, one layer at a time; but the
 * last stage's decoder is run again, too); all activations but what each layer's activation function makes, which B
 * makes again of what that is made of, or I and W (as DeepSeek-V3 does, 2024; Megatron-LM's moe_act); or all but
 * those of the first N layers of each stage, of which the same holds as of layers (Megatron-LM's block method). */
enum pp_checkpoint {
    PP_CHECKPOINT_NEVER,
    PP_CHECKPOINT_EXCEPT_LAST,
    PP_CHECKPOINT_ALWAYS,
    PP_CHECKPOINT_LAYERS,     /* of plans that are not split; without R */
    PP_CHECKPOINT_ACTIVATION, /* this and what follows: of slots, not of tasks, which are those of never */
    PP_CHECKPOINTS,
    PP_CHECKPOINT_SOME_LAYERS = PP_CHECKPOINTS /* and all numbers behind it: of 1, 2, ... layers; likewise */
};

/* N of the last ones; of others 0. */
static inline int pp_checkpoint_some(int checkpoint)
{
    return checkpoint < PP_CHECKPOINT_SOME_LAYERS ? 0 : checkpoint - PP_CHECKPOINT_SOME_LAYERS + 1;
}

static inline bool pp_checkpoint_in_slots(int checkpoint) { return checkpoint >= PP_CHECKPOINT_ACTIVATION; }

/* "never", "layers", "layers:2" */
#define PP_CHECKPOINT_TEXT 24
const char *pp_checkpoint_text(int checkpoint, char buf[PP_CHECKPOINT_TEXT]);

/* What a schedule may decide by. Times in any one unit; whole numbers, so that every machine decides alike. A
 * straggler, jitter or a shorter last microbatch are not told. */
struct pp_stage_costs {
    const int64_t *forward, *input, *weight; /* [stages] time of F, I, W of one microbatch */
    int64_t hop;                             /* from a task's end to when another rank has its result */
};

/* What a plan is made from. */
struct pp_plan_spec {
    const char *schedule;                    /* a registered name (schedules/schedule.h) */
    int ranks, virtual_stages, microbatches; /* P, V, M */
    int replicas;                            /* times N > 1 adds REDUCE_GRAD; with C a multiple of it */
    int tensor, expert_parallel, context;    /* T, N and C, see struct pp_plan; 0: 1 */
    bool zero;                               /* see struct pp_plan; adds GATHER_PARAM */
    bool shards;                             /* see struct pp_plan; with zero. Adds ADD_GRAD */
    bool shard_params;                       /* see struct pp_plan; with shards. Adds PUT_PARAM */
    int shard_group;                         /* see struct pp_plan; 0: all replicas. Fewer add REDUCE_SHARE */
    const int *rows;                         /* [microbatches] rows of each; NULL = 1 each */
    int checkpoint;                          /* enum pp_checkpoint */
    int recv_buffers;     /* receive slots per channel; 0 = transfers have no slots at all: nothing is limited */
    bool training;        /* false: forward only (evaluation) */
    bool optimizer;       /* adds STEP */
    bool clip;            /* adds NORM and NORM_ALL */
    bool tied;            /* see struct pp_plan; adds REDUCE_TIED */
    const int *act_group; /* [stages] stages with equal numbers use slots of one size; NULL = all one group */
    /* K > 1: up to K successive microbatches' weight gradients of a stage are one W task (count > 1), where the order
     * of the schedule, with each B cut into I and W, allows the W to wait. 0 and 1: as the schedule has them. */
    int batch_w;
    /* [stages] in so many parts the gradients are summed, each as soon as the last backward has made it; 0 and 1: as a
     * whole. NULL: all as a whole */
    const int *parts;
    bool gather_first; /* GATHER_PARAM begins the step, in these parts, beside the forwards that need it */
    const struct pp_stage_costs *costs; /* NULL: all tasks take equally long, hops no time */
};

enum { PP_SCHEDULE_NAME = 32 }; /* bytes of a schedule's name, with its end */

struct pp_plan {
    char schedule[PP_SCHEDULE_NAME];
    uint64_t hash;
    int ranks, virtual_stages, stages, microbatches, replicas;
    /* Workers of each rank, who do the same tasks at the same time: like the replicas a multiplicity. Tensor
     * parallelism (Shoeybi et al. 2019, Megatron-LM): T tensor ranks have a part of the stage's tensors each
     * (pp_shape.tensor), and sum what they made of it inside a task. Expert parallelism: N of such groups have rows of
     * their own, as replicas have, and share the experts of the stage's layers (pp_shape.expert_parallel); D / N
     * replicas have N parts of the batch each then. Member = expert rank * T + tensor rank. Whatever replicas do with
     * gradients and parameters, expert ranks do, too, but for those of experts: a REDUCE_GRAD or GATHER_PARAM has two
     * collectives then, one after the other (enum pp_param_set). */
    int members;         /* T N */
    int expert_parallel; /* N */
    /* Context parallelism: each C successive replicas have the same rows, and of these a part of the tokens each
     * (pp_shape.context): context rank = replica % C. Inside their tasks they exchange what attention needs of the
     * others' tokens; all else is as between replicas. */
    int context;
    int checkpoint, recv_buffers;
    bool training, optimizer, clip;
    bool split_backward; /* it has I and W tasks */
    /* The decoder's weight is the embedding's: first and last stage have a copy each, and add up what they have made of
     * its gradient (behind the sum over replicas, as Megatron-LM does it in its group of embeddings). */
    bool tied;
    /* ZeRO stage 1: each of several replicas has an equal share of every gradient tensor, keeps what the optimizer
     * keeps of it, and steps it. REDUCE_GRAD then is a reduce-scatter, NORM and STEP work on the share, NORM_ALL is
     * among all workers of all replicas, and GATHER_PARAM is an all-gather, for which the rank's next step waits. */
    bool zero;
    bool gathers_first; /* ... of what the step before has stepped: behind the last one, parameters are not whole */
    /* ZeRO stage 2, of plans that train: it keeps nothing but its share of gradients, too. A rank has two slots for
     * them, each of a part of a stage (pp_class.part). Each B has its gradients summed by REDUCE_GRAD beside the next
     * computation; behind that, ADD_GRAD writes the own share to what it keeps, or adds it, in the order of the
     * microbatches. Not with split backwards. */
    bool shards;
    /* ZeRO stage 3 (Rajbhandari et al. 2020; PyTorch's FSDP with reshard_after_forward): nor of parameters, for which a
     * rank has two slots, too. Into the one that is not being read it gathers those of the part that comes next, unless
     * they are there: PUT_PARAM puts the own share in its place, and GATHER_PARAM brings the others'. Plans that do not
     * train gather, too. */
    bool shard_params;
    /* Each so many successive replicas share, a divisor of all of them and a multiple of `context`. What a group has
     * summed is summed over the groups, share by share: REDUCE_SHARE, behind REDUCE_GRAD, with shards behind the last
     * ADD_GRAD of a part (PyTorch's HYBRID_SHARD; MiCS, Zhang et al. 2022). NORM_ALL is among the workers of a group.
     * Where nothing is shared, it is all replicas. */
    int shard_group;
    /* Microbatches that an activation slot holds, in each of its buffers one behind the other: microbatch m is number
     * m % slot_microbatches of its slot, at row first_row[m] - first_row[pp_slot_first()]. 1 unless W is
     * batched. */
    int slot_microbatches;
    int *rows;       /* [microbatches] */
    int *first_row;  /* [microbatches] */
    int *stage_rank; /* [stages] */
    int *act_group;  /* [stages] */

    int64_t ntasks;
    struct pp_task *tasks;
    int nlanes;
    struct pp_lane *lanes;
    int nclasses;
    struct pp_class *classes;
    int npools, nslots;
    struct pp_pool *pools;
    int nwraps;
    struct pp_wrap *wraps;

    /* Issue order of each rank: entries issue_start[r] .. issue_start[r+1]-1, each a task id and which end it is. */
    int64_t *issue_start; /* [ranks + 1] */
    /* see pp_issue_task, pp_issue_is_recv. A collective stands in the list of each rank it needs */
    int32_t *issue;

    /* [ranks] most microbatches live between start of F and end of B or I, in whole-rank units */
    double *peak_microbatches;
};

/* Of the i-th rank that takes part in a task (pp_lane_rank()). */
static inline int32_t pp_issue_entry(const struct pp_lane *lane, int32_t task, int i)
{
    return task << 1 | (lane->kind == PP_LANE_CHANNEL && i == 1);
}
static inline int32_t pp_issue_task(int32_t entry) { return entry >> 1; }
static inline bool pp_issue_is_recv(int32_t entry) { return entry & 1; }

/* With shards: the slots of parameters and of gradients that a task works in; -1: in none. */
int32_t pp_task_param(const struct pp_plan *plan, const struct pp_task *t);
int32_t pp_task_grad(const struct pp_plan *plan, const struct pp_task *t);

/* The rank whose arena a compute task uses (its lane). */
static inline int pp_task_rank(const struct pp_task *t) { return t->lane; }

/* Is it a transfer between neighbouring stages? And the stage that a transfer from `stage` goes to. */
static inline bool pp_is_transfer(int kind) { return kind == PP_XFER_F || kind == PP_XFER_B; }
static inline int pp_transfer_target(int kind, int stage) { return kind == PP_XFER_F ? stage + 1 : stage - 1; }

/* Does such a task, done in parts, begin with a stage's last layers? */
static inline bool pp_goes_back(int kind)
{
    return kind != PP_F && kind != PP_R && kind != PP_GATHER_PARAM && kind != PP_PUT_PARAM;
}

/* Does it move a rank's own shares? It may stand between parts of a computation, whose scratch it leaves alone. */
static inline bool pp_keeps_shards(int kind) { return kind == PP_PUT_PARAM || kind == PP_ADD_GRAD; }

/* Does anybody have the same parameters as another worker? */
static inline bool pp_plan_holds_again(const struct pp_plan *plan)
{
    return plan->replicas * plan->expert_parallel > 1;
}

/* Groups of replicas that share; what they have is alike. */
static inline int pp_plan_shard_groups(const struct pp_plan *plan) { return plan->replicas / plan->shard_group; }

/* The stage of ZeRO; 0: replicas share nothing. */
static inline int pp_plan_zero(const struct pp_plan *plan)
{
    return plan->shard_params ? 3 : plan->zero + plan->shards;
}

/* Is it a collective on gradients or parameters? A rank does them one after the other, beside its computations. */
static inline bool pp_combines(int kind)
{
    return kind == PP_REDUCE_GRAD || kind == PP_GATHER_PARAM || kind == PP_REDUCE_SHARE || kind == PP_REDUCE_TIED;
}

/* Does a rank sum tied gradients with another one? Where first and last stage are on one rank, it has both copies. */
static inline bool pp_ties_ranks(const struct pp_plan *plan, int rank)
{
    const int first = plan->stage_rank[0], last = plan->stage_rank[plan->stages - 1];
    return plan->tied && first != last && (rank == first || rank == last);
}

/* The ranks that take part in what runs on a lane: how many, and the i-th of them; of a channel the sender first. */
static inline int pp_lane_ranks(const struct pp_plan *plan, const struct pp_lane *lane)
{
    if (lane->kind == PP_LANE_NORM) return plan->ranks;
    return lane->src != lane->dst ? 2 : 1;
}
static inline int pp_lane_rank(const struct pp_lane *lane, int i)
{
    return lane->kind == PP_LANE_NORM ? i : i == 0 ? lane->src : lane->dst;
}

/* Does a rank take part in the tasks of a class that combine? */
static inline bool pp_combines_on(const struct pp_plan *plan, const struct pp_class *cls, int rank)
{
    const bool last = cls->kind == PP_REDUCE_TIED && plan->stage_rank[plan->stages - 1] == rank;
    return pp_combines(cls->kind) && (last || plan->stage_rank[cls->stage] == rank);
}

/* The rank that computes the loss: that of the last stage. */
static inline int pp_loss_rank(const struct pp_plan *plan) { return plan->stage_rank[plan->stages - 1]; }

/* The first microbatch in the activation slot of microbatch m. */
static inline int pp_slot_first(const struct pp_plan *plan, int m) { return m - m % plan->slot_microbatches; }

/* Rows of all microbatches that share an activation slot with microbatch m; of the fullest slot. */
int pp_plan_slot_rows(const struct pp_plan *plan, int m);
int pp_plan_most_slot_rows(const struct pp_plan *plan);

/* Checks an arbitrary plan: ids topological, lanes ordered, each stage and microbatch has exactly its F and B (or I and
 * W), both ends of each transfer, send order = receive order per channel, slot users separated by a path, gradients
 * summed over the replicas before they are read, the norm of all known before a step, and the proof above. The message
 * names rank and task. Time: linear in the tasks; wraps[] are sorted, and with shards it is ranks x stages besides. */
pp_status pp_plan_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* "F s3 m2" and the like into buf; returns buf. */
const char *pp_task_text(const struct pp_task *task, char *buf, size_t size);

/* "6x3 1x2": the rows of the microbatches, six of three and one of two. */
const char *pp_plan_rows_text(const struct pp_plan *plan, char *buf, size_t size);

/* Names the plan: equal for equal tasks, edges, slots, rows, lanes and issue orders. Set by the builder. */
uint64_t pp_plan_hash(const struct pp_plan *plan);

/* NULL is fine. */
void pp_plan_free(struct pp_plan *plan);

/* Rows of each microbatch as torch.chunk cuts them: pieces of ceil(rows/chunks). rows_out has room for `chunks`.
 * Returns the number of microbatches (20 rows in 8 chunks: 3,3,3,3,3,3,2 = 7). */
int pp_chunk_rows(int rows, int chunks, int *rows_out);

#endif
