/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of programs: keys of measured times. What stays as it was is found in old databases. Names of tensors: those of
 * PyTorch's modules.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/program_signature.h"

static void test_signatures(void **state)
{
    (void)state;
    struct pp_shape shape = {
        .d_model = 12, .heads = 3, .d_ff = 20, .layers = 2, .vocab = 101, .dropout = 0.1, .mask = PP_MASK_CAUSAL};
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 v101 causal p0.1 seq5 rows3");
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d12 ff20 v101");
    shape.norm = PP_NORM_FIRST;
    shape.activation = PP_GELU;
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 v101 causal p0.1 pre gelu seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 1l+emb d12 ff20 v101");
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d12 ff20 v101 pre");
    shape.activation = PP_GELU_TANH;
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 v101 causal p0.1 pre gelu-tanh seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 1l+emb d12 ff20 v101");
    shape.activation = PP_GELU;
    shape.attention = PP_ATTENTION_FLASH;
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 v101 causal flash p0.1 pre gelu seq5 rows3");
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d12 ff20 v101 pre");
    shape.kv_heads = 3;
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d12 ff20 v101 pre");
    shape.kv_heads = 1;
    shape.positions = PP_POSITIONS_ROPE;
    shape.rope_theta = 10000;
    check_signature(shape, PP_F, 1, "F 1l+dec d12 h3 kv1 ff20 v101 causal flash p0.1 pre gelu rope seq5 rows3");
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d12 h3 kv1 ff20 v101 pre");
    shape.head_dim = 6;
    check_signature(shape, PP_F, 1, "F 1l+dec d12 h3x6 kv1 ff20 v101 causal flash p0.1 pre gelu rope seq5 rows3");
    shape.kv_heads = 0;
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d12 h3x6 ff20 v101 pre");
    shape.head_dim = 0;
    shape.positions = PP_POSITIONS_SINUSOIDAL;
    shape.normalization = PP_RMSNORM;
    shape.activation = PP_SWIGLU;
    shape.bias = PP_NO_BIAS;
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 v101 causal flash p0.1 pre rmsnorm swiglu nobias seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 1l+emb d12 ff20 v101 rmsnorm swiglu nobias");
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d12 ff20 v101 pre rmsnorm swiglu nobias");
    shape.qk_norm = true;
    shape.norm_epsilon = 1e-6; /* takes no time */
    check_signature(shape, PP_B, 1,
                    "B 1l+dec d12 h3 ff20 v101 causal flash p0.1 pre rmsnorm qknorm swiglu nobias seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 1l+emb d12 ff20 v101 rmsnorm qknorm swiglu nobias");
    shape.qk_norm = false;
    shape.bias = PP_BIAS_QKV;
    check_signature(shape, PP_F, 0,
                    "F 1l+emb d12 h3 ff20 v101 causal flash p0.1 pre rmsnorm swiglu qkvbias seq5 rows3");
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d12 ff20 v101 pre rmsnorm swiglu qkvbias");
}

/* Programs of fp8 are named by it, also those in which nothing is FP8. */
static void test_signatures_of_fp8(void **state)
{
    (void)state;
    const struct pp_shape shape = {
        .d_model = 16, .heads = 2, .d_ff = 32, .layers = 2, .vocab = 101, .precision = PP_FP8, .norm = PP_NORM_FIRST};
    check_signature(shape, PP_F, 0, "F 1l+emb d16 h2 ff32 v101 full fp8 pre seq5 rows3");
    check_signature(shape, PP_B, 1, "B 1l+dec d16 h2 ff32 v101 full fp8 pre seq5 rows3");
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d16 ff32 v101 fp8 pre");
}

