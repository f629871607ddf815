/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker has besides where its device works through queues (core/model/queue.h). Between exec/worker_queue*.c
 * and worker_trace.c only.
 *
 * The compute queue gets, per task: waits for the marks of its receive and of whatever still reads its output slot, the
 * kernels, and a mark if something waits for the task. Channels and sums have queues of their own, in their carriers.
 * The device may be some hundred launches behind the thread (PP_LEAD_LAUNCHES); at the end of a step the thread waits
 * for the compute queue.
 */
#ifndef PP_EXEC_WORKER_QUEUE_H
#define PP_EXEC_WORKER_QUEUE_H

#include "core/model/queue.h"
#include "exec/worker_inside.h"

/* A collective under way: a sum of gradients or of squares, a sum or an exchange inside a task, or the gathering of
 * parameters. */
struct pp_summing {
    struct pp_parcel parcel;
    struct pp_pieces pieces; /* of an exchange */
    struct pp_parcel_marks marks;
    struct pp_mark *after; /* in the compute queue: the memory of the collective is written */
};

/* The rounding of gradients before their sum, and the conversion of the sums: in a queue of its own, beside the compute
 * queue and the carrier's queue. */
struct pp_rounding {
    struct pp_queue *queue;
    struct pp_mark *rounded, *summed; /* behind the rounding, and behind the sum, of the collective that is under way */
};

/* A mark on the device's clock whose time on the host's clock is known. */
struct pp_base {
    struct pp_mark *mark;
    int64_t ns;
};

/* A device's queue has room for some 1000 kernels. When it is full the next launch blocks, and so do launches of other
 * threads. So the thread waits, by polling, before it is ahead of the device by more than PP_LEADS * PP_LEAD_LAUNCHES
 * launches and the launches of PP_LEADS programs. When it goes on, one of these PP_LEADS portions is still in the
 * queue. */
enum { PP_LEADS = 2, PP_LEAD_LAUNCHES = 200, PP_JOIN_LAUNCHES = 4 /* of a join, for each member and piece */ };

struct pp_worker_queue {
    const struct pp_queue_ops *ops;
    struct pp_queue *compute;
    struct pp_routes routes;
    void *block; /* device memory for losses, sums, zeros and the clip factor */
    int64_t block_bytes;
    double *zeros;       /* [nsums] in the block */
    float *clip_factor;  /* in the block */
    double *host_losses; /* [microbatches] the host's copy of the losses */
    struct pp_mark *ended;
    struct pp_summing *gradients;   /* [most_reductions][sets] in the order of this step's reductions */
    int sets;                       /* sets (enum pp_param_set) that have collectives of their own */
    struct pp_rounding rounding[2]; /* where gradients are rounded: [0] of gradients, [1] of shares over groups */
    struct pp_summing norm;
    int norm_stop;
    /* Collectives inside tasks. The next one of a group begins when the one before is issued, not when it has ended. */
    struct pp_summing joined[PP_JOIN_GROUPS];
    struct pp_mark **beside; /* [nbeside] behind collectives of tensor ranks that run beside the compute queue */
    int nbeside;
    /* Traced steps use the two by turns: times of a step's sends may be read only in the next step. */
    struct pp_base base[2];
    int turn;
    unsigned checks; /* looks of the waiting worker, of which only some check the carriers for failures */
    /* How far the thread is ahead of the device: see bound_lead(). */
    struct pp_mark
        *lead[PP_LEADS]; /* by turns recorded in the compute queue, after PP_LEAD_LAUNCHES launches or more */
    int leads, launches; /* such marks recorded so far; launches since the last of them */
    bool traces;         /* there are timed marks */
};

static inline struct pp_summing *pp_worker_summing(const struct pp_worker *w, int reduction, enum pp_param_set set)
{
    return &w->queue->gradients[reduction * w->queue->sets + (int)set];
}
/* The last collective of a reduction: those of its sets run one after another. */
static inline struct pp_summing *pp_worker_last_summing(const struct pp_worker *w, int reduction)
{
    return pp_worker_summing(w, reduction, pp_worker_combines(w, reduction, PP_EXPERTS) ? PP_EXPERTS : PP_DENSE);
}

