/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows into the database (schema: core/database/schema.sql).
 */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "core/database/db.h"
#include "core/database/db_query.h"

#define NOW "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
/* Above the numbers of all runs that were: whoever deletes a run by hand leaves its rows in the other tables, and they
 * are of no other run. Each run has rows in run_config. */
#define NEXT_RUN                                                                                                       \
    "(SELECT coalesce(max(id), 0) + 1 FROM (SELECT max(id) AS id FROM run UNION ALL SELECT max(run) FROM run_config))"
#define SAMPLE_INTO(table)                                                                                             \
    "INSERT INTO " table " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, nullif(?13, 0))"

enum { HASH_BYTES = 17 };

static const char *hash_text(const struct pp_plan *plan, char buf[HASH_BYTES])
{
    snprintf(buf, HASH_BYTES, "%016llx", (unsigned long long)plan->hash);
    return buf;
}

/* The row of this plan and workload, made if it is not there. */
static pp_status plan_id(struct pp_db *db, const struct pp_plan *plan, const struct pp_job *job, int64_t *id)
{
    char hash[HASH_BYTES], workload[PP_WORKLOAD_BYTES] = "";
    hash_text(plan, hash);
    if (job) PP_TRY(pp_db_workload(job->config, job, workload));
    PP_TRY(pp_db_execute(
        db,
        "INSERT OR IGNORE INTO plan(hash, workload, stages, virtual_stages, microbatches, replicas, tensor, tasks) "
        "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        PP_VALUES(PP_TEXT(hash), PP_TEXT(workload), PP_INT(plan->ranks), PP_INT(plan->virtual_stages),
                  PP_INT(plan->microbatches), PP_INT(plan->replicas / plan->context), PP_INT(pp_plan_neighbours(plan)),
                  PP_INT(plan->ntasks))));
    bool found;
    PP_TRY(pp_db_integer(db, "SELECT id FROM plan WHERE hash = ?1 AND workload = ?2",
                         PP_VALUES(PP_TEXT(hash), PP_TEXT(workload)), id, &found));
    return found ? PP_OK : pp_fail(PP_INTERNAL, "database %s: the plan %s was not stored", db->path, hash);
}

static pp_status insert_run(struct pp_db *db, const struct pp_run *run, const struct pp_config *config,
                            const struct pp_job *job)
{
    char host[128] = "", workload[PP_WORKLOAD_BYTES];
    gethostname(host, sizeof host - 1);
    PP_TRY(pp_db_workload(config, job, workload));
    return pp_db_execute(db,
                         "INSERT INTO run(id, started, tool, version, host, device, device_text, transport, "
                         "cost_source, processes, cores, threads, preset, workload) "
                         "VALUES(" NEXT_RUN ", " NOW ", ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                         PP_VALUES(PP_TEXT(run->tool), PP_TEXT(PP_VERSION), PP_TEXT(host), PP_TEXT(run->device),
                                   PP_TEXT(run->device_text), PP_TEXT(run->transport), PP_TEXT(run->cost_source),
                                   PP_INT(run->processes), PP_INT(run->cores), PP_INT(config->threads),
                                   PP_TEXT(config->times ? PP_GIVEN_PRESET : config->preset), PP_TEXT(workload)));
}

