/* SPDX-License-Identifier: Apache-2.0
 *
 * A database as ppsim and ppexec would write it, from made-up times: a real plan, events from a sweep over its tasks,
 * and a measurement that differs from the prediction by known factors. For tests of the database and of ppreport.
 */
#ifndef PP_TESTS_SYNTHETIC_DB_H
#define PP_TESTS_SYNTHETIC_DB_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/database/db.h"
#include "schedules/builder.h"
#include "schedules/schedule.h"

struct synthetic {
    struct pp_config config;
    struct pp_model model;
    struct pp_stage stages[64];
    struct pp_job job;
};

/* One configuration to write: what is predicted is slower than what is measured by `error` (0.05: predicted = 1.05 *
 * measured). */
struct synthetic_case {
    const char *schedule;
    int stages, virtual_stages, chunks, replicas, checkpoint;
    double error;
    int tensor; /* 0: 1 */
    bool tied;
};

/* The first failure ends the program: there is nothing to test then. */
static void must(pp_status status)
{
    if (status == PP_OK) return;
    fprintf(stderr, "synthetic database: %s\n", pp_message());
    exit(1);
}

static void synthetic_act_bytes(const struct pp_model *model, int stage, const struct pp_program_spec *spec,
                                int64_t bytes[PP_ACT_PARTS])
{
    (void)model, (void)stage;
    bytes[PP_ACT_LAYERS] = (int64_t)spec->slot_rows * spec->seq * 40000;
    bytes[PP_ACT_MORE] = bytes[PP_ACT_ENDS] = 0;
}

static const struct pp_model_ops synthetic_ops = {.act_bytes = synthetic_act_bytes};

static void synthetic_open(struct synthetic *s, const struct synthetic_case *c)
{
    char program[] = "ppexec", *argv[] = {program, NULL};
    int rows[64];
    memset(s, 0, sizeof *s);
    must(pp_config_parse(PP_PPEXEC, 1, argv, &s->config, NULL));
    struct pp_plan_spec spec = {.schedule = c->schedule,
                                .ranks = c->stages,
                                .virtual_stages = c->virtual_stages,
                                .microbatches = pp_chunk_rows(s->config.rows, c->chunks, rows),
                                .rows = rows,
                                .replicas = c->replicas,
                                .tensor = c->tensor,
                                .checkpoint = c->checkpoint,
                                .recv_buffers = 2,
                                .training = true,
                                .optimizer = true,
                                .clip = true,
                                .tied = c->tied};
    must(pp_plan_build(&spec, &s->job.train));
    s->model = (struct pp_model){.nstages = s->job.train->stages, .stages = s->stages, .parameters = 12025582};
    s->model.shape.d_model = s->config.model.d_model;
    s->job.config = &s->config;
    s->job.model_ops = &synthetic_ops;
    s->job.model = &s->model;
    s->job.point = (struct pp_point){c->schedule, c->stages, c->virtual_stages, c->chunks, .tensor = c->tensor};
    s->job.phase[PP_TRAIN] = (struct pp_phase){.plan = s->job.train, .seq = s->config.tokens};
}

static void synthetic_close(struct synthetic *s) { pp_plan_free(s->job.train); }

/* Made-up length of a task, before noise. */
static int64_t synthetic_ns(const struct pp_plan *plan, const struct pp_task *task)
{
    static const int64_t per_row[PP_KINDS] = {
        [PP_F] = 2000000, [PP_B] = 4000000,     [PP_I] = 2000000,    [PP_W] = 2000000,
        [PP_R] = 2000000, [PP_XFER_F] = 100000, [PP_XFER_B] = 100000};
    static const int64_t fixed[PP_KINDS] = {[PP_NORM] = 1500000,
                                            [PP_STEP] = 6000000,
                                            [PP_REDUCE_GRAD] = 8000000,
                                            [PP_NORM_ALL] = 200000,
                                            [PP_REDUCE_TIED] = 3000000};
    int rows = task->microbatch >= 0 ? plan->rows[task->microbatch] : 0;
    return fixed[task->kind] + per_row[task->kind] * rows / plan->virtual_stages;
}

static int64_t synthetic_ready(const struct pp_task *task, const int64_t *end)
{
    int64_t ready = 0;
    int32_t first = task->dep[0], last = task->dep[1];
    if (task->flags & PP_TASK_DEP_RANGE) {
        for (int32_t i = first; i <= last; i++) ready = end[i] > ready ? end[i] : ready;
        return ready;
    }
    for (int k = 0; k < 2; k++)
        if (task->dep[k] >= 0 && end[task->dep[k]] > ready) ready = end[task->dep[k]];
    return ready;
}

static void synthetic_event(struct pp_trace *trace, int worker, int32_t task, int side, int64_t posted, int64_t start,
                            int64_t end)
{
    struct pp_event event = {
        .worker = worker, .task = task, .side = side, .posted_ns = posted, .start_ns = start, .end_ns = end};
    must(pp_trace_add(trace, &event));
}