/* Calls an operation of the worker's device. */
#define PP_OPS(w, op, ...) ((w)->queue->ops->op((w)->device, __VA_ARGS__))

static inline pp_status pp_queued_record(struct pp_worker *w, struct pp_mark *mark)
{
    return PP_OPS(w, record, w->queue->compute, mark);
}
static inline pp_status pp_queued_hold_for(struct pp_worker *w, struct pp_mark *mark)
{
    return PP_OPS(w, wait, w->queue->compute, mark);
}

static inline struct pp_parcel pp_queued_parcel(const struct pp_worker *w, const struct pp_parcel_marks *marks,
                                                void *memory, int64_t bytes)
{
    return (struct pp_parcel){.memory = memory,
                              .bytes = bytes,
                              .begun = w->step.traced ? marks->timed_begun : NULL,
                              .done = w->step.traced ? marks->timed_done : marks->done};
}
static inline pp_status pp_queued_start_sum(const struct pp_sum_route *route, struct pp_summing *summing,
                                            struct pp_mark *after)
{
    return route->carrier->sum_start(route->sum, &summing->parcel, after);
}

/* --- worker_queue.c --- */

/* The function pp_join.run of a worker. */
void pp_worker_queue_join(void *worker, const struct pp_join_call *call);

/* --- worker_queue_sums.c --- */

/* As in struct pp_worker_ops. */
pp_status pp_worker_queue_ask_reduction(struct pp_worker *worker) PP_MUST_CHECK;
pp_status pp_worker_queue_ask_norm(struct pp_worker *worker, int32_t task) PP_MUST_CHECK;
pp_status pp_worker_queue_advance_sums(struct pp_worker *worker) PP_MUST_CHECK;
/* Holds the compute queue back until the first n reductions of the step are done. */
pp_status pp_worker_queue_hold_for_reductions(struct pp_worker *worker, int n) PP_MUST_CHECK;

/* --- worker_queue_rounding.c --- */

/* As in struct pp_worker_ops. */
pp_status pp_worker_queue_narrow(struct pp_worker *worker, bool share, uint16_t *to, const float *from,
                                 int64_t n) PP_MUST_CHECK;
pp_status pp_worker_queue_widen(struct pp_worker *worker, bool share, float *to, const uint16_t *from,
                                int64_t n) PP_MUST_CHECK;
/* start_rounded(): rounds gradients when the mark `after` is reached, and starts their sum. end_rounded(): called when
 * that sum is issued; queues the conversion of the sums to floats, behind which the parcel's mark `done` is
 * recorded. */
pp_status pp_worker_queue_start_rounded(struct pp_worker *worker, const struct pp_combining *combining,
                                        const struct pp_sum_route *route, struct pp_summing *summing,
                                        struct pp_mark *after) PP_MUST_CHECK;
pp_status pp_worker_queue_end_rounded(struct pp_worker *worker, const struct pp_combining *combining,
                                      struct pp_summing *summing) PP_MUST_CHECK;

/* --- worker_queue_open.c --- */

/* As in struct pp_worker_ops. */
pp_status pp_worker_queue_open(struct pp_worker *worker, int microbatches, bool traces) PP_MUST_CHECK;
void pp_worker_queue_disconnect(struct pp_worker *worker);
void pp_worker_queue_close(struct pp_worker *worker);

/* --- worker_trace.c --- */

/* Called before a traced step: sets the base of its times. */
pp_status pp_worker_trace_begin(struct pp_worker *worker) PP_MUST_CHECK;
/* Called after a traced step: records the events of its tasks. */
pp_status pp_worker_trace_stops(struct pp_worker *worker) PP_MUST_CHECK;
pp_status pp_worker_trace_transfer(struct pp_worker *worker, struct pp_transfer *transfer, int side) PP_MUST_CHECK;

#endif
