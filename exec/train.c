/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/train.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/stats.h"
#include "core/model/queue.h"

enum { REFERENCES = 9 }; /* runs of the reference kernel */

struct pp_trainee {
    struct pp_session *session;
    struct pp_worker *worker;
    struct pp_batches batches; /* of its replica */
    struct pp_losses losses;
    int step;                /* steps done */
    int epoch, batch;        /* whole epochs done, and steps of the one that is under way */
    double learning_rate;    /* what epochs have made of --lr; of a step: rate_of_step() */
    struct pp_totals totals; /* worker 0: over `totalled` records of the journal, and what a resumed run began with */
    int64_t totalled;
    float *best; /* this worker's parameters at the least validation loss, host memory; see has_weights() */
    double best_loss;
    bool has_best;
};

/* Has it weights that files and evaluations need? */
static bool has_weights(const struct pp_trainee *t)
{
    const struct pp_job *job = t->session->job;
    const bool splits = pp_shape_splits_weights(&job->model->shape) && t->worker->replica < job->train->shard_group;
    return pp_worker_evaluates(job->train, t->worker->me) || splits;
}

/* --- a training step --- */

static double tokens_of_step(const struct pp_trainee *t, const struct pp_phase *phase)
{
    return (double)t->batches.rows * phase->seq * t->session->config->replicas;
}

static double rate_of_step(const struct pp_trainee *t)
{
    const struct pp_config *config = t->session->config;
    return t->learning_rate * pp_lr_share(&config->over_steps, config->lr, t->step);
}

/* A device that waits learns nothing, so it has no loss. */
static pp_status take_step(const struct pp_trainee *t, const struct pp_step *step, double *sum)
{
    PP_TRY(pp_worker_step(t->worker, step, sum));
    if (t->session->backend->waits) *sum = NAN;
    return PP_OK;
}

static pp_status train_step(struct pp_trainee *t)
{
    const struct pp_job *job = t->session->job;
    const int batch = t->batch;
    bool tail = pp_batches_seq(&t->batches, batch) != t->batches.seq,
         traced = t->step >= t->session->agenda->first_traced;
    const struct pp_phase *phase = &job->phase[tail ? PP_TRAIN_TAIL : PP_TRAIN];
    double tokens = tokens_of_step(t, phase), rate = rate_of_step(t), sum;
    struct pp_step step = {.track = PP_TRACK_TRAIN,
                           .phase = phase,
                           .batches = &t->batches,
                           .batch = batch,
                           .number = t->step,
                           .traced = traced,
                           .learning_rate = rate,
                           .loss_scale = 1 / tokens,
                           .tokens = (int64_t)tokens};
    int64_t start = pp_now_ns();
    PP_TRY(take_step(t, &step, &sum));
    if (t->worker->me == 0)
        *pp_journal_begin(&t->session->journal) = (struct pp_record){.kind = PP_RECORD_STEP,
                                                                     .epoch = t->epoch,
                                                                     .batch = batch,
                                                                     .step = t->step,
                                                                     .ns = pp_now_ns() - start,
                                                                     .loss = sum,
                                                                     .tokens = (int64_t)tokens,
                                                                     .learning_rate = rate,
                                                                     .traced = traced};
    t->step++;
    t->batch++;
    return pp_losses_add(&t->losses, sum);
}

/* --- evaluation --- */

/* For rows of this length; there is one for each that the agenda has. */
static const struct pp_phase *eval_phase(const struct pp_job *job, int seq)
{
    int phase = PP_EVAL;
    while (job->phase[phase].seq != seq && phase + 1 < PP_PHASES) phase++;
    return &job->phase[phase];
}

