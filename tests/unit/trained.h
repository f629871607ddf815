/* SPDX-License-Identifier: Apache-2.0
 *
 * Training runs inside a test: by command-line options, on any device; losses and final weights to compare bit by bit.
 */
#ifndef PP_TESTS_TRAINED_H
#define PP_TESTS_TRAINED_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "exec/exec.h"
#include "exec/weights.h"
#include "kernels/backend.h"
#include "kernels/model.h"
#include "schedules/schedule.h"

enum { MAX_ARGUMENTS = 80, LOSSES = 64 };

struct outcome {
    int nlosses, nvalid;
    double losses[LOSSES], valid[LOSSES], test;
    int64_t parameters;
    float *weights;
};

static inline float *trained_weights(const struct pp_exec *exec, int64_t *n)
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
    for (int i = 0; i < model->ntensors; i++) {
        if (model->tensors[i].copy) continue;
        assert_int_equal(pp_weights_read(reader, i, 0, model->tensors[i].elements, all + used), PP_OK);
        used += model->tensors[i].elements;
    }
    *n = model->parameters;
    pp_weights_close(reader);
    pp_model_free(model);
    return all;
}

/* What is compared of a run. */
static inline void keep(const struct pp_exec *exec, struct pp_result *result, struct outcome *out)
{
    *out = (struct outcome){.nlosses = result->nlosses, .nvalid = result->nvalid, .test = result->stored.test_loss};
    assert_in_range(result->nlosses, 1, LOSSES);
    memcpy(out->losses, result->losses, (size_t)result->nlosses * sizeof *result->losses);
    memcpy(out->valid, result->valid_losses, (size_t)result->nvalid * sizeof *result->valid_losses);
    out->weights = trained_weights(exec, &out->parameters);
    pp_result_free(result);
}

/* The status of a run; with PP_OK the result is in *out. */
static inline pp_status train(const struct pp_backend *backend, const char *options, struct pp_db *db,
                              struct outcome *out)
{
    char text[1000], *argv[MAX_ARGUMENTS] = {"test"};
    int argc = 1, n = 0;
    struct pp_exec exec = {.schedules = &pp_schedules,
                           .model_ops = &pp_model_ops,
                           .init_tensor = pp_model_init_local,
                           .backend = backend,
                           .db = db,
                           .transport = &pp_transport_inproc,
                           .processes = {.count = 1, .on_host = 1, .hosts = 1}};
    struct pp_point *points;
    struct pp_result result = {0};
    snprintf(text, sizeof text, "%s --save out.safetensors", options);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        assert_true(argc < MAX_ARGUMENTS);
        argv[argc++] = word;
    }
    if (pp_config_parse(PP_PPEXEC, argc, argv, &exec.config, NULL) != PP_OK) fail_msg("%s", pp_message());
    assert_int_equal(pp_data_load(&exec.config, &exec.data), PP_OK);
    assert_int_equal(pp_points(&exec.config, &pp_schedules, &points, &n), PP_OK);
    assert_int_equal(n, 1);
    *out = (struct outcome){0};
    pp_status status = pp_exec_point(&exec, points, &result);
    if (status == PP_OK)
        keep(&exec, &result, out);
    else
        pp_result_free(&result);
    pp_data_free(exec.data);
    free(points);
    return status;
}

static inline void expect_equal(const struct outcome *a, const struct outcome *b, const char *options)
{
    assert_int_equal(a->nlosses, b->nlosses);
    for (int i = 0; i < a->nlosses; i++)
        if (a->losses[i] != b->losses[i])
            fail_msg("%s: loss %d is %.17g, not %.17g", options, i, b->losses[i], a->losses[i]);
    assert_int_equal(a->nvalid, b->nvalid);
    for (int i = 0; i < a->nvalid; i++)
        if (a->valid[i] != b->valid[i])
            fail_msg("%s: validation loss %d is %.17g, not %.17g", options, i, b->valid[i], a->valid[i]);
    if (a->nvalid && a->test != b->test) fail_msg("%s: test loss is %.17g, not %.17g", options, b->test, a->test);
    assert_int_equal(a->parameters, b->parameters);
    if (memcmp(a->weights, b->weights, (size_t)a->parameters * sizeof(float))) fail_msg("%s: other weights", options);
}

/* 5 rows in 4 chunks: 2,2,1. Two epochs with a shorter last batch, validated. */
#define MODEL "--d-model 16 --heads 2 --d-ff 20 --layers 4 --vocab 30 --dropout 0.3 --clip 0.25 --lr 1 "
#ifdef __SANITIZE_THREAD__ /* which sees in a few batches what it would in more */
#define BATCHES "--max-batches 8 "
#else
#define BATCHES "--max-batches 0 "
#endif
#define TEXT BATCHES "--rows 5 --tokens 7 --generated-tokens 1000 --epochs 2 --eval-batches 0 --eval-rows 4 "
#define BASE MODEL TEXT "--trace-steps 3 --chunks 4 "

#endif