/* Times depend on how many experts there are, a token has, and have room; of norm and step on how many there are. */
static void test_signatures_of_experts(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 12, .heads = 3, .d_ff = 20, .layers = 2, .vocab = 101, .bias = PP_NO_BIAS};
    shape.experts = 8;
    shape.experts_per_token = 2;
    shape.capacity_factor = 1.25;
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 x8k2c1.25 v101 full nobias seq5 rows3");
    check_signature(shape, PP_B, 1, "B 1l+dec d12 h3 ff20 x8k2c1.25 v101 full nobias seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 1l+emb d12 ff20 x8 v101 nobias");
    shape.sigmoid_scores = true;
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 x8k2lc1.25 v101 full nobias seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 1l+emb d12 ff20 x8 v101 nobias");
    shape.sigmoid_scores = false;
    shape.gates_of_all = true; /* takes as long */
    shape.shared_ff = 24;
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 x8k2c1.25s24 v101 full nobias seq5 rows3");
    shape.shared_gate = true;
    shape.expert_parallel = 2;
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 x8k2c1.25s24g/2 v101 full nobias seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 1l+emb d12 ff20 x8s24g/2 v101 nobias");
}

/* Where layers without experts are, and how wide, in the part that the task is about. */
static void test_signatures_of_two_kinds(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 12, .heads = 3, .d_ff = 20, .layers = 8, .vocab = 101, .bias = PP_NO_BIAS};
    shape.experts = 8;
    shape.experts_per_token = 2;
    shape.capacity_factor = 1.25;
    shape.dense_layers = 3;
    check_signature(shape, PP_F, 0, "F 4l+emb d12 h3 ff20 x8k2c1.25 dense3ff20 v101 full nobias seq5 rows3");
    check_signature(shape, PP_F, 1, "F 4l+dec d12 h3 ff20 x8k2c1.25 v101 full nobias seq5 rows3");
    shape.dense_ff = 48;
    shape.dense_layers = 4;
    check_signature(shape, PP_B, 0, "B 4l+emb d12 h3 ff48 v101 full nobias seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 4l+emb d12 ff48 v101 nobias");
    check_signature(shape, PP_STEP, 1, "STEP 4l+dec d12 ff20 x8 v101 nobias");
    shape.dense_layers = 1;
    shape.experts_every = 2; /* 1, 3, 5, 7 */
    check_signature(shape, PP_F, 0, "F 4l+emb d12 h3 ff20 x8k2c1.25 dense1/2ff48 v101 full nobias seq5 rows3");
    shape.experts_every = 3; /* 1, 4, 7 */
    check_signature(shape, PP_F, 1, "F 4l+dec d12 h3 ff20 x8k2c1.25 dense0/3ff48 v101 full nobias seq5 rows3");
}