/* Events of one step of one replica, of one worker of each rank; every task takes `factor` times its made-up length,
 * varied by `noise`. Returns the step's end. */
static int64_t synthetic_step(const struct pp_plan *plan, int step, int replica, int tensor_rank, double factor,
                              double noise, int64_t origin, struct pp_trace *trace)
{
    int64_t *end = calloc((size_t)plan->ntasks, sizeof *end),
            *lane_free = calloc((size_t)plan->nlanes, sizeof *lane_free);
    int64_t last = 0, before = trace->nevents;
    for (int32_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *task = &plan->tasks[i];
        const struct pp_lane *lane = &plan->lanes[task->lane];
        int64_t ready = synthetic_ready(task, end),
                start = ready > lane_free[task->lane] ? ready : lane_free[task->lane];
        double wobble = 1 + noise * sin(12.9898 * i + 78.233 * step + 4.1 * replica + 1.7 * tensor_rank);
        end[i] = lane_free[task->lane] = start + (int64_t)((double)synthetic_ns(plan, task) * factor * wobble);
        if (lane->kind == PP_LANE_CHANNEL) {
            synthetic_event(trace, pp_worker_at(plan, replica, lane->src, tensor_rank), i, PP_SIDE_SEND, start, start,
                            end[i]);
            synthetic_event(trace, pp_worker_at(plan, replica, lane->dst, tensor_rank), i, PP_SIDE_RECV, start / 2,
                            start, end[i]);
        } else {
            for (int k = 0; k < pp_lane_ranks(plan, lane); k++)
                synthetic_event(trace, pp_worker_at(plan, replica, pp_lane_rank(lane, k), tensor_rank), i, PP_SIDE_RUN,
                                ready, start, end[i]);
        }
        if (end[i] > last) last = end[i];
    }
    for (int64_t e = before; e < trace->nevents; e++) {
        struct pp_event *event = &trace->events[e];
        event->step = step;
        event->posted_ns += origin, event->start_ns += origin, event->end_ns += origin;
    }
    free(end);
    free(lane_free);
    return last;
}

/* Of all workers; a prediction has those of one replica. */
static inline void synthetic_memory(struct pp_db *db, int64_t run, const struct pp_plan *plan, bool predicted)
{
    for (int w = 0; w < plan->ranks * plan->members * (predicted ? 1 : plan->replicas); w++) {
        must(pp_db_add_memory(db, run, w, "arena", 90000000 + 1000000 * pp_worker_rank(plan, w)));
        must(pp_db_add_memory(db, run, w, "parameters", 30000000));
        must(pp_db_add_memory(db, run, w, "gradients", 30000000));
        must(pp_db_add_memory(db, run, w, "process", predicted ? 137000000 : 140000000));
    }
}

/* What ppsim or ppexec would record; a prediction has events of one worker of each rank. */
static inline int64_t synthetic_run(struct pp_db *db, const struct synthetic_case *c, bool predicted, int64_t *step_ns)
{
    struct synthetic s;
    struct pp_trace trace = {0};
    int64_t run, origin = 0, ns = 0;
    int steps = predicted ? 1 : 3;
    double factor = predicted ? 1 + c->error : 1;
    synthetic_open(&s, c);
    const struct pp_plan *plan = s.job.train;
    struct pp_run info = {
        predicted ? "ppsim" : "ppexec", "cpu", "synthetic", "inproc", predicted ? "profile" : NULL, 1, 2};
    must(pp_db_run_begin(db, &info, &s.config, &s.job, &run));
    must(pp_db_add_tasks(db, &s.job, plan));
    for (int step = 0; step < steps; step++) {
        int64_t longest = 0; /* of all workers, which begin the next step together */
        for (int i = 0; i < (predicted ? 1 : plan->replicas * plan->members); i++) {
            ns = synthetic_step(plan, 20 + step, i / plan->members, i % plan->members, factor, predicted ? 0 : 0.04,
                                origin, &trace);
            if (ns > longest) longest = ns;
        }
        origin += longest;
    }
    must(pp_db_add_events(db, run, plan, &trace));
    for (int step = 0; !predicted && step < 23; step++)
        must(pp_db_add_step(
            db, run,
            &(struct pp_db_step){
                .step = step, .ns = ns + (step % 5 - 2) * ns / 100, .tokens = 700, .loss = 5.0, .traced = step >= 20}));
    struct pp_metrics metrics;
    must(pp_trace_metrics(plan, &trace, 0, 20, 1, &metrics, NULL));
    synthetic_memory(db, run, plan, predicted);
    struct pp_run_result result = {.ms_per_batch = (double)ns / 1e6,
                                   .bubble = metrics.bubble,
                                   .makespan_ms = (double)metrics.makespan_ns / 1e6,
                                   .test_loss = NAN,
                                   .lower_bound_ms = NAN,
                                   .status = "ok"};
    must(pp_db_run_end(db, run, &result));
    if (step_ns) *step_ns = ns;
    pp_trace_clear(&trace);
    synthetic_close(&s);
    return run;
}

#endif
