/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile: how long the tasks of some configurations take on this machine.
 *
 * A task is timed under the conditions of training. A worker has the arena of its rank and runs the compute tasks of
 * the plan in the plan's order, step after step; its inputs are always ready. So weights are read again for every
 * microbatch, a slot's data is in the caches as little as in training, and nothing is allocated.
 *
 * Tasks are timed under two loads. Under load 1 as many ranks as run at once in training, each on its own core, take
 * turns, one task each. A task then runs alone, but the cache that all cores share has been used by the others, as at
 * the two ends of a step. Under load min(workers, cores) they all run at once, and share caches and the memory bus. The
 * optimizer step begins on all workers together, because in training it follows the norm of all gradients; a worker
 * that arrives early goes on with forward and backward tasks meanwhile.
 *
 * Tasks with equal signatures in equal contexts are one shape and share their samples, whatever plan they ran in. The
 * context is schedule and checkpoint mode: they decide how much of a slot is still in the caches. A shape is measured
 * in several rounds, spread over the session, so that a disturbance hits one of them only, and over the plans that
 * contain the shape. Samples during which the operating system took the core away are dropped. Some runs of a task are
 * timed kernel by kernel instead of as a whole; the time of the whole task minus the sum of its kernels' medians is
 * called its residual.
 *
 * Queue devices (core/model/queue.h) time tasks by their own clock: from the start of the first kernel to the end of
 * the last, where all kernels were queued before. How long the host takes to queue them is stored, too. Where workers
 * share a GPU, tasks are measured in a worker's share, alone and with all sharers busy, and the context names the
 * share.
 */
#ifndef PP_KERNELS_PROFILE_H
#define PP_KERNELS_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/stats.h"
#include "core/database/db.h"
#include "core/job/job.h"
#include "core/model/backend.h"
#include "core/model/model.h"
#include "core/model/program.h"

/* What is measured and with what. All pointers are borrowed. */
struct pp_profile_setup {
    const struct pp_config *config; /* lists of schedules, stages, ...; seconds: for each shape under each load */
    const struct pp_schedules *schedules;
    const struct pp_model_ops *ops;
    const struct pp_backend *backend;
    int cores;                               /* how many workers may run at once; unused with queue devices */
    pp_status (*pin)(void *arg, int worker); /* called in each worker's thread; NULL: workers stay where they are */
    void *pin_arg;
    bool (*interrupted)(void); /* measuring ends early when it says so; NULL: never */
    bool rests;                /* another process measures the tasks, so their memory is not looked for here */
};

/* All calls of one name in a shape's program. */
struct pp_profile_kernel {
    char name[PP_CALL_NAME];
    int calls; /* of this name in one task */
    struct pp_quantiles ns;
};

/* One shape under one load. Times are in nanoseconds. */
struct pp_profile_cell {
    int load;
    struct pp_quantiles ns, host_ns; /* the task; what issuing it takes the host (queue devices, else count is 0) */
    int nkernels;
    struct pp_profile_kernel *kernels;
    int64_t cpu_ns;     /* for how long of the task the worker had a core, on average; 0: not known (queue devices) */
    int64_t kernels_ns; /* sum over all calls of their kernels' medians; 0 if there are no kernel times */
    int64_t gap_ns;     /* (mean of the task - sum of the means of its calls) / calls */
    struct pp_times task, host, cpu, *call; /* samples: of whole tasks; of each call [ncalls] */
};

enum { PP_PROFILE_LOADS = 8 }; /* a session has so many different loads at most */
enum { PP_PROFILE_BEFORE, PP_PROFILE_DURING, PP_PROFILE_AFTER, PP_PROFILE_WHENS };
extern const char *const pp_profile_whens[PP_PROFILE_WHENS]; /* "before", ... */

struct pp_profile_shape {
    char signature[PP_SIGNATURE_BYTES]; /* of the program */
    char context[PP_CONTEXT_SIZE];      /* of the job: pp_job_context */
    int kind;                           /* enum pp_kind */
    int ncalls;
    char (*call_names)[PP_CALL_NAME];              /* [ncalls] */
    double flops, bytes;                           /* of one run of the task */
    struct pp_profile_cell cell[PP_PROFILE_LOADS]; /* one for each of the profile's loads; load 0: it is not needed */
};

struct pp_profile {
    struct pp_profile_setup setup;
    int npoints;
    struct pp_point *points;             /* the configurations that are possible */
    int nloads, loads[PP_PROFILE_LOADS]; /* the first is 1; others are numbers of workers that are busy at once */
    int nshapes;
    struct pp_profile_shape *shapes; /* each once, in order of appearance */
    int64_t shapes_room;
    /* Times of the reference kernel: before and after, of one worker alone; during, the mean over workers that ran it
     * at the same moment. */
    struct pp_times reference[PP_PROFILE_WHENS];
};

/* Makes the device, which is open, the one that the calling thread uses. */
pp_status pp_profile_use(const struct pp_backend *backend, struct pp_device *device) PP_MUST_CHECK;
/* The device that thread number `worker` of `workers` threads of one process opens. */
struct pp_device_spec pp_profile_device(const struct pp_config *config, int worker, int workers);

/* Finds the shapes of all configurations. Where there is one configuration and it is impossible: PP_USAGE. Of several,
 * impossible ones are left out, with a line in the log. */
pp_status pp_profile_create(const struct pp_profile_setup *setup, struct pp_profile **out) PP_MUST_CHECK;
/* Measures all shapes. PP_INTERRUPTED: it ended early, and the samples until then are kept. */
pp_status pp_profile_run(struct pp_profile *profile) PP_MUST_CHECK;
/* Writes the figures of tasks and kernels, and the times of the reference kernel, into the run of the database. */
pp_status pp_profile_store(struct pp_profile *profile, struct pp_db *db, int64_t run_id) PP_MUST_CHECK;
void pp_profile_free(struct pp_profile *profile); /* NULL is allowed */

/* The shape with this signature and context, or -1. */
int pp_profile_find(const struct pp_profile *profile, const char *signature, const char *context);
/* Workers of a configuration that slow each other down: min(workers, cores), or those that share a GPU. */
int pp_profile_at_once(const struct pp_profile_setup *setup, const struct pp_plan *plan);
/* The index in profile->loads[] of that number. */
int pp_profile_load(const struct pp_profile *profile, const struct pp_plan *plan);
/* Writes pp_job_context() and, behind it, the share of a GPU that each worker of the configuration has. */
void pp_profile_context(const struct pp_profile_setup *setup, const struct pp_job *job, char *buf, size_t size);
/* The largest change of the reference kernel's time between before, during and after, as a share of the time before.
 * NAN if it was not measured. */
double pp_profile_drift(struct pp_profile *profile);
/* Task shapes of which there is a time, at one load at least. */
int pp_profile_shapes_timed(const struct pp_profile *profile);
/* For which part of the tasks' time (all means added) other programs had the workers' cores. NAN if it is not known. */
double pp_profile_taken(const struct pp_profile *profile);

#endif