static pp_status set_job(struct pp_db *db, int64_t run_id, const struct pp_job *job)
{
    const struct pp_plan *plan = job->train;
    const double parameters = job->model ? (double)job->model->parameters : NAN; /* NULL */
    int64_t id;
    char hash[HASH_BYTES], mode[PP_CHECKPOINT_TEXT];
    PP_TRY(plan_id(db, plan, job, &id));
    return pp_db_execute(db,
                         "UPDATE run SET plan = ?2, plan_hash = ?3, schedule = ?4, stages = ?5, virtual_stages = ?6, "
                         "chunks = ?7, microbatches = ?8, replicas = ?9, checkpoint = ?10, parameters = ?11, "
                         "accumulation_key = ?12, tensor = ?13, expert_parallel = ?14, context_parallel = ?15 "
                         "WHERE id = ?1",
                         PP_VALUES(PP_INT(run_id), PP_INT(id), PP_TEXT(hash_text(plan, hash)), PP_TEXT(plan->schedule),
                                   PP_INT(plan->ranks), PP_INT(plan->virtual_stages), PP_INT(job->point.chunks),
                                   PP_INT(plan->microbatches), PP_INT(plan->replicas / plan->context),
                                   PP_TEXT(pp_checkpoint_text(plan->checkpoint, mode)), PP_REAL(parameters),
                                   PP_TEXT(job->accumulation_key), PP_INT(pp_plan_neighbours(plan)),
                                   PP_INT(plan->expert_parallel), PP_INT(plan->context)));
}

static pp_status insert_config(struct pp_db *db, int64_t run_id, unsigned tool, const struct pp_config *config)
{
    char text[PP_OPTION_TEXT];
    for (int i = 0; i < pp_config_nrows; i++) {
        const struct pp_opt *row = &pp_config_rows[i];
        if (!(row->tools & tool)) continue;
        PP_TRY(pp_db_execute(db, "INSERT INTO run_config VALUES(?1, ?2, ?3, ?4)",
                             PP_VALUES(PP_INT(run_id), PP_TEXT(row->name), PP_TEXT(pp_options_text(row, config, text)),
                                       PP_INT(config->set[i]))));
    }
    return PP_OK;
}

pp_status pp_db_run_begin(struct pp_db *db, const struct pp_run *run, const struct pp_config *config,
                          const struct pp_job *job, int64_t *run_id)
{
    pp_status status;
    PP_TRY(pp_db_transaction(db));
    PP_TRY_DONE(insert_run(db, run, config, job));
    *run_id = sqlite3_last_insert_rowid(db->sql);
    const unsigned tool = pp_tool_named(run->tool);
    PP_TRY_DONE(insert_config(db, *run_id, tool ? tool : PP_ALL_TOOLS, config));
    if (job) status = set_job(db, *run_id, job);
done:
    return pp_db_finish(db, status);
}

const struct pp_run_result pp_result_none = {.ms_per_batch = NAN,
                                             .makespan_ms = NAN,
                                             .span_ms = NAN,
                                             .bubble = NAN,
                                             .bubble_span = NAN,
                                             .lower_bound_ms = NAN,
                                             .test_loss = NAN,
                                             .trace_overhead = NAN,
                                             .reference_ns = NAN};

pp_status pp_db_run_end(struct pp_db *db, int64_t run_id, const struct pp_run_result *r)
{
    PP_TRY(pp_db_transaction(db));
    pp_status status = pp_db_execute(
        db,
        "UPDATE run SET ended = " NOW ", status = ?2, ms_per_batch = ?3, makespan_ms = ?4, span_ms = ?5, "
        "bubble = ?6, bubble_span = ?7, lower_bound_ms = ?8, test_loss = ?9, trace_overhead = ?10, "
        "reference_ns = ?11 WHERE id = ?1",
        PP_VALUES(PP_INT(run_id), PP_TEXT(r->status), PP_REAL(r->ms_per_batch), PP_REAL(r->makespan_ms),
                  PP_REAL(r->span_ms), PP_REAL(r->bubble), PP_REAL(r->bubble_span), PP_REAL(r->lower_bound_ms),
                  PP_REAL(r->test_loss), PP_REAL(r->trace_overhead), PP_REAL(r->reference_ns)));
    if (db->sampled) pp_db_forget(db); /* look-ups of times go by the status of their run */
    return pp_db_finish(db, status);
}

/* The phase of the job that runs the plan; NULL: sizes are not known. */
static const struct pp_phase *phase_of(const struct pp_job *job, const struct pp_plan *plan)
{
    for (int i = 0; job && i < PP_PHASES; i++)
        if (job->phase[i].plan == plan) return &job->phase[i];
    return NULL;
}

