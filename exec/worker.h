/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker: one rank of one replica, or one of the workers that share the rank's tensors or experts (--tensor,
 * --expert-parallel). It owns an arena and walks the plan step after step: computations run in the order of the plan,
 * and beside them whatever it has under way: receives (posted as soon as their slot is free, or, if the carrier asks
 * for it, at their place in the list), sends (posted as soon as their data is there), the reduction of gradients, the
 * global norm. It waits only where the next computation lacks its input or its output slot, and inside a computation
 * where it needs something of the rank's other workers. Nothing is allocated in a step.
 *
 * A device without queues computes in the worker's own thread, which polls between kernels. With queues
 * (core/model/queue.h) the thread only puts work into them, ahead of the device: "done" then means issued, with a mark
 * behind it that the next computation's queue waits for. The thread waits for other threads and processes to have
 * issued their part, and at the end of a step for the device, always by polling.
 */
#ifndef PP_EXEC_WORKER_H
#define PP_EXEC_WORKER_H

#include "core/base/stats.h"
#include "core/job/job.h"
#include "core/plan/trace.h"
#include "exec/collective.h"
#include "exec/data.h"
#include "exec/reduce.h"
#include "exec/routes.h"
#include "exec/walk.h"

/* Marks of a parcel: `done` in a step that is not traced; the other two, which have times, in a traced step. */
struct pp_parcel_marks {
    struct pp_mark *done, *timed_begun, *timed_done;
};

/* One transfer under way or done. */
struct pp_transfer {
    struct pp_request request;    /* on devices that use the host's memory */
    struct pp_parcel parcel;      /* on queue devices */
    struct pp_parcel_marks marks; /* on queue devices */
    int64_t posted_ns;
    int32_t task, step;
    bool traced;
    int turn;              /* queue devices: index of the base (struct pp_worker_queue) from which its times count */
    struct pp_mark *ready; /* timed: a receive's slot is free; the task that wrote a send's data has ended */
};

/* The transfers of a channel end. Receives count from 0 in each step; sends go on counting, because the last ones of
 * a step may be under way while the next begins. Number i is at transfers[i % n]. */
struct pp_flow {
    struct pp_transfer *transfers; /* [n] */
    int64_t posted;
    int64_t done;    /* complete; on queue devices: issued */
    int64_t retired; /* complete, on all devices */
    int64_t base;    /* sends: number of the step's first send */
    const struct pp_route *route;
    const int32_t *after; /* receives: after[] or place[] of the walk, as the carrier needs it */
};

/* Marks of a stop. passed: behind the stop; NULL where nothing waits for it. The others have times, and are NULL where
 * no step is traced. */
struct pp_stop_marks {
    struct pp_mark *passed, *timed_begin, *timed_end;
};

/* What the collectives of a class of tasks work on, for each set of parameters. */
struct pp_combined {
    struct {
        bool there;                 /* the class has a collective of this set */
        struct pp_extent gradients; /* without shares: what is summed, in the stage's region of gradients */
        struct pp_shares *shares;   /* NULL: `gradients` are summed as a whole */
        struct pp_shares *sent;     /* with shares, where gradients are rounded: the shares of the rounded numbers */
        bool rounds;                /* gradients are rounded to bfloat16 before they are summed */
    } of[PP_PARAM_SETS];
};

/* A plan, ready to be walked by this worker. */
struct pp_track {
    struct pp_walk *walk;
    struct pp_flow *recv, *send; /* parallel to walk->recv, walk->send */
    const int64_t *slot_offset;
    struct pp_stop_marks *marks; /* queue devices: [nstops] */
    /* Devices that wait: [walk->plan->nclasses] time of a task, without jitter; 0 for classes of other workers. */
    int64_t *waits_ns;
    struct pp_combined *combined; /* [walk->plan->nclasses]; set for the collectives of this rank */
};

enum pp_track_id { PP_TRACK_TRAIN, PP_TRACK_EVAL, PP_TRACKS };

/* What pp_worker_step() is to do. */
struct pp_step {
    enum pp_track_id track;
    const struct pp_phase *phase;
    const struct pp_batches *batches;
    int batch;
    int32_t number; /* training step of the run, from 0: part of the dropout key */
    bool traced;
    double learning_rate;
    double loss_scale; /* of training: 1 / tokens of the step over all replicas */
    int64_t tokens;    /* of training: these */
};

struct pp_worker_ops;   /* exec/worker_inside.h */
struct pp_worker_queue; /* exec/worker_queue.h */

/* What workers do together on devices without queues (exec/worker_direct.c). NULL: there are no other members. */
struct pp_direct_sums {
    struct pp_reduce *reduce[PP_PARAM_SETS];      /* gradients, over the workers that have the same parameters */
    struct pp_reduce *share;                      /* shares of gradients, over the groups of replicas that share */
    struct pp_reduce *tied;                       /* gradient of the embedding, with the rank that has its other copy */
    struct pp_reduce *busy;                       /* which of these three is under way; NULL: none, or none is needed */
    struct pp_reduce *joined[PP_JOIN_GROUPS];     /* inside tasks */
    struct pp_exchange *exchange[PP_JOIN_GROUPS]; /* inside tasks: all to all */
    int64_t *posted_ns;                           /* [pp_worker.most_reductions] when each was posted in this step */
    int64_t start_ns;                             /* of the one under way */
    int32_t norm_task;
    int64_t norm_posted_ns;
};

