/* SPDX-License-Identifier: Apache-2.0
 *
 * ppprof: measures tasks, kernels and links on this machine, prints what it found and stores it in a database.
 */
#include <math.h>
#include <stdlib.h>

#include "core/base/affinity.h"
#include "core/base/cores.h"
#include "core/base/log.h"
#include "core/database/split_time.h"
#include "core/options/main.h"
#include "exec/agree.h"
#include "exec/carrier_choose.h"
#include "exec/data.h"
#include "exec/link_profile.h"
#include "exec/process_profile.h"
#include "exec/signals.h"
#include "exec/terms.h"
#include "kernels/backend.h"
#include "kernels/cpu/gemm.h"
#include "kernels/kernels.h"
#include "kernels/model.h"
#include "kernels/profile.h"
#include "kernels/profile_algorithms.h"
#include "kernels/profile_print.h"
#include "schedules/schedule.h"

static const struct pp_program_info info = {
    .tool = PP_PPPROF,
    .name = "ppprof",
    .summary = "measure what the tasks and links of a pipeline take on this machine",
    .operands = "",
    .description =
        "Times every task that the asked configurations consist of, as it runs in training: in the order of the "
        "schedule, over memory as large as in training, alone and with as many workers busy as will be. Times its "
        "kernels one by one, and the links between workers: latency, overheads, bandwidth by size, and all-reduce. "
        "Everything is printed and stored in a database (pp.db unless --db names another), from which ppsim "
        "predicts.\n\n"
        "Started alone it measures links between threads; under mpirun, with two processes or more, those between "
        "processes as well. Lists of schedules, tensor ranks, pieces of their sums, stages, virtual stages, stages of "
        "ZeRO and chunks are measured together, each task once for each schedule. Tasks of workers that share tensors "
        "(--tensor) are timed without their "
        "sums, which are as quick as those of gradients. --seconds is the time spent on each task under each load, or "
        "less where it has enough samples.",
    .examples = "ppprof\tmeasure the default configuration\n"
                "ppprof --schedule gpipe,1f1b --chunks 1,2,4,8\tall tasks of eight configurations\n"
                "mpirun -n 2 ppprof --chunks 4\tlinks between processes as well\n",
};

struct session {
    struct pp_config config;
    double *layer_ns; /* of the config */
    const struct pp_backend *backend;
    const struct pp_transport *transport;
    const struct pp_carrier *carrier; /* between devices; NULL: the transport */
    struct pp_processes processes;
    struct pp_profile *profile;
    struct pp_link_setup linking; /* how `links` are measured */
    struct pp_link_profile links;
    struct pp_db *db;             /* the first process's; else NULL */
    int64_t mpi_bytes, own_bytes; /* of this process's memory: MPI's, the profile's */
    int64_t run_id;
    bool started;  /* the transport */
    bool agreed;   /* all processes end with the same failure, and know it */
    int cores;     /* that the workers may use, `threads` for each worker */
    char *printed; /* the results */
    size_t printed_bytes;
};

/* Worker i on the i-th core; workers of several threads are left to the system to place. */
static pp_status pin(void *session, int worker)
{
    const struct session *s = session;
    if (s->config.threads == 1) pp_cores_pin(worker);
    return PP_OK;
}

static void widen(int64_t range[2], int64_t bytes)
{
    if (bytes > 0 && (range[0] == 0 || bytes < range[0])) range[0] = bytes;
    if (bytes > range[1]) range[1] = bytes;
}

/* Sums inside tasks are as quick as those of gradients. */
static void widen_by_sums(const struct pp_program *program, struct pp_link_setup *setup)
{
    for (int i = 0; i < program->ncalls; i++) widen(setup->gradient_bytes, pp_call_join(&program->calls[i]).bytes);
}

/* Smallest and largest message and sum of all configurations, and the most workers of a process. */
static pp_status find_sizes(struct session *s)
{
    struct pp_link_setup *setup = &s->linking;
    for (int i = 0; i < s->profile->npoints; i++) {
        struct pp_job *job;
        PP_TRY(pp_job_create(&s->config, &s->profile->points[i], &pp_schedules, &pp_model_ops, false, NULL, &job));
        int64_t row = pp_hidden_bytes(&job->model->shape, 1, s->config.tokens);
        int workers = pp_plan_workers(job->train) / s->processes.count;
        if (workers > setup->workers) setup->workers = workers;
        for (int m = 0; m < job->train->microbatches; m++) widen(setup->message_bytes, row * job->train->rows[m]);
        for (int k = 0; k < job->model->nstages; k++) widen(setup->gradient_bytes, job->model->stages[k].param_bytes);
        for (int c = 0; c < job->train->nclasses; c++) widen_by_sums(&job->phase[PP_TRAIN].programs[c], setup);
        pp_job_free(job);
    }
    return PP_OK;
}

