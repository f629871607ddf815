/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/row.h"

#include <stdlib.h>

#include "core/job/checkpoint_use.h"
#include "core/job/fp8_use.h"
#include "core/job/job_row.h"
#include "core/job/rows.h"
#include "sim/block_memory.h"
#include "sim/placement.h"
#include "sim/row_options.h"
#include "sim/throughput.h"

static void set(json_t **row, const char *key, json_t *value) { *row = pp_json_set(*row, key, value); }

static json_t *ms(int64_t ns) { return json_real((double)ns / 1e6); }

static json_t *bytes_by_rank(const struct pp_layout *layout, int kind)
{
    json_t *array = json_array();
    for (int r = 0; r < layout->ranks; r++)
        array = pp_json_append(array, json_integer(kind < 0 ? layout->arena_bytes[r] : layout->bytes[r][kind]));
    return array;
}

static json_t *if_any(double value) { return value > 0 ? json_real(value) : json_null(); }

/* Time of collectives inside tasks, in one step, of the rank that spends most. */
static int64_t tensor_ns(const struct pp_plan *plan, const struct pp_cost *cost)
{
    int64_t most = 0;
    for (int rank = 0; rank < plan->ranks && pp_plan_neighbours(plan) > 1; rank++) {
        int64_t sum = 0;
        for (int64_t i = plan->issue_start[rank]; i < plan->issue_start[rank + 1]; i++)
            sum += cost->classes[plan->tasks[pp_issue_task(plan->issue[i])].cls].sums_ns;
        if (sum > most) most = sum;
    }
    return most;
}

static void set_times(json_t **row, const struct pp_plan *plan, const struct pp_sim_result *r)
{
    json_t *path = json_object();
    set(row, "ms_per_batch", ms(r->batch_ns));
    set(row, "makespan_ms", ms(r->metrics.makespan_ns));
    set(row, "span_ms", ms(r->metrics.span_ns));
    set(row, "bubble", json_real(r->metrics.bubble));
    set(row, "bubble_span", json_real(r->metrics.bubble_span));
    set(row, "rank_bubble", pp_json_reals(r->rank_bubble, plan->ranks));
    set(row, "lower_bound_ms", ms(r->lower_bound_ns));
    for (int kind = 0; kind < PP_KINDS; kind++)
        if (r->path.kind_ns[kind] > 0) path = pp_json_set(path, pp_kinds[kind].name, ms(r->path.kind_ns[kind]));
    if (r->path.host_ns > 0) path = pp_json_set(path, "host", ms(r->path.host_ns));
    path = pp_json_set(path, "waiting", ms(r->path.waiting_ns));
    set(row, "critical_path_ms", path);
}

struct memory {
    json_t *peak, *kinds; /* by rank: all of it, and of each kind */
    int64_t most;         /* bytes of the device that needs most; -1: not known */
};

/* What blocks say that they need. */
static pp_status find_block_memory(const struct pp_job *job, struct memory *out)
{
    struct pp_block_memory memory;
    const int ranks = job->train->ranks;
    const pp_status status = pp_block_memory_find(job, &memory);
    *out = (struct memory){json_array(), json_object(), 0};
    for (int r = 0; r < ranks && status == PP_OK; r++) {
        const int64_t all = memory.state[r] + memory.kept[r];
        out->peak = pp_json_append(out->peak, json_integer(all));
        if (all > out->most) out->most = all;
    }
    if (status == PP_OK) out->kinds = pp_json_set(out->kinds, "state", pp_json_integers(memory.state, ranks));
    if (status == PP_OK) out->kinds = pp_json_set(out->kinds, "kept", pp_json_integers(memory.kept, ranks));
    pp_block_memory_free(&memory);
    return status;
}

/* The same of a model, where workers may share a device. */
static void find_layout_memory(const struct pp_prediction *prediction, struct memory *out)
{
    const struct pp_layout *layout = prediction->job->layout;
    *out = (struct memory){bytes_by_rank(layout, -1), json_object(),
                           pp_device_bytes(prediction->job, prediction->cost->sharers, PP_ALL_BYTES)};
    for (int kind = 0; kind < PP_BYTES_KINDS; kind++)
        out->kinds = pp_json_set(out->kinds, pp_memory_names[kind], bytes_by_rank(layout, kind));
}

static pp_status set_memory(struct pp_row *row, const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    struct memory memory = {.most = -1};
    pp_status status = PP_OK;
    if (pp_block_memory_known(prediction->job))
        status = find_block_memory(prediction->job, &memory);
    else if (prediction->job->layout)
        find_layout_memory(prediction, &memory);
    const int64_t limit = pp_predict_memory(p);
    const bool known = memory.most >= 0, limited = known && limit > 0;
    row->device_bytes = memory.most;
    row->too_large = limited && memory.most > limit;
    set(&row->json, "peak_bytes", known ? memory.peak : json_null());
    set(&row->json, "device_bytes", known ? json_integer(memory.most) : json_null());
    set(&row->json, "memory_bytes", known ? memory.kinds : json_null());
    set(&row->json, "fits", limited ? json_boolean(!row->too_large) : json_null());
    return status;
}