struct pp_worker {
    struct pp_world *world;
    const struct pp_job *job;
    const struct pp_backend *backend;
    struct pp_device *device;
    const struct pp_worker_ops *ops;
    struct pp_worker_queue *queue; /* of a device with queues, else NULL */
    int me, rank, replica, member; /* numbers of the worker, its rank, its replica; which worker of the rank it is */
    char *arena;
    struct pp_track tracks[PP_TRACKS];
    struct pp_track *track; /* of the current step */
    struct pp_step step;
    struct pp_frame frame; /* what all tasks of the step share */
    int32_t *inputs;       /* host memory for a batch: tokens, then targets */
    double *losses;        /* [microbatches] losses of the step, where the worker has the last stage; device memory */
    /* [model tensors][pp_shape_sums] sums of squares of gradients. NORM fills in those of this worker (or of its
     * share); device memory. */
    double *sums;
    int nsums;                    /* elements of sums */
    int position;                 /* stops passed in this step */
    struct pp_direct_sums direct; /* of a device without queues, else zeros */
    struct pp_join join;          /* how programs reach the rank's other workers; run() is NULL where there are none */
    struct pp_shares *parts;      /* of what programs scatter and gather; NULL without tensor parallelism */
    int32_t *reductions; /* [most_reductions] tasks of this step that are collectives (pp_combines()), in order */
    int most_reductions;
    bool whole; /* parameters have been gathered since the last training step */
    int reductions_asked, reductions_begun, reductions_done; /* the first so many of reductions[] */
    enum pp_param_set reduction_set; /* of reduction number reductions_done: the set under way */
    struct pp_gather norm;
    bool norm_ready;
    struct pp_trace trace;
    int64_t uncertainty_ns; /* how far the times of its events may be off the clock of its process */
    int64_t waits;          /* how often it found nothing to do and had to wait */
    /* [ntraced] the tasks of each traced step; zeros: it is not known, because the device computes elsewhere, or tasks
     * wait for other workers. */
    struct pp_core_time *traced;
    int ntraced;
    pp_status status; /* a failure inside a callback (poll, join), which the next wait returns */
};

/* Opens the device and allocates all memory: the arena and what a step needs. Called by the worker's own thread, and by
 * all workers if the device has queues. trace_steps: room for the events of so many steps. *out may be set even after a
 * failure, and is then to be closed. */
pp_status pp_worker_open(struct pp_world *world, const struct pp_job *job, const struct pp_backend *backend, int me,
                         int trace_steps, struct pp_worker **out) PP_MUST_CHECK;
/* Frees the worker; NULL is fine. After a failure, called only when all workers of the process have stopped and have
 * been disconnected. Does nothing where a thread that cannot be ended uses the devices (pp_world.devices_held). */
void pp_worker_close(struct pp_worker *worker);
/* Closes the worker's queues, which may use the memory of other workers. Called by any thread when all workers of the
 * process have stopped. NULL is fine. */
void pp_worker_disconnect(struct pp_worker *worker);
/* Called after a failure by the worker's own thread: stops the other workers, and waits a short time until the device
 * is idle. Returns `why`, with the message that it had. */
pp_status pp_worker_abandon(struct pp_worker *worker, pp_status why) PP_MUST_CHECK;

/* Runs one step. *loss_sum: on a worker that has the last stage the sum of -log p over the tokens of its part of the
 * batch; else 0. Sends may still be under way when it returns. */
pp_status pp_worker_step(struct pp_worker *worker, const struct pp_step *step, double *loss_sum) PP_MUST_CHECK;
/* Called by all workers after a training step, before anything else than the next training step: gathers the
 * parameters, where each replica has stepped only its share of them and the next step would gather them
 * (pp_plan.gathers_first). */
pp_status pp_worker_gather(struct pp_worker *worker) PP_MUST_CHECK;
/* Waits until all sends of a track are done: before another track uses the arena, and at the end. */
pp_status pp_worker_drain(struct pp_worker *worker, enum pp_track_id track) PP_MUST_CHECK;

/* Copy elements first .. first + n - 1 of the worker's part of a tensor (pp_tensor.local) to and from the host, outside
 * of steps. part 0: the parameters; set() also renews their bfloat16 copies. part 1, 2, ...: what the optimizer keeps
 * of them (struct pp_optimizer_info). The worker must keep the elements that get() reads; set() skips those that it
 * does not keep. */
pp_status pp_worker_get(struct pp_worker *worker, int tensor, int part, int64_t first, int64_t n,
                        float *out) PP_MUST_CHECK;
pp_status pp_worker_set(struct pp_worker *worker, int tensor, int part, int64_t first, int64_t n,
                        const float *values) PP_MUST_CHECK;
/* Initial values of elements first .. first + n - 1 of the worker's part of a tensor. */
struct pp_drawing {
    int source; /* the tensor that has these values */
    uint64_t seed;
    int64_t first, n;
};
/* Lets the device make them, and their bfloat16 copies, as set() would set them. *drawn = false: the device cannot, and
 * the caller has to set all of them. */
pp_status pp_worker_draw(struct pp_worker *worker, int tensor, const struct pp_drawing *drawing,
                         bool *drawn) PP_MUST_CHECK;
/* Does each replica keep only a share of this part of a tensor? So it may be for what the optimizer keeps, and for
 * weights that are split. */
bool pp_worker_shares(const struct pp_worker *worker, int tensor, int part);
/* Narrows the range *first .. *first + *n - 1 of the worker's elements of a tensor to those that it keeps of this part:
 * all, or those in its replica's share. *n = 0: none. */
void pp_worker_keeps(const struct pp_worker *worker, int tensor, int part, int64_t *first, int64_t *n);
/* Does this worker hold the stage? */
bool pp_worker_has(const struct pp_worker *worker, int stage);

#endif
