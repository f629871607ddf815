/* SPDX-License-Identifier: Apache-2.0
 *
 * ppexec: trains a Transformer in a pipeline, for real, and measures it.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/database/split_time.h"
#include "core/job/points_file.h"
#include "core/options/main.h"
#include "exec/agree.h"
#include "exec/carrier_choose.h"
#include "exec/exec.h"
#include "exec/place.h"
#include "exec/signals.h"
#include "exec/terms.h"
#include "kernels/backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/cost_waits.h"

static const struct pp_program_info info = {
    .tool = PP_PPEXEC,
    .name = "ppexec",
    .summary = "train a Transformer in a pipeline and measure it",
    .operands = "",
    .description =
        "Trains the model stage by stage on several workers: threads of one process, or the processes of "
        "mpirun, or both. Prints the "
        "time of a batch, the idle share, memory and losses; what goes on is told on standard error. A list "
        "of schedules, stages, "
        "tensor ranks, pieces of their sums, virtual stages, stages of ZeRO, chunks or checkpoint modes runs each in "
        "turn, always from the same weights; --points has a file name them one by one.\n\n"
        "--stages times --tensor times --replicas workers are needed. Alone, ppexec runs them as threads; under mpirun "
        "they are divided over the "
        "processes, whose number must divide theirs. The last --trace-steps steps are recorded task by task "
        "in the database (--db).\n\n"
        "SIGINT, SIGTERM and SIGHUP end the run, unless it was started to ignore them; what was recorded until "
        "then stays in the database. With "
        "--save-every a run that ended, however it did, goes on from its last checkpoint when the same "
        "command is given again with --resume; with other options, such as --lr or --replicas, --resume-changed "
        "does.",
    .examples =
        "ppexec --max-batches 20\ton generated text, with two threads\n"
        "ppexec --schedule gpipe,1f1b --chunks 1,2,4,10 --max-batches 20 --db pp.db\tms/batch of a sweep\n"
        "mpirun -n 2 ppexec --data wikitext-2 --schedule 1f1b --save best.safetensors\ttwo processes, real text\n"
        "ppexec --data wikitext-2 --save best.safetensors --save-every 500 --resume\tbegin, or go on where it ended\n"
        "ppexec --preset lab\tconstant sequences: the loss falls towards 0\n"};

struct session {
    struct pp_exec exec;
    struct pp_points_file file; /* --points */
    double *layer_ns;           /* of exec.config */
    struct pp_point *points;
    struct pp_result *results;
    int npoints, nresults;
    char measured[32]; /* a device that waits: as long as this one's profile in exec.profile says; else "" */
    bool started;      /* the transport */
};

static json_t *list_transports(void)
{
    json_t *rows = json_array();
    for (int i = 0; pp_transports[i]; i++)
        rows = pp_json_append(rows, pp_list_row(pp_transports[i]->name, pp_transports[i]->summary));
    return rows;
}

static json_t *list_carriers(void)
{
    json_t *rows = json_array();
    for (int i = 0; pp_carriers[i]; i++)
        rows = pp_json_append(rows, pp_list_row(pp_carriers[i]->name, pp_carriers[i]->summary));
    return rows;
}

/* How many workers this process has in a configuration; at least 1, also where the configuration is impossible. */
static int workers_of(const struct pp_exec *exec, const struct pp_point *point)
{
    if (pp_point_check(&exec->config, point) != PP_OK) return 1;
    const int all = (int)pp_point_workers(&exec->config, point);
    return all > exec->processes.count ? all / exec->processes.count : 1;
}

/* Workers of one process in the largest configuration. */
static int most_workers(const struct session *s)
{
    int most = 1;
    for (int i = 0; i < s->npoints; i++) {
        const int workers = workers_of(&s->exec, &s->points[i]);
        if (workers > most) most = workers;
    }
    return most;
}