/* What activation functions made is made again in B and W, and in I where experts' routers need it. */
static void test_signatures_of_activations(void **state)
{
    (void)state;
    static const struct {
        int kind, experts;
        bool again;
    } rows[] = {{PP_F, 0, false}, {PP_B, 0, true}, {PP_I, 0, false}, {PP_W, 0, true},
                {PP_F, 4, false}, {PP_B, 4, true}, {PP_I, 4, true},  {PP_W, 4, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pp_shape shape = {.d_model = 12, .heads = 3, .d_ff = 20, .layers = 2, .vocab = 101, .bias = PP_NO_BIAS};
        shape.activation = PP_GELU;
        shape.experts = rows[i].experts;
        shape.experts_per_token = 2;
        shape.capacity_factor = 1;
        struct pp_model *model = make_model(&shape, 1);
        struct pp_program program;
        const struct pp_class cls = {.kind = rows[i].kind, .rows = 3};
        const struct pp_program_spec spec = {
            .seq = SEQ, .slot_rows = 3, .training = true, .split_backward = true, .activation_again = true};
        if (pp_model_program(model, &cls, &spec, &program) != PP_OK) fail_msg("%s", pp_message());
        assert_int_equal(strstr(program.signature, " activation ") != NULL, rows[i].again);
        pp_program_free(&program);
        pp_model_free(model);
    }
}

/* Learnt positions are the embedding's alone, and what the decoder lacks is its own. */
static void test_signatures_of_gpt2(void **state)
{
    (void)state;
    const struct pp_shape shape = {.d_model = 12,
                                   .heads = 3,
                                   .d_ff = 20,
                                   .layers = 2,
                                   .vocab = 101,
                                   .bias = PP_BIAS_LAYERS,
                                   .positions = PP_POSITIONS_LEARNED,
                                   .max_positions = 64};
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3 ff20 v101 full learned64 seq5 rows3");
    check_signature(shape, PP_B, 1, "B 1l+dec d12 h3 ff20 v101 full layerbias seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 1l+emb d12 ff20 v101 learned64");
    check_signature(shape, PP_STEP, 1, "STEP 1l+dec d12 ff20 v101 layerbias");
    struct pp_shape more = shape;
    more.layers = 4;
    check_part(more, (struct pp_class){PP_F, 0, 3, 1, 2}, "F 1l part d12 h3 ff20 full seq5 rows3");
    check_part(more, (struct pp_class){PP_B, 1, 3, 1, 2}, "B 1l writes d12 h3 ff20 full seq5 rows3");
    more.max_positions = SEQ - 1;
    struct pp_model *model = make_model(&more, 2);
    struct pp_program program;
    assert_int_equal(pp_model_program(model, &(struct pp_class){PP_F, 0, 3},
                                      &(struct pp_program_spec){SEQ, 3, true, false}, &program),
                     PP_USAGE);
    pp_model_free(model);
}

/* GPT-2's (Radford et al., 2019), but for its decoder's weights, which are the embedding's there. */
static void test_tensors_of_gpt2(void **state)
{
    (void)state;
    const struct pp_shape shape = {.d_model = 768,
                                   .heads = 12,
                                   .d_ff = 3072,
                                   .layers = 12,
                                   .vocab = 50257,
                                   .norm = PP_NORM_FIRST,
                                   .bias = PP_BIAS_LAYERS,
                                   .positions = PP_POSITIONS_LEARNED,
                                   .max_positions = 1024};
    struct pp_model *model = make_model(&shape, 2);
    const struct pp_tensor *t = model->tensors;
    assert_int_equal(model->parameters, 124439808 + 50257 * 768);
    assert_int_equal(pp_shape_embedding(&shape) + 12 * pp_shape_layer(&shape, 0) + pp_shape_decoder(&shape),
                     model->parameters);
    assert_int_equal(pp_shape_embedding(&shape), (50257 + 1024) * 768);
    assert_int_equal(model->ntensors, 2 + 12 * 12 + 3);
    assert_string_equal(t[1].name, "positions.weight");
    assert_true(t[1].shape[0] == 1024 && t[1].shape[1] == 768 && t[1].stage == 0 && t[1].init == t[0].init &&
                t[1].bound == t[0].bound);
    assert_string_equal(t[2].name, "layers.0.self_attn.in_proj_weight");
    assert_string_equal(t[3].name, "layers.0.self_attn.in_proj_bias");
    assert_string_equal(t[model->ntensors - 1].name, "decoder.weight");
    assert_int_equal(model->stages[0].layer_at[0], 2);
    assert_int_equal(model->stages[1].layer_at[0], 0);
    pp_model_free(model);
}

/* The longest that is likely is not cut off. */
static void test_long_signature(void **state)
{
    (void)state;
    const struct pp_shape shape = {.d_model = 16384,
                                   .heads = 128,
                                   .d_ff = 53248,
                                   .layers = 126,
                                   .vocab = 128255,
                                   .dropout = 0.125,
                                   .residual_only = true,
                                   .mask = PP_MASK_CAUSAL,
                                   .attention = PP_ATTENTION_FLASH,
                                   .precision = PP_BF16,
                                   .norm = PP_NORM_FIRST,
                                   .normalization = PP_RMSNORM,
                                   .activation = PP_SWIGLU,
                                   .bias = PP_NO_BIAS,
                                   .vocab_multiple = 128};
    struct pp_model *model = make_model(&shape, 1);
    struct pp_program program;
    if (pp_model_program(model, &(struct pp_class){PP_F, 0, 2}, &(struct pp_program_spec){8192, 2, true, false},
                         &program) != PP_OK)
        fail_msg("%s", pp_message());
    assert_string_equal(program.signature,
                        "F 126l+emb+dec d16384 h128 ff53248 v128255/128256 causal flash p0.125r bf16 "
                        "pre rmsnorm swiglu nobias seq8192 rows2");
    pp_program_free(&program);
    pp_model_free(model);
    struct pp_shape longer = shape;
    longer.qk_norm = true;
    longer.positions = PP_POSITIONS_ROPE;
    longer.rope_theta = 500000;
    longer.kv_heads = 8;
    longer.head_dim = 256;
    longer.tensor = 8;
    longer.sequence = true;
    longer.experts = 256;
    longer.experts_per_token = 8;
    longer.capacity_factor = 1.125;
    longer.expert_groups = 8;
    longer.groups_per_token = 4;
    longer.expert_bias = true;
    longer.rotary_dim = 128;
    longer.dense_layers = 100;
    longer.experts_every = 12;
    longer.dense_ff = 1234560;
    model = make_model(&longer, 1);
    const struct pp_program_spec spec = {.seq = 8192, .slot_rows = 2, .training = true, .checkpoint_layers = true};
    if (pp_model_program(model, &(struct pp_class){PP_F, 0, 2}, &spec, &program) != PP_OK) fail_msg("%s", pp_message());
    assert_string_equal(
        program.signature,
        "F 126l+emb+dec d16384 h128x256 kv8 ff53248 x256k8of4/8c1.125b dense100/12ff1234560 "
        "v128255/16128 tp8 sp causal flash p0.125r bf16 pre rmsnorm qknorm swiglu nobias rope128 layers seq8192 "
        "rows2");
    pp_program_free(&program);
    pp_model_free(model);
}

/* Mixtral 8x7B (Jiang et al., 2024): its parameters, and those of a layer. Experts are whole in tensor ranks, the
 * router in each of them. */
static void test_tensors_of_mixtral(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 4096, .heads = 32, .kv_heads = 8, .d_ff = 14336, .layers = 32, .vocab = 32000};
    shape.norm = PP_NORM_FIRST;
    shape.normalization = PP_RMSNORM;
    shape.activation = PP_SWIGLU;
    shape.bias = PP_NO_BIAS;
    shape.experts = 8;
    shape.experts_per_token = 2;
    shape.capacity_factor = 1.25;
    shape.tensor = 4;
    struct pp_model *model = make_model(&shape, 2);
    const struct {
        const char *name;
        int64_t rows, columns, local_rows;
        double bound;
    } expected[] = {{"layers.0.router.weight", 8, 4096, 8, 1. / 64},
                    {"layers.0.linear1.weight", 8 * 28672, 4096, 2 * 28672, 1. / 64},
                    {"layers.0.linear2.weight", 8 * 4096, 14336, 2 * 4096, 1 / sqrt(14336)}};
    assert_int_equal(model->parameters, 46702792704);
    assert_int_equal(pp_shape_embedding(&shape) + 32 * pp_shape_layer(&shape, 0) + pp_shape_decoder(&shape),
                     model->parameters);
    for (int i = 0; i < 3; i++) {
        const struct pp_tensor *t = &model->tensors[3 + i];
        assert_string_equal(t->name, expected[i].name);
        assert_true(t->shape[0] == expected[i].rows && t->shape[1] == expected[i].columns);
        assert_true(t->local[0] == expected[i].local_rows && t->local[1] == expected[i].columns);
        assert_true(t->init == PP_INIT_UNIFORM && t->bound == expected[i].bound);
    }
    pp_model_free(model);
    shape.init_std = 0.02; /* what writes into the stream begins smaller */
    model = make_model(&shape, 2);
    assert_true(model->tensors[3].bound == 0.02 && model->tensors[4].bound == 0.02);
    assert_true(fabs(model->tensors[5].bound - 0.02 / 8) < 1e-12);
    pp_model_free(model);
}

