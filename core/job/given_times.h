/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations that the user gives (--times, as numbers or as a file of block times; --straggler, --jitter), or that were
 * measured on another device. The simulator and the device `delay` both take them from here, so they use the same
 * times.
 */
#ifndef PP_CORE_JOB_GIVEN_TIMES_H
#define PP_CORE_JOB_GIVEN_TIMES_H

#include "core/job/blocks.h"
#include "core/options/config.h"
#include "core/plan/plan.h"

/* Measured durations of the computations of a plan, one for each cost class. */
struct pp_measured_times {
    const struct pp_plan *plan;
    int64_t *ns; /* [plan->nclasses]; 0 for classes that compute nothing. NULL: nothing was measured */
};

struct pp_given_times {
    double forward_ms, input_ms, weight_ms; /* F, I and W of one (the largest) microbatch on all stages of a rank */
    double hop_ms;                          /* one transfer between two ranks */
    int slow_rank;      /* --straggler: this rank takes slow_factor times as long, in each replica */
    double slow_factor; /* 0: there is no straggler */
    double jitter;      /* each task takes up to this part of its time longer or shorter; 0 to 1 */
    uint64_t seed;      /* of the jitter */
    /* --times names a file: these are its blocks (of the config), and after pp_given_times_cut() what each stage has of
     * them. They count instead of forward_ms, input_ms and weight_ms; hop_ms is set. */
    const struct pp_blocks *blocks;
    struct pp_block *stages; /* [P V] */
    int *stage_blocks;       /* [P V] number of blocks */
    /* If it has times, they count instead of forward_ms, input_ms and weight_ms. pp_given_times_of() leaves it empty.
     */
    struct pp_measured_times measured;
};

/* Parses "F,I,W[,C]" (ms; C is the hop). PP_USAGE unless there are three or four plain decimal numbers >= 0, and one of
 * the first three is above 0. */
pp_status pp_given_times_parse(const char *text, struct pp_given_times *out) PP_MUST_CHECK;

/* Reads --times (all times are 0 if it was not given; a file was read before, config->blocks), --straggler and
 * --jitter. PP_USAGE. */
pp_status pp_given_times_of(const struct pp_config *config, struct pp_given_times *out) PP_MUST_CHECK;

/* If there are blocks: cuts them into stages (pp_blocks_cut()); else does nothing. stage_rank: [stages]. */
pp_status pp_given_times_cut(struct pp_given_times *times, const struct pp_config *config, struct pp_cut_way way,
                             int stages, const int *stage_rank) PP_MUST_CHECK;
/* Releases what was cut, and measured.ns. */
void pp_given_times_free(struct pp_given_times *times);

/* What a stage takes. */
struct pp_block pp_given_stage(const struct pp_given_times *times, int stage, int virtual_stages);

/* PP_USAGE if --straggler names a rank that a pipeline of so many ranks does not have. */
pp_status pp_given_times_check(const struct pp_given_times *times, int ranks) PP_MUST_CHECK;

/* The duration of a task of class `cls` in `plan`, without jitter.
 *   From --times: a stage takes 1/V of its rank's time, and a microbatch with fewer rows proportionally less. R takes
 *   as long as F; B takes I + W, or F + I + W with PP_CHECKPOINT_LAYERS; optimizer, transfers and collectives take 0.
 *   Of blocks: the sums of the stage's blocks; B takes their backward_ms, and STEP their step_ms.
 *   Measured: the time of the same class. If it was not measured, the time of the same kind of task on the stage's
 *   largest measured microbatch, in proportion to the rows. `plan` may be another one than measured.plan, if both
 *   belong to the same job.
 * PP_INPUT if the task would take longer than PP_LONGEST_STEP_NS. */
pp_status pp_given_class_ns(const struct pp_given_times *times, const struct pp_plan *plan, const struct pp_class *cls,
                            int64_t *out) PP_MUST_CHECK;

/* The duration of a hop. */
int64_t pp_given_hop_ns(const struct pp_given_times *times);

/* `ns` with jitter. The result depends on the arguments alone: simulator and executor draw the same. */
int64_t pp_jitter_ns(int64_t ns, double jitter, uint64_t seed, int64_t step, int32_t task, int worker);

#endif
