/* SPDX-License-Identifier: Apache-2.0
 *
 * Training runs of tiny models with dropout and clipping: losses and final weights have the same bits for every
 * schedule, every cut into ranks and stages and every checkpoint mode; replicas agree with one replica of their rows
 * together.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/log.h"
#include "exec/exec.h"
#include "exec/weights.h"
#include "kernels/backend.h"
#include "kernels/model.h"
#include "schedules/schedule.h"

enum { MAX_ARGUMENTS = 48, LOSSES = 64 };

struct outcome {
    int nlosses, nvalid;
    double losses[LOSSES], valid[LOSSES], test;
    int64_t parameters;
    float *weights;
};

static float *read_weights(const struct pp_exec *exec, int64_t *n)
{
    struct pp_shape shape;
    struct pp_model *model = NULL;
    struct pp_weights_reader *reader = NULL;
    float *all;
    int64_t used = 0;
    pp_config_shape(&exec->config, &shape);
    assert_int_equal(pp_model_create(&shape, 1, "uniform", NULL, &model), PP_OK);
    assert_int_equal(pp_weights_open("out.safetensors", model, &reader), PP_OK);
    all = malloc((size_t)model->parameters * sizeof *all);
    for (int i = 0; i < model->ntensors; used += model->tensors[i++].elements)
        assert_int_equal(pp_weights_read(reader, i, 0, model->tensors[i].elements, all + used), PP_OK);
    *n = model->parameters;
    pp_weights_close(reader);
    pp_model_free(model);
    return all;
}

static void run(const char *options, struct outcome *out)
{
    char text[1000], *argv[MAX_ARGUMENTS] = {"test"};
    int argc = 1, n = 0;
    struct pp_exec exec = {.schedules = &pp_schedules,
                           .model_ops = &pp_model_ops,
                           .init_tensor = pp_model_init_tensor,
                           .transport = pp_transports[0],
                           .processes = {.count = 1, .on_host = 1, .hosts = 1}};
    struct pp_point *points;
    struct pp_result result;
    snprintf(text, sizeof text, "%s --save out.safetensors", options);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (pp_config_parse(PP_PPEXEC, argc, argv, &exec.config, NULL, 0, &n) != PP_OK) fail_msg("%s", pp_message());
    assert_int_equal(pp_backend_find("cpu", &exec.backend), PP_OK);
    assert_int_equal(pp_data_load(&exec.config, &exec.data), PP_OK);
    assert_int_equal(pp_points(&exec.config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 1);
    if (pp_exec_point(&exec, points, &result) != PP_OK) fail_msg("%s: %s", options, pp_message());
    *out = (struct outcome){.nlosses = result.nlosses, .nvalid = result.nvalid, .test = result.stored.test_loss};
    assert_in_range(result.nlosses, 1, LOSSES);
    memcpy(out->losses, result.losses, (size_t)result.nlosses * sizeof *result.losses);
    memcpy(out->valid, result.valid_losses, (size_t)result.nvalid * sizeof *result.valid_losses);
    out->weights = read_weights(&exec, &out->parameters);
    pp_result_free(&result);
    pp_data_free(exec.data);
    free(points);
}

static void expect_equal(const struct outcome *a, const struct outcome *b, const char *options)
{
    assert_int_equal(a->nlosses, b->nlosses);
    for (int i = 0; i < a->nlosses; i++)
        if (a->losses[i] != b->losses[i])
            fail_msg("%s: loss %d is %.17g, not %.17g", options, i, b->losses[i], a->losses[i]);
    for (int i = 0; i < a->nvalid; i++)
        if (a->valid[i] != b->valid[i])
            fail_msg("%s: validation loss %d is %.17g, not %.17g", options, i, b->valid[i], a->valid[i]);
    if (a->nvalid && a->test != b->test) fail_msg("%s: test loss is %.17g, not %.17g", options, b->test, a->test);
    assert_int_equal(a->parameters, b->parameters);
    if (memcmp(a->weights, b->weights, (size_t)a->parameters * sizeof(float))) fail_msg("%s: other weights", options);
}

/* 5 rows in 4 chunks: 2,2,1. Two epochs with a shorter last batch, validated. */
#define MODEL "--d-model 16 --heads 2 --d-ff 20 --layers 4 --vocab 30 --dropout 0.3 --clip 0.25 --lr 1 "
#define TEXT "--rows 5 --tokens 7 --generated-tokens 1000 --max-batches 0 --epochs 2 --eval-batches 0 --eval-rows 4 "
#define BASE MODEL TEXT "--trace-steps 3 --chunks 4 "