/* What the worker's tokens add to the mean over all tokens of a part, at workers with the last stage. */
static pp_status evaluate_part(struct pp_trainee *t, enum pp_part part, double *loss)
{
    struct pp_batches batches = t->session->agenda->eval[part];
    double sum = 0, tokens = 0, batch_sum;
    batches.part = pp_worker_context_rank(t->session->job->train, t->worker->me);
    for (int i = 0; i < batches.count; i++) {
        const struct pp_phase *phase = eval_phase(t->session->job, pp_batches_seq(&batches, i));
        struct pp_step step = {.track = PP_TRACK_EVAL, .phase = phase, .batches = &batches, .batch = i};
        PP_TRY(pp_world_check(t->session->world)); /* a lone rank never waits, and would not learn of a signal */
        if (t->worker->me == 0) pp_journal_evaluates(&t->session->journal, i + 1, batches.count);
        PP_TRY(take_step(t, &step, &batch_sum));
        sum += batch_sum;
        tokens += (double)batches.rows * phase->seq;
    }
    *loss = sum / tokens;
    if (t->worker->me == 0) pp_journal_evaluates(&t->session->journal, 0, 0);
    return pp_worker_drain(t->worker, PP_TRACK_EVAL);
}

/* All workers: the loss of a part, known to all; parts of the tokens are added in their order. */
static pp_status evaluate(struct pp_trainee *t, enum pp_part part, double *loss)
{
    const struct pp_plan *plan = t->session->job->train;
    double mine = NAN;
    *loss = 0;
    if (pp_worker_evaluates(plan, t->worker->me)) PP_TRY(evaluate_part(t, part, &mine));
    for (int c = 0; c < plan->context; c++) {
        double theirs = mine;
        PP_TRY(pp_broadcast(t->session->world, t->worker->me, pp_worker_at(plan, c, pp_loss_rank(plan), 0), &theirs,
                            sizeof theirs));
        *loss += theirs;
    }
    return PP_OK;
}

static pp_status keep_best(struct pp_trainee *t, double loss)
{
    if (!has_weights(t) || !(loss < t->best_loss)) return PP_OK;
    t->best_loss = loss;
    t->has_best = true;
    return pp_parameters_copy(t->worker, t->best);
}

/* --- checkpoints --- */

static struct pp_restart_state state_of(struct pp_trainee *t)
{
    const struct pp_journal *journal = &t->session->journal;
    for (; t->worker->me == 0 && t->totalled < journal->written; t->totalled++)
        pp_totals_add(&t->totals, &journal->records[t->totalled], t->session->config->log_interval);
    return (struct pp_restart_state){t->step, t->epoch, t->batch, t->learning_rate, t->best_loss, t->totals};
}

/* After a step, that of an epoch's end after its evaluation. */
static pp_status save_checkpoint(struct pp_trainee *t)
{
    struct pp_restart *restart = &t->session->restart;
    const struct pp_plan *plan = t->session->job->train;
    if (!restart->every) return PP_OK;
    if (t->step % restart->every && t->step < t->session->agenda->steps) return PP_OK;
    PP_TRY(pp_worker_drain(t->worker, PP_TRACK_TRAIN)); /* saving waits without polling these sends */
    PP_TRY(pp_worker_gather(t->worker));
    PP_TRY(pp_losses_settle(&t->losses));
    if (t->worker->replica >= (plan->zero ? plan->shard_group : 1)) return PP_OK;
    const struct pp_restart_state state = state_of(t);
    const pp_status status = pp_restart_save(restart, t->worker, &state, t->best);
    if (status != PP_IO) return status; /* the file takes its name when it is whole */
    return pp_prefix(status, "no checkpoint after step %d (%s stays as it is, if it is there)", t->step, restart->path);
}

/* Sets where the run begins: where the checkpoint left it, or at its first step. */
static pp_status go_on(struct pp_trainee *t)
{
    const struct pp_restart *restart = &t->session->restart;
    t->step = restart->start.step;
    t->epoch = t->session->agenda->epoch;
    t->batch = t->session->agenda->batch;
    t->learning_rate = restart->start.learning_rate;
    t->best_loss = restart->start.best_loss;
    t->has_best = t->best && t->best_loss < INFINITY;
    t->totals = restart->start.totals;
    return restart->resumed ? pp_restart_load(restart, t->worker, t->best) : PP_OK;
}

