/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans, layout, programs and kernels without the executor: the tasks of a plan are run one after another in the
 * order of their ids (a legal order), over one arena per rank, and the loss and all gradients of the first batch are
 * compared with PyTorch's (tests/golden/train/). What fails here is not the fault of threads, messages or training
 * loop.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/job/job.h"
#include "exec/data.h"
#include "exec/weights.h"
#include "kernels/backend.h"
#include "kernels/model.h"
#include "schedules/schedule.h"

static const double tolerance = 1e-4;

/* A golden case and its shape on the command line. */
struct golden {
    const char *name;
    int most_stages;
    char *words[32];
};

static struct golden lab = {"lab", 2, {"test", "--preset", "lab", "--dropout", "0"}};
#define TEXT "--data", PP_TEST_FILES "/golden/text"
static struct golden lab8 = {
    "lab8", 8, {"test", "--preset", "lab", "--dropout", "0", "--layers", "8", "--rows", "7", "--chunks", "3", TEXT}};
static struct golden d36 = {"d36",
                            8,
                            {"test", "--d-model", "36", "--heads", "3", "--d-ff", "20", "--layers", "8", "--dropout",
                             "0", "--rows", "10", "--tokens", "6", "--chunks", "4", TEXT}};
static struct golden d60 = {"d60",
                            2,
                            {"test", "--d-model", "60", "--heads", "4", "--d-ff", "28", "--mask", "none", "--dropout",
                             "0", "--rows", "6", "--tokens", "11", "--chunks", "4", TEXT}};

static const char *golden_file(const struct golden *golden, const char *file, char *path, size_t size)
{
    snprintf(path, size, PP_TEST_FILES "/golden/train/%s/%s", golden->name, file);
    return path;
}

static double golden_loss(const struct golden *golden)
{
    char path[4096];
    json_t *text = json_load_file(golden_file(golden, "case.json", path, sizeof path), 0, NULL);
    double loss = json_real_value(json_object_get(text, "first_loss"));
    json_decref(text);
    return loss;
}

/* One configuration while it runs. */
struct run {
    struct pp_job *job;
    const struct pp_backend *backend;
    struct pp_device *device;
    char **arena; /* [ranks] */
    int32_t *tokens, *targets;
    double loss;
};

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != PP_OK) fail_msg("%s", pp_message());                                                             \
    } while (0)

static void *slot(const struct run *run, int rank, int32_t id)
{
    return id < 0 ? NULL : run->arena[rank] + run->job->layout->slot_offset[0][id];
}

static void compute(struct run *run, const struct pp_task *t)
{
    const struct pp_layout *layout = run->job->layout;
    const struct pp_plan *plan = run->job->train;
    const int rank = pp_task_rank(t), row = plan->first_row[t->microbatch], seq = run->job->config->tokens;
    double sum = 0;
    struct pp_frame frame = {.first_row = row,
                             .training = true,
                             .loss_scale = 1.0f / (float)(run->job->config->rows * seq),
                             .loss = t->kind == PP_F ? &sum : NULL};
    frame.base[PP_MEM_PARAM] = run->arena[rank] + layout->param_offset[t->stage];
    frame.base[PP_MEM_GRAD] = run->arena[rank] + layout->grad_offset[t->stage];
    for (int i = 0; i < PP_ACT_PARTS; i++) frame.base[PP_MEM_ACT + i] = slot(run, rank, plan->acts[t->act][i]);
    frame.base[PP_MEM_CKPT] = slot(run, rank, t->ckpt);
    frame.base[PP_MEM_IN] = slot(run, rank, t->in);
    frame.base[PP_MEM_OUT] = slot(run, rank, t->out);
    frame.base[PP_MEM_WORK] = run->arena[rank] + layout->work_offset[rank];
    frame.base[PP_MEM_TOKENS] = run->tokens + (size_t)row * (size_t)seq;
    frame.base[PP_MEM_TARGETS] = run->targets + (size_t)row * (size_t)seq;
    MUST(run->backend->run(run->device, &run->job->phase[PP_TRAIN].programs[t->cls], &frame, NULL, NULL));
    run->loss += sum;
}