static const char *const variants[] = {
    "--schedule gpipe --stages 2",
    "--schedule gpipe --stages 4",
    "--schedule 1f1b --stages 1",
    "--schedule 1f1b --stages 2",
    "--schedule 1f1b --stages 4",
    "--schedule interleaved --stages 1 --virtual 4",
    "--schedule gpipe --stages 2 --checkpoint always",
    "--schedule 1f1b --stages 2 --checkpoint except_last",
    "--schedule 1f1b --stages 4 --checkpoint always",
    "--schedule 1f1b --stages 2 --recv-buffers 1",
    "--schedule gpipe --stages 2 --recv-buffers 8 --split 1,3",
};

static void bits_do_not_depend_on_the_pipeline(void **state)
{
    (void)state;
    struct outcome reference, other;
    run(BASE "--schedule gpipe --stages 1", &reference);
    assert_int_equal(reference.nvalid, 2);
    assert_true(reference.losses[reference.nlosses - 1] < reference.losses[0]);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char options[600];
        snprintf(options, sizeof options, BASE "%s", variants[i]);
        run(options, &other);
        expect_equal(&reference, &other, variants[i]);
        free(other.weights);
    }
    free(reference.weights);
}

#define EVEN MODEL "--rows 4 --tokens 7 --generated-tokens 1000 --max-batches 6 --epochs 1 --no-eval --chunks 4 "

static void interleaved_stages_too(void **state)
{
    (void)state;
    static const char *const cuts[] = {"--stages 2 --virtual 2", "--stages 1 --virtual 2",
                                       "--stages 2 --virtual 2 --checkpoint always"};
    struct outcome reference, other;
    run(EVEN "--schedule 1f1b --stages 1", &reference);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char options[600];
        snprintf(options, sizeof options, EVEN "--schedule interleaved %s", cuts[i]);
        run(options, &other);
        expect_equal(&reference, &other, cuts[i]);
        free(other.weights);
    }
    free(reference.weights);
}

#define CONSTANT MODEL "--tokens 7 --data constant --epochs 3 "

static void replicas_agree_with_more_rows(void **state)
{
    (void)state;
    static const struct {
        const char *one, *several;
    } pairs[] = {
        {"--rows 4 --chunks 2 --stages 1", "--rows 2 --chunks 1 --replicas 2 --stages 1"},
        {"--rows 4 --chunks 4 --stages 2", "--rows 2 --chunks 2 --replicas 2 --stages 2 --schedule 1f1b"},
        {"--rows 6 --chunks 3 --stages 1",
         "--rows 2 --chunks 1 --replicas 3 --stages 2 --virtual 2 --schedule interleaved"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct outcome one, several;
        char options[600];
        snprintf(options, sizeof options, CONSTANT "%s", pairs[i].one);
        run(options, &one);
        snprintf(options, sizeof options, CONSTANT "%s", pairs[i].several);
        run(options, &several);
        assert_int_equal(one.nlosses, several.nlosses);
        for (int k = 0; k < one.nlosses; k++)
            if (fabs(one.losses[k] - several.losses[k]) > 1e-5 * one.losses[k])
                fail_msg("%s: loss %d is %g, not %g", pairs[i].several, k, several.losses[k], one.losses[k]);
        for (int64_t k = 0; k < one.parameters; k++)
            if (fabsf(one.weights[k] - several.weights[k]) > 1e-5f * (1 + fabsf(one.weights[k])))
                fail_msg("%s: weight %lld is %g, not %g", pairs[i].several, (long long)k, several.weights[k],
                         one.weights[k]);
        free(one.weights);
        free(several.weights);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_the_pipeline),
        cmocka_unit_test(interleaved_stages_too),
        cmocka_unit_test(replicas_agree_with_more_rows),
    };
    pp_log_init("test_worker", true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