/* --- the run --- */

static pp_status run_epoch(struct pp_trainee *t)
{
    int64_t start = pp_now_ns();
    double loss = NAN;
    const int batches = t->session->agenda->batches;
    while (t->batch < batches) {
        PP_TRY(pp_world_check(t->session->world));
        PP_TRY(train_step(t));
        if (t->batch < batches) PP_TRY(save_checkpoint(t));
    }
    PP_TRY(pp_worker_drain(t->worker, PP_TRACK_TRAIN)); /* what comes next waits without polling these sends */
    PP_TRY(pp_worker_gather(t->worker));
    PP_TRY(pp_losses_settle(&t->losses));
    if (t->session->agenda->evaluates) {
        PP_TRY(evaluate(t, PP_PART_VALID, &loss));
        PP_TRY(keep_best(t, loss));
    }
    t->learning_rate *= t->session->config->lr_decay;
    if (t->worker->me == 0) {
        struct pp_journal *journal = &t->session->journal;
        *pp_journal_begin(journal) =
            (struct pp_record){.kind = PP_RECORD_EPOCH, .epoch = t->epoch, .ns = pp_now_ns() - start, .loss = loss};
        pp_journal_publish(journal, journal->written);
    }
    t->epoch++;
    t->batch = 0;
    return save_checkpoint(t);
}

static pp_status run_test(struct pp_trainee *t)
{
    int64_t start = pp_now_ns();
    double loss;
    if (t->has_best) PP_TRY(pp_parameters_restore(t->worker, t->best));
    if (!t->session->agenda->evaluates) return PP_OK;
    PP_TRY(evaluate(t, PP_PART_TEST, &loss));
    if (t->worker->me != 0) return PP_OK;
    struct pp_journal *journal = &t->session->journal;
    *pp_journal_begin(journal) = (struct pp_record){.kind = PP_RECORD_TEST, .ns = pp_now_ns() - start, .loss = loss};
    pp_journal_publish(journal, journal->written);
    return PP_OK;
}

/* As worker 0 knows. Weights of which nothing is known (a resumed run that had nothing left to do) are taken for good.
 */
static bool diverged(const struct pp_trainee *t)
{
    const struct pp_journal *journal = &t->session->journal;
    if (t->session->agenda->evaluates) return !t->has_best;
    for (int64_t i = journal->written - 1; i >= 0; i--)
        if (journal->records[i].kind == PP_RECORD_STEP) return !isfinite(journal->records[i].loss);
    return false;
}

/* An older file may be the last good one. */
static pp_status save_weights(struct pp_trainee *t)
{
    const char *path = t->session->config->save;
    if (!path || !has_weights(t)) return PP_OK;
    if (t->worker->me == 0 && diverged(t))
        return pp_fail(PP_INPUT,
                       "--save %s: not written, for training has diverged: %s a finite number; use a smaller --lr",
                       path, t->session->agenda->evaluates ? "no validation loss is" : "its last loss is not");
    return pp_parameters_save(t->worker, path);
}

/* The reference kernel on all cores at once; a median each, for the system may take a core away for a moment. Of a GPU
 * one worker tells. Only a database has it, that of worker 0's process: without one nobody runs it. */
static pp_status reference(struct pp_trainee *t, int64_t *ns)
{
    struct pp_world *world = t->session->world;
    const struct pp_backend *backend = t->session->backend;
    const int me = t->worker->me, workers = backend->queue ? 1 : world->workers;
    bool stored = t->session->config->db != NULL;
    int64_t taken[REFERENCES] = {0}, mine, *all, sum = 0;
    struct pp_times times = {taken, REFERENCES, REFERENCES};
    PP_TRY(pp_broadcast(world, me, 0, &stored, sizeof stored));
    if (!stored) return PP_OK;
    for (int i = 0; i < REFERENCES && me < workers; i++) taken[i] = backend->reference_ns(t->worker->device);
    mine = pp_times_quantiles(&times).median_ns;
    PP_TRY(PP_NEW(&all, world->workers));
    pp_status status = pp_allgather(world, me, &mine, sizeof mine, all);
    for (int i = 0; i < workers; i++) sum += all[i];
    if (me == 0) *ns = sum / workers;
    free(all);
    return status;
}