/* The source of links: the measured mover, or "machine"; NULL: there are no links, or their times are given. */
static const char *link_source(const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const struct pp_plan *plan = prediction->job->train;
    const struct pp_cost_origin *origin = &prediction->origin;
    if (p->config->times || p->waits || pp_plan_workers(plan) == 1) return NULL;
    return origin->transport && !origin->link_computed ? origin->transport : "machine";
}

static void set_source(struct pp_row *out, const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const char *link = link_source(p, prediction);
    json_t **row = &out->json;
    out->source = prediction->cost->source;
    out->data_sheet = out->source == PP_COST_MACHINE || prediction->origin.link_computed;
    set(row, "cost_source", json_string(pp_cost_source_names[out->source]));
    set(row, "machine", out->data_sheet ? json_string(p->machine.name) : json_null());
    set(row, "host_order", json_string(p->config->host_order ? "replicas" : "pipeline"));
    set(row, "link_source", link ? json_string(link) : json_null());
    set(row, "interpolated", json_integer(prediction->origin.from[PP_COST_INTERPOLATED]));
    set(row, "scaled", json_integer(prediction->origin.from[PP_COST_SCALED]));
    set(row, "from_kernels", json_integer(prediction->origin.from[PP_COST_KERNELS]));
}

/* Days and cost of a training. */
static void set_spending(json_t **row, const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const int64_t devices = pp_devices(p, prediction);
    const double cost = pp_cost_per_gtoken(p, prediction);
    set(row, "devices", devices > 0 ? json_integer(devices) : json_null());
    set(row, "train_days", if_any(pp_train_days(p, prediction)));
    set(row, "cost_per_gtoken", if_any(cost));
    set(row, "train_cost", if_any(cost * p->config->train_tokens / 1e9));
}

static void set_workers(struct pp_row *row, const struct pp_plan *plan)
{
    row->workers = pp_plan_workers(plan);
    row->replicas = pp_plan_data_parallel(plan);
    row->context = plan->context;
    row->experts = plan->expert_parallel;
}

/* That on checkpoints takes another layout of the whole job: not where --auto has chosen them. */
static pp_status make_notes(const struct pp_predictor *p, const struct pp_prediction *prediction,
                            struct pp_row_notes **out)
{
    const struct pp_job *job = prediction->job;
    PP_TRY(PP_NEW(out, 1));
    struct pp_row_notes *notes = *out;
    notes->point = job->point;
    notes->origin = prediction->origin;
    pp_fp8_remark(job, notes->remark[PP_REMARK_FP8], sizeof notes->remark[PP_REMARK_FP8]);
    pp_hosts_remark(job, pp_config_machine(p->config) ? &p->machine : NULL, notes->remark[PP_REMARK_HOSTS],
                    sizeof notes->remark[PP_REMARK_HOSTS]);
    if (p->config->usual) return PP_OK;
    return pp_checkpoint_remark(job, p->schedules, notes->remark[PP_REMARK_CHECKPOINT],
                                sizeof notes->remark[PP_REMARK_CHECKPOINT]);
}

pp_status pp_row_create(const struct pp_predictor *p, const struct pp_prediction *prediction, struct pp_row *out)
{
    const struct pp_job *job = prediction->job;
    const int64_t process = pp_process_most_bytes(job, &prediction->process, p->data_bytes);
    struct pp_row row = {.json = pp_job_row(json_object(), job),
                         .ms_per_batch = (double)prediction->result.batch_ns / 1e6,
                         .value = pp_prediction_value(p, prediction)};
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)job->train->hash);
    set_workers(&row, job->train);
    set_times(&row.json, job->train, &prediction->result);
    set(&row.json, "tensor_ms", ms(tensor_ns(job->train, prediction->cost)));
    pp_status status = set_memory(&row, p, prediction);
    set(&row.json, "peak_microbatches", pp_json_reals(job->train->peak_microbatches, job->train->ranks));
    set(&row.json, "tokens_per_s", if_any(pp_tokens_per_s(prediction)));
    set(&row.json, "mfu", if_any(pp_mfu(p, prediction)));
    set_spending(&row.json, p, prediction);
    set(&row.json, "process_bytes", process > 0 ? json_integer(process) : json_null());
    set(&row.json, "tasks", json_integer(job->train->ntasks));
    set_source(&row, p, prediction);
    set(&row.json, "parameters", job->model ? json_integer(job->model->parameters) : json_null());
    set(&row.json, "plan", json_string(hash));
    set(&row.json, "options", pp_row_options(row.json, p->config, job->point.schedule));
    if (status == PP_OK) status = make_notes(p, prediction, &row.notes);
    if (status == PP_OK && !row.json) status = pp_fail(PP_NOMEM, "cannot allocate the results of a configuration");
    if (status != PP_OK) pp_row_free(&row);
    *out = row;
    return status;
}

pp_status pp_row_set_target(struct pp_row *row, int target, const char *machine)
{
    row->target = target;
    set(&row->json, "for_machine", json_string(machine));
    return row->json ? PP_OK : pp_fail(PP_NOMEM, "cannot allocate the name of a configuration's machine");
}

void pp_row_free(struct pp_row *row)
{
    json_decref(row->json);
    free(row->notes);
    *row = (struct pp_row){0};
}
