/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/report.h"

#include <math.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/memory_text.h"
#include "core/base/stats.h"
#include "core/base/text.h"
#include "exec/carrier.h"
#include "exec/place.h"

enum {
    EPOCH_LINES = 20,  /* at most about so many, where nothing is evaluated */
    MEMORY_LINES = 16, /* of ranks that differ; one line more for all others */
};

/* --- header --- */

/* Where a rank is several workers, each has an arena. */
static const char *of_what(const struct pp_layout *layout) { return layout->neighbours > 1 ? " a worker" : ""; }

static void memory_line(const struct pp_layout *layout, int first, int end)
{
    char buf[256], all[PP_MEMORY_TEXT];
    struct pp_text text = pp_text_in(buf, sizeof buf);
    const double bytes = (double)layout->arena_bytes[first];
    const struct pp_memory_unit *unit = pp_memory_unit(bytes);
    pp_memory_text(bytes, all);
    for (int kind = 0; kind < PP_BYTES_KINDS; kind++)
        if (layout->bytes[first][kind])
            pp_text_add(&text, "%s%s %.*f", pp_text_between(&text, " + "), pp_memory_names[kind], unit->decimals,
                        (double)layout->bytes[first][kind] / unit->bytes);
    if (end == first + 1)
        pp_info("memory      rank %d: %s%s = %s", first, all, of_what(layout), buf);
    else
        pp_info("memory      ranks %d-%d: each %s%s = %s", first, end - 1, all, of_what(layout), buf);
}

/* What is left when there are too many lines. */
static void other_memory(const struct pp_layout *layout, int first)
{
    int64_t least = INT64_MAX, most = 0;
    for (int r = first; r < layout->ranks; r++) {
        if (layout->arena_bytes[r] < least) least = layout->arena_bytes[r];
        if (layout->arena_bytes[r] > most) most = layout->arena_bytes[r];
    }
    const struct pp_memory_unit *unit = pp_memory_unit((double)most);
    pp_info("memory      ranks %d-%d: from %.*f to %.*f %s%s; --format json has each rank's", first, layout->ranks - 1,
            unit->decimals, (double)least / unit->bytes, unit->decimals, (double)most / unit->bytes, unit->name,
            of_what(layout));
}

static bool same_memory(const struct pp_layout *layout, int a, int b)
{
    return layout->arena_bytes[a] == layout->arena_bytes[b] &&
           memcmp(layout->bytes[a], layout->bytes[b], sizeof layout->bytes[a]) == 0;
}

static void memory_lines(const struct pp_layout *layout)
{
    for (int lines = 0, first = 0, end; first < layout->ranks; first = end, lines++) {
        if (lines == MEMORY_LINES) return other_memory(layout, first);
        for (end = first + 1; end < layout->ranks && same_memory(layout, first, end);) end++;
        memory_line(layout, first, end);
    }
}

/* What moves data between workers. Workers of one process always go without the carrier of several. */
static void transport_line(const struct pp_exec *exec, const struct pp_world *world)
{
    const struct pp_carrier *carrier = exec->carrier;
    if (!carrier)
        pp_info("transport   %s: %s", exec->transport->name, exec->transport->mover);
    else if (carrier == &pp_carrier_inproc || world->count == 1)
        pp_info("transport   %s: %s", carrier->name, carrier->mover);
    else
        pp_info("transport   %s between processes: %s; within one %s: %s", carrier->name, carrier->mover,
                pp_carrier_inproc.name, pp_carrier_inproc.mover);
}

static void key_line(const struct pp_exec *exec, const struct pp_job *job)
{
    char text[PP_BITS_TEXT];
    if (exec->mixed) {
        pp_info("equal bits  in runs with the same plan and processes alone");
        return;
    }
    pp_exec_bits(exec, job->train, text, sizeof text);
    pp_info("equal bits  in all runs with \"%s, %s\"", job->accumulation_key, text);
}

