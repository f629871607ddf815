/* SPDX-License-Identifier: Apache-2.0
 *
 * Training and evaluation as every worker goes through it: epochs of steps, the learning rate of each, validation after
 * each epoch (by the first replica), the best weights kept, the test at the end with these.
 */
#ifndef PP_EXEC_TRAIN_H
#define PP_EXEC_TRAIN_H

#include "core/base/stats.h"
#include "exec/losses.h"
#include "exec/restart.h"

/* The batches and steps of a run: the same in all workers. */
struct pp_agenda {
    int batches;      /* of an epoch */
    int steps;        /* of all epochs, those before `first` included */
    int first;        /* step of this run: those before it a resumed run has behind it */
    int epoch, batch; /* where step `first` is */
    int warmup;       /* first steps of this run, which do not count as measured */
    int first_traced; /* number of the first step that is traced */
    int tail_seq;     /* words in a row of the last training batch of an epoch, where it is shorter; else 0 */
    bool evaluates;
    struct pp_batches eval[PP_PARTS]; /* validation and test */
};

/* The training batches of a data-parallel rank (pp_worker_data_rank()). */
struct pp_batch_cut pp_training_cut(const struct pp_config *config, int replica);
/* data must have been loaded for this configuration. */
pp_status pp_agenda_make(const struct pp_config *config, const struct pp_data *data,
                         struct pp_agenda *out) PP_MUST_CHECK;
/* Sets where a run begins, how many steps it has, and which of them are for warming up or traced. start: zeros for a
 * run from the beginning. PP_INPUT where --epochs or --max-batches is less than what the run has behind it. */
pp_status pp_agenda_begin(const struct pp_config *config, const struct pp_restart_state *start,
                          struct pp_agenda *agenda) PP_MUST_CHECK;

/* Figures of a worker at the end. Those of its process (memory, clock) are 0 except at the process's first worker. */
struct pp_worker_summary {
    int64_t nevents, resident_bytes, clock_offset_ns, clock_uncertainty_ns;
    struct pp_core_time traced;    /* of the median step: see struct pp_worker */
    int64_t device_uncertainty_ns; /* how far its device's times may be off the process's clock; 0: it has that clock */
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
    bool collected;                      /* all of them are there, whatever failed afterwards */
    struct pp_trace trace;               /* of all workers */
    struct pp_worker_summary *summaries; /* [workers] */
    int64_t reference_ns[2];             /* time of the reference kernel before and after the training */
    bool untimed;                        /* workers that share a device do not overlap: times mean nothing */
};

/* Called by all workers at the end: sends traces and figures to worker 0, which stores them in its session. */
pp_status pp_collect(struct pp_session *session, struct pp_worker *worker) PP_MUST_CHECK;

/* The state of one worker in the run. */
struct pp_trainee;

/* Does all that one worker does, on its own thread: opens it, trains, evaluates, saves. The caller frees *out, also
 * after a failure; it is NULL where there was no memory. */
pp_status pp_train(struct pp_session *session, int me, struct pp_trainee **out) PP_MUST_CHECK;
/* Called when all workers of the process have ended, for all of them before the first one is freed: their devices may
 * still be copying from each other's memory. NULL is fine. */
void pp_trainee_disconnect(struct pp_trainee *trainee);
/* NULL is fine. */
void pp_trainee_free(struct pp_trainee *trainee);

#endif
