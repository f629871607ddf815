/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model's memory is: copies of weights, and activation slots against the formula of docs/MEMORY.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/model.h"
#include "tests/unit/program_scratch.h"

enum { SEQ = 5 };

/* What products read has a copy that the step renews; nothing else has one, positions neither. Only the embedding's
 * gradient is sparse. */
static void test_copies_of_weights(void **state)
{
    (void)state;
    const struct pp_shape shape = {.d_model = 12,
                                   .heads = 3,
                                   .d_ff = 20,
                                   .layers = 2,
                                   .vocab = 101,
                                   .precision = PP_BF16,
                                   .vocab_multiple = 128,
                                   .positions = PP_POSITIONS_LEARNED,
                                   .max_positions = 16};
    struct pp_model *model;
    if (pp_model_create(&shape, 2, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
    for (int s = 0; s < 2; s++) {
        const struct pp_stage *stage = &model->stages[s];
        struct pp_program step;
        const struct pp_class cls = {PP_STEP, s, 0};
        if (pp_model_program(model, &cls, &(struct pp_program_spec){SEQ, 1, true, false}, &step) != PP_OK)
            fail_msg("%s", pp_message());
        int64_t end = 0;
        for (int i = 0; i < stage->tensors; i++) {
            const struct pp_tensor *t = &model->tensors[stage->first_tensor + i];
            const struct pp_ref *copy = &step.calls[i].at.step.copy;
            const bool embedding = strcmp(t->name, "embedding.weight") == 0;
            const bool product = t->ndim == 2 && !embedding && strcmp(t->name, "positions.weight") != 0;
            assert_int_equal(step.calls[i].step.sparse, embedding);
            assert_int_equal(copy->region, product ? PP_MEM_PARAM16 : PP_MEM_NONE);
            assert_int_equal(t->offset16, product ? copy->offset : -1);
            if (!product) continue;
            assert_true(copy->offset >= end);
            end = copy->offset + 2 * t->elements;
        }
        assert_true(end <= stage->param16_bytes);
        pp_program_free(&step);
    }
    pp_model_free(model);
}

/* Bytes of a slot by the formula of docs/MEMORY.md, where alignment adds nothing. */
static int64_t slot_formula(const struct pp_shape *s, const struct pp_stage *stage, bool split, int64_t tokens, int seq)
{
    const int64_t d = s->d_model, ff = s->d_ff, columns = pp_padded_vocab(s), e = pp_element_bytes(s->precision);
    const int64_t kept = s->attention == PP_ATTENTION_FLASH ? 4 * s->heads : s->heads * seq * e;
    const int64_t keys = (s->kv_heads ? s->kv_heads : s->heads) * (d / s->heads);
    int64_t per_token = stage->layers * ((6 * d + 2 * keys + ff) * e + kept + 8);
    if (s->qk_norm) per_token += stage->layers * (d + keys) * e;
    if (split && s->activation != PP_SWIGLU) per_token += stage->layers * ff * e;
    if (s->activation != PP_RELU) per_token += stage->layers * (s->activation == PP_SWIGLU ? 2 : 1) * ff * e;
    if (s->norm == PP_NORM_FIRST) per_token += (split ? stage->layers * d * e : 0) + (stage->decode ? d * e + 4 : 0);
    if (stage->decode) per_token += d * e + columns * 4 + (pp_in_bf16(s->precision) ? columns * e : 0);
    if (stage->embed && split) per_token += d * e;
    return tokens * per_token;
}

static void test_memory_formula(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 4096, .heads = 16, .d_ff = 4096, .layers = 8, .vocab = 28782};
    shape.vocab_multiple = 128;
    for (int precision = PP_FP32; precision < PP_PRECISIONS; precision++)
        for (int turn = 0; turn < 24; turn++) {
            const int split = turn % 2;
            struct pp_model *model;
            shape.norm = turn / 2 % 2;
            shape.activation = turn / 4 % 3;
            shape.normalization = shape.bias = shape.activation == PP_SWIGLU;
            shape.kv_heads = turn / 4 % 2 ? 4 : 0;
            shape.qk_norm = turn / 3 % 2;
            shape.precision = precision;
            shape.attention = turn / 12 ? PP_ATTENTION_FLASH : PP_ATTENTION_MATH;
            if (pp_model_create(&shape, 2, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
            for (int stage = 0; stage < 2; stage++) {
                const struct pp_program_spec spec = {35, 16, true, split};
                assert_int_equal(pp_model_act_bytes(model, stage, &spec),
                                 slot_formula(&shape, &model->stages[stage], split, 16 * 35, 35));
                const struct pp_program_spec layers = {35, 16, true, false, true};
                struct pp_stage one = model->stages[stage];
                one.layers = 1;
                const int64_t x = shape.norm == PP_NORM_LAST ? 16 * 35 * 4096 * pp_element_bytes(precision) : 0;
                assert_int_equal(pp_model_act_bytes(model, stage, &layers),
                                 slot_formula(&shape, &one, false, 16 * 35, 35) - x);
            }
            const int64_t keys = shape.kv_heads ? 1024 : 4096, gates = shape.activation == PP_SWIGLU ? 4096 : 0;
            const int64_t weights = 4 * (4 * 4096 + 2 * keys + gates) * 4096LL + 28800 * 4096LL; /* of stage 1 */
            const int64_t linears = weights - 28800 * 4096LL, scales = 4 * 4 * 64; /* of fp8: two copies of layers' */
            assert_int_equal(model->stages[1].param16_bytes, (pp_in_bf16(precision) ? 2 * weights : 0) +
                                                                 (precision == PP_FP8 ? 2 * linears + scales : 0));
            pp_model_free(model);
        }
}

/* Of experts: rows of places in the place of tokens, and what the router tells. 560 tokens in microbatches; each expert
 * has room for 1.25 times 2 / 16 of them, 88. */
static void test_memory_of_experts(void **state)
{
    (void)state;
    enum { TOKENS = 16 * 35, PLACES = 16 * 88, D = 1024, FF = 512 };
    for (int turn = 0; turn < 16; turn++) {
        const int split = turn % 2, tensor = 1 + turn / 8;
        struct pp_shape dense = {.d_model = D, .heads = 16, .d_ff = FF, .layers = 6, .vocab = 2048, .head_dim = 64};
        dense.bias = PP_NO_BIAS;
        dense.norm = turn / 2 % 2;
        dense.activation = turn / 4 % 2 ? PP_SWIGLU : PP_RELU;
        dense.precision = PP_BF16;
        struct pp_shape shape = dense;
        shape.experts = 16;
        shape.experts_per_token = 2;
        shape.capacity_factor = 1.25;
        shape.tensor = tensor;
        dense.heads /= tensor; /* as one of the workers has them */
        struct pp_model *model, *same;
        assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &model), PP_OK);
        assert_int_equal(pp_model_create(&dense, 3, NULL, NULL, &same), PP_OK);
        const struct pp_program_spec spec = {35, 16, true, split};
        const int64_t inner = (shape.activation == PP_SWIGLU ? 3 : 1 + split) * FF * 2;
        const int64_t route = TOKENS * (16 * 4 + 3 * 2 * 4) + PLACES / tensor * 4 + 16 * 4 + split * TOKENS * 16 * 2;
        assert_int_equal(pp_model_act_bytes(model, 1, &spec) - pp_model_act_bytes(same, 1, &spec),
                         2 * (route + (PLACES / tensor - TOKENS) * inner));
        pp_model_free(model);
        pp_model_free(same);
    }
}

/* Layers of two kinds: a slot has each kind's bytes for its layers, in evaluation those of the larger one. */
static void test_memory_of_two_kinds(void **state)
{
    (void)state;
    for (int turn = 0; turn < 16; turn++) {
        struct pp_shape shape = {.d_model = 64, .heads = 4, .d_ff = 96, .layers = 9, .vocab = 50, .bias = PP_NO_BIAS};
        struct pp_model *mixed, *dense, *experts;
        const int split = turn % 2;
        shape.norm = turn / 2 % 2;
        shape.activation = turn / 4 % 2 ? PP_SWIGLU : PP_GELU;
        shape.d_ff = turn / 8 ? 500 : 20; /* beside experts of 96 columns */
        assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &dense), PP_OK);
        shape.dense_ff = shape.d_ff;
        shape.d_ff = 96;
        shape.experts = 8;
        shape.experts_per_token = 2;
        shape.capacity_factor = 1.25;
        shape.shared_ff = 40;
        struct pp_shape all = shape;
        all.dense_ff = 0;
        assert_int_equal(pp_model_create(&all, 3, NULL, NULL, &experts), PP_OK);
        shape.dense_layers = 3;  /* all of stage 0 */
        shape.experts_every = 2; /* layers 3, 5 and 7 */
        assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &mixed), PP_OK);
        const struct pp_program_spec spec = {35, 4, true, split}, evaluation = {35, 4, false, false};
        const int64_t of_dense = pp_model_act_bytes(dense, 1, &spec) / 3,
                      of_experts = pp_model_act_bytes(experts, 1, &spec) / 3;
        assert_int_equal(pp_model_act_bytes(mixed, 0, &spec), pp_model_act_bytes(dense, 0, &spec));
        assert_int_equal(pp_model_act_bytes(mixed, 1, &spec), of_dense + 2 * of_experts);
        assert_int_equal(pp_model_act_bytes(mixed, 2, &spec) - pp_model_act_bytes(dense, 2, &spec),
                         of_experts - of_dense);
        const int64_t one = pp_model_act_bytes(dense, 1, &evaluation),
                      other = pp_model_act_bytes(experts, 1, &evaluation);
        assert_int_equal(pp_model_act_bytes(mixed, 1, &evaluation), one > other ? one : other);
        pp_model_free(mixed);
        pp_model_free(dense);
        pp_model_free(experts);
    }
}