/* A model as small as can be, for what a worker takes besides computing: a batch of one microbatch, and of many. */
static pp_status measure_worker(struct session *s)
{
    enum { MOST_ROWS = 64 };
    struct pp_config config = s->config;
    struct pp_point point = {
        .schedule = "gpipe", .ranks = 1, .virtual_stages = 1, .chunks = 1, .checkpoint = PP_CHECKPOINT_NEVER};
    struct pp_job *few = NULL, *many = NULL;
    config.replicas = 1;
    config.context_parallel = config.expert_parallel = (struct pp_ints){0};
    config.split = "uniform";
    config.rows = config.rows < 2 ? 2 : config.rows < MOST_ROWS ? config.rows : MOST_ROWS;
    pp_status status = pp_config_shrink_model(&config);
    if (status == PP_OK) status = pp_job_create(&config, &point, &pp_schedules, &pp_model_ops, false, NULL, &few);
    point.chunks = config.rows; /* one of each */
    if (status == PP_OK) status = pp_job_create(&config, &point, &pp_schedules, &pp_model_ops, false, NULL, &many);
    if (status == PP_OK) status = pp_link_profile_worker(&s->linking, few, many, &s->links);
    pp_job_free(few);
    pp_job_free(many);
    return status;
}

/* What a process takes besides arenas. Where the device has its own memory nothing is known of it. */
static pp_status measure_process(struct session *s)
{
    struct pp_process_setup setup = {.exec = {.config = s->config,
                                              .backend = s->backend,
                                              .model_ops = &pp_model_ops,
                                              .schedules = &pp_schedules,
                                              .init_tensor = pp_model_init_local,
                                              .transport = s->transport,
                                              .processes = s->processes},
                                     .chunks = s->config.rows,
                                     .mpi_bytes = s->mpi_bytes,
                                     .own_bytes = s->own_bytes};
    if (s->backend->queue) return PP_OK;
    for (int i = 0; i < s->profile->npoints; i++)
        if (s->profile->points[i].chunks < setup.chunks) setup.chunks = s->profile->points[i].chunks;
    pp_log_init(info.name, true); /* its runs are nothing to tell of */
    pp_status status = pp_process_profile(&setup, &s->links);
    pp_log_init(info.name, s->processes.index > 0);
    return status;
}

/* What the first process measures while the others sleep. */
static pp_status measure_alone(void *session)
{
    struct session *s = session;
    PP_TRY(measure_worker(s));
    return s->cores > 1 ? pp_link_profile_threads(&s->linking, &s->links) : PP_OK;
}

static pp_status measure_links(struct session *s)
{
    s->linking = (struct pp_link_setup){.backend = s->backend,
                                        .carrier = s->carrier,
                                        .config = &s->config,
                                        .seconds = fmin(s->config.seconds, 0.05),
                                        .pin = pin,
                                        .pin_arg = s};
    PP_TRY(measure_process(s));
    PP_TRY(find_sizes(s));
    PP_TRY(pp_link_profile_alone(s->transport, &s->processes, measure_alone, s));
    if (s->processes.count == 1) return PP_OK;
    if (s->processes.on_host <= s->cores) PP_TRY(pin(s, s->processes.host_index));
    pp_status status = pp_link_profile_processes(&s->linking, s->transport, &s->processes, &s->links);
    pp_affinity_widen(); /* the tasks are measured by threads of this process */
    return status;
}

static pp_status store_links(struct session *s)
{
    for (int i = 0; i < s->links.nsamples; i++)
        PP_TRY(pp_db_add_sample(s->db, s->run_id, PP_SAMPLE_LINK, &s->links.samples[i]));
    for (int i = 0; i < s->links.nfigures; i++)
        PP_TRY(pp_db_add_link(s->db, s->run_id, s->links.figures[i].of, s->links.figures[i].name,
                              s->links.figures[i].value));
    return pp_db_flush(s->db);
}

static const char *path_of(const struct session *s) { return s->config.db ? s->config.db : PP_USUAL_DB; }

