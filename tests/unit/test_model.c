/* SPDX-License-Identifier: Apache-2.0
 *
 * The model as data: tensors, initial weights, stages, programs.
 */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/model.h"

static const struct pp_shape tutorial = {4096, 16,   4096,  8,    28782, PP_MASK_NONE, PP_ATTENTION_MATH,
                                         0.2,  true, false, false};
static const struct pp_shape small = {200, 2,    200,   2,    28782, PP_MASK_CAUSAL, PP_ATTENTION_MATH,
                                      0.2, true, false, false};
static const struct pp_shape lab = {12, 4, 24, 2, 100, PP_MASK_NONE, PP_ATTENTION_MATH, 0.1, false, true, true};

static struct pp_model *make_model(struct pp_shape shape, int stages, const char *split)
{
    struct pp_model *model = NULL;
    if (pp_model_create(&shape, stages, split, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
    return model;
}

static int64_t parameters(struct pp_shape shape, int stages)
{
    struct pp_model *model = make_model(shape, stages, NULL);
    const int64_t n = model->parameters;
    pp_model_free(model);
    return n;
}

static void test_parameter_counts(void **state)
{
    (void)state;
    struct pp_shape twelve = tutorial;
    twelve.layers = 12;
    assert_int_equal(parameters(tutorial, 1), 1041444974);
    assert_int_equal(parameters(tutorial, 8), 1041444974);
    assert_int_equal(parameters(twelve, 5), 1444261998);
    assert_int_equal(parameters(small, 2), 12025582);
    assert_int_equal(parameters(lab, 2), 5068);
}

/* The norm before the decoder lies in the last stage, between layers and decoder, and begins as PyTorch's. */
static void test_norm_before_the_decoder(void **state)
{
    (void)state;
    struct pp_shape shape = small;
    shape.norm = PP_NORM_FIRST;
    struct pp_model *model = make_model(shape, 2, "parameters");
    const char *const names[] = {"norm.weight", "norm.bias", "decoder.weight", "decoder.bias"};
    assert_int_equal(model->ntensors, 1 + 2 * 12 + 4);
    assert_int_equal(model->parameters, 12025582 + 2 * 200);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(model->tensors[25 + i].name, names[i]);
        assert_int_equal(model->tensors[25 + i].stage, 1);
    }
    assert_int_equal(model->tensors[25].init, PP_INIT_ONE);
    assert_int_equal(model->tensors[26].init, PP_INIT_ZERO);
    assert_int_equal(pp_shape_embedding(&shape) + 2 * pp_shape_layer(&shape, 0) + pp_shape_decoder(&shape),
                     model->parameters);
    pp_model_free(model);
}

/* Names, shapes and places; every tensor lies within its stage, none on another. */
static void test_tensors(void **state)
{
    (void)state;
    struct pp_model *model = make_model(small, 2, "uniform");
    assert_int_equal(model->ntensors, 1 + 2 * 12 + 2);
    assert_string_equal(model->tensors[0].name, "embedding.weight");
    assert_string_equal(model->tensors[1].name, "layers.0.self_attn.in_proj_weight");
    assert_string_equal(model->tensors[20].name, "layers.1.linear2.bias");
    assert_string_equal(model->tensors[26].name, "decoder.bias");
    assert_int_equal(model->tensors[1].shape[0], 600);
    assert_int_equal(model->tensors[1].ndim, 2);
    assert_int_equal(model->tensors[26].ndim, 1);
    for (int s = 0; s < 2; s++) {
        const struct pp_stage *stage = &model->stages[s];
        int64_t end = 0;
        for (int i = stage->first_tensor; i < stage->first_tensor + stage->tensors; i++) {
            const struct pp_tensor *t = &model->tensors[i];
            assert_int_equal(t->stage, s);
            assert_true(t->offset >= end && t->offset % 64 == 0);
            end = t->offset + t->elements * (int64_t)sizeof(float);
        }
        assert_true(stage->param_bytes >= end);
    }
    pp_model_free(model);
}

static void test_impossible_shapes(void **state)
{
    (void)state;
    struct pp_model *model;
    struct pp_shape shape = small;
    shape.heads = 3;
    assert_int_equal(pp_model_create(&shape, 1, NULL, NULL, &model), PP_USAGE);
    shape = small;
    shape.d_model = 7;
    assert_int_equal(pp_model_create(&shape, 1, NULL, NULL, &model), PP_USAGE);
    shape = small;
    for (int i = 0; i < 2; i++) {
        shape.dropout = i ? 1 : 1 - 1e-9; /* which is 1 as a float */
        assert_int_equal(pp_model_create(&shape, 1, NULL, NULL, &model), PP_USAGE);
    }
}

/* Mean, deviation and bound of a tensor's initial values. */
static void check_init(struct pp_model *model, int tensor, double deviation, double bound)
{
    const struct pp_tensor *t = &model->tensors[tensor];
    float *w = malloc(sizeof *w * (size_t)t->elements);
    assert_non_null(w);
    pp_model_init_tensor(model, tensor, 5, w);
    double sum = 0, squares = 0, most = 0;
    for (int64_t i = 0; i < t->elements; i++) {
        sum += w[i];
        squares += (double)w[i] * w[i];
        most = fmax(most, fabs(w[i]));
    }
    const double n = (double)t->elements, slack = 6 / sqrt(n); /* six standard errors */
    if (!(fabs(sum / n) <= slack * deviation)) fail_msg("%s: mean %g", t->name, sum / n);
    if (!(fabs(sqrt(squares / n) - deviation) <= slack * deviation))
        fail_msg("%s: deviation %g", t->name, sqrt(squares / n));
    if (bound > 0 && !(most <= bound * (1 + 1e-6) && most >= bound * (1 - 4 * slack)))
        fail_msg("%s: extreme %g", t->name, most);
    free(w);
}

static void check_uniform(struct pp_model *model, int tensor, double bound)
{
    check_init(model, tensor, bound / sqrt(3), bound);
}

static void check_constant(struct pp_model *model, int tensor, float value)
{
    float w[1024];
    assert_true(model->tensors[tensor].elements <= 1024);
    pp_model_init_tensor(model, tensor, 5, w);
    for (int64_t i = 0; i < model->tensors[tensor].elements; i++) assert_true(w[i] == value);
}

static void test_initial_weights(void **state)
{
    (void)state;
    struct pp_shape shape = small;
    for (shape.head_dim = 100; shape.head_dim <= 150; shape.head_dim += 50) { /* of two */
        struct pp_model *model = make_model(shape, 1, NULL);
        check_uniform(model, 0, 0.1);
        check_uniform(model, 1, sqrt(6. / (200 + 6 * shape.head_dim)));
        check_constant(model, 2, 0);
        check_uniform(model, 3, 1 / sqrt(2. * shape.head_dim));
        check_constant(model, 4, 0);
        check_uniform(model, 5, 1 / sqrt(200));
        check_uniform(model, 6, 1 / sqrt(200));
        check_constant(model, 9, 1);
        check_constant(model, 10, 0);
        check_uniform(model, 25, 0.1);
        pp_model_free(model);
    }
    struct pp_model *model = make_model(lab, 1, NULL);
    check_init(model, 0, 1, 0);
    check_uniform(model, 1, 1 / sqrt(12));
    check_uniform(model, 7, 1 / sqrt(24));
    check_uniform(model, 25, 1 / sqrt(12));
    pp_model_free(model);
}

/* The fourth moment of a normal distribution is 3, of a uniform one 1.8; its standard error is sqrt(96 / n). */
static void check_normal(struct pp_model *model, int tensor, double deviation)
{
    const struct pp_tensor *t = &model->tensors[tensor];
    const double n = (double)t->elements;
    float *w = malloc(sizeof *w * (size_t)t->elements);
    double fourth = 0;
    assert_non_null(w);
    check_init(model, tensor, deviation, 0);
    pp_model_init_tensor(model, tensor, 5, w);
    for (int64_t i = 0; i < t->elements; i++) fourth += pow(w[i] / deviation, 4) / n;
    if (!(fabs(fourth - 3) <= 6 * sqrt(96 / n))) fail_msg("%s: fourth moment %g", t->name, fourth);
    free(w);
}

/* init_std, whatever the style and what there is in a model: as GPT-2's, with less in what residuals are added to. */
static void test_normal_initial_weights(void **state)
{
    (void)state;
    for (int lab_init = 0; lab_init < 2; lab_init++) {
        const struct pp_shape shape = {.d_model = 64,
                                       .heads = 2,
                                       .head_dim = 24,
                                       .d_ff = 80,
                                       .layers = 8,
                                       .vocab = 1000,
                                       .positions = PP_POSITIONS_LEARNED,
                                       .max_positions = 99,
                                       .norm = PP_NORM_FIRST,
                                       .activation = lab_init ? PP_SWIGLU : PP_RELU,
                                       .lab_init = lab_init,
                                       .init_std = 0.02};
        struct pp_model *model = make_model(shape, 2, NULL);
        int scaled = 0, whole = 0;
        for (int i = 0; i < model->ntensors; i++) {
            const char *name = model->tensors[i].name;
            const bool weight = strstr(name, "weight"), norm = strstr(name, "norm");
            const bool residual = strstr(name, "out_proj.weight") || strstr(name, "linear2.weight");
            if (!weight || norm)
                check_constant(model, i, weight);
            else
                check_normal(model, i, residual ? 0.02 / 4 : 0.02);
            scaled += residual;
            whole += weight && !norm && !residual;
        }
        assert_int_equal(scaled, 2 * 8);
        assert_int_equal(whole, 3 + 2 * 8);
        pp_model_free(model);
    }
}

static void check_the_cut(struct pp_shape shape)
{
    shape.layers = 4;
    struct pp_model *one = make_model(shape, 1, NULL), *four = make_model(shape, 4, NULL);
    float a[2048], b[2048];
    for (int i = 0; i < one->ntensors; i++) {
        assert_string_equal(one->tensors[i].name, four->tensors[i].name);
        pp_model_init_tensor(one, i, 9, a);
        pp_model_init_tensor(four, i, 9, b);
        assert_memory_equal(a, b, sizeof *a * (size_t)one->tensors[i].elements);
    }
    pp_model_free(one);
    pp_model_free(four);
}

static void test_weights_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    struct pp_shape shape = lab;
    check_the_cut(shape);
    shape.init_std = 0.02;
    check_the_cut(shape);
}