/* What is beside experts: of all tokens, so many that alignment adds nothing. */
static void test_memory_beside_experts(void **state)
{
    (void)state;
    enum { ROWS = 16, TOKENS = ROWS * 36, FF = 512, WIDE = 3 * FF };
    static const struct {
        int kind;
        bool split;
    } tasks[] = {{PP_F, false}, {PP_B, false}, {PP_I, true}, {PP_W, true}};
    for (int turn = 0; turn < 8; turn++) {
        struct pp_shape shape = {.d_model = 1024, .heads = 16, .d_ff = FF, .layers = 6, .vocab = 2048, .tensor = 2};
        struct pp_model *without, *with;
        shape.bias = PP_NO_BIAS;
        shape.precision = PP_BF16;
        shape.experts = 16;
        shape.experts_per_token = 2;
        shape.capacity_factor = 1.25;
        shape.norm = turn % 2;
        shape.activation = turn / 2 % 2 ? PP_SWIGLU : PP_RELU;
        assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &without), PP_OK);
        shape.shared_ff = 2 * WIDE;
        shape.shared_gate = turn / 4;
        assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &with), PP_OK);
        const bool gates = shape.activation == PP_SWIGLU;
        for (int split = 0; split < 2; split++) {
            const struct pp_program_spec spec = {36, ROWS, true, split};
            const int64_t inner = (gates ? 3 : 1 + split) * WIDE * 2, gate = shape.shared_gate * (4 + 2 * split);
            assert_int_equal(pp_model_act_bytes(with, 1, &spec) - pp_model_act_bytes(without, 1, &spec),
                             2 * TOKENS * (inner + gate));
        }
        const int64_t inner = TOKENS * WIDE * 2, gate = shape.shared_gate * TOKENS;
        const int64_t scratch[] = {0, inner + 6 * gate, gates * inner + 4 * gate, 0};
        for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
            assert_int_equal(scratch_of(with, tasks[i].kind, tasks[i].split, 36) -
                                 scratch_of(without, tasks[i].kind, tasks[i].split, 36),
                             scratch[i]);
        pp_model_free(without);
        pp_model_free(with);
    }
}

