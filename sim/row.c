/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/job_row.h"
#include "core/job/rows.h"
#include "sim/block_memory.h"
#include "sim/output.h"
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

static json_t *fits(const struct pp_predictor *p, int64_t bytes)
{
    const int64_t limit = pp_predict_memory(p);
    return limit > 0 ? json_boolean(bytes <= limit) : json_null();
}

/* Of blocks that say how much they need. */
static pp_status set_block_memory(json_t **row, const struct pp_predictor *p, const struct pp_job *job)
{
    struct pp_block_memory memory;
    json_t *peak = json_array(), *kinds = json_object();
    int64_t most = 0;
    const int ranks = job->train->ranks;
    const pp_status status = pp_block_memory_find(job, &memory);
    for (int r = 0; r < ranks && status == PP_OK; r++) {
        const int64_t all = memory.state[r] + memory.kept[r];
        peak = pp_json_append(peak, json_integer(all));
        if (all > most) most = all;
    }
    if (status == PP_OK) kinds = pp_json_set(kinds, "state", pp_json_integers(memory.state, ranks));
    if (status == PP_OK) kinds = pp_json_set(kinds, "kept", pp_json_integers(memory.kept, ranks));
    pp_block_memory_free(&memory);
    set(row, "peak_bytes", peak);
    set(row, "device_bytes", json_integer(most));
    set(row, "memory_bytes", kinds);
    set(row, "fits", fits(p, most));
    return status;
}

static void set_memory(json_t **row, const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const struct pp_job *job = prediction->job;
    const struct pp_layout *layout = job->layout;
    const int64_t most = layout ? pp_device_bytes(job, prediction->cost->sharers, PP_ALL_BYTES) : 0;
    json_t *kinds = layout ? json_object() : json_null();
    for (int kind = 0; layout && kind < PP_BYTES_KINDS; kind++)
        kinds = pp_json_set(kinds, pp_memory_names[kind], bytes_by_rank(layout, kind));
    set(row, "peak_bytes", layout ? bytes_by_rank(layout, -1) : json_null());
    set(row, "device_bytes", layout ? json_integer(most) : json_null());
    set(row, "memory_bytes", kinds);
    set(row, "fits", layout ? fits(p, most) : json_null());
}

/* The source of links: the measured mover, or "machine"; NULL: there are no links, or their times are given. */
static const char *link_source(const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const struct pp_plan *plan = prediction->job->train;
    const struct pp_cost_origin *origin = &prediction->origin;
    if (p->config->times || p->waits || pp_plan_workers(plan) == 1) return NULL;
    return origin->transport && !origin->link_computed ? origin->transport : "machine";
}

static void set_source(json_t **row, const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const char *link = link_source(p, prediction);
    bool machine = prediction->cost->source == PP_COST_MACHINE || prediction->origin.link_computed;
    set(row, "cost_source", json_string(pp_cost_source_names[prediction->cost->source]));
    set(row, "machine", machine ? json_string(p->machine.name) : json_null());
    set(row, "host_order", json_string(p->config->host_order ? "replicas" : "pipeline"));
    set(row, "link_source", link ? json_string(link) : json_null());
    set(row, "interpolated", json_integer(prediction->origin.from[PP_COST_INTERPOLATED]));
    set(row, "scaled", json_integer(prediction->origin.from[PP_COST_SCALED]));
    set(row, "from_kernels", json_integer(prediction->origin.from[PP_COST_KERNELS]));
}

/* Days and cost of a training. */
static void set_spending(json_t **row, const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const double each = pp_cost_per_gtoken(p, prediction);
    const int64_t devices = pp_devices(p, prediction);
    set(row, "devices", devices > 0 ? json_integer(devices) : json_null());
    set(row, "train_days", if_any(pp_train_days(p, prediction)));
    set(row, "cost_per_gtoken", if_any(each));
    set(row, "train_cost", if_any(each * p->config->train_tokens / 1e9));
}

pp_status pp_row_create(const struct pp_predictor *p, const struct pp_prediction *prediction, json_t **out)
{
    const struct pp_job *job = prediction->job;
    const int64_t process = pp_process_most_bytes(job, &prediction->process, p->data_bytes);
    char hash[17];
    json_t *row = json_object();
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)job->train->hash);
    row = pp_job_row(row, job);
    set_times(&row, job->train, &prediction->result);
    set(&row, "tensor_ms", ms(tensor_ns(job->train, prediction->cost)));
    pp_status status = PP_OK;
    if (pp_block_memory_known(job))
        status = set_block_memory(&row, p, job);
    else
        set_memory(&row, p, prediction);
    set(&row, "peak_microbatches", pp_json_reals(job->train->peak_microbatches, job->train->ranks));
    set(&row, "tokens_per_s", if_any(pp_tokens_per_s(prediction)));
    set(&row, "mfu", if_any(pp_mfu(p, prediction)));
    set_spending(&row, p, prediction);
    set(&row, "process_bytes", process > 0 ? json_integer(process) : json_null());
    set(&row, "tasks", json_integer(job->train->ntasks));
    set_source(&row, p, prediction);
    set(&row, "parameters", job->model ? json_integer(job->model->parameters) : json_null());
    set(&row, "plan", json_string(hash));
    set(&row, "options", pp_row_options(row, p->config, job->point.schedule));
    if (status == PP_OK && !row) status = pp_fail(PP_NOMEM, "cannot allocate the results of a configuration");
    if (status != PP_OK) json_decref(row);
    *out = status == PP_OK ? row : NULL;
    return status;
}
