/* SPDX-License-Identifier: Apache-2.0
 *
 * All programs of a model, checked without a device: so it holds for precisions that the cpu does not have.
 */
#include "tests/unit/program_check.h"

/* Capacities that are no multiples of anything; with two tensor ranks one expert in each, or more; and what is beside
 * experts, also with a gate; and layers without experts among the others. */
static void check_experts(struct pp_shape shape, int stages, int tensor)
{
    shape.bias = PP_NO_BIAS;
    shape.experts = tensor * (1 + stages % 2);
    shape.experts_per_token = 1 + stages % 2;
    shape.capacity_factor = stages == 3 ? 1.25 : 0.6;
    check_model(&shape, stages);
    shape.shared_ff = 10;
    shape.shared_gate = stages == 2;
    check_model(&shape, stages);
    shape.experts *= 3; /* of three times the workers */
    shape.expert_parallel = 3;
    check_model(&shape, stages);
    shape.dense_layers = stages % 3; /* with layers that have none */
    shape.experts_every = stages % 3 == 1 ? 0 : 2;
    shape.dense_ff = 12 * tensor;
    check_model(&shape, stages);
}

/* A token of each row in each of five workers. */
static void check_context(struct pp_shape shape, int stages)
{
    shape.context = SEQ;
    shape.heads *= SEQ;
    shape.kv_heads *= SEQ;
    shape.d_model *= SEQ;
    check_model(&shape, stages);
    shape.tensor = 2;
    shape.heads *= 2;
    shape.kv_heads *= 2;
    shape.d_ff *= 2;
    shape.sequence = stages % 2;
    check_model(&shape, stages);
    check_experts(shape, stages, 2);
}

/* Latent attention, with a latent vector of queries and without; of tensor ranks, also with parts of the tokens. */
static void check_latent(struct pp_shape shape, int stages)
{
    shape.kv_heads = shape.head_dim = 0;
    shape.qk_norm = false;
    shape.bias = PP_NO_BIAS;
    shape.positions = PP_POSITIONS_ROPE;
    shape.kv_lora_rank = 7;
    shape.q_lora_rank = stages % 2 ? 9 : 0;
    shape.qk_nope_head_dim = 3;
    shape.qk_rope_head_dim = 4;
    shape.v_head_dim = 5 + stages;
    check_model(&shape, stages);
    check_experts(shape, stages, 1);
    check_context(shape, stages);
    shape.tensor = 2; /* of twice the heads and columns */
    shape.heads *= 2;
    shape.d_ff *= 2;
    for (int parts = 0; parts < 2; parts++) {
        shape.sequence = parts;
        check_model(&shape, stages);
        check_experts(shape, stages, 2);
    }
}

static void test_all_programs(void **state)
{
    (void)state;
    for (int style = 0; style < 16; style++)
        for (int stages = 1; stages <= 3; stages++) {
            const int precision = (style / 3 + stages) % (PP_BF16 + 1); /* programs of all are alike */
            const struct pp_shape shape = {.d_model = 12,
                                           .heads = 3,
                                           .kv_heads = style / 4 % 2,
                                           .head_dim = 6 * (style / 2 % 3 == 2),
                                           .positions = (stages + style) % 3,
                                           .max_positions = SEQ,
                                           .rope_theta = 10000,
                                           .d_ff = 20,
                                           .norm = style / 2 % 2,
                                           .activation = style / 4 % 3,
                                           .normalization = style / 8,
                                           .bias = style / 8 ? (style / 2 % 2 ? PP_BIAS_QKV : PP_NO_BIAS)
                                                             : style / 4 * PP_BIAS_LAYERS,
                                           .qk_norm = (style / 4 + style + stages) % 2,
                                           .layers = 4,
                                           .vocab = 101,
                                           .dropout = 0.1,
                                           .residual_only = style % 2,
                                           .lab_init = style % 2,
                                           .precision = precision,
                                           .optimizer = stages % 2 ? PP_ADAMW + style % 2 : PP_SGD,
                                           .vocab_multiple = (style / 2 + stages + precision) % 2 ? 128 : 1};
            struct pp_shape flash = shape;
            flash.attention = PP_ATTENTION_FLASH;
            check_model(&shape, stages);
            check_model(&flash, stages);
            check_experts(flash, stages, 1);
            check_context(shape, stages);
            check_context(flash, stages);
            /* It has many models: in half of the styles, in which any three of its choices still meet in all ways. */
            if (__builtin_parity((unsigned)style) == stages % 2) check_latent(style % 2 ? flash : shape, stages);
            flash.tensor = 2; /* of twice the heads and columns */
            flash.heads = 2 * shape.heads;
            flash.kv_heads = 2 * shape.kv_heads;
            flash.d_ff = 2 * shape.d_ff;
            check_model(&flash, stages);
            check_experts(flash, stages, 2);
            flash.sequence = true;
            check_model(&flash, stages);
            check_experts(flash, stages, 2);
        }
}

/* Rows of the last batch, too, are shared evenly. */
static void test_rows_that_cannot_be_shared(void **state)
{
    (void)state;
    const struct pp_shape shape = {.d_model = 12, .heads = 3, .d_ff = 20, .layers = 1, .vocab = 11, .context = 3};
    const struct pp_class cls = {PP_F, 0, 2};
    struct pp_model *model;
    struct pp_program program;
    assert_int_equal(pp_model_create(&shape, 1, NULL, NULL, &model), PP_OK);
    for (int seq = 3; seq <= 9; seq++) {
        const pp_status status =
            pp_model_program(model, &cls, &(struct pp_program_spec){seq, 2, true, false}, &program);
        assert_int_equal(status, seq % 3 ? PP_USAGE : PP_OK);
        if (seq % 3) assert_non_null(strstr(pp_message(), "--context-parallel 3 does not divide rows of"));
        pp_program_free(&program);
    }
    pp_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_programs),
                                       cmocka_unit_test(test_rows_that_cannot_be_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
