/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints and files of weights do not depend on who holds the tensors: what workers read from a file they write
 * again, byte by byte, however the model is cut into stages and shared by workers and replicas.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/mix.h"
#include "core/calls/bf16.h"
#include "core/model/slice.h"
#include "crew.h"
#include "exec/parameters.h"
#include "exec/restart.h"
#include "kernels/model.h"
#include "schedules/schedule.h"

enum { MAX_ARGUMENTS = 80 };

#define BEGUN "begun.checkpoint"
#define AGAIN "again.checkpoint"
#define BEST "best.safetensors"
#define LEFT "left.safetensors"

/* --- a job, and workers without devices --- */

struct shared {
    struct pp_config config;
    struct pp_job *job;
    struct pp_restart from, to;
};

static void open_shared(const char *options, struct shared *out)
{
    char text[600], *argv[MAX_ARGUMENTS] = {"test"};
    int argc = 1, n = 0;
    struct pp_point *points;
    snprintf(text, sizeof text, "%s", options);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    *out = (struct shared){0};
    if (pp_config_parse(PP_PPEXEC, argc, argv, &out->config, NULL) != PP_OK) fail_msg("%s", pp_message());
    assert_int_equal(pp_points(&out->config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 1);
    if (pp_job_create(&out->config, points, &pp_schedules, &pp_model_ops, true, NULL, &out->job) != PP_OK)
        fail_msg("%s: %s", options, pp_message());
    free(points);
    out->from = (struct pp_restart){.path = BEGUN, .start = {.best_loss = 2}};
    out->to = (struct pp_restart){.path = AGAIN};
}

static pp_status copy_in(struct pp_device *device, void *to, const void *from, int64_t bytes)
{
    (void)device;
    memcpy(to, from, (size_t)bytes);
    return PP_OK;
}

static const struct pp_backend memory = {.upload = copy_in, .download = copy_in};

/* --- files, as the format has them --- */

/* A checkpoint of numbers, and its best weights as a file of their own. */
static void write_files(const struct shared *s)
{
    const struct pp_model *model = s->job->model;
    const int copies = pp_parameters_parts(model) + 1;
    struct pp_weights_writer *writer, *best;
    uint64_t state = 7;
    assert_int_equal(pp_restart_create(BEGUN, &s->from.identity, model, &s->from.start, &writer), PP_OK);
    assert_int_equal(pp_weights_create(BEST, model, NULL, &best), PP_OK);
    for (int c = 0; c < copies; c++)
        for (int64_t i = 0; i < model->parameters; i++, state += PP_MIX_STEP) {
            const float value = (float)(pp_mix(state) >> 40) * 0x1p-24F;
            assert_int_equal(pp_weights_append(writer, &value, 1), PP_OK);
            if (c == copies - 1) assert_int_equal(pp_weights_append(best, &value, 1), PP_OK);
        }
    assert_int_equal(pp_weights_commit(writer), PP_OK);
    assert_int_equal(pp_weights_commit(best), PP_OK);
}

static char *bytes_of(const char *path, long *n)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *n = ftell(file);
    rewind(file);
    char *bytes = malloc((size_t)*n);
    assert_int_equal(fread(bytes, 1, (size_t)*n, file), *n);
    fclose(file);
    return bytes;
}

static void expect_same(const char *a, const char *b, const char *options)
{
    long n, m;
    char *one = bytes_of(a, &n), *other = bytes_of(b, &m);
    if (n != m || memcmp(one, other, (size_t)n)) fail_msg("%s: %s and %s differ", options, a, b);
    free(one);
    free(other);
}

/* --- what workers do --- */

/* The copies that products read, or with shards the worker's share of them, are those of the best weights, and zero
 * where there is nothing to read. */
