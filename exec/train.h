/* SPDX-License-Identifier: Apache-2.0
 *
 * Training and evaluation as every worker goes through it: epochs of steps, the learning rate of each, validation after
 * each epoch (by the first replica), the best weights kept, the test at the end with these.
 */
#ifndef PP_EXEC_TRAIN_H
#define PP_EXEC_TRAIN_H

#include "exec/losses.h"
#include "exec/restart.h"

/* What is to be done: the same in all workers. */
struct pp_agenda {
    int batches;        /* of an epoch */
    int steps;          /* of all epochs, those before `first` included */
    int first;          /* step of this run: those before it a resumed run has behind it */
    int epoch, batch;   /* where step `first` is */
    int warmup;         /* steps of this run */
    int first_traced;   /* step */
    int tail_seq;       /* of the last training batch where it is shorter, else 0 */
    bool evaluates;
    struct pp_batches eval[PP_PARTS]; /* validation and test */
};

/* data must have been loaded for this configuration. */
pp_status pp_agenda_make(const struct pp_config *config, const struct pp_data *data,
                         struct pp_agenda *out) PP_MUST_CHECK;
/* Sets where a run begins, how many steps it has, and which of them are for warming up or traced. start: zeros for a run
 * from the beginning. PP_INPUT where --epochs or --max-batches is less than what the run has behind it. */
pp_status pp_agenda_begin(const struct pp_config *config, const struct pp_restart_state *start,
                          struct pp_agenda *agenda) PP_MUST_CHECK;

/* What a worker tells at the end. The figures of a process are with its first worker, else 0. */
struct pp_worker_summary {
    int64_t nevents, resident_bytes, clock_offset_ns, clock_uncertainty_ns;
    int64_t device_uncertainty_ns; /* of each worker: its device's times against its process's clock; 0 = one clock */
};

/* What the workers of this process share in one configuration. */
struct pp_session {
    const struct pp_config *config;
    const struct pp_backend *backend;
    pp_init_tensor_fn init_tensor;
    const struct pp_data *data;
    struct pp_job *job;
    struct pp_agenda *agenda;
    struct pp_world *world;
    bool stuck; /* some workers did not end */
    struct pp_restart restart;
    struct pp_journal journal; /* filled in by worker 0 */
    /* results, by worker 0 */
    struct pp_trace trace;               /* of all workers */
    struct pp_worker_summary *summaries; /* [workers] */
    int64_t reference_ns[2];             /* the reference kernel before and after */
    bool untimed;                        /* workers that share a device do not overlap: times mean nothing */
};

/* The end of a run, by all workers: traces and process sizes to worker 0, in the session. */
pp_status pp_collect(struct pp_session *session, struct pp_worker *worker) PP_MUST_CHECK;

/* One worker's way through the run. */
struct pp_trainee;

/* All that one worker does, on its own thread. *out is the caller's to free even on failure; NULL without memory. */
pp_status pp_train(struct pp_session *session, int me, struct pp_trainee **out) PP_MUST_CHECK;
/* NULL is fine. Only when all workers of the process have ended, and then all of them before one is freed: their
 * devices may be copying from each other's memory. */
void pp_trainee_disconnect(struct pp_trainee *trainee);
/* NULL is fine. */
void pp_trainee_free(struct pp_trainee *trainee);

#endif
