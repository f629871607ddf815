/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a worker, between exec/worker*.c only.
 */
#ifndef PP_EXEC_WORKER_INSIDE_H
#define PP_EXEC_WORKER_INSIDE_H

#include "exec/worker.h"

/* How a worker makes its device work. There is one such table for each kind of device: worker_direct.c, worker_queue.c;
 * pp_worker_open() chooses. All functions but disconnect() are called by the worker's own thread. */
struct pp_worker_ops {
    /* Opens what this kind needs, when device, arena and tracks are there. traces: some step will be traced.
     * disconnect(), close() and abandon() may be called also where open() failed or was never called. */
    pp_status (*open)(struct pp_worker *worker, int microbatches, bool traces);
    void (*disconnect)(struct pp_worker *worker); /* pp_worker_disconnect(); NULL: nothing to do */
    void (*close)(struct pp_worker *worker);
    /* Ends the work that is under way, and waits for that some seconds at most. NULL: no work goes on by itself. */
    void (*abandon)(struct pp_worker *worker);
    /* Fails when a channel or sum with other workers has failed. NULL: other calls return such failures. */
    pp_status (*check)(struct pp_worker *worker);

    /* A step. begin(): clears losses and sums. load(): copies the batch to the device. run(): runs a task whose inputs
     * are there; posted_ns: when the worker came to it. end(): waits until all is done; the host may then read
     * losses[microbatches] until the next step. */
    pp_status (*begin)(struct pp_worker *worker);
    pp_status (*load)(struct pp_worker *worker, void *to, const void *from, int64_t bytes);
    pp_status (*run)(struct pp_worker *worker, const struct pp_stop *stop, struct pp_frame *frame, int64_t posted_ns);
    pp_status (*end)(struct pp_worker *worker, const double **losses);

    /* send(), recv(): start a transfer. poll(): counts the transfers of a flow that are done, in order, and records
     * their events. */
    pp_status (*send)(struct pp_worker *worker, int lane, struct pp_transfer *transfer, void *memory, int64_t bytes);
    pp_status (*recv)(struct pp_worker *worker, int lane, struct pp_transfer *transfer, void *memory, int64_t bytes);
    pp_status (*poll)(struct pp_worker *worker, struct pp_flow *flow, const struct pp_channel_end *end, int side);

    /* ask_reduction(): called when a task was just appended to worker->reductions. ask_norm(): starts the exchange of
     * the norm, which sets worker->norm_ready in the end. advance_sums(): moves both on. */
    pp_status (*ask_reduction)(struct pp_worker *worker);
    /* Round n gradients to bfloat16, before they are summed, and turn n sums back into floats. share: these are of the
     * sum of shares over groups. */
    pp_status (*narrow)(struct pp_worker *worker, bool share, uint16_t *to, const float *from, int64_t n);
    pp_status (*widen)(struct pp_worker *worker, bool share, float *to, const uint16_t *from, int64_t n);
    pp_status (*ask_norm)(struct pp_worker *worker, int32_t task);
    pp_status (*advance_sums)(struct pp_worker *worker);
};

extern const struct pp_worker_ops pp_worker_direct, pp_worker_queued;

/* --- worker_combining.c --- */

/* Sets track->combined for the collectives of this rank. */
pp_status pp_worker_open_combined(const struct pp_worker *worker, struct pp_track *track) PP_MUST_CHECK;
void pp_worker_close_combined(struct pp_track *track);

/* One collective: what it works on. */
struct pp_combining {
    enum pp_param_set set;
    char *memory;                   /* the numbers, or with shares the base of their offsets */
    int64_t bytes;                  /* without shares: of the numbers */
    const struct pp_shares *shares; /* NULL: all numbers are summed */
    bool tied;                      /* a sum over the two ranks that have copies of the embedding, not over replicas */
    bool share;                     /* a sum of this worker's share, over the groups of replicas that share */
    char *copy; /* tied, where this rank has both copies: the gradient of the second one; else NULL */
    /* Where gradients are rounded, `memory` and `shares` are of the bfloat16 numbers, and these of the gradients
     * themselves; else NULL. */
    char *floats;
    const struct pp_shares *float_shares;
};
/* The collective of a set in task worker->reductions[i]. */
struct pp_combining pp_worker_combining(const struct pp_worker *worker, int i, enum pp_param_set set);
/* Does that task have a collective of this set? */
bool pp_worker_combines(const struct pp_worker *worker, int i, enum pp_param_set set);
/* For a collective that rounds: narrow() rounds the gradients before the sum begins; widen() turns the sums back into
 * floats when it is done. */
pp_status pp_worker_narrow(struct pp_worker *worker, const struct pp_combining *combining) PP_MUST_CHECK;
pp_status pp_worker_widen(struct pp_worker *worker, const struct pp_combining *combining) PP_MUST_CHECK;

/* --- worker.c --- */

/* The shares of call->memory that a join inside a task scatters or gathers; NULL: it works on all of the memory. Valid
 * until the next call. */
const struct pp_shares *pp_worker_join_parts(struct pp_worker *worker, const struct pp_join_call *call);
/* The memory of a slot of the current step's plan; NULL where slot is -1. */
void *pp_worker_slot(const struct pp_worker *worker, int32_t slot);

/* --- worker_poll.c --- */

/* Posts and polls all transfers and sums of the worker, without waiting. */
pp_status pp_worker_advance(struct pp_worker *worker) PP_MUST_CHECK;
/* As pp_worker_advance(), as a callback between kernels: a failure is kept in worker->status. */
void pp_worker_poll(void *worker);
/* The callback pp_progress.wait: waits until a time, and keeps a failure in worker->status. */
void pp_worker_sleep(void *worker, int64_t until_ns);
pp_status pp_worker_post_send(struct pp_worker *worker, int lane) PP_MUST_CHECK;
/* When receive number `index` of the step was posted on a channel, because a buffer was free. Known in traced steps,
 * and for devices that wait. */
int64_t pp_worker_posted_ns(const struct pp_worker *worker, int lane, int index);
/* Polls until the condition holds. A condition that meets a failure sets worker->status, which ends the wait. */
typedef bool pp_worker_condition(struct pp_worker *worker, const void *arg);
pp_status pp_worker_wait(struct pp_worker *worker, pp_worker_condition *holds, const void *arg) PP_MUST_CHECK;
/* Waits until the stop can run: its input is there, its output slot free. */
pp_status pp_worker_await(struct pp_worker *worker, const struct pp_stop *stop) PP_MUST_CHECK;
/* Waits for the rest of the step: reductions and norm. */
pp_status pp_worker_settle(struct pp_worker *worker) PP_MUST_CHECK;
pp_status pp_worker_record(struct pp_worker *worker, const struct pp_event *event) PP_MUST_CHECK;

/* Are all places of the flow taken by transfers that are not retired? */
static inline bool pp_flow_is_full(const struct pp_flow *flow, const struct pp_channel_end *end)
{
    return flow->posted - flow->retired >= end->n;
}

#endif
