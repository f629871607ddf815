/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/report.h"

#include <math.h>

#include "core/base/log.h"
#include "core/base/stats.h"
#include "exec/carrier.h"
#include "exec/place.h"

enum { EPOCH_LINES = 20 }; /* at most about so many, where nothing is evaluated */

/* --- the database --- */

static pp_status begin_run(struct pp_report *r)
{
    const struct pp_exec *exec = r->exec;
    struct pp_run run = {.tool = "ppexec",
                         .device = exec->backend->name,
                         .device_text = exec->device_text,
                         .transport = exec->carrier ? exec->carrier->name : exec->transport->name,
                         .processes = exec->processes.count,
                         .cores = pp_processes_cores(&r->session->world->processes)};
    if (!exec->db) return PP_OK;
    PP_TRY(pp_db_run_begin(exec->db, &run, &exec->config, r->session->job, &r->run_id));
    return pp_db_add_tasks(exec->db, r->session->job, r->session->job->train);
}

pp_status pp_report_begin(struct pp_report *r, struct pp_exec *exec, const struct pp_session *session)
{
    *r = (struct pp_report){.exec = exec, .session = session, .totals = session->restart.start.totals};
    pp_report_header(exec, session);
    return begin_run(r);
}

static bool stores(const struct pp_report *r) { return r->exec->db && !r->lost; }

/* Hours of training are worth more than their record. Others must not wait for what is half written. */
static void stop_storing(struct pp_report *r)
{
    pp_warn("%s; training goes on, and nothing more of it is stored", pp_message());
    const pp_status closed = pp_db_flush(r->exec->db); /* where that fails, too, nothing else can be done */
    (void)closed;
    r->lost = true;
}

/* --- records --- */

/* As the tutorials print it, but for small ones, which that makes 0. */
static const char *rate_text(double rate, char *buf, size_t size)
{
    snprintf(buf, size, rate == 0 || rate >= 0.1 ? "%.2f" : "%.3g", rate);
    return buf;
}

/* The loss and its perplexity, "-" of a device that has none. Not a number has a sign that says nothing. */
enum { LOSS_TEXT = 400 }; /* a perplexity may have 308 digits */
static const char *loss_text(const struct pp_report *r, const char *of, double loss, char buf[LOSS_TEXT])
{
    const double shown = isnan(loss) ? (double)NAN : loss;
    if (r->session->backend->waits)
        snprintf(buf, LOSS_TEXT, "%sloss     - | %sppl        -", of, of);
    else
        snprintf(buf, LOSS_TEXT, "%sloss %5.2f | %sppl %8.2f", of, shown, of, exp(shown));
    return buf;
}

/* Before the first step the learning rate is not to blame. */
static void check_finite(struct pp_report *r, double loss, const char *what, int number, bool trained)
{
    if (isfinite(loss) || r->diverged || r->session->backend->waits) return;
    r->diverged = true;
    pp_warn("the %s %d is not a finite number: %s", what, number,
            trained ? "training has diverged, its weights are useless; use a smaller --lr"
                    : "the weights that training began with are useless; look at --init, or use a smaller --init-std");
}

static pp_status take_step(struct pp_report *r, const struct pp_record *record)
{
    char rate[32], loss[LOSS_TEXT];
    int interval = r->exec->config.log_interval, batches = r->session->agenda->batches;
    pp_totals_add(&r->totals, record, interval);
    r->interval_ns += record->ns;
    r->interval_timed++;
    if ((record->batch + 1) % interval == 0) {
        loss_text(r, "", r->totals.interval_loss / r->totals.interval_steps, loss);
        pp_info("| epoch %3d | %5d/%5d batches | lr %s | ms/batch %5.2f | %s", record->epoch + 1, record->batch + 1,
                batches, rate_text(record->learning_rate, rate, sizeof rate),
                (double)r->interval_ns / 1e6 / r->interval_timed, loss);
        r->interval_ns = r->interval_timed = 0;
    }
    check_finite(r, record->loss, "loss of step", record->step + 1, record->step > 0);
    pp_progress("step %d of %d, %s", record->step + 1, r->session->agenda->steps, loss_text(r, "", record->loss, loss));
    if (!stores(r)) return PP_OK;
    return pp_db_add_step(r->exec->db, r->run_id,
                          &(struct pp_db_step){.step = record->step,
                                               .epoch = record->epoch,
                                               .ns = record->ns,
                                               .tokens = record->tokens,
                                               .loss = record->loss,
                                               .traced = record->traced});
}

