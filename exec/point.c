/* SPDX-License-Identifier: Apache-2.0
 *
 * One configuration: job, world, a thread for each worker of this process, and the report beside them.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/job/checkpoint_use.h"
#include "core/job/fp8_use.h"
#include "core/options/ending.h"
#include "exec/carrier_choose.h"
#include "exec/fit.h"
#include "exec/place.h"
#include "exec/report.h"
#include "exec/signals.h"
#include "exec/terms.h"
#include "exec/weights.h"

enum {
    REPORT_INTERVAL_NS = 100000000,
    PATIENCE_NS = 700000000 /* with workers that do not end; mpirun kills a process 1 s after it asked it to end */
};

struct member {
    struct crew *crew;
    pthread_t thread;
    struct pp_trainee *trainee;
    int me;
};

struct crew {
    struct pp_session *session;
    struct member *members; /* [session->world->count] */
    int started;
    pthread_mutex_t lock; /* of `ended` */
    pthread_cond_t ends;
    int ended;         /* workers that have ended */
    int64_t failed_ns; /* when it was first seen that not all is well; 0: all is */
};

static void *work(void *arg)
{
    struct member *m = arg;
    struct pp_session *s = m->crew->session;
    pp_place_worker(s->world, m->me, s->config->threads);
    const pp_status status = pp_train(s, m->me, &m->trainee);
    if (status != PP_OK) pp_world_stop(s->world, status);
    pthread_mutex_lock(&m->crew->lock);
    m->crew->ended++;
    pthread_cond_signal(&m->crew->ends);
    pthread_mutex_unlock(&m->crew->lock);
    return NULL;
}

/* Of the clock that nobody sets. */
static void prepare_waiting(struct crew *crew)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&crew->ends, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Waits a moment for one more worker to end, if only so many have. Returns how many have. */
static int wait_for_end(struct crew *crew, int seen)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += REPORT_INTERVAL_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int error = 0;
    pthread_mutex_lock(&crew->lock);
    while (crew->ended == seen && !error) error = pthread_cond_timedwait(&crew->ends, &crew->lock, &until);
    const int ended = crew->ended;
    pthread_mutex_unlock(&crew->lock);
    return ended;
}

static void start(struct crew *crew)
{
    struct pp_world *world = crew->session->world;
    for (int i = 0; i < world->count; i++) {
        struct member *m = &crew->members[i];
        *m = (struct member){.crew = crew, .me = world->first + i};
        int error = pthread_create(&m->thread, NULL, work, m);
        if (error) {
            pp_world_stop(world, pp_fail(PP_NOMEM, "cannot start the thread of worker %d: %s", m->me, strerror(error)));
            return;
        }
        crew->started++;
    }
}

/* A worker that waits in a call for a device, which waits for a process that is gone, never learns that all is over.
 * Where the process must end anyway, it ends without such workers. */
static bool is_stuck(struct crew *crew)
{
    struct pp_world *world = crew->session->world;
    bool failed = atomic_load(&world->stop) != PP_OK || pp_signals_caught();
    if (!world->remote || !failed) return false;
    if (crew->failed_ns == 0) crew->failed_ns = pp_now_ns();
    return pp_now_ns() - crew->failed_ns > PATIENCE_NS;
}

/* Waits until all workers have ended or one is stuck, and reports now and then. *ended: how many have ended. */
static void attend(struct crew *crew, struct pp_report *report, int *ended)
{
    for (*ended = 0; *ended < crew->started && !is_stuck(crew);) {
        *ended = wait_for_end(crew, *ended);
        if (report) pp_report_update(report);
    }
}

static void dismiss(struct crew *crew)
{
    for (int i = 0; i < crew->started; i++) pthread_join(crew->members[i].thread, NULL);
    for (int i = 0; i < crew->started; i++) pp_trainee_disconnect(crew->members[i].trainee);
    for (int i = 0; i < crew->started; i++) pp_trainee_free(crew->members[i].trainee);
    pthread_cond_destroy(&crew->ends);
    pthread_mutex_destroy(&crew->lock);
    free(crew->members);
    free(crew);
}

/* Whoever stopped the run knows. Where a process is silent, a signal tells of what happened to that. */
static pp_status tell_whose_signal(const struct pp_world *world, pp_status status)
{
    if (status != PP_INTERRUPTED || !world->remote || world->transport->all_stopped()) return status;
    return pp_fail(status, "stopped by a signal (the launcher sends one when another process has failed)");
}

static pp_status run_crew(struct pp_session *s, struct pp_report *report)
{
    struct crew *crew;
    int ended;
    PP_TRY(PP_NEW(&crew, 1));
    crew->session = s;
    pp_status status = PP_NEW(&crew->members, s->world->count);
    if (status != PP_OK) {
        free(crew);
        return status;
    }
    prepare_waiting(crew);
    start(crew);
    attend(crew, report, &ended);
    status = pp_world_failure(s->world);
    s->stuck = ended < crew->started;
    if (!s->stuck) {
        status = tell_whose_signal(s->world, status);
        dismiss(crew);
    } else if (status == PP_OK)
        status = pp_world_check(s->world);
    return status;
}