/* The text for the header, from a device that is closed again: workers open their own. */
static pp_status describe_device(struct pp_exec *exec, int workers)
{
    struct pp_device *device;
    const struct pp_device_spec spec = pp_place_device(&exec->processes, &exec->config, workers, 0);
    PP_TRY(exec->backend->open(&spec, &device));
    snprintf(exec->device_text, sizeof exec->device_text, "%s", exec->backend->describe(device));
    exec->mixed = exec->backend->mixed && exec->backend->mixed(device);
    exec->backend->close(device);
    return PP_OK;
}

/* Every process reads them by itself. */
static pp_status set_waits(void *context, struct pp_job *job)
{
    const struct session *s = context;
    struct pp_cost_origin origin;
    char remark[256];
    PP_TRY(pp_waits_from_profile(job, s->exec.profile, s->measured, &origin));
    pp_info("times       of the newest profile of %s in %s", s->measured, s->exec.config.db);
    for (int i = 0; i < PP_COST_SOURCES; i++)
        if (pp_cost_source_words[i] && origin.from[i] > 0)
            pp_warn("%d of %d task shape%s %s (the first: %s)", origin.from[i], origin.classes,
                    pp_plural(origin.classes), pp_cost_source_words[i], origin.first[i]);
    if (origin.hop_missing) pp_warn("%s", pp_waits_hop_remark(&s->exec.config, s->measured, remark, sizeof remark));
    return PP_OK;
}

/* A device that waits takes the times of what was measured last, if none are given. */
static pp_status open_profile(struct session *s)
{
    struct pp_exec *exec = &s->exec;
    const char *path = exec->config.db;
    if (!exec->backend->waits || exec->config.times) return PP_OK;
    if (path && access(path, F_OK) == 0) PP_TRY(pp_db_open_updated(path, &s->exec.profile));
    pp_status status = pp_waits_choose(&exec->config, s->exec.profile, path, s->measured, sizeof s->measured);
    /* Wrong usage is what all processes see and end by. The file each sees by itself, perhaps on a disk of its own: who
     * lacks it must end the others. */
    if (status == PP_USAGE && path && exec->processes.count > 1) status = PP_INPUT;
    PP_TRY(status);
    exec->set_waits = set_waits;
    exec->set_waits_context = s;
    return PP_OK;
}

/* Durations are given where the device waits for them. */
static pp_status check_device(const struct pp_config *config, const struct pp_backend *backend)
{
    enum { LEAST_WIDTH = 4 }; /* a time fits into any message */
    if (!backend->waits && config->times)
        return pp_fail(PP_USAGE, "--times: device %s takes the time it needs; leave --times out, or use --device delay",
                       backend->name);
    PP_TRY(pp_backend_check_algorithms(backend, config->algorithms));
    if (!backend->waits) return PP_OK;
    if (config->save || config->init)
        return pp_fail(PP_USAGE, "--%s: device %s computes nothing, so weights stay as they are; leave --%s out",
                       config->save ? "save" : "init", backend->name, config->save ? "save" : "init");
    if (config->model.d_model < LEAST_WIDTH)
        return pp_fail(PP_USAGE, "--d-model %d: with --device %s messages carry a time; use at least %d",
                       config->model.d_model, backend->name, LEAST_WIDTH);
    return PP_OK;
}

static pp_status find_device(struct session *s)
{
    struct pp_exec *exec = &s->exec;
    struct pp_config *config = &exec->config;
    pp_place_process(&exec->processes, (int64_t)most_workers(s) * config->threads);
    PP_TRY(pp_signals_catch());
    pp_signals_end_at_once(exec->processes.count == 1); /* until the first plan is made (exec/point.c) */
    PP_TRY(pp_backend_find(config->device, &exec->backend));
    PP_TRY(check_device(config, exec->backend));
    PP_TRY(pp_carrier_check(config, exec->backend, &exec->processes));
    pp_config_found_device(config, exec->backend->name);
    return open_profile(s);
}