/* Of experts that workers share: what has come from others is kept, and what is sent has scratch. */
static void test_memory_of_shared_experts(void **state)
{
    (void)state;
    enum { PLACES = 16 * 88, D = 1024, ROW = D * 2 };
    static const struct {
        int kind, rows, numbers; /* of scratch for places more than without */
        bool split;
    } tasks[] = {
        {PP_F, 1, 1, false}, {PP_B, 1, 2, false}, {PP_I, 1, 2, true}, {PP_W, -1, 0, true}, {PP_R, 1, 1, false}};
    struct pp_shape shape = {.d_model = D, .heads = 16, .d_ff = 512, .layers = 6, .vocab = 2048};
    shape.bias = PP_NO_BIAS;
    shape.precision = PP_BF16;
    shape.experts = 16;
    shape.experts_per_token = 2;
    shape.capacity_factor = 1.25;
    struct pp_model *one, *four;
    assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &one), PP_OK);
    shape.expert_parallel = 4;
    assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &four), PP_OK);
    for (int split = 0; split < 2; split++) {
        const struct pp_program_spec spec = {35, 16, true, split};
        assert_int_equal(pp_model_act_bytes(four, 1, &spec) - pp_model_act_bytes(one, 1, &spec),
                         2 * PLACES * ((1 + split) * ROW + 4));
    }
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        assert_int_equal(scratch_of(four, tasks[i].kind, tasks[i].split, 35) -
                             scratch_of(one, tasks[i].kind, tasks[i].split, 35),
                         PLACES * (tasks[i].rows * ROW + tasks[i].numbers * 4));
    /* three quarters of two layers' experts, two matrices each, are others' */
    assert_int_equal(one->stages[1].param_bytes - four->stages[1].param_bytes, 2 * 12 * 2 * 512 * D * 4);
    assert_int_equal(one->parameters, four->parameters);
    pp_model_free(one);
    pp_model_free(four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_of_experts),     cmocka_unit_test(test_memory_of_two_kinds),
        cmocka_unit_test(test_memory_beside_experts), cmocka_unit_test(test_memory_of_shared_experts),
        cmocka_unit_test(test_copies_of_weights),     cmocka_unit_test(test_memory_formula),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
