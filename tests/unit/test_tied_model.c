/* SPDX-License-Identifier: Apache-2.0
 *
 * Models whose decoder has the embedding's weight: one parameter with two copies, which are alike wherever they are
 * summed or shared.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/model.h"

enum { WORDS = 101, COLUMNS = 12 };

static const struct pp_shape base = {.d_model = COLUMNS,
                                     .heads = 2,
                                     .d_ff = 24,
                                     .layers = 3,
                                     .vocab = WORDS,
                                     .mask = PP_MASK_CAUSAL,
                                     .replicas = 1,
                                     .tied = true};

static struct pp_model *make_model(const struct pp_shape *shape, int stages)
{
    struct pp_model *model;
    if (pp_model_create(shape, stages, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
    return model;
}

static struct pp_program make_program(const struct pp_model *model, int kind, int stage)
{
    const struct pp_class cls = {kind, stage, kind == PP_NORM || kind == PP_STEP ? 0 : 2, .adds = true};
    struct pp_program program;
    if (pp_model_program(model, &cls, &(struct pp_program_spec){7, 2, true, true}, &program) != PP_OK)
        fail_msg("%s", pp_message());
    return program;
}

static void test_parameters(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 3; stages++) {
        struct pp_shape shape = base;
        struct pp_model *tied = make_model(&shape, stages);
        shape.tied = false;
        struct pp_model *other = make_model(&shape, stages);
        assert_int_equal(tied->ntensors, other->ntensors);
        assert_int_equal(other->parameters - tied->parameters, WORDS * COLUMNS);
        for (int i = 0; i < tied->ntensors; i++) {
            const struct pp_tensor *t = &tied->tensors[i];
            assert_string_equal(t->name, other->tensors[i].name);
            assert_false(other->tensors[i].copy);
            assert_int_equal(t->copy, strcmp(t->name, "decoder.weight") == 0);
            if (t->copy) assert_int_equal(pp_tied_copy(tied), i);
            if (t->copy) assert_int_equal(t->stage, stages - 1);
        }
        pp_model_free(tied);
        pp_model_free(other);
    }
}

static int64_t end_of_stage(const struct pp_model *model, int tensor)
{
    return model->stages[model->tensors[tensor].stage].param_bytes;
}

/* Whole, or of each replica the same part of both copies: words that only fill up to a multiple are in both. */
static void check_gradients(const struct pp_shape *shape)
{
    struct pp_model *model = make_model(shape, 2);
    const int copy = pp_tied_copy(model);
    const struct pp_tensor *a = &model->tensors[0], *b = &model->tensors[copy];
    assert_int_equal(a->local_elements, b->local_elements);
    assert_int_equal(a->part_elements, b->part_elements);
    assert_int_equal(a->split, b->split);
    int64_t covered = 0;
    for (int replica = 0; replica < shape->replicas; replica++) {
        const struct pp_extent x = pp_tied_gradient(model, 0, replica), y = pp_tied_gradient(model, copy, replica);
        const int64_t before = shape->zero ? replica * x.bytes : 0;
        assert_int_equal(x.bytes, y.bytes);
        assert_int_equal(x.offset, a->offset + before);
        assert_int_equal(y.offset, b->offset + before);
        assert_true(x.offset + x.bytes <= end_of_stage(model, 0));
        assert_true(y.offset + y.bytes <= end_of_stage(model, copy));
        covered = before + x.bytes;
    }
    if (!shape->zero) assert_int_equal(covered, a->local_elements * (int64_t)sizeof(float));
    assert_true(covered >= a->local_elements * (int64_t)sizeof(float));
    pp_model_free(model);
}

static void test_gradients(void **state)
{
    (void)state;
    static const int multiples[] = {1, 2, 16, 128};
    for (int replicas = 1; replicas <= 3; replicas++)
        for (int zero = 0; zero <= (replicas > 1); zero++)
            for (int tensor = 1; tensor <= 2; tensor++)
                for (int precision = PP_FP32; precision <= PP_BF16; precision++)
                    for (int i = 0; i < 4; i++) {
                        struct pp_shape shape = base;
                        shape.replicas = replicas;
                        shape.zero = zero;
                        shape.tensor = tensor;
                        shape.precision = precision;
                        shape.vocab_multiple = multiples[i];
                        check_gradients(&shape);
                    }
}