static void transfer(struct run *run, const struct pp_task *t)
{
    const struct pp_plan *plan = run->job->train;
    const struct pp_lane *lane = &plan->lanes[t->lane];
    size_t floats =
        (size_t)plan->rows[t->microbatch] * (size_t)run->job->config->tokens * (size_t)run->job->config->model.d_model;
    memcpy(slot(run, lane->dst, t->out), slot(run, lane->src, t->in), floats * sizeof(float));
}

static void run_tasks(struct run *run)
{
    const struct pp_plan *plan = run->job->train;
    for (int64_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *t = &plan->tasks[i];
        if (t->kind == PP_XFER_F || t->kind == PP_XFER_B)
            transfer(run, t);
        else if (t->microbatch >= 0)
            compute(run, t);
    }
    run->loss /= run->job->config->rows * run->job->config->tokens;
}

/* The tensor's place in the arena of its rank: parameter or gradient. */
static float *tensor_at(const struct run *run, int tensor, bool gradient)
{
    const struct pp_tensor *t = &run->job->model->tensors[tensor];
    const struct pp_layout *layout = run->job->layout;
    int64_t region = gradient ? layout->grad_offset[t->stage] : layout->param_offset[t->stage];
    return (float *)(run->arena[run->job->train->stage_rank[t->stage]] + region + t->offset);
}

static void load_weights(struct run *run, const char *path)
{
    struct pp_weights_reader *reader;
    MUST(pp_weights_open(path, run->job->model, &reader));
    for (int i = 0; i < run->job->model->ntensors; i++)
        MUST(pp_weights_read(reader, i, 0, run->job->model->tensors[i].elements, tensor_at(run, i, false)));
    pp_weights_close(reader);
}

static void compare_gradients(const struct run *run, const char *path, const char *what)
{
    struct pp_weights_reader *reader;
    MUST(pp_weights_open(path, run->job->model, &reader));
    for (int i = 0; i < run->job->model->ntensors; i++) {
        const struct pp_tensor *t = &run->job->model->tensors[i];
        const float *ours = tensor_at(run, i, true);
        float *theirs = malloc((size_t)t->elements * sizeof *theirs);
        double largest = 0;
        MUST(pp_weights_read(reader, i, 0, t->elements, theirs));
        for (int64_t k = 0; k < t->elements; k++) largest = fmax(largest, fabs((double)theirs[k]));
        for (int64_t k = 0; k < t->elements; k++)
            if (!(fabs((double)ours[k] - theirs[k]) <= tolerance * largest))
                fail_msg("%s: gradient %lld of %s is %g, PyTorch has %g, and %g at most", what, (long long)k, t->name,
                         (double)ours[k], (double)theirs[k], largest);
        free(theirs);
    }
    pp_weights_close(reader);
}

static void load_batch(struct run *run, struct pp_config *config)
{
    struct pp_data *data;
    struct pp_batches batches;
    size_t elements = (size_t)config->rows * (size_t)config->tokens;
    MUST(pp_data_load(config, &data));
    config->model.vocab = data->vocabulary;
    const struct pp_batch_cut cut = {.rows = config->rows, .seq = config->tokens, .replicas = 1};
    MUST(pp_batches_cut(data, PP_PART_TRAIN, &cut, &batches));
    run->tokens = malloc(elements * sizeof *run->tokens);
    run->targets = malloc(elements * sizeof *run->targets);
    pp_batches_get(&batches, 0, run->tokens, run->targets);
    pp_data_free(data);
}