static pp_status begin_run(struct session *s)
{
    struct pp_device *device;
    struct pp_device_spec spec = pp_profile_device(&s->config, 0, 1);
    PP_TRY(s->backend->open(&spec, &device));
    pp_status status = pp_profile_use(s->backend, device);
    struct pp_run run = {
        .tool = "ppprof",
        .device = s->backend->name,
        .device_text = s->backend->describe(device),
        .transport = s->carrier ? s->carrier->name : s->transport->name,
        .processes = s->processes.count,
        .cores = s->cores,
    };
    pp_info("%s; %d core%s; %d task shapes of %d configuration%s", run.device_text, s->cores, pp_plural(s->cores),
            s->profile->nshapes, s->profile->npoints, pp_plural(s->profile->npoints));
    if (status == PP_OK) status = pp_db_run_begin(s->db, &run, &s->config, NULL, &s->run_id);
    s->backend->close(device);
    return status;
}

static pp_status measure_and_store(struct session *s)
{
    PP_TRY(store_links(s));
    pp_status measured = pp_profile_run(s->profile);
    if (measured != PP_OK && measured != PP_INTERRUPTED) return measured;
    PP_TRY(pp_profile_store(s->profile, s->db, s->run_id));
    if (measured == PP_INTERRUPTED && pp_profile_shapes_timed(s->profile) == 0)
        return pp_fail(measured, "profiling was interrupted before any task was timed: %s has figures of links alone",
                       path_of(s));
    if (measured == PP_INTERRUPTED)
        return pp_fail(measured,
                       "profiling was interrupted: the times of %d of %d task shapes are in %s, and predictions use "
                       "those that no complete profile there has, however few samples they are of",
                       pp_profile_shapes_timed(s->profile), s->profile->nshapes, path_of(s));
    FILE *out = open_memstream(&s->printed, &s->printed_bytes);
    pp_status printed = out ? pp_profile_print(out, s->config.format, s->profile, &s->links) : PP_OK;
    if (!out || fclose(out) != 0) return pp_fail(PP_NOMEM, "there is not enough memory to print the results");
    return printed;
}

/* Once they are stored, so that a run that fails prints nothing. */
static pp_status print_results(const struct session *s)
{
    fwrite(s->printed, 1, s->printed_bytes, stdout);
    return pp_flush_output();
}

/* As ppexec takes it: on all workers at once, if there were any. */
static double reference_ns(struct pp_profile *profile)
{
    for (int i = PP_PROFILE_DURING; i >= PP_PROFILE_BEFORE; i--)
        if (profile->reference[i].n > 0) return (double)pp_times_quantiles(&profile->reference[i]).median_ns;
    return NAN;
}

static pp_status end_run(struct session *s, pp_status status)
{
    struct pp_run_result result = pp_result_none;
    char text[PP_MESSAGE_BYTES + sizeof "failed: "];
    result.reference_ns = reference_ns(s->profile);
    snprintf(text, sizeof text, "failed: %s", pp_message());
    result.status = status == PP_OK ? "ok" : status == PP_INTERRUPTED ? "interrupted" : text;
    return pp_db_run_end(s->db, s->run_id, &result);
}

/* What the first process does while the others rest. */
static pp_status record(void *arg)
{
    struct session *s = arg;
    pp_status status = begin_run(s);
    if (status == PP_OK) {
        struct pp_failure failure;
        status = pp_keep(&failure, measure_and_store(s));
        const pp_status ended = end_run(s, status);
        status = status == PP_OK ? ended : pp_fail_again(&failure);
    }
    status = pp_db_close_after(s->db, status);
    s->db = NULL;
    if (status == PP_OK) status = print_results(s);
    if (status != PP_OK) return status;
    char remark[256];
    if (pp_taken_remark(pp_profile_taken(s->profile), "ppprof", remark, sizeof remark)) pp_warn("%s", remark);
    pp_info("stored in %s", path_of(s));
    return PP_OK;
}

