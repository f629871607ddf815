/* SPDX-License-Identifier: Apache-2.0
 *
 * Durations that are given (--times, --straggler, --jitter), or were measured on another device. The simulator and the
 * device `delay` take them from here, so both speak of the same times.
 */
#ifndef PP_CORE_GIVEN_TIMES_H
#define PP_CORE_GIVEN_TIMES_H

#include "core/config.h"
#include "core/plan.h"

/* What the computations of a plan took, class by class. */
struct pp_measured_times {
    const struct pp_plan *plan;
    int64_t *ns; /* [plan->nclasses]; 0 where the class computes nothing. NULL: nothing is measured */
};

/* Of one microbatch (of the largest, where they differ) on one whole rank, and of one hop between two ranks. */
struct pp_given_times {
    double forward_ms, input_ms, weight_ms, hop_ms;
    int slow_rank;      /* takes slow_factor times as long, in each replica */
    double slow_factor; /* 0: no rank does */
    double jitter;      /* each task takes up to this part longer or shorter; 0 .. 1 */
    uint64_t seed;
    struct pp_measured_times measured; /* instead of the first three; not of pp_given_times_of() */
};

/* "F,I,W[,C]". PP_USAGE unless they are three or four plain numbers >= 0, at least one of the first three above 0. */
pp_status pp_given_times_parse(const char *text, struct pp_given_times *out) PP_MUST_CHECK;

/* --times (0 where it is not given), --straggler and --jitter. PP_USAGE. */
pp_status pp_given_times_of(const struct pp_config *config, struct pp_given_times *out) PP_MUST_CHECK;

/* --straggler must name a rank of the pipeline. PP_USAGE. */
pp_status pp_given_times_check(const struct pp_given_times *times, int ranks) PP_MUST_CHECK;

/* Without jitter. A stage takes 1/V of the rank's time, a microbatch of fewer rows proportionally less; R = F, and
 * B = I + W, with checkpoints of layers F + I + W; 0 for optimizer, transfers and collectives. Measured: what the class
 * took, or else, in proportion of rows, what the same kind of task took on the stage's largest microbatch; the plan may
 * be another one of the job. PP_INPUT if the task would take longer than anything can count: 1e16 ns. */
pp_status pp_given_class_ns(const struct pp_given_times *times, const struct pp_plan *plan, const struct pp_class *cls,
                            int64_t *out) PP_MUST_CHECK;

int64_t pp_given_hop_ns(const struct pp_given_times *times);

/* The duration with jitter: the same for the same seed, step, task and worker, whoever asks. */
int64_t pp_jitter_ns(int64_t ns, double jitter, uint64_t seed, int64_t step, int32_t task, int worker);

#endif