/* A task's id; NULL: none. */
static struct pp_value task_or_none(int32_t id)
{
    return id >= 0 ? (struct pp_value)PP_INT(id) : (struct pp_value)PP_TEXT(NULL);
}

static pp_status insert_task(struct pp_db *db, int64_t id, const struct pp_job *job, const struct pp_phase *phase,
                             const struct pp_plan *plan, int32_t number)
{
    const struct pp_task *task = &plan->tasks[number];
    const struct pp_lane *lane = &plan->lanes[task->lane];
    int64_t taken = 0, freed = 0;
    if (phase && pp_kinds[task->kind].computes)
        pp_layout_task_bytes(job->model, job->model_ops, phase, number, &taken, &freed);
    return pp_db_execute(db,
                         "INSERT OR REPLACE INTO task VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, "
                         "?13, ?14, ?15, ?16)",
                         PP_VALUES(PP_INT(id), PP_INT(number), PP_TEXT(pp_kinds[task->kind].name), PP_INT(task->stage),
                                   PP_INT(task->microbatch), PP_INT(task->count), PP_INT(task->lane),
                                   PP_INT(pp_kinds[task->kind].computes), PP_INT(lane->src), PP_INT(lane->dst),
                                   PP_INT(taken), PP_INT(freed), task_or_none(task->dep[0]), task_or_none(task->dep[1]),
                                   task_or_none(task->dep[2]), PP_INT((task->flags & PP_TASK_DEP_RANGE) != 0)));
}

static pp_status insert_wrap(struct pp_db *db, int64_t id, const struct pp_wrap *wrap)
{
    return pp_db_execute(db, "INSERT OR REPLACE INTO wrap VALUES(?1, ?2, ?3)",
                         PP_VALUES(PP_INT(id), PP_INT(wrap->to), PP_INT(wrap->from)));
}

/* Tasks of the same step that a task waits for. */
static int64_t count_needs(const struct pp_task *task)
{
    if (task->flags & PP_TASK_DEP_RANGE) return (int64_t)task->dep[1] - task->dep[0] + 1;
    return (task->dep[0] >= 0) + (task->dep[1] >= 0) + (task->dep[2] >= 0);
}

/* All tasks of a plan with their edges; rows that an older ppkit stored without edges are replaced. */
static pp_status insert_tasks(struct pp_db *db, int64_t id, const struct pp_job *job, const struct pp_plan *plan)
{
    const struct pp_phase *phase = phase_of(job, plan);
    int64_t edges = plan->nwraps;
    for (int64_t i = 0; i < plan->ntasks; i++) {
        PP_TRY(insert_task(db, id, job, phase, plan, (int32_t)i));
        edges += count_needs(&plan->tasks[i]);
    }
    for (int i = 0; i < plan->nwraps; i++) PP_TRY(insert_wrap(db, id, &plan->wraps[i]));
    return pp_db_execute(db, "UPDATE plan SET edges = ?2 WHERE id = ?1", PP_VALUES(PP_INT(id), PP_INT(edges)));
}

pp_status pp_db_add_tasks(struct pp_db *db, const struct pp_job *job, const struct pp_plan *plan)
{
    int64_t id, unused;
    bool found;
    pp_status status;
    PP_TRY(pp_db_transaction(db));
    PP_TRY_DONE(plan_id(db, plan, job, &id));
    PP_TRY_DONE(pp_db_integer(db, "SELECT 1 FROM plan WHERE id = ?1 AND edges IS NOT NULL", PP_VALUES(PP_INT(id)),
                              &unused, &found));
    if (!found) status = insert_tasks(db, id, job, plan);
done:
    return pp_db_finish(db, status);
}