/* Stores the run's end without losing the message of its failure. */
static pp_status end_report(struct pp_report *report, pp_status status, const struct pp_result *result)
{
    struct pp_failure failure;
    char text[PP_MESSAGE_BYTES + sizeof "failed: "];
    if (pp_keep(&failure, status) == PP_OK) return pp_report_end(report, "ok", result);
    snprintf(text, sizeof text, "failed: %s", failure.message);
    const pp_status stored = pp_report_end(report, status == PP_INTERRUPTED ? "interrupted" : text, NULL);
    if (stored != PP_OK && status != PP_INTERRUPTED) failure.status = PP_IO;
    return pp_fail_again(&failure);
}

static pp_status tell_remarks(const struct pp_exec *exec, const struct pp_job *job)
{
    char remark[256];
    pp_fp8_remark(job, remark, sizeof remark);
    if (*remark) pp_warn("%s", remark);
    PP_TRY(pp_checkpoint_remark(job, exec->schedules, remark, sizeof remark));
    if (*remark) pp_warn("%s", remark);
    return PP_OK;
}

/* Wrong usage is what all processes see and end by; this only one of them has seen, so it must end the others. */
static pp_status seen_alone(const struct pp_exec *exec, pp_status status)
{
    return status == PP_USAGE && exec->processes.count > 1 ? PP_IO : status;
}

/* Weights of a training that did not end are gone, unless there are checkpoints. */
static void tell_lost_weights(const struct pp_config *config)
{
    if (config->save && config->save_every == 0)
        pp_warn("--save: %s was not written, since the training has not ended; --save-every N keeps checkpoints to go "
                "on from",
                config->save);
}

/* The first process: with report and result. Where all results were collected and something failed after that (its
 * weights could not be saved), they are stored, and the failure is told. Who stops a run by a signal gets none. */
static pp_status run_first(struct pp_exec *exec, struct pp_session *s, struct pp_result *out)
{
    struct pp_report report;
    struct pp_failure failure;
    PP_TRY(tell_remarks(exec, s->job));
    PP_TRY(pp_report_begin(&report, exec, s));
    const pp_status ran = pp_keep(&failure, run_crew(s, &report));
    const bool has_results = s->collected && ran != PP_INTERRUPTED;
    if (ran == PP_INTERRUPTED && !s->collected) tell_lost_weights(s->config);
    const pp_status stored = end_report(&report, has_results ? pp_result_make(s, out) : ran, out);
    if (!has_results || ran == PP_OK) return stored;
    if (stored != PP_OK) pp_warn("%s", pp_message());
    return pp_fail_again(&failure);
}

/* Two numbers have one sum; of more it depends on the order. */
void pp_exec_bits(const struct pp_exec *exec, const struct pp_plan *plan, char *buf, size_t size)
{
    const int groups = pp_plan_shard_groups(plan), sharers = pp_plan_sharers(plan, PP_DENSE);
    const int most = groups > sharers ? groups : sharers;
    const bool ordered = exec->carrier && (most > 2 || plan->members > 2);
    const char *order = ordered ? exec->carrier->sums : NULL;
    const bool parts = most > 2 && (pp_config_sums_parts(&exec->config) || plan->shards);
    snprintf(buf, size, "%s%s%s%s%s", exec->device_text, order ? ", " : "", order ? order : "",
             order && plan->zero ? " in shares" : "", order && parts ? " in parts" : "");
}

static pp_status open_checkpoint(struct pp_exec *exec, struct pp_session *s)
{
    char bits[PP_BITS_TEXT];
    pp_exec_bits(exec, s->job->train, bits, sizeof bits);
    PP_TRY(pp_restart_open(&exec->config, s->job, exec->data, bits, exec->processes.index == 0, &s->restart));
    if (exec->config.resume) PP_TRY(pp_agree_on_status(exec, PP_OK)); /* the first process has the lock */
    PP_TRY(pp_restart_resume(&exec->config, s->job, &s->restart));
    return pp_agenda_begin(&exec->config, &s->restart.start, s->agenda);
}

/* What would fail after long work is tried before it. */
static pp_status check_files(const struct pp_exec *exec, const struct pp_session *s)
{
    struct pp_weights_reader *reader = NULL;
    if (exec->config.init && !s->restart.resumed)
        PP_TRY(pp_prefix(pp_weights_open(exec->config.init, s->job->model, &reader), "--init"));
    pp_weights_close(reader);
    if (!exec->config.save || exec->processes.index != 0) return PP_OK;
    pp_status status = pp_weights_check_target(exec->config.save, false);
    if (status == PP_OK && s->restart.every) status = pp_weights_check_target(s->restart.path, true);
    return seen_alone(exec, status);
}

