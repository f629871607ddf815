/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker: one rank of one replica, or one of the workers that share the rank's tensors or experts (--tensor,
 * --expert-parallel). It owns an arena and walks the plan step after step: computations run in the order of the plan,
 * and beside them whatever it has under way: receives (posted as soon as their slot is free, or, if the carrier asks
 * for it, at their place in the list), sends (posted as soon as their data is there), the reduction of gradients, the
 * global norm. It waits only where the next computation lacks its input or its output slot, and inside one where the
 * rank's other workers are not as far. Nothing is allocated in a step.
 *
 * A device without queues computes in the worker's own thread, which polls between kernels. With queues (core/queue.h)
 * the thread only puts work into them, ahead of the device: "done" then means issued, with a mark behind it that the
 * next computation's queue waits for. The thread waits for other threads and processes to have issued their part, and
 * at the end of a step for the device, always by polling.
 */
#ifndef PP_EXEC_WORKER_H
#define PP_EXEC_WORKER_H

#include "core/job.h"
#include "core/trace.h"
#include "exec/collective.h"
#include "exec/data.h"
#include "exec/reduce.h"
#include "exec/routes.h"
#include "exec/walk.h"

/* Marks of a parcel: `done` where the step is not traced; else two that are timed. */
struct pp_parcel_marks {
    struct pp_mark *done, *timed_begun, *timed_done;
};

/* One transfer under way or done. */
struct pp_transfer {
    struct pp_request request;    /* memory of the host */
    struct pp_parcel parcel;      /* memory of a queue device */
    struct pp_parcel_marks marks; /* the parcel's */
    int64_t posted_ns;
    int32_t task, step;
    bool traced;
    int turn;              /* queue devices: which base its times count from */
    struct pp_mark *ready; /* timed: its slot is free; of a send: the end of the task that wrote the data */
};

/* The transfers of a channel end. Receives count from 0 in each step; sends go on counting, because the last ones of
 * a step may be under way while the next begins. Number i is at transfers[i % n]. */
struct pp_flow {
    struct pp_transfer *transfers; /* [n] */
    int64_t posted, done;
    int64_t base; /* sends: number of the step's first */
    /* `retired` counts what was seen to have happened; so does `done`, but of queue devices what is issued. */
    int64_t retired;
    const struct pp_route *route;
    const int32_t *after; /* receives: the rule of the carrier, walk's after[] or place[] */
};

/* Of a stop. passed: NULL where nothing waits for it. Timed ones: NULL where nothing is traced. */
struct pp_stop_marks {
    struct pp_mark *passed, *timed_begin, *timed_end;
};

/* What a collective of a set works on: nothing, where it has none; gradients or shares; those that are rounded. */
struct pp_combined {
    struct {
        bool there;
        struct pp_extent gradients; /* of a stage's region, without shares */
        struct pp_shares *shares;   /* NULL: all is summed */
        struct pp_shares *sent;     /* the same of rounded numbers; NULL: likewise, or nothing is rounded */
        bool rounds;
    } of[PP_PARAM_SETS];
};

/* A plan, ready to be walked by this worker. */
struct pp_track {
    struct pp_walk *walk;
    struct pp_flow *recv, *send; /* parallel to walk->recv, walk->send */
    const int64_t *slot_offset;
    struct pp_stop_marks *marks;  /* queue devices: [nstops] */
    int64_t *waits_ns;            /* devices that wait: [walk->plan->nclasses], without jitter; 0: of other workers */
    struct pp_combined *combined; /* [walk->plan->nclasses] of this rank's collectives */
};

enum pp_track_id { PP_TRACK_TRAIN, PP_TRACK_EVAL, PP_TRACKS };

/* What a step is told. */
struct pp_step {
    enum pp_track_id track;
    const struct pp_phase *phase;
    const struct pp_batches *batches;
    int batch;
    int32_t number; /* training step of the run, from 0: part of the dropout key */
    bool traced;
    double learning_rate;
    double loss_scale; /* 1 / tokens of the step over all replicas */
};

struct pp_worker_ops;   /* exec/worker_inside.h */
struct pp_worker_queue; /* exec/worker_queue.h */