static pp_status prepare(struct session *s)
{
    PP_TRY(pp_signals_catch());
    if (s->config.blas_core) pp_gemm_want_core(s->config.blas_core);
    PP_TRY(pp_backend_find(s->config.device, &s->backend));
    if (s->backend->waits)
        return pp_fail(PP_USAGE, "--device %s takes the times it is given: there is nothing to measure",
                       s->backend->name);
    PP_TRY(pp_backend_check_algorithms(s->backend, s->config.algorithms));
    PP_TRY(pp_carrier_check(&s->config, s->backend, &s->processes));
    pp_config_found_device(&s->config, s->backend->name);
    s->config.device = s->backend->name;
    PP_TRY(pp_data_set_vocabulary(&s->config));
    PP_TRY(pp_split_time(&s->config, &pp_schedules, &pp_model_ops, s->backend->name, NULL, &s->layer_ns));
    s->config.layer_ns = s->layer_ns;
    pp_affinity_widen();
    s->cores = pp_cores_count();
    return PP_OK;
}

static pp_status make_profile(struct session *s)
{
    int at_once = s->cores / s->config.threads;
    struct pp_profile_setup setup = {
        .config = &s->config,
        .schedules = &pp_schedules,
        .ops = &pp_model_ops,
        .backend = s->backend,
        .cores = at_once > 0 ? at_once : 1,
        .pin = pin,
        .pin_arg = s,
        .interrupted = pp_signals_caught,
        .rests = s->processes.index > 0,
    };
    const int64_t before = pp_process_resident_bytes();
    PP_TRY(pp_profile_create(&setup, &s->profile));
    pp_alloc_give_back();
    s->own_bytes = pp_process_resident_bytes() - before;
    return PP_OK;
}

/* Everything else is measured with what this chooses. The first process does it while the others rest. */
static pp_status choose_algorithms(void *arg)
{
    const struct session *s = arg;
    return pp_profile_algorithms(s->profile, s->config.algorithms);
}

/* What is not PP_USAGE may be of this process alone: it does not wait for the others. */
static pp_status agree(struct session *s, pp_status status)
{
    struct pp_terms *terms;
    if (status != PP_OK && status != PP_USAGE) return status;
    PP_TRY(PP_NEW(&terms, 1));
    if (status == PP_OK) pp_terms_add_options(&s->config, PP_PPPROF, terms);
    status = pp_agree(s->transport, &s->processes, status, terms);
    s->agreed = status == PP_USAGE || status == PP_INPUT;
    free(terms);
    return status;
}

static pp_status measure(struct session *s)
{
    PP_TRY(agree(s, prepare(s)));
    PP_TRY(agree(s, pp_carrier_choose(&s->config, s->backend, s->transport, &s->processes, 1, &s->carrier)));
    PP_TRY(agree(s, make_profile(s)));
    if (s->config.algorithms) PP_TRY(pp_link_profile_alone(s->transport, &s->processes, choose_algorithms, s));
    /* Before anything is measured: a process that is measured has it open, as ppexec's would. */
    if (s->processes.index == 0) {
        PP_TRY(pp_db_open(path_of(s), PP_DB_WRITE, &s->db));
        pp_db_hurry(s->db, pp_signals_caught);
    }
    pp_status status = measure_links(s);
    if (status == PP_INTERRUPTED)
        return pp_fail(status, "interrupted while links were measured, before tasks: nothing was stored");
    if (status != PP_OK) return status;
    return pp_link_profile_alone(s->transport, &s->processes, record, s);
}

static pp_status run(void *session, const char *operand)
{
    struct session *s = session;
    (void)operand;
    pp_alloc_keep_nothing();
    const int64_t before = pp_process_resident_bytes();
    PP_TRY(pp_transport_start(s->config.transport, &s->transport, &s->processes));
    s->started = true;
    if (s->processes.launched) s->mpi_bytes = pp_process_resident_bytes() - before;
    pp_log_init(info.name, s->processes.index > 0);
    pp_config_remarks(&s->config);
    const pp_status status = measure(s);
    return pp_db_close_after(s->db, status);
}

static void leave(void *session, pp_status status)
{
    struct session *s = session;
    pp_end_together(s->started ? s->transport : NULL, &s->processes, status, s->agreed);
    pp_profile_free(s->profile);
    free(s->layer_ns);
    free(s->printed);
}

int main(int argc, char **argv)
{
    static struct session session;
    const struct pp_listing listings[] = {{"schedules", NULL, pp_schedules.list},
                                          {"presets", NULL, pp_config_list_presets},
                                          {"devices", NULL, pp_backend_list},
                                          {0}};
    const struct pp_main program = {.info = &info,
                                    .listings = listings,
                                    .config = &session.config,
                                    .run = run,
                                    .leave = leave,
                                    .session = &session};
    return pp_main(&program, argc, argv);
}
