/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/process_profile.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "core/job/process.h"
#include "core/plan/movers.h"

/* BLAS cuts larger matrices into blocks, whose buffers are then all there. */
enum { MOST_WIDTH = 512, MOST_INNER = 2048, MOST_WORDS = 2048, STEPS = 2 };
/* Microbatches are as large as they will be, but not as many: gpipe keeps all of them. */
enum { MOST_CHUNKS = 8 };

int64_t pp_process_resident_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static int at_most(int value, int limit) { return value < limit ? value : limit; }

/* The wanted model, as small as it can be while its products take the buffers that they will. */
static void shrink(struct pp_config *config, int layers, int *chunks)
{
    struct pp_shape *model = &config->model;
    const int rows = (config->rows + *chunks - 1) / *chunks; /* of a microbatch */
    *chunks = at_most(*chunks, MOST_CHUNKS);
    config->rows = at_most(config->rows, rows * *chunks);
    if (model->d_model > MOST_WIDTH || model->kv_lora_rank || (int64_t)model->heads * model->head_dim > MOST_WIDTH) {
        model->heads = 1;
        model->kv_heads = model->head_dim = model->rotary_dim = model->kv_lora_rank = 0;
    }
    model->d_model = at_most(model->d_model, MOST_WIDTH);
    model->d_ff = at_most(model->d_ff, MOST_INNER);
    model->shared_ff = at_most(model->shared_ff, MOST_INNER);
    model->experts = at_most(model->experts, model->experts_per_token);
    model->expert_groups = model->groups_per_token = 1;
    model->dense_layers = 0; /* all layers have experts, if any has */
    model->experts_every = 1;
    model->vocab = at_most(model->vocab, MOST_WORDS);
    model->layers = layers;
    config->replicas = 1;
    config->context_parallel = config->expert_parallel = (struct pp_ints){0};
    config->epochs = config->trace_steps = 1;
    config->split = "uniform";
    config->max_batches = STEPS;
    config->no_eval = true;
    config->data = config->init = config->save = NULL;
    const int64_t words = (int64_t)config->rows * (config->tokens + 1) * STEPS;
    config->generated_tokens = words < INT32_MAX ? (int)words : INT32_MAX;
    config->resume = false;
    config->save_every = 0;
}

/* Bytes of a process besides what its job says. */
struct rest {
    double first, others; /* the first process; the largest of the others, 0: there are none */
};

static pp_status rest_of(const struct pp_exec *exec, const struct pp_point *point, const struct pp_result *result,
                         struct rest *rest)
{
    struct pp_job *job;
    const int each = result->workers / exec->processes.count;
    PP_TRY(pp_job_create(&exec->config, point, exec->schedules, exec->model_ops, false, NULL, &job));
    const int64_t joined = pp_process_joined_bytes(job);
    for (int i = 0; i < result->workers; i += each) {
        int64_t known = pp_process_table_bytes(job, i == 0) + pp_data_bytes(exec->data);
        for (int worker = i; worker < i + each; worker++) known += pp_process_worker_bytes(job, joined, worker);
        const double bytes = (double)(result->process_bytes[i] - known);
        if (i == 0)
            rest->first = bytes;
        else
            rest->others = fmax(rest->others, bytes);
    }
    pp_job_free(job);
    return PP_OK;
}

/* Runs a job of so many workers. *rest is set in the first process. After a failure threads that could not be ended may
 * still use what they were given: it stays. */
static pp_status measure(const struct pp_process_setup *setup, const struct pp_transport *transport,
                         const struct pp_processes *processes, int workers, struct rest *rest)
{
    static struct pp_exec exec;
    struct pp_point point = {.schedule = "gpipe",
                             .ranks = workers,
                             .virtual_stages = 1,
                             .chunks = setup->chunks,
                             .checkpoint = setup->exec.config.checkpoint.v[0],
                             .zero = setup->exec.config.zero.v[0]};
    struct pp_result result = {0};
    exec = setup->exec;
    exec.transport = transport;
    exec.processes = *processes;
    shrink(&exec.config, workers > 2 ? workers : 2, &point.chunks);
    PP_TRY(pp_data_load(&exec.config, &exec.data));
    pp_status status = pp_exec_point(&exec, &point, &result);
    if (status == PP_OK && processes->index == 0) status = rest_of(&exec, &point, &result, rest);
    pp_result_free(&result);
    if (status == PP_OK) pp_data_free(exec.data);
    return status;
}

struct threads {
    const struct pp_process_setup *setup;
    struct rest one, two; /* workers */
};

static pp_status measure_threads(void *arg)
{
    const struct pp_processes alone = {.count = 1, .on_host = 1, .hosts = 1};
    struct threads *t = arg;
    PP_TRY(measure(t->setup, &pp_transport_inproc, &alone, 1, &t->one));
    return measure(t->setup, &pp_transport_inproc, &alone, 2, &t->two);
}

pp_status pp_process_profile(const struct pp_process_setup *setup, struct pp_link_profile *out)
{
    const struct pp_exec *exec = &setup->exec;
    struct threads threads = {.setup = setup};
    struct rest remote = {0};
    PP_TRY(pp_link_profile_alone(exec->transport, &exec->processes, measure_threads, &threads));
    if (exec->processes.count > 1)
        PP_TRY(measure(setup, exec->transport, &exec->processes, exec->processes.count, &remote));
    if (exec->processes.index != 0 || threads.one.first <= 0) return PP_OK; /* the system does not tell */
    const char *inproc = pp_mover_find(pp_transport_inproc.name, PP_OF_HOSTS)->process;
    const double worker = fmax(0, threads.two.first - threads.one.first), own = (double)setup->own_bytes,
                 alone = fmax(0, threads.one.first - worker - own - (double)setup->mpi_bytes);
    PP_TRY(pp_link_profile_add(out, inproc, "base_bytes", alone));
    PP_TRY(pp_link_profile_add(out, inproc, "worker_bytes", worker));
    if (exec->processes.count == 1) return PP_OK;
    const char *remote_name = pp_mover_find(exec->transport->name, PP_OF_HOSTS)->process;
    /* The second thread has left its part in the first process. */
    PP_TRY(pp_link_profile_add(out, remote_name, "base_bytes", fmax(0, remote.others - worker - own)));
    PP_TRY(pp_link_profile_add(out, remote_name, "worker_bytes", worker));
    return pp_link_profile_add(out, remote_name, "first_bytes", fmax(0, remote.first - worker - remote.others));
}
