/* SPDX-License-Identifier: Apache-2.0
 *
 * What a schedule is, and the registry. A schedule says only where each stage lives and in which order each rank
 * computes; the builder (builder.h) adds data edges, transfers, recomputation, gradient reduction, norm, step and
 * slots.
 *
 * To add one: copy gpipe.c, change it, add its name to schedules.def. Every test that loops over the registry then
 * covers it.
 */
#ifndef PP_SCHEDULES_SCHEDULE_H
#define PP_SCHEDULES_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/job.h"
#include "core/plan.h"

/* One computation of one rank: PP_F, PP_B, PP_I or PP_W. Schedules leave count alone. */
struct pp_op {
    int32_t stage, microbatch;
    uint8_t kind;
    uint16_t count; /* microbatches from `microbatch` on, where the builder has batched weight gradients */
};

/* The order of one rank, growing. */
struct pp_order {
    int64_t n, capacity;
    struct pp_op *ops;
};

struct pp_schedule_shape {
    int ranks, virtual_stages, stages, microbatches; /* P, V, S = P*V, M */
    bool training;                                   /* false: of the order only the forwards count */
    int number;                                      /* N of NAME:N; 0: the schedule's default */
    const struct pp_stage_costs *costs;              /* core/plan.h; NULL: nothing is known */
};

/* What N of NAME:N says: nothing; how many microbatches a rank may hold; how many go through a stage in turn. */
enum pp_schedule_number { PP_NO_NUMBER, PP_NUMBER_HELD, PP_NUMBER_IN_TURN };

/* Stages of a rank that a schedule can have. V defaults to 1 of the first, else to 2. */
enum pp_rank_stages { PP_ONE_STAGE, PP_TWO_STAGES, PP_ANY_STAGES };

struct pp_schedule {
    const char *name, *summary;
    const char *torch_name; /* what torch.distributed.pipelining's get_schedule_class() calls it; NULL: the same */
    enum pp_rank_stages virtual_stages;
    /* Refuses shapes beyond what `virtual_stages` says; PP_USAGE with a message that names what works. NULL = all are
     * fine. */
    pp_status (*check)(const struct pp_schedule_shape *shape);
    enum pp_schedule_number number; /* PP_NO_NUMBER: shape->number is 0 */
    bool timed;                     /* decides by shape->costs */
    /* Appends the computations of `rank` in order. Called once per rank. */
    pp_status (*order)(const struct pp_schedule_shape *shape, int rank, struct pp_order *order);
    /* Instead of order(), where one search finds the orders of all ranks: appends to orders[rank], which are empty. */
    pp_status (*orders)(const struct pp_schedule_shape *shape, struct pp_order *orders);
    /* The rank of a stage. NULL = loop: stage mod P. */
    int (*stage_rank)(const struct pp_schedule_shape *shape, int stage);
};

static inline int pp_schedule_rank(const struct pp_schedule *schedule, const struct pp_schedule_shape *shape, int stage)
{
    return schedule->stage_rank ? schedule->stage_rank(shape, stage) : stage % shape->ranks;
}

/* Appends `kind` of (stage, microbatch). */
pp_status pp_order_add(struct pp_order *order, enum pp_kind kind, int stage, int microbatch) PP_MUST_CHECK;

/* By its name or PyTorch's, also that of the class (Schedule1F1B); case does not matter. Behind a colon there may be a
 * number from 1 to PP_MOST_NUMBER, which is left in *number, else 0. NULL: there is none. */
const struct pp_schedule *pp_schedule_find(const char *name, int *number);
/* The i-th registered schedule; NULL past the end. */
const struct pp_schedule *pp_schedule_at(int i);

/* For core/job.h. */
extern const struct pp_schedules pp_schedules;

#endif
