/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a worker, between exec/worker*.c only.
 */
#ifndef PP_EXEC_WORKER_INSIDE_H
#define PP_EXEC_WORKER_INSIDE_H

#include "exec/worker.h"

/* How a worker's device is made to work. Another way is another of these: a file beside worker_direct.c, and a place in
 * pp_worker_open() that chooses it. By the worker's own thread, but for disconnect(). */
struct pp_worker_ops {
    /* What is this way's own; after the device, the arena and the tracks are there. traces: some step will be traced.
     * After a failure, and where open() was not reached, the next three can be called all the same. */
    pp_status (*open)(struct pp_worker *worker, int microbatches, bool traces);
    void (*disconnect)(struct pp_worker *worker); /* pp_worker_disconnect(); NULL: nothing to do */
    void (*close)(struct pp_worker *worker);
    /* Ends what is under way, and waits for it some seconds at most. NULL: nothing is. */
    void (*abandon)(struct pp_worker *worker);
    /* Fails when what joins it with others has failed. NULL: that tells by itself. */
    pp_status (*check)(struct pp_worker *worker);

    /* A step: losses and sums are made ready; the batch is copied to the device; a task runs whose inputs are there
     * (posted_ns: when the worker came to it); all is done, and the host may read losses[microbatches] until the next
     * step. */
    pp_status (*begin)(struct pp_worker *worker);
    pp_status (*load)(struct pp_worker *worker, void *to, const void *from, int64_t bytes);
    pp_status (*run)(struct pp_worker *worker, const struct pp_stop *stop, struct pp_frame *frame, int64_t posted_ns);
    pp_status (*end)(struct pp_worker *worker, const double **losses);

    /* Transfers that were just opened; poll() counts what is done of a flow, in order, and records it. */
    pp_status (*send)(struct pp_worker *worker, int lane, struct pp_transfer *transfer, void *memory, int64_t bytes);
    pp_status (*recv)(struct pp_worker *worker, int lane, struct pp_transfer *transfer, void *memory, int64_t bytes);
    pp_status (*poll)(struct pp_worker *worker, struct pp_flow *flow, const struct pp_channel_end *end, int side);

    /* The last of worker->reductions was just entered; norm_ready follows ask_norm(). advance_sums() moves both on. */
    pp_status (*ask_reduction)(struct pp_worker *worker);
    /* Of gradients that are summed, or (share) shares of them: n numbers are rounded, or read again. */
    pp_status (*narrow)(struct pp_worker *worker, bool share, uint16_t *to, const float *from, int64_t n);
    pp_status (*widen)(struct pp_worker *worker, bool share, float *to, const uint16_t *from, int64_t n);
    pp_status (*ask_norm)(struct pp_worker *worker, int32_t task);
    pp_status (*advance_sums)(struct pp_worker *worker);
};

extern const struct pp_worker_ops pp_worker_direct, pp_worker_queued;

/* --- worker_combining.c --- */

/* Of this rank's stages. */
pp_status pp_worker_open_combined(const struct pp_worker *worker, struct pp_track *track) PP_MUST_CHECK;
void pp_worker_close_combined(struct pp_track *track);

/* What the collective of a set that was entered as number i of the step works on: gradients, or shares. */
struct pp_combining {
    enum pp_param_set set;
    char *memory;
    int64_t bytes;                  /* without shares */
    const struct pp_shares *shares; /* NULL: all is summed */
    bool tied;                      /* over the ranks with the copies of the embedding, not over the replicas */
    bool share;                     /* of a share, over the groups that share */
    char *copy;                     /* of those, where this rank has both: the other one's gradient, else NULL */
    /* Gradients that are rounded: what is summed, above, are bfloat16 numbers in a place of their own; else NULL. */
    char *floats;
    const struct pp_shares *float_shares;
};
struct pp_combining pp_worker_combining(const struct pp_worker *worker, int i, enum pp_param_set set);
/* Is there one? */
bool pp_worker_combines(const struct pp_worker *worker, int i, enum pp_param_set set);
/* Of one that rounds: before its sum begins, and when it is done. */
pp_status pp_worker_narrow(struct pp_worker *worker, const struct pp_combining *combining) PP_MUST_CHECK;
pp_status pp_worker_widen(struct pp_worker *worker, const struct pp_combining *combining) PP_MUST_CHECK;

/* --- worker.c --- */

/* What a join inside a task works on; NULL: all of it. One at a time. */
const struct pp_shares *pp_worker_join_parts(struct pp_worker *worker, const struct pp_join_call *call);
/* Where a slot of the step's plan lies; NULL for none. */
void *pp_worker_slot(const struct pp_worker *worker, int32_t slot);

/* --- worker_poll.c --- */

/* Moves everything that can move. */
pp_status pp_worker_advance(struct pp_worker *worker) PP_MUST_CHECK;
/* The same as the callback between kernels: keeps a failure in worker->status. */
void pp_worker_poll(void *worker);
/* pp_progress.wait */
void pp_worker_sleep(void *worker, int64_t until_ns);
pp_status pp_worker_post_send(struct pp_worker *worker, int lane) PP_MUST_CHECK;
/* When the index-th receive of the step was posted there: when a buffer was free. Known for devices that wait. */
int64_t pp_worker_posted_ns(const struct pp_worker *worker, int lane, int index);
/* Polls until the condition holds. A condition that fails sets worker->status. */
typedef bool pp_worker_condition(struct pp_worker *worker, const void *arg);
pp_status pp_worker_wait(struct pp_worker *worker, pp_worker_condition *holds, const void *arg) PP_MUST_CHECK;
/* Waits until the stop can run: its input is there, its output slot free. */
pp_status pp_worker_await(struct pp_worker *worker, const struct pp_stop *stop) PP_MUST_CHECK;
/* Waits for the rest of the step: reductions and norm. */
pp_status pp_worker_settle(struct pp_worker *worker) PP_MUST_CHECK;
pp_status pp_worker_record(struct pp_worker *worker, const struct pp_event *event) PP_MUST_CHECK;

/* Is there no place for another transfer? */
static inline bool pp_flow_is_full(const struct pp_flow *flow, const struct pp_channel_end *end)
{
    return flow->posted - flow->retired >= end->n;
}

#endif
