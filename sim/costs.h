/* SPDX-License-Identifier: Apache-2.0
 *
 * Where durations come from: given directly (--times), measured (a profile in the database), or computed for a named
 * machine.
 */
#ifndef PP_SIM_COSTS_H
#define PP_SIM_COSTS_H

#include "core/cost.h"
#include "core/db.h"
#include "core/given_times.h"
#include "core/job.h"
#include "sim/machine.h"

/* core/given_times.h. A hop is pure latency: it keeps no channel. PP_USAGE if the straggler is no rank of the plan or a
 * task takes too long. */
pp_status pp_cost_from_times(const struct pp_plan *plan, const struct pp_given_times *times,
                             struct pp_cost **out) PP_MUST_CHECK;

/* Workers that share a GPU: --gpus 0 gives each worker one. */
int pp_cost_sharers(const struct pp_job *job);

/* Calls of a class's program at which the workers of a rank meet. */
int pp_cost_count_sums(const struct pp_job *job, int cls);

/* One call, by a worker that has a device of its own, without call_overhead_ns and what it joins: max(FLOPs /
 * attainable FLOP/s of the arithmetic that it uses, bytes / bandwidth); of a product, where the machine knows of tiles,
 * sim/product.h tells the former. */
double pp_machine_work_ns(const struct pp_machine *machine, const struct pp_work *work);

/* What a call takes, with call_overhead_ns (not of an await) and without what it joins, by one of `sharers` workers of
 * a device. machine_calls: struct pp_machine_calls. */
struct pp_machine_calls {
    const struct pp_machine *machine;
    const struct pp_model_ops *ops;
    int sharers;
};
pp_status pp_machine_call_ns(void *machine_calls, const struct pp_call *call, double *out) PP_MUST_CHECK;

/* Every program: the sum of that over its calls, and what its joins take beyond the kernels that hide them
 * (pp_placement_set_sums()). */
pp_status pp_cost_from_machine(const struct pp_job *job, const struct pp_machine *machine,
                               struct pp_cost **out) PP_MUST_CHECK;

/* pp_split_time() by the machine's roofline. PP_USAGE where it has no rate for the precision. */
pp_status pp_machine_split_time(const struct pp_machine *machine, struct pp_config *config,
                                const struct pp_model_ops *ops) PP_MUST_CHECK;

/* A measured figure that no measurement gives (below `least`, above `most`, not a number) is refused: PP_INPUT, with a
 * line that begins "the profile says that", names the figure as fmt does, and ends with its value. */
pp_status pp_check_figure(double value, double least, double most, const char *fmt, ...) PP_PRINTF(4, 5) PP_MUST_CHECK;

/* What a cost was made of. Classes are those with a duration of their own (computations). */
struct pp_cost_origin {
    int classes, from[PP_COST_SOURCES];              /* all of them; by enum pp_cost_source */
    char first[PP_COST_SOURCES][PP_SIGNATURE_BYTES]; /* signature of the first from there; "" = none */
    bool link_computed;                              /* transfers or reductions are the machine's */
    bool hop_missing;                                /* transfers take no time: pp_waits_from_profile() found none */
    double taken; /* of the profile: the part of their time in which its workers had no core; 0: none, or not known */
    const char *transport; /* whose links were taken: a row of core/movers.def; NULL: the machine's */
};

/* Of the computations: the least certain source. */
int pp_cost_worst_source(const struct pp_cost_origin *origin);
/* What is to be said of times from each source ("are interpolated between ..."); NULL: nothing. */
extern const char *const pp_cost_source_words[PP_COST_SOURCES];

/* Task times of the newest profile of config->device with config->threads: exactly this shape under loads 1 and
 * min(workers, cores); else the sum of its kernels, if each was measured under that load in some task; else
 * interpolated in rows between two measured row counts of the same work, or between two such sums, never beyond them;
 * else the machine's. Links by config->transport; "auto" takes the first of core/movers.def that was measured. Of a GPU
 * the times are those in the same share of one, alone and with all sharers busy, and there is what issuing takes the
 * host. *out = NULL if nothing at all fits. */
pp_status pp_cost_from_profile(const struct pp_job *job, struct pp_db *db, const struct pp_machine *machine,
                               struct pp_cost **out, struct pp_cost_origin *origin) PP_MUST_CHECK;

/* Of a class that combines: what its collective of a set is of, all shares together; 0: there is none. */
int64_t pp_cost_combined_bytes(const struct pp_job *job, const struct pp_class *cls, enum pp_param_set set);

/* Of a class that sums gradients as bfloat16 numbers: passes over memory that round them before, and read what is kept
 * of the sum behind it; else 0. */
int64_t pp_cost_rounding_ns(const struct pp_job *job, const struct pp_class *cls, const struct pp_machine *machine);

/* Hops of the exchange behind the global norm: an all-gather by dissemination among n = pp_norm_workers(), which takes
 * ceil(log2 n) rounds. */
int pp_norm_hops(const struct pp_plan *plan);

#endif