struct pp_worker {
    struct pp_world *world;
    const struct pp_job *job;
    const struct pp_backend *backend;
    struct pp_device *device;
    const struct pp_worker_ops *ops;
    struct pp_worker_queue *queue; /* of a device with queues, else NULL */
    int me, rank, replica, member;
    char *arena;
    struct pp_track tracks[PP_TRACKS];
    struct pp_track *track; /* the step's */
    struct pp_step step;
    struct pp_frame frame; /* what all tasks of the step share */
    int32_t *inputs;       /* host memory for a batch: tokens, then targets */
    double *losses;        /* [microbatches] of the step, on the last stage's worker; memory of the device */
    /* [model tensors][pp_shape_sums] sums of squares, this worker's (of its share) filled in by NORM; of the device */
    double *sums;
    int nsums;
    int position;                            /* stops passed in this step */
    struct pp_reduce *reduce[PP_PARAM_SETS]; /* gradients; NULL where nobody has the same */
    struct pp_reduce *share;                 /* over the groups that share; NULL with one */
    struct pp_reduce *tied; /* with the rank that has the other copy of the embedding; NULL where none is there */
    struct pp_reduce *busy; /* which of these is under way; NULL: what needs no others */
    struct pp_reduce *joined[PP_JOIN_GROUPS];     /* inside tasks; NULL with one, and on devices with queues */
    struct pp_exchange *exchange[PP_JOIN_GROUPS]; /* all to all, likewise; NULL where the group has none */
    struct pp_join join;                          /* of the rank's workers; no run() with one */
    struct pp_shares *parts;                      /* of what they scatter and gather; NULL with one */
    int32_t *reductions;                          /* [most_reductions] tasks of this step in order that combine */
    int most_reductions;
    bool whole; /* parameters: gathered since the last training step */
    int64_t *reduction_posted_ns;
    int64_t reduction_start_ns;
    int reductions_asked, reductions_begun, reductions_done;
    enum pp_param_set reduction_set; /* of the one that was begun last: which of its collectives is under way */
    struct pp_gather norm;
    int32_t norm_task;
    int64_t norm_posted_ns;
    bool norm_ready;
    struct pp_trace trace;
    int64_t uncertainty_ns; /* how far the times of its events may be from the clock of its process */
    int64_t waits;          /* how often it found nothing to do and had to wait */
    pp_status status;       /* a failure inside a poll, told at the next wait */
};

/* Takes all memory: the arena and what a step needs. Called by the worker's own thread; with a queue device collective
 * over all workers. `trace_steps` steps can be traced. */
pp_status pp_worker_open(struct pp_world *world, const struct pp_job *job, const struct pp_backend *backend, int me,
                         int trace_steps, struct pp_worker **out) PP_MUST_CHECK;
/* NULL is fine. After a failure only when all workers of the process have stopped and been disconnected. Leaves all as
 * it is where something that cannot be ended uses the devices (pp_world.devices_held). */
void pp_worker_close(struct pp_worker *worker);
/* Ends the worker's queues that use memory of others. Any thread, when all workers of the process have stopped. NULL is
 * fine. */
void pp_worker_disconnect(struct pp_worker *worker);
/* After a failure, by the worker's own thread: tells the others, and waits, shortly, until the device is at rest.
 * Returns `why` with its message. */
pp_status pp_worker_abandon(struct pp_worker *worker, pp_status why) PP_MUST_CHECK;

/* Runs one step. *loss_sum: sum over the tokens of this replica's batch of -log p on the workers of the last stage,
 * else 0. Sends may still be under way when it returns. */
pp_status pp_worker_step(struct pp_worker *worker, const struct pp_step *step, double *loss_sum) PP_MUST_CHECK;
/* Behind a step, before anything but the next one: has the parameters whole, where replicas have stepped shares and the
 * next step would gather them (pp_plan.gathers_first). By all workers. */
pp_status pp_worker_gather(struct pp_worker *worker) PP_MUST_CHECK;
/* Waits until all sends of a plan have arrived: before another plan uses the arena, and at the end. */
pp_status pp_worker_drain(struct pp_worker *worker, enum pp_track_id track) PP_MUST_CHECK;

/* Host access to the worker's elements of one tensor of this rank (pp_tensor.local); outside of steps. part 0: the
 * parameters, whose bfloat16 copies set() renews, too; 1, 2, ...: what the optimizer keeps of them (struct
 * pp_optimizer_info). get(): the worker keeps them; set() leaves out what it does not keep. */
pp_status pp_worker_get(struct pp_worker *worker, int tensor, int part, int64_t first, int64_t n,
                        float *out) PP_MUST_CHECK;
pp_status pp_worker_set(struct pp_worker *worker, int tensor, int part, int64_t first, int64_t n,
                        const float *values) PP_MUST_CHECK;
/* Has each replica a share of this part of a tensor? Of what the optimizer keeps, and of weights that are split. */
bool pp_worker_shares(const struct pp_worker *worker, int tensor, int part);
/* Of the worker's elements *first .. *first + *n - 1 of a tensor, those that it keeps of this part: all, or its
 * replica's share. *n = 0: none. */
void pp_worker_keeps(const struct pp_worker *worker, int tensor, int part, int64_t *first, int64_t *n);
/* Does this worker hold the stage? */
bool pp_worker_has(const struct pp_worker *worker, int stage);

#endif