/* What replicas do beside computations; with shards the rest goes without saying. */
static const char *overlap_words(const struct pp_job *job)
{
    if (job->train->shards) return job->train->gathers_first ? ", overlap param gather" : "";
    if (!pp_config_sums_parts(job->config)) return "";
    return job->config->overlap_param_gather ? ", overlap grad reduce and param gather" : ", overlap grad reduce";
}

static void pipeline_line(const struct pp_job *job)
{
    const struct pp_plan *plan = job->train;
    const bool parts = pp_shape_parts_tokens(&job->model->shape);
    const char *rounded = job->model->shape.bf16_sums ? ", grad reduce in bf16" : "";
    char tensor[48] = "", beside[PP_BESIDE_TEXT], zero[32], experts[32] = "", context[48] = "",
         text[PP_CHECKPOINT_TEXT];
    const char *mode = plan->checkpoint == PP_CHECKPOINT_NEVER ? NULL : pp_checkpoint_text(plan->checkpoint, text);
    if (pp_plan_tensor(plan) > 1)
        snprintf(tensor, sizeof tensor, ", tensor %d%s", pp_plan_tensor(plan), parts ? ", sequence parallel" : "");
    pp_sharing_text(pp_plan_zero(plan), job->point.shard_degree, zero, sizeof zero);
    pp_beside_text(&job->model->shape, beside);
    if (plan->expert_parallel > 1) snprintf(experts, sizeof experts, ", expert parallel %d", plan->expert_parallel);
    if (plan->context > 1)
        snprintf(context, sizeof context, ", context parallel %d%s", plan->context,
                 pp_shape_context_words(&job->model->shape));
    pp_info("pipeline    %s, %d rank%s x %d stage%s%s%s%s%s, %d replica%s%s%s%s%s%s, plan %016llx", plan->schedule,
            plan->ranks, pp_plural(plan->ranks), plan->virtual_stages, pp_plural(plan->virtual_stages), tensor, experts,
            context, beside, pp_plan_data_parallel(plan), pp_plural(pp_plan_data_parallel(plan)), zero, rounded,
            overlap_words(job), mode ? ", checkpoint " : "", mode ? mode : "", (unsigned long long)plan->hash);
}

static void header(const struct pp_exec *exec, const struct pp_session *s)
{
    const struct pp_job *job = s->job;
    const struct pp_world *world = s->world;
    const int cores = pp_processes_cores(&world->processes);
    char rows[48], model[PP_MODEL_TEXT];
    pp_info("model       %s", pp_model_text(job->model, model, sizeof model));
    pp_info("data        %s", exec->data->summary);
    pp_info("batch       %d row%s of %d token%s in %d chunk%s = %s: %d microbatch%s; %d step%s, %d of them warm-up, %d "
            "traced",
            exec->config.rows, pp_plural(exec->config.rows), exec->config.tokens, pp_plural(exec->config.tokens),
            job->point.chunks, pp_plural(job->point.chunks), pp_plan_rows_text(job->train, rows, sizeof rows),
            job->train->microbatches, pp_plural_es(job->train->microbatches), s->agenda->steps,
            pp_plural(s->agenda->steps), s->agenda->warmup, s->agenda->steps - s->agenda->first_traced);
    if (s->restart.resumed)
        pp_info("resumed     after %d step%s, from %s", s->agenda->first, pp_plural(s->agenda->first), s->restart.path);
    pipeline_line(job);
    key_line(exec, job);
    pp_info("device      %s; %d core%s, %d worker%s, threads of each: %d", exec->device_text, cores, pp_plural(cores),
            world->workers, pp_plural(world->workers), exec->config.threads);
    transport_line(exec, world);
    if (world->processes.count > 1)
        pp_info("processes   %d on %d machine%s, %d worker%s in each", world->processes.count, world->processes.hosts,
                pp_plural(world->processes.hosts), world->count, pp_plural(world->count));
    memory_lines(job->layout);
}

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
    header(exec, session);
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