/* A thread that is tied to one core makes them alone. */
static void test_weights_do_not_depend_on_threads(void **state)
{
    (void)state;
    cpu_set_t before, one;
    struct pp_model *model = make_model(small, 1, NULL);
    const size_t bytes = sizeof(float) * (size_t)model->tensors[0].elements;
    float *many = malloc(bytes), *alone = malloc(bytes);
    assert_true(many && alone && bytes > (4 << 20));
    pp_model_init_tensor(model, 0, 9, many);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    pp_model_init_tensor(model, 0, 9, alone);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_memory_equal(many, alone, bytes);
    free(many);
    free(alone);
    pp_model_free(model);
}

static struct pp_program make_program(const struct pp_model *model, int kind, int stage, int rows, bool split)
{
    struct pp_program program;
    const struct pp_class cls = {kind, stage, rows, .adds = true};
    const struct pp_program_spec spec = {35, rows, true, split};
    if (pp_model_program(model, &cls, &spec, &program) != PP_OK) fail_msg("%s", pp_message());
    return program;
}

/* The first and the last: unit.program_names. */
static void test_signature_of_a_stage_between(void **state)
{
    (void)state;
    struct pp_shape shape = small;
    shape.layers = 6;
    struct pp_model *model = make_model(shape, 3, NULL);
    struct pp_program program = make_program(model, PP_B, 1, 5, false);
    assert_string_equal(program.signature, "B 2l d200 h2 ff200 causal p0.2 seq35 rows5");
    pp_program_free(&program);
    pp_model_free(model);
}

