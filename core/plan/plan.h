/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan: what must run, where, in which order, and what it waits for, in one replica and one training step (or one
 * forward pass).
 *
 * A plan is a DAG of tasks (core/plan/task.h) in flat arrays. Task ids are a topological order: every task that a task
 * waits for has a smaller id, so a loop over the ids visits the DAG in a legal order. Simulator and executor walk the
 * same arrays; the id is the key of a task in the database, and `hash` names the plan.
 *
 * Lanes. A task runs on one lane, and a lane runs its tasks one after another in the order of their ids:
 *   - lanes 0 .. P-1 are the compute lanes of the ranks;
 *   - then one lane per directed channel (source rank, destination rank, activation or gradient) that is used;
 *   - then, if several workers hold the same parameters, one collective lane per rank, for REDUCE_GRAD and
 *     GATHER_PARAM; and, if replicas shard in several groups, one more per rank, for REDUCE_SHARE;
 *   - then, if embedding and decoder are tied, one lane for REDUCE_TIED;
 *   - then, if the gradient is clipped, one lane for NORM_ALL.
 * A transfer is one task, on the lane of its channel. Its two ends stand in the issue lists of two ranks.
 *
 * Waiting. A task may start when its lane is free and all tasks in its dep[] are done (-1: no task):
 *   - F, R, B, I, W:
 *       dep[0] = the task that delivers the input: a transfer, or a task of the neighbour stage on the same rank;
 *       dep[1] = the transfer that empties the send slot which this task writes;
 *       dep[2] = the GATHER_PARAM that brings the parameters: with ZeRO 3 of every F, R and B; where the step begins
 *       with gathering (gathers_first), of the first F of each stage.
 *     If the task is done in parts, the first part has the input (dep[0], `in`) and the last part the output (dep[1],
 *     `out`).
 *   - transfer:
 *       dep[0] = the task that produces the data;
 *       dep[1] = the task that reads the previous content of the receive slot;
 *       dep[2] = the compute task that precedes the RECV end in the receiver's issue list. Only transports that post a
 *       receive at its place in the list (NCCL) wait for it. Transports that post a receive as soon as its slot is free
 *       (host memory) wait for dep[1] alone, which always comes earlier.
 *   - a collective or a task of the optimizer:
 *       REDUCE_GRAD    dep[0] = the computation that completes the gradients which it sums
 *       REDUCE_SHARE   dep[0] = its REDUCE_GRAD, which has the id before its own; with ZeRO 2 and 3 the last ADD_GRAD
 *                      of its part
 *       ADD_GRAD       dep[0] = its REDUCE_GRAD
 *       REDUCE_TIED    dep[0], dep[1] = the tasks that complete the gradients of the first and of the last stage, sums
 *                      over replicas included
 *       NORM           dep[0] = the collective that completes the gradients of its stage; none if a task of its own
 *                      lane does: its last B or W, with ZeRO 2 and 3 the last ADD_GRAD
 *       NORM_ALL       all NORMs: it has PP_TASK_DEP_RANGE, which means all ids dep[0] .. dep[1]
 *       STEP           dep[0] = NORM_ALL; without clipping as NORM
 *       GATHER_PARAM   dep[0] = with ZeRO 3 its PUT_PARAM; else the STEP of its stage, unless it begins the step
 * Edges into the next step are listed in wraps[].
 *
 * Proof. pp_plan_check() walks the issue list of each rank as one in-order queue, with unbuffered rendezvous at both
 * ends of every transfer. A plan that passes cannot deadlock on a transport that buffers nothing, and posting earlier
 * only helps.
 *
 * Slots. Memory that is used again and again is numbered: a task's act, ckpt, in and out are slot ids of the plan (see
 * pools[]). core/model/layout.h says where a slot lies and how large it is. Slots do not depend on time.
 *
 * Orders follow torch.distributed.pipelining (PyTorch 2.15); see schedules/.
 */
#ifndef PP_CORE_PLAN_PLAN_H
#define PP_CORE_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/plan/task.h"

enum { PP_SCHEDULE_NAME = 32 }; /* bytes of a schedule's name, with its terminating 0 */

/* The letters, here and wherever plans are used:
 *   P  ranks of the pipeline
 *   V  stages on each rank
 *   M  microbatches
 *   D  data-parallel degree: number of shares into which the rows of a batch are dealt out
 *   T  tensor-parallel degree
 *   N  expert-parallel degree
 *   C  context-parallel degree
 * A plan has D C / N replicas, and each rank of a replica has T N workers, its members (core/plan/workers.h). */
