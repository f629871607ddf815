/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/store.h"

#include <math.h>
#include <stdio.h>

static pp_status add_memory(struct pp_db *db, int64_t run, const struct pp_predictor *p,
                            const struct pp_prediction *prediction)
{
    const struct pp_job *job = prediction->job;
    const struct pp_layout *layout = job->layout;
    for (int worker = 0; layout && worker < pp_plan_workers(job->train); worker++)
        PP_TRY(pp_db_add_worker_memory(db, run, worker, layout,
                                       pp_process_bytes(job, &prediction->process, p->data_bytes, worker)));
    return PP_OK;
}

static double ms(int64_t ns) { return (double)ns / 1e6; }

pp_status pp_store_prediction(struct pp_db *db, const struct pp_predictor *p, const struct pp_prediction *prediction)
{
    const struct pp_job *job = prediction->job;
    const struct pp_sim_result *r = &prediction->result;
    const struct pp_cost *cost = prediction->cost;
    char about[192];
    if (p->config->times)
        snprintf(about, sizeof about, "times %s", p->config->times);
    else if (cost->source == PP_COST_MACHINE)
        snprintf(about, sizeof about, "%s: %s", p->machine.name, p->machine.summary);
    else
        snprintf(about, sizeof about, "profile");
    const struct pp_run run = {.tool = "ppsim",
                               .device = pp_config_machine(p->config) ? p->machine.name : p->config->device,
                               .device_text = about,
                               .transport =
                                   prediction->origin.transport ? prediction->origin.transport : p->config->transport,
                               .cost_source = pp_cost_source_names[cost->source],
                               .processes = 1,
                               .cores = cost->cores};
    const struct pp_run_result figures = {.ms_per_batch = ms(r->batch_ns),
                                          .makespan_ms = ms(r->metrics.makespan_ns),
                                          .span_ms = ms(r->metrics.span_ns),
                                          .bubble = r->metrics.bubble,
                                          .bubble_span = r->metrics.bubble_span,
                                          .lower_bound_ms = ms(r->lower_bound_ns),
                                          .test_loss = NAN,
                                          .trace_overhead = NAN,
                                          .reference_ns = NAN,
                                          .status = "ok"};
    int64_t id;
    PP_TRY(pp_db_run_begin(db, &run, p->config, job, &id));
    PP_TRY(pp_db_add_tasks(db, job, job->train));
    PP_TRY(pp_db_add_events(db, id, job->train, &r->trace));
    PP_TRY(add_memory(db, id, p, prediction));
    return pp_db_run_end(db, id, &figures);
}