static void open_run(const struct golden *golden, const struct pp_point *shape, struct pp_config *config,
                     struct run *run)
{
    char *words[40];
    int argc = 0;
    while (golden->words[argc]) words[argc] = golden->words[argc], argc++;
    words[argc] = NULL;
    MUST(pp_config_parse(PP_PPEXEC, argc, words, config, NULL));
    *run = (struct run){0};
    load_batch(run, config);
    struct pp_point point = *shape;
    point.chunks = config->chunks.v[0];
    MUST(pp_job_create(config, &point, &pp_schedules, &pp_model_ops, false, NULL, &run->job));
    MUST(pp_backend_find("cpu", &run->backend));
    MUST(run->backend->open(&(struct pp_device_spec){.workers = 1, .threads = 1}, &run->device));
    run->arena = calloc((size_t)point.ranks, sizeof *run->arena);
    for (int r = 0; r < point.ranks; r++) {
        MUST(run->backend->alloc(run->device, run->job->layout->arena_bytes[r], (void **)&run->arena[r]));
        memset(run->arena[r], 0xff,
               (size_t)run->job->layout->arena_bytes[r]); /* NaN: what is read must have been written */
    }
}

static void close_run(struct run *run)
{
    for (int r = 0; r < run->job->train->ranks; r++)
        run->backend->release(run->device, run->arena[r], run->job->layout->arena_bytes[r]);
    run->backend->close(run->device);
    pp_job_free(run->job);
    free(run->arena);
    free(run->tokens);
    free(run->targets);
}

static void check(const struct golden *golden, const struct pp_point *point)
{
    char what[128], path[4096];
    struct pp_config config;
    struct run run;
    const double loss = golden_loss(golden);
    snprintf(what, sizeof what, "%s P=%d V=%d checkpoint %d", point->schedule, point->ranks, point->virtual_stages,
             point->checkpoint);
    open_run(golden, point, &config, &run);
    load_weights(&run, golden_file(golden, "init.safetensors", path, sizeof path));
    run_tasks(&run);
    if (!(fabs(run.loss - loss) <= tolerance * loss)) fail_msg("%s: loss %.9g, PyTorch has %.9g", what, run.loss, loss);
    compare_gradients(&run, golden_file(golden, "grad.safetensors", path, sizeof path), what);
    close_run(&run);
}

static void check_all(void **state)
{
    static const struct {
        const char *schedule;
        int virtual_stages, most; /* checkpoints: those of layers where the backward is not split */
    } orders[] = {{"gpipe", 1, PP_CHECKPOINT_LAYERS},
                  {"1f1b", 1, PP_CHECKPOINT_LAYERS},
                  {"interleaved", 1, PP_CHECKPOINT_LAYERS},
                  {"interleaved", 2, PP_CHECKPOINT_LAYERS},
                  {"bfs", 2, PP_CHECKPOINT_LAYERS},
                  {"zb-h1", 1, PP_CHECKPOINT_ALWAYS},
                  {"zb-h2", 1, PP_CHECKPOINT_ALWAYS},
                  {"zbv", 2, PP_CHECKPOINT_ALWAYS},
                  {"interleaved-zb", 2, PP_CHECKPOINT_ALWAYS},
                  {"v-half", 2, PP_CHECKPOINT_ALWAYS},
                  {"v-min", 2, PP_CHECKPOINT_ALWAYS}};
    const struct golden *golden = *state;
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
        for (int ranks = 1; ranks * orders[o].virtual_stages <= golden->most_stages && ranks <= 4; ranks *= 2)
            for (int checkpoint = PP_CHECKPOINT_NEVER; checkpoint <= orders[o].most; checkpoint++)
                check(golden, &(struct pp_point){orders[o].schedule, ranks, orders[o].virtual_stages, 0, checkpoint});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"lab", check_all, NULL, NULL, &lab},
        {"lab with 8 layers", check_all, NULL, NULL, &lab8},
        {"d 36", check_all, NULL, NULL, &d36},
        {"d 60", check_all, NULL, NULL, &d60},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
