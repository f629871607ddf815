/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with latent attention: their parameters, the memory of their activations, the names of their programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/program_signature.h"

/* Heads and latent vectors of latent attention stand where heads do; of norm and step, too. */
static void test_signatures_of_latent_attention(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 12, .heads = 3, .d_ff = 20, .layers = 2, .vocab = 101, .bias = PP_NO_BIAS};
    shape.positions = PP_POSITIONS_ROPE;
    shape.rope_theta = 10000;
    shape.kv_lora_rank = 8;
    shape.qk_nope_head_dim = 5;
    shape.qk_rope_head_dim = 2;
    shape.v_head_dim = 4;
    check_signature(shape, PP_F, 0, "F 1l+emb d12 h3x5+2/4 latent0/8 ff20 v101 full nobias rope seq5 rows3");
    shape.q_lora_rank = 10;
    check_signature(shape, PP_B, 1, "B 1l+dec d12 h3x5+2/4 latent10/8 ff20 v101 full nobias rope seq5 rows3");
    check_signature(shape, PP_STEP, 0, "STEP 1l+emb d12 h3x5+2/4 latent10/8 ff20 v101 nobias");
}

/* DeepSeek-V2-Lite and DeepSeek-V3 (without its module that predicts several tokens), as Hugging Face's transformers
 * counts them. */
static void test_parameters_of_deepseek(void **state)
{
    (void)state;
    struct pp_shape shape = {.d_model = 2048, .heads = 16, .d_ff = 1408, .layers = 27, .vocab = 102400};
    shape.norm = PP_NORM_FIRST;
    shape.normalization = PP_RMSNORM;
    shape.activation = PP_SWIGLU;
    shape.bias = PP_NO_BIAS;
    shape.positions = PP_POSITIONS_ROPE;
    shape.rope_theta = 10000;
    shape.experts = 64;
    shape.experts_per_token = 6;
    shape.capacity_factor = 1.25;
    shape.shared_ff = 2 * 1408;
    shape.dense_layers = 1;
    shape.dense_ff = 10944;
    shape.kv_lora_rank = 512;
    shape.qk_nope_head_dim = shape.v_head_dim = 128;
    shape.qk_rope_head_dim = 64;
    struct pp_model *model = make_model(&shape, 1);
    assert_int_equal(model->parameters, 15706484224);
    pp_model_free(model);
    shape.d_model = 7168;
    shape.heads = 128;
    shape.d_ff = shape.shared_ff = 2048;
    shape.layers = 61;
    shape.vocab = 129280;
    shape.experts = 256;
    shape.experts_per_token = 8;
    shape.dense_layers = 3;
    shape.dense_ff = 18432;
    shape.q_lora_rank = 1536;
    model = make_model(&shape, 1);
    assert_int_equal(model->parameters, 671026404352);
    pp_model_free(model);
}

/* Of latent attention, beside what a model without it has where queries, keys and values are as wide. */
static void test_memory_of_latent_attention(void **state)
{
    (void)state;
    enum { TOKENS = 16 * 35, HEADS = 16, RANK = 512, STILL = 128, TURNED = 64, VALUES = 128, LAYERS = 2 };
    for (int turn = 0; turn < 12; turn++) {
        const int split = turn % 2, tensor = 1 + turn / 2 % 2, queries = turn / 4 * 384, e = 2;
        struct pp_shape shape = {.d_model = 1024, .heads = HEADS, .d_ff = 512, .layers = 6, .vocab = 2048};
        shape.bias = PP_NO_BIAS;
        shape.precision = PP_BF16;
        shape.attention = PP_ATTENTION_FLASH;
        shape.positions = PP_POSITIONS_ROPE;
        shape.rope_theta = 10000;
        shape.tensor = tensor;
        struct pp_shape same = shape;
        same.head_dim = 64;
        shape.kv_lora_rank = RANK;
        shape.q_lora_rank = queries;
        shape.qk_nope_head_dim = STILL;
        shape.qk_rope_head_dim = TURNED;
        shape.v_head_dim = VALUES;
        struct pp_model *model, *plain;
        assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &model), PP_OK);
        assert_int_equal(pp_model_create(&same, 3, NULL, NULL, &plain), PP_OK);
        const struct pp_program_spec spec = {35, 16, true, split};
        const int heads = HEADS / tensor, keys = STILL + TURNED, joined = heads * (2 * keys + VALUES),
                  apart = heads * (keys + STILL + VALUES);
        const int64_t vectors = 2 * queries + 2 * RANK + TURNED, rstd = 4 * (1 + (queries > 0));
        const int64_t other = joined + heads * VALUES - heads * 4 * 64; /* qkv and ctx of heads of 64 columns */
        assert_int_equal(pp_model_act_bytes(model, 1, &spec) - pp_model_act_bytes(plain, 1, &spec),
                         LAYERS * TOKENS * ((vectors + other + split * apart) * e + rstd));
        const int64_t d = 1024,
                      of_queries = queries ? queries * d + queries + heads * keys * queries : heads * keys * d;
        const int64_t kv = (RANK + TURNED) * d + RANK + heads * (STILL + VALUES) * (int64_t)RANK,
                      out = heads * VALUES * d, before = heads * 64 * 4 * d;
        assert_int_equal(model->stages[1].param_bytes - plain->stages[1].param_bytes,
                         4 * LAYERS * (of_queries + kv + out - before));
        pp_model_free(model);
        pp_model_free(plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_signatures_of_latent_attention),
                                       cmocka_unit_test(test_parameters_of_deepseek),
                                       cmocka_unit_test(test_memory_of_latent_attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