/* What follows the start of the transport. Processes that vote must all be there. */
static pp_status prepare_joined(struct session *s)
{
    struct pp_exec *exec = &s->exec;
    struct pp_config *config = &exec->config;
    const pp_status found = find_device(s);
    if (found != PP_OK && found != PP_USAGE) return found;
    PP_TRY(pp_agree_on_status(exec, found));
    PP_TRY(
        pp_carrier_choose(config, exec->backend, exec->transport, &exec->processes, most_workers(s), &exec->carrier));
    PP_TRY(pp_data_load(config, &exec->data));
    config->model.vocab = exec->data->vocabulary;
    PP_TRY(pp_split_time(config, &pp_schedules, &pp_model_ops, s->exec.profile ? s->measured : exec->backend->name,
                         NULL, &s->layer_ns));
    config->layer_ns = s->layer_ns;
    if (!config->db || exec->processes.index > 0) return PP_OK;
    PP_TRY(pp_db_open(config->db, PP_DB_WRITE, &exec->db));
    pp_db_hurry(exec->db, pp_signals_caught);
    return PP_OK;
}

static pp_status find_points(struct session *s)
{
    const struct pp_config *config = &s->exec.config;
    if (!config->points) return pp_points(config, &pp_schedules, &s->points, &s->npoints);
    if (pp_config_splits_by_time(config))
        return pp_fail(PP_USAGE, "--split time is by the times of one configuration: with --points give the layers of "
                                 "each stage, such as --split 3,5");
    PP_TRY(pp_points_file_read(config, info.tool, &pp_schedules, &s->file));
    s->points = s->file.points;
    s->npoints = s->file.n;
    s->file.points = NULL;
    return PP_OK;
}

static pp_status prepare(struct session *s)
{
    struct pp_exec *exec = &s->exec;
    struct pp_config *config = &exec->config;
    exec->schedules = &pp_schedules;
    exec->model_ops = &pp_model_ops;
    exec->init_tensor = pp_model_init_local;
    PP_TRY(find_points(s));
    if (config->save && s->npoints > 1)
        return pp_fail(PP_USAGE, "--save: %d configurations would write one file; name one %s", s->npoints,
                       config->points ? "in the file of --points"
                                      : "schedule, --stages, --tensor, --overlap-tensor-sums, "
                                        "--overlap-expert-exchange, --virtual, --zero, --chunks and --checkpoint");
    PP_TRY(PP_NEW(&s->results, s->npoints));
    exec->sweeps = s->npoints > 1;
    pp_gemm_want_core(config->blas_core);
    PP_TRY(pp_transport_start(config->transport, &exec->transport, &exec->processes));
    s->started = true;
    pp_log_init(info.name, exec->processes.index != 0);
    pp_config_remarks(config->points ? pp_points_file_first(&s->file) : config);
    const pp_status status = prepare_joined(s);
    return status == PP_OK || status == PP_USAGE ? pp_agree_on_options(exec, s->points, s->npoints, status) : status;
}

/* Threads of one process: where all of them sum, each has a channel to each other one. */
static pp_status check_workers(const struct pp_exec *exec, const struct pp_point *point)
{
    enum { MOST = 1024 };
    const int workers = workers_of(exec, point);
    if (workers <= MOST) return PP_OK;
    return pp_fail(PP_USAGE,
                   "%d workers (stages x tensor x context parallel x replicas) would be threads of one process, which "
                   "can have %d; use fewer --stages, --tensor, --context-parallel or --replicas, or start more "
                   "processes with mpirun",
                   workers, MOST);
}

/* What there is of devices each process sees by itself. */
static pp_status check_point(struct pp_exec *exec, const struct pp_point *point)
{
    PP_TRY(pp_point_check(&exec->config, point));
    PP_TRY(check_workers(exec, point));
    const pp_status status = describe_device(exec, workers_of(exec, point));
    if (status != PP_OK && status != PP_USAGE) return status;
    PP_TRY(pp_agree_on_status(exec, status));
    return pp_compare_devices(exec);
}