static pp_status take_epoch(struct pp_report *r, const struct pp_record *record)
{
    int epochs = r->exec->config.epochs, every = (epochs + EPOCH_LINES - 1) / EPOCH_LINES;
    const double train = r->totals.epoch_loss / r->session->agenda->batches, seconds = (double)record->ns / 1e9;
    char loss[LOSS_TEXT];
    if (r->session->agenda->evaluates) {
        check_finite(r, record->loss, "validation loss of epoch", record->epoch + 1, true);
        pp_info("| end of epoch %3d | time: %5.2fs | %s", record->epoch + 1, seconds,
                loss_text(r, "valid ", record->loss, loss));
    } else if ((record->epoch + 1) % every == 0 || record->epoch + 1 == epochs) {
        pp_info("| end of epoch %3d | time: %5.2fs | %s", record->epoch + 1, seconds,
                loss_text(r, "train ", train, loss));
    }
    r->interval_ns = r->interval_timed = 0;
    return stores(r) ? pp_db_add_epoch(r->exec->db, r->run_id, record->epoch, record->loss, record->ns) : PP_OK;
}

static pp_status take_test(struct pp_report *r, const struct pp_record *record)
{
    char loss[LOSS_TEXT];
    pp_info("| End of training | %s", loss_text(r, "test ", record->loss, loss));
    return PP_OK;
}

static void show_evaluation(const struct pp_journal *journal)
{
    const int64_t state = atomic_load_explicit(&journal->evaluation, memory_order_relaxed);
    if (state > 0) pp_progress("evaluating batch %d of %d", (int)(state >> 32), (int)(state & INT32_MAX));
}

void pp_report_update(struct pp_report *r)
{
    static pp_status (*const takers[])(struct pp_report *, const struct pp_record *) = {
        [PP_RECORD_STEP] = take_step, [PP_RECORD_EPOCH] = take_epoch, [PP_RECORD_TEST] = take_test};
    const struct pp_journal *journal = &r->session->journal;
    int64_t published = atomic_load_explicit(&journal->published, memory_order_acquire), before = r->taken;
    for (; r->taken < published; r->taken++) {
        const struct pp_record *record = &journal->records[r->taken];
        if (takers[record->kind](r, record) != PP_OK) stop_storing(r);
    }
    if (stores(r) && r->taken > before && pp_db_flush(r->exec->db) != PP_OK) stop_storing(r);
    show_evaluation(journal);
}

/* --- the end --- */

static pp_status store_memory(const struct pp_report *r)
{
    const struct pp_session *session = r->session;
    for (int worker = 0; worker < session->world->workers; worker++)
        PP_TRY(pp_db_add_worker_memory(r->exec->db, r->run_id, worker, session->job->layout,
                                       session->summaries[worker].resident_bytes));
    return PP_OK;
}

static pp_status store_device_clocks(const struct pp_report *r)
{
    for (int i = 0; i < r->session->world->workers; i++) {
        const struct pp_worker_summary *summary = &r->session->summaries[i];
        char name[48];
        if (summary->device_uncertainty_ns == 0) continue;
        snprintf(name, sizeof name, "clock of worker %d's device", i);
        PP_TRY(pp_db_add_link(r->exec->db, r->run_id, name, "uncertainty_ns", (double)summary->device_uncertainty_ns));
    }
    return PP_OK;
}

/* How far the clocks behind the events may be wrong; on one machine the processes have only one. */
static pp_status store_clocks(const struct pp_report *r)
{
    const struct pp_world *world = r->session->world;
    for (int i = 0; i < world->processes.count && world->processes.hosts > 1; i++) {
        const struct pp_worker_summary *summary = &r->session->summaries[i * world->count];
        char name[32];
        snprintf(name, sizeof name, "clock of process %d", i);
        PP_TRY(pp_db_add_link(r->exec->db, r->run_id, name, "offset_ns", (double)summary->clock_offset_ns));
        PP_TRY(pp_db_add_link(r->exec->db, r->run_id, name, "uncertainty_ns", (double)summary->clock_uncertainty_ns));
    }
    return store_device_clocks(r);
}

static pp_status store_results(const struct pp_report *r, const struct pp_result *result)
{
    if (!isnan(result->taken)) PP_TRY(pp_db_add_link(r->exec->db, r->run_id, "run", PP_WORKER_TAKEN, result->taken));
    PP_TRY(pp_db_add_events(r->exec->db, r->run_id, r->session->job->train, &r->session->trace));
    PP_TRY(store_memory(r));
    return store_clocks(r);
}

/* Perhaps there is room again. */
static pp_status end_incomplete(const struct pp_report *r)
{
    struct pp_run_result end = pp_result_none;
    end.status = "failed: the database could not be written while the run went on";
    const pp_status told = pp_db_run_end(r->exec->db, r->run_id, &end);
    (void)told;
    return pp_fail(
        PP_IO,
        "database %s is incomplete: it could not be written to the end of the run; the training itself ended "
        "well",
        r->exec->config.db);
}

pp_status pp_report_end(struct pp_report *r, const char *status, const struct pp_result *result)
{
    char remark[256];
    pp_progress(NULL);
    if (result && pp_taken_remark(result->taken, "ppexec", remark, sizeof remark)) pp_warn("%s", remark);
    if (!r->run_id) return PP_OK;
    if (r->lost) return end_incomplete(r);
    struct pp_run_result end = result ? result->stored : pp_result_none;
    end.status = status;
    if (result) PP_TRY(store_results(r, result));
    return pp_db_run_end(r->exec->db, r->run_id, &end);
}
