/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: all that the later steps of a run depend on, in one file beside that of --save. It is a safetensors file
 * with the weights, what the optimizer keeps and, where something is evaluated, the best weights so far as further
 * tensors, and notes in its metadata: where the run is, and which options its bits depend on (docs/FORMATS.md).
 */
#ifndef PP_EXEC_RESTART_H
#define PP_EXEC_RESTART_H

#include "exec/data.h"
#include "exec/file_lock.h"
#include "exec/journal.h"
#include "exec/parameters.h"
#include "exec/weights.h"

/* Where a run is, after a step; after the last step of an epoch also its evaluation is done. */
struct pp_restart_state {
    int step;                /* steps done, of all epochs */
    int epoch, batch;        /* whole epochs done, and steps of the next one; -1, both, where a checkpoint of the first
                                version does not say it: then all epochs had as many steps as they have now */
    double learning_rate;    /* of the next step, but for what --warmup-steps and --lr-schedule make of it */
    double best_loss;        /* least validation loss; INFINITY: nothing evaluated yet, so there are no best weights */
    struct pp_totals totals; /* of the epoch that is under way */
};

struct pp_restart {
    char *path;               /* NULL: the run neither writes nor reads one */
    int every;                /* steps; 0 = never */
    bool resumed;             /* there was one, and `start` is from it */
    struct pp_notes identity; /* what a run that goes on is compared with */
    struct pp_restart_state start;
    struct pp_file_lock lock; /* of the process that writes: a run that goes on, and what survived of one that was
                                 killed, would mix their weights */
};

/* What the options ask for: --save-every, --resume, --resume-changed. bits: what equal bits need beside the accumulation
 * key (the device, ...); where that differs there is a warning. PP_INPUT where a checkpoint is damaged or of another
 * run, or where options differ that --resume does not let differ. No checkpoint:
 * the run starts from the beginning, and says so; where none will be made either, PP_USAGE. All processes call it.
 * writes: this one is the first, which writes; PP_IO where another run is using the file. The caller closes it whatever
 * is returned. */
pp_status pp_restart_open(const struct pp_config *config, const struct pp_job *job, const struct pp_data *data,
                          const char *bits, bool writes, struct pp_restart *out) PP_MUST_CHECK;
void pp_restart_close(struct pp_restart *restart);

/* Reads what the file says of its run, and checks it against this run's identity and model; *found is false where there
 * is none. changed: options that a run may change may differ, which is a warning then; the learning rate of *out is made
 * of this run's --lr. */
pp_status pp_restart_read(const char *path, const struct pp_notes *identity, const struct pp_model *model, bool changed,
                          struct pp_restart_state *out, bool *found) PP_MUST_CHECK;
/* Begins the file; the tensors follow in model order, then those of the optimizer, then the best ones if there are
 * any. */
pp_status pp_restart_create(const char *path, const struct pp_notes *identity, const struct pp_model *model,
                            const struct pp_restart_state *state, struct pp_weights_writer **out) PP_MUST_CHECK;

/* All workers of the first replica, and of those that share the optimizer's memory with it (struct pp_plan.zero),
 * between two steps, with nothing under way; state counts at worker 0, best at all of the first replica (this worker's
 * best parameters where state->best_loss is finite). Errors are known to worker 0 only. */
pp_status pp_restart_save(const struct pp_restart *restart, struct pp_worker *worker,
                          const struct pp_restart_state *state, const float *best) PP_MUST_CHECK;
/* Each worker fills in its parameters, and `best` where that is not NULL and the file has them. */
pp_status pp_restart_load(const struct pp_restart *restart, struct pp_worker *worker, float *best) PP_MUST_CHECK;

#endif