static pp_status run_session(struct pp_exec *exec, struct pp_session *s, struct pp_result *out)
{
    PP_TRY(pp_journal_open(&s->journal, (int64_t)s->agenda->steps - s->agenda->first + exec->config.epochs + 1));
    PP_TRY(PP_NEW(&s->summaries, s->world->workers));
    return exec->processes.index == 0 ? run_first(exec, s, out) : run_crew(s, NULL);
}

static pp_status open_world(struct pp_exec *exec, struct pp_session *s)
{
    const struct pp_job *job = s->job;
    PP_TRY(
        pp_world_open(exec->transport, &exec->processes, pp_plan_workers(job->train), exec->config.threads, &s->world));
    s->world->polled = exec->backend->queue != NULL;
    s->world->dozes = exec->backend->waits;
    pp_carrier_set(s->world, &exec->config, exec->backend, exec->carrier);
    s->job->sharers = s->world->sharers;
    return PP_OK;
}

static void close_session(struct pp_session *s, bool keep_world)
{
    if (s->stuck) return; /* workers still use all of it; the process ends next */
    pp_restart_close(&s->restart);
    pp_journal_close(&s->journal);
    free(s->summaries);
    pp_trace_clear(&s->trace);
    if (!keep_world) pp_world_close(s->world);
    pp_job_free(s->job);
    free(s->agenda);
    free(s);
}

static pp_status make_job(struct pp_exec *exec, const struct pp_point *point, struct pp_session *s)
{
    PP_TRY(PP_NEW(&s->agenda, 1));
    PP_TRY(pp_agenda_make(&exec->config, exec->data, s->agenda));
    const struct pp_tails tails = {.train = s->agenda->tail_seq,
                                   .valid = s->agenda->eval[PP_PART_VALID].tail_seq,
                                   .test = s->agenda->eval[PP_PART_TEST].tail_seq};
    return pp_job_create(&exec->config, point, exec->schedules, exec->model_ops, s->agenda->evaluates, &tails, &s->job);
}

/* So that what earlier configurations have stored is not left in FILE-wal. */
static void close_databases(void *context)
{
    const struct pp_exec *exec = context;
    (void)pp_db_close(exec->profile);
    (void)pp_db_close(exec->db);
}

/* A signal closes the databases, which must not be used meanwhile, and ends the process. */
static pp_status make_job_or_end(struct pp_exec *exec, const struct pp_point *point, struct pp_session *s)
{
    PP_TRY(pp_ending_begin(close_databases, exec));
    pp_status status = make_job(exec, point, s);
    pp_status ended = pp_ending_end(), caught = pp_signals_catch();
    return status != PP_OK ? status : ended != PP_OK ? ended : caught;
}

/* Long work of a large plan, which looks at no flag. Other processes wait for this one, and look. */
static pp_status plan(struct pp_exec *exec, const struct pp_point *point, struct pp_session *s)
{
    const bool alone = exec->processes.count == 1;
    pp_signals_end_at_once(alone);
    pp_status status = alone && exec->db ? make_job_or_end(exec, point, s) : make_job(exec, point, s);
    pp_signals_end_at_once(false);
    return status == PP_OK && exec->set_waits ? exec->set_waits(exec->set_waits_context, s->job) : status;
}

static pp_status check_fit(struct pp_exec *exec, const struct pp_session *s)
{
    const struct pp_fit_call call = {.transport = exec->transport,
                                     .processes = &exec->processes,
                                     .backend = exec->backend,
                                     .config = &exec->config,
                                     .job = s->job,
                                     .refusal = exec->sweeps ? PP_USAGE : PP_NOMEM};
    bool refused;
    const pp_status status = pp_fit_check(&call, &refused);
    exec->agreed = refused && status != PP_USAGE; /* that may not be the end */
    return status;
}

pp_status pp_exec_point(struct pp_exec *exec, const struct pp_point *point, struct pp_result *out)
{
    struct pp_session *s;
    PP_TRY(PP_NEW(&s, 1));
    *s = (struct pp_session){
        .config = &exec->config, .backend = exec->backend, .init_tensor = exec->init_tensor, .data = exec->data};
    pp_status status = plan(exec, point, s);
    if (status == PP_OK) status = open_checkpoint(exec, s);
    if (status == PP_OK) status = check_files(exec, s);
    if (status == PP_OK || status == PP_USAGE) status = pp_agree_on_job(exec, s, status);
    if (status == PP_OK) status = pp_restart_check(&s->restart, &exec->config);
    if (status == PP_OK) status = check_fit(exec, s);
    if (status == PP_OK) status = open_world(exec, s);
    if (status == PP_OK) status = seen_alone(exec, run_session(exec, s, out));
    /* after a failure others still use the world: they are aborted next */
    close_session(s, status != PP_OK && exec->processes.count > 1);
    return status;
}