pp_status pp_db_add_step(struct pp_db *db, int64_t run_id, const struct pp_db_step *step)
{
    return pp_db_add(db, "INSERT INTO step VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                     PP_VALUES(PP_INT(run_id), PP_INT(step->step), PP_INT(step->epoch), PP_INT(step->ns),
                               PP_REAL(step->loss), PP_INT(step->tokens), PP_INT(step->traced)));
}

pp_status pp_db_add_epoch(struct pp_db *db, int64_t run_id, int epoch, double valid_loss, int64_t ns)
{
    PP_TRY(pp_db_add(db, "INSERT INTO epoch VALUES(?1, ?2, ?3, ?4)",
                     PP_VALUES(PP_INT(run_id), PP_INT(epoch), PP_REAL(valid_loss), PP_INT(ns))));
    return pp_db_flush(db);
}

pp_status pp_db_add_memory(struct pp_db *db, int64_t run_id, int worker, const char *kind, int64_t bytes)
{
    return pp_db_add(db, "INSERT OR REPLACE INTO memory VALUES(?1, ?2, ?3, ?4)",
                     PP_VALUES(PP_INT(run_id), PP_INT(worker), PP_TEXT(kind), PP_INT(bytes)));
}

pp_status pp_db_add_worker_memory(struct pp_db *db, int64_t run_id, int worker, const struct pp_layout *layout,
                                  int64_t process_bytes)
{
    const int rank = worker / layout->neighbours % layout->ranks;
    for (int kind = 0; kind < PP_BYTES_KINDS; kind++)
        PP_TRY(pp_db_add_memory(db, run_id, worker, pp_memory_names[kind], layout->bytes[rank][kind]));
    PP_TRY(pp_db_add_memory(db, run_id, worker, "arena", layout->arena_bytes[rank]));
    PP_TRY(pp_db_add_memory(db, run_id, worker, "live_peak", layout->live_peak_bytes[rank]));
    return process_bytes > 0 ? pp_db_add_memory(db, run_id, worker, "process", process_bytes) : PP_OK;
}

struct pp_sample pp_sample_of(const char *name, const char *context, int load, const struct pp_quantiles *ns)
{
    return (struct pp_sample){.name = name,
                              .context = context,
                              .load = load,
                              .count = ns->count,
                              .median_ns = ns->median_ns,
                              .p5_ns = ns->p5_ns,
                              .p95_ns = ns->p95_ns,
                              .min_ns = ns->min_ns,
                              .mean_ns = ns->mean_ns,
                              .flops = NAN,
                              .moved_bytes = NAN};
}

pp_status pp_db_add_sample(struct pp_db *db, int64_t run_id, enum pp_sample_kind kind, const struct pp_sample *s)
{
    static const char *const into[] = {[PP_SAMPLE_KERNEL] = SAMPLE_INTO("kernel_time"),
                                       [PP_SAMPLE_TASK] = SAMPLE_INTO("task_time"),
                                       [PP_SAMPLE_LINK] = SAMPLE_INTO("link_time")};
    db->sampled = true;
    pp_db_forget(db);
    return pp_db_add(db, into[kind],
                     PP_VALUES(PP_INT(run_id), PP_TEXT(s->name), PP_TEXT(s->context ? s->context : ""), PP_INT(s->load),
                               PP_INT(s->bytes), PP_INT(s->count), PP_INT(s->median_ns), PP_INT(s->p5_ns),
                               PP_INT(s->p95_ns), PP_INT(s->min_ns), PP_REAL(s->flops), PP_REAL(s->moved_bytes),
                               PP_INT(s->mean_ns)));
}

pp_status pp_db_add_link(struct pp_db *db, int64_t run_id, const char *link, const char *parameter, double value)
{
    return pp_db_add(db, "INSERT OR REPLACE INTO link VALUES(?1, ?2, ?3, ?4)",
                     PP_VALUES(PP_INT(run_id), PP_TEXT(link), PP_TEXT(parameter), PP_REAL(value)));
}