/* I and W together do the arithmetic of B; F does about half of it. Transfers are no programs. */
static void test_work(void **state)
{
    (void)state;
    struct pp_model *model = make_model(small, 2, NULL);
    for (int stage = 0; stage < 2; stage++) {
        struct pp_program f = make_program(model, PP_F, stage, 5, false),
                          b = make_program(model, PP_B, stage, 5, false);
        struct pp_program i = make_program(model, PP_I, stage, 5, true), w = make_program(model, PP_W, stage, 5, true);
        assert_int_equal(i.ncalls + w.ncalls, b.ncalls);
        assert_true(fabs(i.flops + w.flops - b.flops) <= 1e-9 * b.flops);
        assert_true(b.flops > 1.9 * f.flops && b.flops < 2.1 * f.flops);
        assert_true(b.work_bytes > 0 && w.work_bytes == 0);
        pp_program_free(&f);
        pp_program_free(&b);
        pp_program_free(&i);
        pp_program_free(&w);
    }
    struct pp_program transfer = make_program(model, PP_XFER_F, 0, 5, false);
    assert_int_equal(transfer.ncalls, 0);
    pp_program_free(&transfer);
    pp_model_free(model);
}

/* Every operand of every call lies within its region. */
static void test_operands_within_regions(void **state)
{
    (void)state;
    struct pp_model *model = make_model(lab, 2, NULL);
    const int kinds[] = {PP_F, PP_R, PP_B, PP_I, PP_W, PP_NORM, PP_STEP};
    for (int stage = 0; stage < 2; stage++)
        for (int k = 0; k < 7; k++) {
            const bool split = kinds[k] == PP_I || kinds[k] == PP_W;
            struct pp_program program = make_program(model, kinds[k], stage, 2, split);
            int64_t size[PP_MEM_REGIONS] = {0};
            size[PP_MEM_PARAM] = size[PP_MEM_GRAD] = model->stages[stage].param_bytes;
            size[PP_MEM_ACT] = pp_model_act_bytes(model, stage, &(struct pp_program_spec){35, 2, true, split});
            size[PP_MEM_WORK] = program.work_bytes;
            for (int i = 0; i < program.ncalls; i++)
                for (int r = 0; r < PP_CALL_REFS; r++) {
                    const struct pp_ref *ref = &program.calls[i].ref[r];
                    assert_true(ref->offset >= 0 && (ref->offset == 0 || ref->offset < size[ref->region]));
                }
            pp_program_free(&program);
        }
    pp_model_free(model);
}