/* Workers that share a device must overlap, else their times say nothing and are not told. All devices are open and
 * idle. */
static pp_status probe(struct pp_trainee *t)
{
    struct pp_session *s = t->session;
    struct pp_world *world = s->world;
    unsigned char fails, *all;
    if (!s->backend->queue) return PP_OK;
    PP_TRY(pp_barrier(world, t->worker->me));
    pp_status status = s->backend->queue->probe(t->worker->device);
    if (status != PP_OK && status != PP_UNSUPPORTED) return status;
    fails = status == PP_UNSUPPORTED;
    if (fails && t->worker->me == world->first) pp_warn("%s; results are right", pp_message());
    PP_TRY(PP_NEW(&all, world->workers));
    status = pp_allgather(world, t->worker->me, &fails, sizeof fails, all);
    for (int i = 0; i < world->workers && t->worker->me == 0; i++) s->untimed = s->untimed || all[i];
    free(all);
    return status;
}

static pp_status prepare(struct pp_trainee *t)
{
    struct pp_session *s = t->session;
    struct pp_worker *w = t->worker;
    const struct pp_config *config = s->config;
    PP_TRY(probe(t));
    if (!s->restart.resumed) PP_TRY(pp_parameters_init(w, config->init, config->seed, s->init_tensor));
    if (s->agenda->evaluates && has_weights(t)) PP_TRY(PP_NEW(&t->best, pp_parameters_count(w)));
    PP_TRY(go_on(t));
    const struct pp_batch_cut cut = pp_training_cut(config, pp_worker_data_rank(s->job->train, w->me));
    PP_TRY(pp_batches_cut(s->data, PP_PART_TRAIN, &cut, &t->batches));
    PP_TRY(pp_batches_share(&t->batches, s->job->train->context, pp_worker_context_rank(s->job->train, w->me),
                            pp_shape_halves_rows(&s->job->model->shape)));
    PP_TRY(pp_losses_open(&t->losses, s->world, w->me, s->job->train, w->me == 0 ? &s->journal : NULL));
    return reference(t, &s->reference_ns[0]);
}

static pp_status run(struct pp_trainee *t)
{
    struct pp_session *s = t->session;
    PP_TRY(prepare(t));
    while (t->epoch < s->config->epochs) PP_TRY(run_epoch(t));
    PP_TRY(reference(t, &s->reference_ns[1]));
    PP_TRY(run_test(t));
    PP_TRY(pp_collect(s, t->worker)); /* first: the weights may find no room, and the results stay good then */
    if (t->worker->me == 0) s->collected = true;
    PP_TRY(save_weights(t));
    /* Before anybody closes a channel that another one's device still takes from. */
    return s->backend->queue ? pp_barrier(s->world, t->worker->me) : PP_OK;
}

pp_status pp_train(struct pp_session *session, int me, struct pp_trainee **out)
{
    const struct pp_agenda *agenda = session->agenda;
    struct pp_trainee *t;
    *out = NULL;
    PP_TRY(PP_NEW(&t, 1));
    *out = t;
    t->session = session;
    pp_status status = pp_worker_open(session->world, session->job, session->backend, me,
                                      agenda->steps - agenda->first_traced, &t->worker);
    if (status == PP_OK) status = run(t);
    return status != PP_OK && t->worker ? pp_worker_abandon(t->worker, status) : status;
}

void pp_trainee_disconnect(struct pp_trainee *t)
{
    if (t) pp_worker_disconnect(t->worker);
}

void pp_trainee_free(struct pp_trainee *t)
{
    if (!t) return;
    pp_losses_close(&t->losses);
    free(t->best);
    pp_worker_close(t->worker);
    free(t);
}
