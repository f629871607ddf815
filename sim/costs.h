/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs (core/plan/cost.h) of a job: from --times, from a profile in the database, or computed from the data sheet of a
 * machine.
 */
#ifndef PP_SIM_COSTS_H
#define PP_SIM_COSTS_H

#include "core/database/db.h"
#include "core/job/given_times.h"
#include "core/job/job.h"
#include "core/plan/cost.h"
#include "sim/machine.h"

/* From given times (core/job/given_times.h). A hop is pure latency: it does not occupy its channel. PP_USAGE if the
 * straggler is no rank of the plan, or if a task takes too long. */
pp_status pp_cost_from_times(const struct pp_plan *plan, const struct pp_given_times *times,
                             struct pp_cost **out) PP_MUST_CHECK;

/* Number of workers that share a GPU; 1 with --gpus 0, which gives each worker a GPU of its own. */
int pp_cost_sharers(const struct pp_job *job);
/* PP_USAGE if the workers cannot share the GPUs of --gpus evenly. */
pp_status pp_cost_check_sharers(const struct pp_job *job) PP_MUST_CHECK;

/* Number of collectives inside a task of the class: calls of its program that are joins and move data. */
int pp_cost_count_sums(const struct pp_job *job, int cls);

/* The cost of the job on a machine. A computation takes the sum of its calls, and of its collectives the part that no
 * kernels hide (pp_placement_set_sums()). Where its lender's cost has the time, it is taken from there. */
pp_status pp_cost_from_machine(const struct pp_job *job, const struct pp_machine *machine,
                               struct pp_cost **out) PP_MUST_CHECK;

/* PP_USAGE if the machine has no rate for the precision. */
pp_status pp_machine_check_rates(const struct pp_machine *machine, const struct pp_config *config) PP_MUST_CHECK;

/* pp_split_time_by() with the machine's roofline. PP_USAGE if the machine has no rate for the precision. */
pp_status pp_machine_split_time(const struct pp_machine *machine, const struct pp_config *config,
                                const struct pp_point *point, const struct pp_model_ops *ops,
                                double **layer_ns) PP_MUST_CHECK;

/* PP_INPUT if a figure of a profile cannot have been measured: it is below `least`, above `most`, or not a number. The
 * message is "the profile says that", then fmt, which names the figure, then its value. */
pp_status pp_check_figure(double value, double least, double most, const char *fmt, ...) PP_PRINTF(4, 5) PP_MUST_CHECK;

/* Where the figures of a cost come from. */
struct pp_cost_origin {
    int classes;                                     /* number of classes of computations */
    int from[PP_COST_SOURCES];                       /* of these, by source (enum pp_cost_source) */
    char first[PP_COST_SOURCES][PP_SIGNATURE_BYTES]; /* signature of the first class of each source; "" = none */
    bool link_computed;                              /* transfers or collectives are computed by the machine */
    bool hop_missing;                                /* transfers take no time: the profile has no link */
    double taken;                                    /* of the profile: see pp_taken_remark(); 0: none, or not known */
    const char *transport; /* the mover whose links were used (core/plan/movers.h); NULL: links of the machine */
};

/* Was any time of a computation measured? */
static inline bool pp_cost_measured(const struct pp_cost_origin *origin)
{
    return origin->classes > origin->from[PP_COST_MACHINE];
}
/* Was none computed by a data sheet alone? */
static inline bool pp_cost_measured_all(const struct pp_cost_origin *origin)
{
    return origin->classes > 0 && origin->from[PP_COST_MACHINE] == 0;
}
/* The least certain source of all computations. */
int pp_cost_worst_source(const struct pp_cost_origin *origin);
/* A remark about times of each source ("are interpolated between ..."); NULL: none. */
extern const char *const pp_cost_source_words[PP_COST_SOURCES];

/* The cost of the job from the newest profile of config->device with config->threads. Each class of computations gets
 * two times, one with a single busy worker and one with min(workers, cores) of them (GPUs: with all workers that share
 * the GPU). Each is the first of these that there is:
 *   1. the time of the same task, measured under this load;
 *   2. of a backward that writes gradients that of the one that adds, or the other way round, in proportion; else the
 *      sum of its kernels, if each was measured under this load in some task;
 *   3. interpolated in rows: between two measured times of the same work, or between two sums of kernels;
 *   4. the time of a relative, in proportion to both by the machine (cost_scaled.c);
 *   5. the time that the machine computes.
 * GPUs: the times are those in a share of the same size, and there is also the host's time to issue a task. Links are
 * those of config->transport; "auto" takes the first mover of core/plan/movers.def that was measured. *out = NULL if
 * the profile has no time of any computation. PP_INTERNAL for a job whose calls stand once (pp_job.once). */
pp_status pp_cost_from_profile(const struct pp_job *job, struct pp_db *db, const struct pp_machine *machine,
                               struct pp_cost **out, struct pp_cost_origin *origin) PP_MUST_CHECK;

/* Bytes of the collective that a class of collectives (pp_combines()) has for a set of parameters, all shares together;
 * 0: it has none. */
int64_t pp_cost_combined_bytes(const struct pp_job *job, const struct pp_class *cls, enum pp_param_set set);

/* If the class sums gradients as bfloat16 numbers: time to round them to bfloat16 before, and to convert the result
 * back to float32 after it. Else 0. */
int64_t pp_cost_rounding_ns(const struct pp_job *job, const struct pp_class *cls, const struct pp_machine *machine);

/* Rounds of the exchange for the global norm, an all-gather by dissemination: ceil(log2 n) among n = pp_norm_workers().
 */
int pp_norm_hops(const struct pp_plan *plan);

#endif