struct pp_plan {
    char schedule[PP_SCHEDULE_NAME];
    uint64_t hash;              /* pp_plan_hash() */
    int ranks, virtual_stages;  /* P, V */
    int stages;                 /* P V */
    int microbatches, replicas; /* M, D C / N */
    /* Members: the workers of a rank, who do the same tasks at the same time. Like replicas they are a multiplicity:
     * the tasks of a plan are those of one member. Member number = expert rank * T + tensor rank.
     *   Tensor parallelism (Shoeybi et al. 2019, Megatron-LM): each of T tensor ranks has a part of the stage's tensors
     *   (pp_shape.tensor). Their sums are inside tasks.
     *   Expert parallelism: N expert ranks have rows of their own, as replicas have, and share the experts of the
     *   stage's layers (pp_shape.expert_parallel). For all other parameters expert ranks are like replicas, so a
     *   REDUCE_GRAD or GATHER_PARAM has two collectives, one after the other: see enum pp_param_set. */
    int members;         /* T N */
    int expert_parallel; /* N */
    /* Context parallelism: C successive replicas have the same rows, and each of them a part of the rows' tokens
     * (pp_shape.context). Context rank = replica % C. They exchange what attention needs inside tasks; otherwise they
     * are like other replicas. */
    int context;
    int checkpoint;      /* enum pp_checkpoint (core/plan/plan_spec.h) */
    int recv_buffers;    /* receive slots per channel; 0 = transfers have no slots */
    bool training;       /* false: forward only */
    bool optimizer;      /* it has STEP tasks */
    bool clip;           /* it has NORM tasks and NORM_ALL */
    bool split_backward; /* it has I and W tasks */
    /* The decoder's weight is the embedding's. The first and the last stage have a copy each, and REDUCE_TIED sums the
     * gradients of both copies, after the sum over replicas (as in Megatron-LM's embedding group). */
    bool tied;
    /* ZeRO stage 1: each of the replicas that hold the same parameters owns an equal share of every tensor. It keeps
     * the optimizer's state for its share alone, and steps it. REDUCE_GRAD then is a reduce-scatter, NORM and STEP work
     * on the share, NORM_ALL is among all workers of all replicas that share, and GATHER_PARAM is an all-gather of the
     * stepped parameters, which the rank's next step waits for. */
    bool zero;
    /* GATHER_PARAM stands at the beginning of a step, and gathers what the step before has stepped. So after the last
     * step of a run the parameters are not whole. */
    bool gathers_first;
    /* ZeRO stage 2, in plans that train: a worker keeps its share of the gradients alone. A rank has two gradient
     * slots, each for one part of a stage (pp_class.part). What a B writes there, REDUCE_GRAD sums beside the next
     * computation; then ADD_GRAD writes the own share to the gradients that are kept, or adds it to them, in the order
     * of the microbatches. Impossible with split backwards. */
    bool shards;
    /* ZeRO stage 3 (Rajbhandari et al. 2020; PyTorch's FSDP with reshard_after_forward): a worker keeps its share of
     * the parameters alone. A rank has two parameter slots. While a computation reads one, the parameters of the part
     * that comes next are gathered into the other, unless a slot has them already: PUT_PARAM copies the own share into
     * the slot, GATHER_PARAM all-gathers the others. Forward-only plans gather as well. */
    bool shard_params;
    /* Hybrid sharding (PyTorch's HYBRID_SHARD; MiCS, Zhang et al. 2022): with ZeRO, groups of this many successive
     * replicas shard among each other; it divides `replicas` and is a multiple of C. Gradients that a group has summed
     * are then summed over the groups, share by share: REDUCE_SHARE. NORM_ALL is among the workers of one group.
     * Without ZeRO it equals `replicas`. */
    int shard_group;
    /* Products of layers have weights that are rounded to FP8: the first F of a stage in a step, or of a forward pass,
     * rounds them for all tasks of the stage. Not with ZeRO 3, where each task rounds what was gathered for it. */
    bool rounds_weights;
    /* Microbatches that an activation slot holds, one behind the other in each of its buffers; 1 unless W is batched
     * (pp_plan_spec.batch_w). Microbatch m is number m % slot_microbatches of its slot, and begins there at row
     * first_row[m] - first_row[pp_slot_first(m)]. */
    int slot_microbatches;
    int *rows;       /* [microbatches] */
    int *first_row;  /* [microbatches] rows of all microbatches before it */
    int *stage_rank; /* [stages] the rank on which a stage lives */
    /* [stages] for each part of the stage's activation slots its pool among those of the rank; -1: no such part */
    int (*act_pool)[PP_ACT_PARTS];
    /* [nacts] activation slots: the slots that are their parts; -1: there is no such part. There is one for each
     * combination that some task has, so different ones may share a part. */
    int32_t (*acts)[PP_ACT_PARTS];
    int nacts;

    int64_t ntasks;
    struct pp_task *tasks; /* the index is the task's id */
    int nlanes;
    struct pp_lane *lanes;
    int nclasses;
    struct pp_class *classes;
    int npools, nslots; /* nslots: of all pools */
    struct pp_pool *pools;
    int nwraps;
    struct pp_wrap *wraps;

    /* Issue lists: what each rank issues, in order. The list of rank r is issue[issue_start[r]] ..
     * issue[issue_start[r+1] - 1]; pp_issue_entry() makes an entry, pp_issue_task() and pp_issue_is_recv() read it. A
     * collective of several ranks stands in the list of each. */
    int64_t *issue_start; /* [ranks + 1] */
    int32_t *issue;

