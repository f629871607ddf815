/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules, and their registry. A schedule says only on which rank each stage lives and in which order each rank
 * computes. The builder (builder.h) adds data edges, transfers, recomputation, collectives, norm, optimizer step and
 * slots.
 *
 * To add one: copy gpipe.c, change it, add its name to schedules.def. Every test that loops over the registry then
 * covers it.
 */
#ifndef PP_SCHEDULES_SCHEDULE_H
#define PP_SCHEDULES_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/job/job.h"
#include "core/plan/plan.h"
#include "core/plan/plan_spec.h"

/* One computation of one rank. */
struct pp_op {
    int32_t stage, microbatch;
    uint8_t kind;   /* PP_F, PP_B, PP_I or PP_W; the builder also inserts PP_R */
    uint16_t count; /* number of microbatches, from `microbatch` on. Set by the builder, which may batch Ws */
};

/* The order of one rank; it grows. */
struct pp_order {
    int64_t n, capacity;
    struct pp_op *ops;
};

struct pp_schedule_shape {
    int ranks, virtual_stages, stages, microbatches; /* P, V, P V, M */
    bool training;                                   /* false: only the forwards of the order are used */
    bool meets;                                      /* ranks wait for the global norm; else their steps overlap */
    int number;                                      /* N of NAME:N; 0: the schedule's default */
    const struct pp_stage_costs *costs;              /* core/plan/plan_spec.h; NULL: nothing is known */
};

/* The meaning of N in NAME:N. */
enum pp_schedule_number {
    PP_NO_NUMBER,     /* the schedule takes no number */
    PP_NUMBER_HELD,   /* the most microbatches that a rank may hold at once */
    PP_NUMBER_IN_TURN /* microbatches that a stage runs before the rank turns to its next stage */
};

/* How many stages on each rank a schedule can have. V defaults to 1 for PP_ONE_STAGE, else to 2. */
enum pp_rank_stages { PP_ONE_STAGE, PP_TWO_STAGES, PP_ANY_STAGES };

struct pp_schedule {
    const char *name, *summary;
    const char *torch_name; /* its name in torch.distributed.pipelining's get_schedule_class(); NULL: the same */
    enum pp_rank_stages virtual_stages;
    /* PP_USAGE for shapes that the schedule cannot do, with a message that names some that work. (The builder checks
     * `virtual_stages` and `number`.) NULL = it can do all. */
    pp_status (*check)(const struct pp_schedule_shape *shape);
    enum pp_schedule_number number; /* with PP_NO_NUMBER, shape->number is always 0 */
    bool timed;                     /* it decides by shape->costs */
    /* If each rank holds all microbatches at once: a schedule of as many stages that takes no more time and holds
     * fewer, where its check() accepts the shape. NULL if a rank gives microbatches back on the way. */
    const char *leaner;
    /* Appends the computations of `rank`, in order. Called once for each rank. All orders together have
     *   - each F of a stage and a microbatch once, and once its B, or else its I and, behind that, its W; of one stage
     *     always the same;
     *   - on a rank the microbatches of each stage, for each kind, in ascending order, by which gradients are added: so
     *     all schedules have the same bits;
     *   - no deadlock: F waits for F of the stage before, B and I for those of the stage behind.
     * It is also called for evaluation (!shape->training), of any number of microbatches, also one that check() refuses
     * in training: then only its forwards count, and check() refuses nothing. */
    pp_status (*order)(const struct pp_schedule_shape *shape, int rank, struct pp_order *order);
    /* Instead of order(), if one search finds the orders of all ranks: appends to orders[ranks], which are empty. */
    pp_status (*orders)(const struct pp_schedule_shape *shape, struct pp_order *orders);
    /* The rank of a stage. NULL = stage mod P. */
    int (*stage_rank)(const struct pp_schedule_shape *shape, int stage);
};

/* The rank of a stage. */
static inline int pp_schedule_rank(const struct pp_schedule *schedule, const struct pp_schedule_shape *shape, int stage)
{
    return schedule->stage_rank ? schedule->stage_rank(shape, stage) : stage % shape->ranks;
}

/* Appends a computation of a stage and a microbatch. kind: PP_F, PP_B, PP_I or PP_W. */
pp_status pp_order_add(struct pp_order *order, enum pp_kind kind, int stage, int microbatch) PP_MUST_CHECK;

/* The schedule with this name, in any case: its own name, PyTorch's, or that of PyTorch's class (Schedule1F1B). The
 * name may end in a colon and a number from 1 to PP_MOST_NUMBER, which is stored in *number; else that is 0. NULL if
 * there is no such schedule. */
const struct pp_schedule *pp_schedule_find(const char *name, int *number);
/* The i-th registered schedule, i >= 0; NULL past the end. */
const struct pp_schedule *pp_schedule_at(int i);

/* The functions of schedules/ for core/job/job.h. */
extern const struct pp_schedules pp_schedules;

#endif