static pp_status check_copies(const struct pp_worker *w)
{
    const struct pp_model *model = w->job->model;
    struct pp_weights_reader *reader;
    PP_TRY(pp_weights_open(BEST, model, &reader));
    pp_status status = PP_OK;
    for (int i = 0; i < model->ntensors && status == PP_OK; i++) {
        const struct pp_tensor *t = &model->tensors[i];
        if (t->offset16 < 0 || !pp_worker_has(w, t->stage)) continue;
        const bool shards = model->shape.zero == PP_ZERO_PARAMETERS;
        const int64_t share = shards ? t->part_elements : t->local_elements,
                      begin = shards ? pp_worker_share(w->job->train, w->me, t->set) * share : 0;
        const char *at = w->arena + w->job->layout->param16_offset[t->stage] +
                         (shards ? t->share_offset16 : t->offset16) - begin * (int64_t)sizeof(uint16_t);
        for (int64_t e = begin; e < begin + share && e < t->local_elements && status == PP_OK; e++) {
            const struct pp_slice slice = pp_tensor_slice(t, &model->shape, w->member, e);
            float value = 0;
            uint16_t copy;
            memcpy(&copy, at + e * (int64_t)sizeof copy, sizeof copy);
            if (slice.whole >= 0) status = pp_weights_read(reader, i, slice.whole, 1, &value);
            if (status == PP_OK && copy != pp_bf16(value))
                status = pp_fail(PP_INTERNAL, "%s: copy of element %lld", t->name, (long long)e);
        }
    }
    pp_weights_close(reader);
    return status;
}

/* As a run that is resumed, writes its next checkpoint, and ends. */
static pp_status run_worker(struct pp_worker *w, const struct shared *s, float *best)
{
    const struct pp_shape *shape = &s->job->model->shape;
    const bool first = w->replica == 0,
               keeps = first || pp_shape_splits_weights(shape) || shape->zero == PP_ZERO_PARAMETERS;
    PP_TRY(pp_restart_load(&s->from, w, keeps ? best : NULL));
    struct pp_restart to = s->to;
    if (first || s->job->train->zero) PP_TRY(pp_restart_save(&to, w, &s->from.start, best));
    if (!keeps) return PP_OK;
    PP_TRY(pp_parameters_restore(w, best));
    PP_TRY(pp_parameters_save(w, LEFT));
    return first || shape->zero == PP_ZERO_PARAMETERS ? check_copies(w) : PP_OK;
}

static pp_status be_worker(struct pp_world *world, int me, void *arg)
{
    const struct shared *s = arg;
    const struct pp_plan *plan = s->job->train;
    struct pp_worker w = {.world = world,
                          .job = s->job,
                          .backend = &memory,
                          .me = me,
                          .rank = pp_worker_rank(plan, me),
                          .replica = pp_worker_replica(plan, me),
                          .member = pp_worker_member(plan, me)};
    float *best = NULL;
    pp_status status = PP_NEW(&w.arena, s->job->layout->arena_bytes[w.rank]);
    if (status == PP_OK) status = PP_NEW(&best, pp_parameters_count(&w));
    if (status == PP_OK) status = run_worker(&w, s, best);
    free(best);
    free(w.arena);
    return status;
}

#define MODEL                                                                                                          \
    "--d-model 16 --heads 4 --kv-heads 4 --layers 4 --d-ff 48 --activation swiglu --vocab 37 --rows 6 --tokens 5 "     \
    "--chunks 2 --data generated --optimizer adamw --save out.safetensors "

static const char *const ways[] = {
    "--stages 1",
    "--stages 2 --tensor 2",
    "--stages 2 --schedule 1f1b --replicas 2 --tensor 2",
    "--stages 1 --tensor 4 --vocab-multiple 16",
    "--stages 2 --replicas 2 --zero 1",
    "--stages 1 --replicas 2 --zero 1 --tensor 2",
    "--stages 2 --replicas 3 --zero 1 --tensor 2 --vocab-multiple 8",
    "--stages 2 --replicas 2 --zero 1 --precision bf16",
    "--stages 1 --replicas 2 --zero 3 --tensor 2",
    "--stages 2 --replicas 3 --zero 3 --precision bf16 --vocab-multiple 16",
    "--stages 1 --precision bf16 --tensor 4",
    "--stages 2 --replicas 2 --zero 1 --tensor 2 --precision bf16",
    "--stages 2 --replicas 3 --zero 1 --tensor 2 --precision bf16 --vocab-multiple 16",
};

static void test_who_holds_what_leaves_no_trace_in_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct shared s;
        char options[600];
        snprintf(options, sizeof options, MODEL "%s", ways[i]);
        open_shared(options, &s);
        if (i == 0) write_files(&s);
        remove(AGAIN);
        remove(LEFT);
        if (crew_run(pp_plan_workers(s.job->train), be_worker, &s) != PP_OK) fail_msg("%s: %s", ways[i], pp_message());
        expect_same(BEGUN, AGAIN, ways[i]);
        expect_same(BEST, LEFT, ways[i]);
        pp_job_free(s.job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_who_holds_what_leaves_no_trace_in_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