/* Neither a failure nor a signal takes results away (but a signal that comes while a plan is made, exec/point.c): those
 * that are complete are printed before the failure is told. The configuration that failed may have a complete result,
 * too, if it had only to save its weights. With several processes results are printed in that case alone: otherwise the
 * launcher may end this process at any moment, and what is printed would be chance. left: configurations that were not
 * begun. */
static pp_status end_failed(struct session *s, pp_status status, int left)
{
    struct pp_failure failure;
    const bool itself = s->results[s->nresults].complete;
    const int complete = s->nresults + itself;
    if (s->exec.processes.count > 1 && !itself) return status;
    (void)pp_keep(&failure, status);
    if (left > 0) pp_warn("%d of %d configurations %s not begun", left, s->npoints, left == 1 ? "was" : "were");
    if (complete == 0) return pp_fail_again(&failure);
    pp_status printed = pp_results_print(s->results, complete, &s->exec.config, stdout);
    if (printed == PP_OK) printed = pp_flush_output(); /* the process may be aborted, together with others */
    if (printed != PP_OK) pp_warn("%s", pp_message());
    return pp_fail_again(&failure);
}

/* In a sweep the impossible configurations are left out. */
static pp_status train(struct session *s)
{
    PP_TRY(prepare(s));
    for (int i = 0; i < s->npoints; i++) {
        const struct pp_point *p = &s->points[i];
        char text[PP_POINT_TEXT];
        pp_status status = check_point(&s->exec, p);
        if (status == PP_OK) status = pp_exec_point(&s->exec, p, &s->results[s->nresults]);
        if (status == PP_USAGE && s->npoints > 1)
            pp_warn("left out %s: %s", pp_point_text(p, text), pp_message());
        else if (status != PP_OK)
            return end_failed(s, status, s->npoints - 1 - i);
        else
            s->nresults++;
    }
    if (s->nresults == 0) return pp_fail(PP_USAGE, "none of the %d configurations is possible", s->npoints);
    if (s->exec.processes.index != 0) return PP_OK;
    return pp_results_print(s->results, s->nresults, &s->exec.config, stdout);
}

static pp_status run(void *session, const char *operand)
{
    struct session *s = session;
    (void)operand;
    pp_alloc_keep_nothing();
    pp_status status = train(s);
    status = pp_db_close_after(s->exec.db, status);
    return pp_db_close_after(s->exec.profile, status);
}

static void release(struct session *s)
{
    /* Not nresults: the next one may be there in part, if the run failed. Those that were never begun are zeros. */
    for (int i = 0; s->results && i < s->npoints; i++) pp_result_free(&s->results[i]);
    free(s->results);
    free(s->points);
    pp_points_file_free(&s->file);
    pp_data_free(s->exec.data);
    free(s->layer_ns);
}

/* Wrong usage all processes see alike, and what they agreed on; what else failed may have failed in this one only. */
static void leave(void *session, pp_status status)
{
    struct session *s = session;
    const struct pp_exec *exec = &s->exec;
    pp_end_together(s->started ? exec->transport : NULL, &exec->processes, status, status == PP_USAGE || exec->agreed);
    release(s);
}

int main(int argc, char **argv)
{
    static struct session session;
    const struct pp_listing listings[] = {{"schedules", NULL, pp_schedules.list},
                                          {"presets", NULL, pp_config_list_presets},
                                          {"devices", NULL, pp_backend_list},
                                          {"transports", NULL, list_transports},
                                          {"carriers", "transports of GPU memory", list_carriers},
                                          {0}};
    const struct pp_main program = {.info = &info,
                                    .listings = listings,
                                    .config = &session.exec.config,
                                    .run = run,
                                    .leave = leave,
                                    .session = &session};
    return pp_main(&program, argc, argv);
}
