/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: all that the later steps of a run depend on, in one file beside that of --save. It is a safetensors file
 * with the weights, what the optimizer keeps and, where something is evaluated, the best weights so far as further
 * tensors, and notes in its metadata: where the run is, and which options its bits depend on (docs/FORMATS.md).
 */
#ifndef PP_EXEC_RESTART_H
#define PP_EXEC_RESTART_H

#include "exec/data.h"
#include "core/base/file_lock.h"
#include "exec/journal.h"
#include "exec/parameters.h"
#include "exec/weights.h"

/* Where a run is, after a step; after the last step of an epoch also its evaluation is done. */
struct pp_restart_state {
    int step;                /* steps done, of all epochs */
    int epoch, batch;        /* whole epochs done, and steps of the next one; -1, both, where a checkpoint of the first
                                version does not say it: then all epochs had as many steps as they have now */
    double learning_rate;    /* what --lr-decay has made of --lr, without --warmup-steps and --lr-schedule */
    double best_loss;        /* least validation loss; INFINITY: nothing evaluated yet, so there are no best weights */
    struct pp_totals totals; /* of the epoch that is under way */
};

/* The checkpoint of a run. */
struct pp_restart {
    char *path;                    /* NULL: the run neither writes nor reads a checkpoint */
    int every;                     /* steps from one checkpoint to the next; 0: none is written */
    bool diverged;                 /* one was not written, because its numbers are not finite; worker 0 knows */
    bool resumed;                  /* `start` is from a checkpoint */
    struct pp_notes identity;      /* options and data of this run, with which a run that goes on is compared */
    struct pp_restart_state start; /* where this run begins */
    /* Held by the process that writes. Without it, a process that survived of a killed run and a run that goes on would
     * both write the file, and mix their weights. */
    struct pp_file_lock lock;
};

/* Begins what --save-every, --resume and --resume-changed ask for: takes the lock. All processes call it. bits: the
 * device and what else equal bits need beside the accumulation key; a checkpoint with other bits is a warning. writes:
 * true in the first process, which alone writes and locks the file. PP_IO where another run holds the lock. The caller
 * closes *out, also after a failure. */
pp_status pp_restart_open(const struct pp_config *config, const struct pp_job *job, const struct pp_data *data,
                          const char *bits, bool writes, struct pp_restart *out) PP_MUST_CHECK;
/* Reads the checkpoint of --resume. All processes call it, once the first one has the lock: until then a run that ends
 * may still replace the file. PP_INPUT where the checkpoint is damaged or of another run, or where options differ that
 * may not. Where there is none, the run starts from the beginning. */
pp_status pp_restart_resume(const struct pp_config *config, const struct pp_job *job,
                            struct pp_restart *restart) PP_MUST_CHECK;
/* Once all processes are known to have read the same (exec/terms.h): warns where --resume found no checkpoint; PP_USAGE
 * if none will be written either. */
pp_status pp_restart_check(const struct pp_restart *restart, const struct pp_config *config) PP_MUST_CHECK;
void pp_restart_close(struct pp_restart *restart);

/* Reads what the file says of its run, and checks it against this run's identity and model; *found is false where there
 * is none. changed: options that a run may change may differ, which is a warning then; the learning rate of *out is
 * made of this run's --lr. */
pp_status pp_restart_read(const char *path, const struct pp_notes *identity, const struct pp_model *model, bool changed,
                          struct pp_restart_state *out, bool *found) PP_MUST_CHECK;
/* Begins a checkpoint. The caller then appends the weights in model order, each part that the optimizer keeps of them,
 * and where state->best_loss is finite the best weights. */
pp_status pp_restart_create(const char *path, const struct pp_notes *identity, const struct pp_model *model,
                            const struct pp_restart_state *state, struct pp_weights_writer **out) PP_MUST_CHECK;

/* Writes a checkpoint, between two steps, with no message under way. Called by all workers of the first replica, and of
 * the replicas that share the optimizer's memory with it (struct pp_plan.zero). state is read by worker 0, apart from
 * best_loss, which all need. best: this worker's best parameters (pp_parameters_copy()), where state->best_loss is
 * finite and the worker has weights to write. If any number is not finite, the file stays as it is, with a warning the
 * first time. Only worker 0 learns of errors of the file. */
pp_status pp_restart_save(struct pp_restart *restart, struct pp_worker *worker, const struct pp_restart_state *state,
                          const float *best) PP_MUST_CHECK;
/* Sets this worker's parameters and what its optimizer keeps from the checkpoint; also `best`, where that is not NULL
 * and the checkpoint has best weights. PP_INPUT where a tensor has not its checksum. */
pp_status pp_restart_load(const struct pp_restart *restart, struct pp_worker *worker, float *best) PP_MUST_CHECK;

#endif