    /* [ranks] the most microbatches that are live at once, from the start of F to the end of B or I; one stage's
     * microbatch counts 1/V */
    double *peak_microbatches;
};

/* The parameter slot (ZeRO 3) and the gradient slot (ZeRO 2 and 3) that a task reads or writes; -1: none. */
int32_t pp_task_param(const struct pp_plan *plan, const struct pp_task *t);
int32_t pp_task_grad(const struct pp_plan *plan, const struct pp_task *t);
/* Does the task add to gradients that another task of the step has written (pp_class.adds)? */
bool pp_task_adds(const struct pp_plan *plan, const struct pp_task *t);

/* Do several workers hold the same parameters? */
static inline bool pp_plan_holds_again(const struct pp_plan *plan)
{
    return plan->replicas * plan->expert_parallel > 1;
}

/* Number of groups of replicas that shard (see shard_group). All groups hold the same. */
static inline int pp_plan_shard_groups(const struct pp_plan *plan) { return plan->replicas / plan->shard_group; }

/* The ZeRO stage, 1 to 3; 0: replicas share nothing. */
static inline int pp_plan_zero(const struct pp_plan *plan)
{
    return plan->shard_params ? 3 : plan->zero + plan->shards;
}

/* Does the rank sum tied gradients with another rank? Not if the first and the last stage are on one rank: it then has
 * both copies. */
static inline bool pp_ties_ranks(const struct pp_plan *plan, int rank)
{
    const int first = plan->stage_rank[0], last = plan->stage_rank[plan->stages - 1];
    return plan->tied && first != last && (rank == first || rank == last);
}

/* The number of ranks that take part in the tasks of a lane, and the i-th of them. The sender of a channel is the 0th,
 * the receiver the 1st. */
static inline int pp_lane_ranks(const struct pp_plan *plan, const struct pp_lane *lane)
{
    if (lane->kind == PP_LANE_NORM) return plan->ranks;
    return lane->src != lane->dst ? 2 : 1;
}
static inline int pp_lane_rank(const struct pp_lane *lane, int i)
{
    return lane->kind == PP_LANE_NORM ? i : i == 0 ? lane->src : lane->dst;
}

/* Is it a class of collectives (pp_combines()) in which the rank takes part? */
static inline bool pp_combines_on(const struct pp_plan *plan, const struct pp_class *cls, int rank)
{
    const bool last = cls->kind == PP_REDUCE_TIED && plan->stage_rank[plan->stages - 1] == rank;
    return pp_combines(cls->kind) && (last || plan->stage_rank[cls->stage] == rank);
}

/* The rank that computes the loss: that of the last stage. */
static inline int pp_loss_rank(const struct pp_plan *plan) { return plan->stage_rank[plan->stages - 1]; }

/* The first microbatch in the activation slot of microbatch m. */
static inline int pp_slot_first(const struct pp_plan *plan, int m) { return m - m % plan->slot_microbatches; }

/* Rows of all microbatches that share an activation slot with microbatch m. */
int pp_plan_slot_rows(const struct pp_plan *plan, int m);
/* The same for the slot that holds most rows. */
int pp_plan_most_slot_rows(const struct pp_plan *plan);

/* Checks any plan, whoever made it, if its arrays are as long as it says:
 *   - no index leads out of an array, and rows and numbers of workers are possible;
 *   - ids are topological, and lanes run in the order of ids;
 *   - each stage has exactly one F and one B (or I and W) for each microbatch, and both ends of each transfer;
 *   - a channel sends and receives in the same order;
 *   - two users of a slot are separated by a path in the DAG;
 *   - gradients are summed over the replicas before they are read, and the global norm is known before a step;
 *   - the proof of freedom from deadlock (see above).
 * It does not look at `schedule`, `hash` and peak_microbatches.
 * PP_INPUT with a message that names what is wrong, and of a task its rank; PP_NOMEM. Time is linear in the tasks, plus
 * sorting wraps[], plus P * stages with ZeRO; with ZeRO 2 and 3 each B also goes through the pools of slots
 * (pp_task_grad()). */
pp_status pp_plan_check(const struct pp_plan *plan) PP_MUST_CHECK;

/* The rows of the microbatches, such as "6x3 1x2": six microbatches of three rows and one of two. Returns buf. */
const char *pp_plan_rows_text(const struct pp_plan *plan, char *buf, size_t size);

/* The hash that names a plan: equal for equal tasks, edges, slots, rows, lanes and issue orders. The builder stores it
 * in plan->hash. */
uint64_t pp_plan_hash(const struct pp_plan *plan);

/* NULL is fine. */
void pp_plan_free(struct pp_plan *plan);

/* Rows of each microbatch as torch.chunk cuts a batch: pieces of ceil(rows / chunks). rows_out has room for `chunks`,
 * or is NULL. Returns the number of microbatches (20 rows in 8 chunks: 3,3,3,3,3,3,2, so 7). */
int pp_chunk_rows(int rows, int chunks, int *rows_out);

#endif