/* Memory of long rows: what a layer keeps grows with the tokens, not with their square; nor does scratch. Tasks that
 * differ in it have other names, as their times are others. */
static void test_flash_memory(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 64, .heads = 4, .d_ff = 64, .layers = 2, .vocab = 99, .mask = PP_MASK_CAUSAL};
    const struct pp_class b = {PP_B, 0, 2, .adds = true};
    int64_t act[2][2], work[2][2]; /* [attention][longer] */
    char names[2][PP_SIGNATURE_BYTES];
    for (int kind = PP_ATTENTION_MATH; kind <= PP_ATTENTION_FLASH; kind++)
        for (int longer = 0; longer < 2; longer++) {
            const struct pp_program_spec spec = {longer ? 4096 : 2048, 2, true, false};
            struct pp_program program;
            struct pp_model *model;
            shape.attention = kind;
            assert_int_equal(pp_model_create(&shape, 1, NULL, NULL, &model), PP_OK);
            act[kind][longer] = pp_model_act_bytes(model, 0, &spec);
            assert_int_equal(pp_model_program(model, &b, &spec, &program), PP_OK);
            work[kind][longer] = program.work_bytes;
            snprintf(names[kind], sizeof names[kind], "%s", program.signature);
            pp_program_free(&program);
            pp_model_free(model);
        }
    assert_int_equal(act[PP_ATTENTION_MATH][0] - act[PP_ATTENTION_FLASH][0], 2LL * 2 * 4 * 2048 * (2048 - 1) * 4);
    assert_int_equal(act[PP_ATTENTION_FLASH][1], 2 * act[PP_ATTENTION_FLASH][0]);
    assert_int_equal(work[PP_ATTENTION_FLASH][1], 2 * work[PP_ATTENTION_FLASH][0]);
    assert_true(work[PP_ATTENTION_MATH][1] > 3 * work[PP_ATTENTION_MATH][0]);
    assert_string_equal(names[PP_ATTENTION_MATH], "B 2l+emb+dec d64 h4 ff64 v99 causal seq4096 rows2");
    assert_string_equal(names[PP_ATTENTION_FLASH], "B 2l+emb+dec d64 h4 ff64 v99 causal flash seq4096 rows2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_norm_before_the_decoder),
        cmocka_unit_test(test_impossible_shapes),
        cmocka_unit_test(test_initial_weights),
        cmocka_unit_test(test_normal_initial_weights),
        cmocka_unit_test(test_weights_do_not_depend_on_the_cut),
        cmocka_unit_test(test_weights_do_not_depend_on_threads),
        cmocka_unit_test(test_signature_of_a_stage_between),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_operands_within_regions),
        cmocka_unit_test(test_flash_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