/* What Llama's layers have, and nothing else; swiglu's linear1 has two halves. */
static void test_tensors_of_llama(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 200, .heads = 2, .d_ff = 200, .layers = 2, .vocab = 28782};
    shape.norm = PP_NORM_FIRST;
    shape.normalization = PP_RMSNORM;
    shape.activation = PP_SWIGLU;
    shape.bias = PP_NO_BIAS;
    struct pp_model *model = make_model(&shape, 2);
    const char *const names[] = {"layers.1.self_attn.in_proj_weight",
                                 "layers.1.self_attn.out_proj.weight",
                                 "layers.1.linear1.weight",
                                 "layers.1.linear2.weight",
                                 "layers.1.norm1.weight",
                                 "layers.1.norm2.weight",
                                 "norm.weight",
                                 "decoder.weight"};
    assert_int_equal(model->ntensors, 1 + 2 * 6 + 2);
    for (int i = 0; i < 8; i++) assert_string_equal(model->tensors[7 + i].name, names[i]);
    assert_int_equal(model->tensors[9].shape[0], 400);
    assert_int_equal(model->tensors[10].shape[1], 200);
    assert_int_equal(model->parameters, 2 * 28782 * 200 + 2 * (4 + 3) * 200 * 200 + 5 * 200);
    assert_int_equal(pp_shape_embedding(&shape) + 2 * pp_shape_layer(&shape, 0) + pp_shape_decoder(&shape),
                     model->parameters);
    pp_model_free(model);
    /* Llama 2 7B (Touvron et al., 2023), whose positions have no parameters either */
    struct pp_shape seven = shape;
    seven.d_model = 4096;
    seven.heads = 32;
    seven.d_ff = 11008;
    seven.layers = 32;
    seven.vocab = 32000;
    model = make_model(&seven, 1);
    assert_int_equal(model->parameters, 6738415616);
    pp_model_free(model);
    shape.normalization = PP_LAYERNORM; /* without biases of linears: norms keep theirs */
    model = make_model(&shape, 2);
    assert_int_equal(model->ntensors, 1 + 2 * 8 + 3);
    assert_string_equal(model->tensors[6].name, "layers.0.norm1.bias");
    pp_model_free(model);
}

