/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows into the database (schema: core/schema.sql).
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/db.h"
#include "core/db_private.h"

static const char *const checkpoint_names[] = {"never", "except_last", "always"};

static unsigned tool_mask(const char *tool)
{
    static const struct {
        const char *name;
        unsigned mask;
    } tools[] = {{"ppsim", PP_PPSIM}, {"ppexec", PP_PPEXEC}, {"ppprof", PP_PPPROF}, {"ppreport", PP_PPREPORT}};
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++)
        if (strcmp(tools[i].name, tool) == 0) return tools[i].mask;
    return PP_ALL_TOOLS;
}

const char *pp_db_workload(const struct pp_config *config, char *buf, size_t size)
{
    if (config->times) {
        snprintf(buf, size, "times %s", config->times);
        return buf;
    }
    snprintf(buf, size, "%s%dl d%d h%d f%d v%d %s p%g %dx%d %s", config->style ? "lab " : "", config->layers, config->d_model,
             config->heads, config->d_ff, config->vocab, config->mask == PP_MASK_CAUSAL ? "causal" : "none", config->dropout,
             config->rows, config->tokens, config->split ? config->split : "uniform");
    return buf;
}

/* The row of this plan and workload, made if it is not there. */
static pp_status plan_id(struct pp_db *db, const struct pp_plan *plan, const struct pp_config *config, int64_t *id)
{
    char hash[17], workload[PP_WORKLOAD_BYTES] = "";
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)plan->hash);
    if (config) pp_db_workload(config, workload, sizeof workload);
    PP_TRY(pp_db_execute(db, PP_SQL_PLAN_ADD,
                         PP_VALUES(PP_TEXT(hash), PP_TEXT(workload), PP_INT(plan->ranks), PP_INT(plan->virtual_stages),
                                   PP_INT(plan->microbatches), PP_INT(plan->replicas), PP_INT(plan->ntasks))));
    bool found;
    PP_TRY(pp_db_integer(db, PP_SQL_PLAN_FIND, PP_VALUES(PP_TEXT(hash), PP_TEXT(workload)), id, &found));
    return found ? PP_OK : pp_fail(PP_INTERNAL, "database %s: the plan %s was not stored", db->path, hash);
}

static pp_status insert_run(struct pp_db *db, const struct pp_run *run, const struct pp_config *config, const struct pp_job *job)
{
    char host[128] = "", workload[PP_WORKLOAD_BYTES], hash[17];
    gethostname(host, sizeof host - 1);
    const struct pp_plan *plan = job ? job->train : NULL;
    struct pp_value none = {.type = SQLITE_TEXT};
    struct pp_value id = none, hash_value = none;
    if (plan) {
        int64_t number;
        PP_TRY(plan_id(db, plan, config, &number));
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)plan->hash);
        id = (struct pp_value)PP_INT(number);
        hash_value = (struct pp_value)PP_TEXT(hash);
    }
#define OF_PLAN(value) (plan ? (struct pp_value)value : none)
    return pp_db_execute(
        db, PP_SQL_RUN_BEGIN,
        PP_VALUES(PP_TEXT(run->tool), PP_TEXT(PP_VERSION), PP_TEXT(host), PP_TEXT(run->device), PP_TEXT(run->device_text),
                  PP_TEXT(run->transport), PP_TEXT(run->cost_source), PP_INT(run->processes), PP_INT(run->cores),
                  PP_INT(config->threads), PP_TEXT(config->preset), PP_TEXT(pp_db_workload(config, workload, sizeof workload)),
                  OF_PLAN(PP_TEXT(plan->schedule)), OF_PLAN(PP_INT(plan->ranks)), OF_PLAN(PP_INT(plan->virtual_stages)),
                  OF_PLAN(PP_INT(job->point.chunks)), OF_PLAN(PP_INT(plan->microbatches)), OF_PLAN(PP_INT(plan->replicas)),
                  OF_PLAN(PP_TEXT(checkpoint_names[plan->checkpoint])),
                  job && job->model ? (struct pp_value)PP_INT(job->model->parameters) : none,
                  job ? (struct pp_value)PP_TEXT(job->accumulation_key) : none, id, hash_value));
#undef OF_PLAN
}

static pp_status insert_config(struct pp_db *db, int64_t run_id, unsigned tool, const struct pp_config *config)
{
    char text[1024];
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        if (!(row->tools & tool)) continue;
        PP_TRY(pp_db_execute(db, PP_SQL_RUN_CONFIG,
                             PP_VALUES(PP_INT(run_id), PP_TEXT(row->name), PP_TEXT(pp_options_text(row, config, text, sizeof text)),
                                       PP_INT(config->set[i]))));
    }
    return PP_OK;
}

pp_status pp_db_run_begin(struct pp_db *db, const struct pp_run *run, const struct pp_config *config, const struct pp_job *job,
                          int64_t *run_id)
{
    PP_TRY(pp_db_begin(db));
    PP_TRY(insert_run(db, run, config, job));
    *run_id = sqlite3_last_insert_rowid(db->sql);
    PP_TRY(insert_config(db, *run_id, tool_mask(run->tool), config));
    return pp_db_flush(db);
}

pp_status pp_db_run_end(struct pp_db *db, int64_t run_id, const struct pp_run_result *r)
{
    PP_TRY(pp_db_begin(db));
    PP_TRY(pp_db_execute(db, PP_SQL_RUN_END,
                         PP_VALUES(PP_INT(run_id), PP_TEXT(r->status), PP_REAL(r->ms_per_batch), PP_REAL(r->makespan_ms),
                                   PP_REAL(r->span_ms), PP_REAL(r->bubble), PP_REAL(r->bubble_span), PP_REAL(r->lower_bound_ms),
                                   PP_REAL(r->test_loss), PP_REAL(r->trace_overhead), PP_REAL(r->reference_ns))));
    return pp_db_flush(db);
}