/* The norm has the tensor once, as it has each other one, and its place among the sums of the copy stays empty. Both
 * copies are stepped. */
static void check_calls(const struct pp_shape *shape, int stages)
{
    struct pp_model *model = make_model(shape, stages);
    const struct pp_tensor *copy = &model->tensors[pp_tied_copy(model)];
    const int calls = shape->zero ? 1 : shape->replicas;
    for (int s = 0; s < stages; s++) {
        struct pp_program norm = make_program(model, PP_NORM, s), step = make_program(model, PP_STEP, s);
        const int copies = s == stages - 1;
        assert_int_equal(norm.ncalls, (model->stages[s].tensors - copies) * calls);
        assert_int_equal(step.ncalls, model->stages[s].tensors);
        for (int i = 0; i < norm.ncalls && copies; i++)
            assert_true(norm.calls[i].at.sumsq.gradient.offset < copy->offset ||
                        norm.calls[i].at.sumsq.gradient.offset >=
                            copy->offset + (int64_t)sizeof(float) * copy->local_elements);
        for (int i = 0; i < step.ncalls; i++) assert_int_equal(step.calls[i].step.sparse, 0);
        pp_program_free(&norm);
        pp_program_free(&step);
    }
    pp_model_free(model);
}

static void test_calls(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 3; stages++)
        for (int way = 0; way < 3; way++) {
            struct pp_shape shape = base;
            shape.replicas = 1 + (way > 0);
            shape.zero = way > 1;
            check_calls(&shape, stages);
        }
    struct pp_shape shape = base; /* without, the embedding's gradient is in the rows of the batch's words only */
    shape.tied = false;
    struct pp_model *model = make_model(&shape, 2);
    struct pp_program step = make_program(model, PP_STEP, 0);
    assert_int_equal(step.calls[0].step.sparse, 1);
    pp_program_free(&step);
    pp_model_free(model);
}

static void check_signature(const struct pp_shape *shape, int kind, int stage, const char *expected)
{
    struct pp_model *model = make_model(shape, 3);
    struct pp_program program = make_program(model, kind, stage);
    assert_string_equal(program.signature, expected);
    pp_program_free(&program);
    pp_model_free(model);
}

/* Norm and step of the stages with a copy are other tasks than without; all else is as it was. */
static void test_signatures(void **state)
{
    (void)state;
    struct pp_shape shape = base;
    check_signature(&shape, PP_STEP, 0, "STEP 1l+emb d12 ff24 v101 tied");
    check_signature(&shape, PP_NORM, 2, "NORM 1l+dec d12 ff24 v101 tied");
    check_signature(&shape, PP_STEP, 1, "STEP 1l d12 ff24");
    check_signature(&shape, PP_F, 0, "F 1l+emb d12 h2 ff24 v101 causal seq7 rows2");
    check_signature(&shape, PP_B, 2, "B 1l+dec d12 h2 ff24 v101 causal seq7 rows2");
    shape.optimizer = PP_ADAMW;
    shape.vocab_multiple = 16; /* the embedding has room for as many words as the decoder's weight */
    shape.replicas = 2;
    shape.zero = PP_ZERO_OPTIMIZER;
    check_signature(&shape, PP_STEP, 0, "STEP 1l+emb d12 ff24 v101/112 tied adamw zero 1/2");
    check_signature(&shape, PP_STEP, 2, "STEP 1l+dec d12 ff24 v101/112 tied adamw zero 1/2");
    check_signature(&shape, PP_F, 0, "F 1l+emb d12 h2 ff24 v101 causal seq7 rows2");
    shape.tied = false;
    check_signature(&shape, PP_STEP, 0, "STEP 1l+emb d12 ff24 v101 adamw zero 1/2");
}

/* What products read has a copy in bfloat16; the embedding is looked up as it is. */
static void test_precision(void **state)
{
    (void)state;
    struct pp_shape shape = base;
    shape.precision = PP_BF16;
    struct pp_model *model = make_model(&shape, 2);
    assert_true(model->tensors[0].offset16 < 0);
    assert_true(model->tensors[pp_tied_copy(model)].offset16 >= 0);
    pp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parameters), cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_calls), cmocka_unit_test(test_signatures),
                                       cmocka_unit_test(test_precision)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