/* Parts of three layers: backward from the last ones on; a forward that has no input to bring says so, and a backward
 * that writes gradients. */
static void test_signatures_of_parts(void **state)
{
    (void)state;
    static const struct {
        struct pp_class cls;
        const char *name;
    } parts[] = {{{PP_F, 0, 3, 0, 2}, "F 1l+emb d8 h2 ff12 v11 full seq5 rows3"},
                 {{PP_F, 0, 3, 1, 2}, "F 2l part d8 h2 ff12 full seq5 rows3"},
                 {{PP_F, 1, 3, 0, 3}, "F 1l d8 h2 ff12 full seq5 rows3"},
                 {{PP_F, 1, 3, 1, 3}, "F 1l part d8 h2 ff12 full seq5 rows3"},
                 {{PP_F, 1, 3, 2, 3}, "F 1l+dec part d8 h2 ff12 v11 full seq5 rows3"},
                 {{PP_B, 0, 3, 0, 2}, "B 2l writes d8 h2 ff12 full seq5 rows3"},
                 {{PP_B, 0, 3, 1, 2, .adds = true}, "B 1l+emb d8 h2 ff12 v11 full seq5 rows3"},
                 {{PP_W, 1, 3, 0, 2}, "W 2l+dec writes d8 h2 ff12 v11 full seq5 rows3"},
                 {{PP_W, 1, 3, 1, 2, .adds = true}, "W 1l d8 h2 ff12 full seq5 rows3"}};
    const struct pp_shape shape = {.d_model = 8, .heads = 2, .d_ff = 12, .layers = 6, .vocab = 11};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) check_part(shape, parts[i].cls, parts[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signatures_of_activations), cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_signatures_of_parts),       cmocka_unit_test(test_signatures_of_gpt2),
        cmocka_unit_test(test_tensors_of_gpt2),           cmocka_unit_test(test_long_signature),
        cmocka_unit_test(test_tensors_of_llama),          cmocka_unit_test(test_signatures_of_fp8),
        cmocka_unit_test(test_signatures_of_experts),     cmocka_unit_test(test_signatures_of_two_kinds),
        cmocka_unit_test(test_tensors_of_mixtral)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