/* The phase of the job that runs the plan; NULL: sizes are not known. */
static const struct pp_phase *phase_of(const struct pp_job *job, const struct pp_plan *plan)
{
    for (int i = 0; job && i < PP_PHASES; i++)
        if (job->phase[i].plan == plan) return &job->phase[i];
    return NULL;
}

static pp_status insert_task(struct pp_db *db, int64_t id, const struct pp_job *job, const struct pp_phase *phase,
                             const struct pp_plan *plan, int32_t number)
{
    const struct pp_task *task = &plan->tasks[number];
    const struct pp_lane *lane = &plan->lanes[task->lane];
    int64_t taken = 0, freed = 0;
    if (phase && pp_kinds[task->kind].computes)
        pp_layout_task_bytes(job->model, job->model_ops, phase, number, &taken, &freed);
    return pp_db_execute(db, PP_SQL_TASK,
                         PP_VALUES(PP_INT(id), PP_INT(number), PP_TEXT(pp_kinds[task->kind].name), PP_INT(task->stage),
                                   PP_INT(task->microbatch), PP_INT(task->count), PP_INT(task->lane),
                                   PP_INT(pp_kinds[task->kind].computes), PP_INT(lane->src), PP_INT(lane->dst), PP_INT(taken),
                                   PP_INT(freed)));
}

pp_status pp_db_add_tasks(struct pp_db *db, const struct pp_job *job, const struct pp_plan *plan)
{
    int64_t id, unused;
    bool found;
    PP_TRY(pp_db_begin(db));
    PP_TRY(plan_id(db, plan, job ? job->config : NULL, &id));
    PP_TRY(pp_db_integer(db, PP_SQL_TASK_FIND, PP_VALUES(PP_INT(id)), &unused, &found));
    const struct pp_phase *phase = phase_of(job, plan);
    for (int64_t i = 0; !found && i < plan->ntasks; i++) PP_TRY(insert_task(db, id, job, phase, plan, (int32_t)i));
    return pp_db_flush(db);
}

pp_status pp_db_add_events(struct pp_db *db, int64_t run_id, const struct pp_plan *plan,
                           const struct pp_trace *trace)
{
    int64_t seq;
    bool found;
    sqlite3_stmt *statement;
    PP_TRY(pp_db_begin(db));
    PP_TRY(pp_db_integer(db, PP_SQL_EVENT_NEXT, PP_VALUES(PP_INT(run_id)), &seq, &found));
    PP_TRY(pp_db_query(db, PP_SQL_EVENT, PP_VALUES(PP_INT(run_id)), &statement));
    for (int64_t i = 0; i < trace->nevents; i++) {
        const struct pp_event *e = &trace->events[i];
        if (e->task < 0 || e->task >= plan->ntasks)
            return pp_fail(PP_INTERNAL, "database %s: event %lld names task %d of a plan of %lld tasks", db->path, (long long)i,
                           e->task, (long long)plan->ntasks);
        const int64_t values[] = {seq + i, e->step, e->worker, e->task, e->side, e->posted_ns, e->start_ns, e->end_ns};
        for (int k = 0; k < 8; k++) sqlite3_bind_int64(statement, k + 2, values[k]);
        PP_TRY(pp_db_row(db, statement, &found));
    }
    return pp_db_flush(db);
}

pp_status pp_db_add_step(struct pp_db *db, int64_t run_id, int step, int epoch, int64_t ns, double loss, int64_t tokens, bool traced)
{
    return pp_db_add(db, PP_SQL_STEP, PP_VALUES(PP_INT(run_id), PP_INT(step), PP_INT(epoch), PP_INT(ns), PP_REAL(loss),
                                                PP_INT(tokens), PP_INT(traced)));
}

pp_status pp_db_add_epoch(struct pp_db *db, int64_t run_id, int epoch, double valid_loss, int64_t ns)
{
    PP_TRY(pp_db_add(db, PP_SQL_EPOCH, PP_VALUES(PP_INT(run_id), PP_INT(epoch), PP_REAL(valid_loss), PP_INT(ns))));
    return pp_db_flush(db);
}

pp_status pp_db_add_memory(struct pp_db *db, int64_t run_id, int worker, const char *kind, int64_t bytes)
{
    return pp_db_add(db, PP_SQL_MEMORY, PP_VALUES(PP_INT(run_id), PP_INT(worker), PP_TEXT(kind), PP_INT(bytes)));
}

pp_status pp_db_add_sample(struct pp_db *db, int64_t run_id, enum pp_sample_kind kind, const struct pp_sample *s)
{
    static const enum pp_db_statement into[] = {
        [PP_SAMPLE_KERNEL] = PP_SQL_KERNEL_TIME, [PP_SAMPLE_TASK] = PP_SQL_TASK_TIME, [PP_SAMPLE_LINK] = PP_SQL_LINK_TIME};
    return pp_db_add(db, into[kind],
                     PP_VALUES(PP_INT(run_id), PP_TEXT(s->name), PP_TEXT(s->context ? s->context : ""), PP_INT(s->load),
                               PP_INT(s->bytes), PP_INT(s->count), PP_INT(s->median_ns), PP_INT(s->p5_ns), PP_INT(s->p95_ns),
                               PP_INT(s->min_ns), PP_REAL(s->flops), PP_REAL(s->moved_bytes)));
}

pp_status pp_db_add_link(struct pp_db *db, int64_t run_id, const char *link, const char *parameter, double value)
{
    return pp_db_add(db, PP_SQL_LINK, PP_VALUES(PP_INT(run_id), PP_TEXT(link), PP_TEXT(parameter), PP_REAL(value)));
}
