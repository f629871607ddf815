/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of calls: keys of measured times. What stays as it was is found in old databases.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/model.h"

static void check_text(struct pp_call call, const char *expected)
{
    char text[PP_CALL_NAME];
    assert_string_equal(pp_call_text(&call, text, sizeof text), expected);
}

static void test_names_of_calls(void **state)
{
    (void)state;
    check_text((struct pp_call){PP_KERNEL_GEMM_NT, .gemm = {175, 600, 200, 0, 1}}, "gemm_nt 175x600x200");
    check_text((struct pp_call){PP_KERNEL_GEMM_NT, .gemm = {175, 600, 200}, .precision = PP_TF32},
               "gemm_nt 175x600x200 tf32");
    check_text((struct pp_call){PP_KERNEL_GEMM_NT, .gemm = {175, 600, 200, 0, 1}, .precision = PP_BF16},
               "gemm_nt 175x600x200 bf16 wide");
    check_text((struct pp_call){PP_KERNEL_SHIFT, .exchange = {175, 400, .wide = 1, .beside = 2}, .precision = PP_BF16},
               "shift 175x400 bf16 wide");
    check_text((struct pp_call){PP_KERNEL_SHIFT, .exchange = {175, 400}, .precision = PP_BF16}, "shift 175x400 bf16");
    check_text((struct pp_call){PP_KERNEL_RELU, .activation = {5, 35, 200}, .site = 3}, "relu 5x35x200 drop");
    check_text((struct pp_call){PP_KERNEL_FLASH_GRAD, .attention = {5, 35, 2, 100, 1}, .site = 3},
               "flash_grad 5x35x2x100x1 drop");
    check_text((struct pp_call){PP_KERNEL_FLASH, .attention = {5, 35, 2, 100, 1, 2},
                                .at.flash.bias = {.region = PP_MEM_PARAM}},
               "flash 5x35x2x100x1");
    check_text((struct pp_call){PP_KERNEL_ATTENTION, .attention = {5, 35, 8, 100, 1, 2}, .site = 3,
                                .at.attention.bias = {PP_MEM_PARAM}},
               "attention 5x35x8x100x1 kv2 drop");
    check_text((struct pp_call){PP_KERNEL_FLASH, .attention = {5, 35, 8, 100, 1, 2}, .precision = PP_BF16},
               "flash 5x35x8x100x1 kv2 plain bf16");
    check_text((struct pp_call){PP_KERNEL_FLASH, .attention = {5, 36, 8, 100, 1, 2, 144}, .precision = PP_BF16},
               "flash 5x36x8x100x1 kv2 of144 bf16");
    check_text((struct pp_call){PP_KERNEL_ATTENTION_GRAD, .attention = {5, 36, 8, 100, 1, 8, 0, 16}},
               "attention_grad 5x36x8x100x1 w16");
    check_text((struct pp_call){PP_KERNEL_FLASH_GRAD, .site = 3, .precision = PP_BF16,
                                .attention = {128, 131072, 128, 128, 1, 16, 1048576, 524288}},
               "flash_grad 128x131072x128x128x1 kv16 of1048576 w524288 drop bf16");
    check_text((struct pp_call){PP_KERNEL_ROPE_GRAD, .rope = {5, 35, 8, 100, 0, 2}}, "rope_grad 5x35x8x100 kv2");
    check_text((struct pp_call){PP_KERNEL_ROPE_GRAD, .rope = {5, 35, 8, 100, 50, 2}},
               "rope_grad 5x35x8x100 kv2 turn50");
    check_text((struct pp_call){PP_KERNEL_QK_NORM, .attention = {5, 35, 8, 100, 0, 2}}, "qk_norm 5x35x8x100 kv2 plain");
    check_text((struct pp_call){PP_KERNEL_QK_NORM_GRAD, .attention = {5, 35, 8, 100, 0, 8}, .precision = PP_BF16},
               "qk_norm_grad 5x35x8x100 bf16");
    check_text((struct pp_call){PP_KERNEL_EMBED, .embed = {5, 35, 200, 1000, 1}}, "embed 5x35x200x1000 plain");
    check_text((struct pp_call){PP_KERNEL_EMBED, .embed = {5, 35, 200, 1000, 2}}, "embed 5x35x200x1000 learned");
    check_text((struct pp_call){PP_KERNEL_POSITIONS_GRAD, .positions = {5, 35, 200, 64}, .site = 1, .adds = true},
               "positions_grad 5x35x200x64 drop");
    check_text((struct pp_call){PP_KERNEL_RELU, .activation = {5, 35, 200}, .site = 3, .precision = PP_BF16},
               "relu 5x35x200 drop bf16");
    check_text((struct pp_call){PP_KERNEL_GEMM_NT, .gemm = {175, 600, 200, 0, 1, 8}, .precision = PP_BF16},
               "gemm_nt 175x600x200 times8 bf16 wide");
    check_text((struct pp_call){PP_KERNEL_ROUTE, .route = {5, 35, 8, 2, 55, 8}}, "route 5x35x8x2x55");
    check_text((struct pp_call){PP_KERNEL_ROUTE, .route = {5, 35, 8, 2, 55, 8, PP_ROUTE_OF_ALL}}, "route 5x35x8x2x55");
    check_text((struct pp_call){PP_KERNEL_ROUTE, .route = {5, 35, 8, 2, 55, 8, PP_ROUTE_SIGMOID}},
               "route 5x35x8x2x55 sigmoid");
    check_text((struct pp_call){PP_KERNEL_ROUTE_GRAD, .route_grad = {5, 35, 8, 2, PP_ROUTE_SIGMOID}},
               "route_grad 5x35x8x2 sigmoid");
    check_text((struct pp_call){PP_KERNEL_ROUTE, .route = {5, 35, 8, 2, 55, 8}, .at.route.bias = {PP_MEM_PARAM}},
               "route 5x35x8x2x55 biased");
    check_text((struct pp_call){PP_KERNEL_ROUTE, .route = {5, 35, 8, 2, 55, 8}, .routing = {.groups = 4, .picked = 2}},
               "route 5x35x8x2x55 of2/4");
    check_text((struct pp_call){PP_KERNEL_BALANCE, .balance = {1, 8, 8, 2}}, "balance 1x8");
}

/* With the largest numbers that options take. */
static void test_every_name_has_room(void **state)
{
    (void)state;
    enum { MOST = 1 << 24 };
    check_text((struct pp_call){PP_KERNEL_FLASH_GRAD, .site = 3, .precision = PP_BF16,
                                .attention = {MOST, MOST, MOST, MOST, 1, MOST - 1, MOST, MOST, .dv = MOST}},
               "flash_grad 16777216x16777216x16777216x16777216x1 kv16777215 of16777216 w16777216 v16777216 drop bf16");
}

/* Keys and values that are not of one width; the kernels of latent attention. */
static void test_names_of_latent_attention(void **state)
{
    (void)state;
    check_text((struct pp_call){PP_KERNEL_FLASH, .attention = {5, 35, 8, 192, 1, .dv = 128}, .precision = PP_BF16},
               "flash 5x35x8x192x1 v128 plain bf16");
    check_text((struct pp_call){PP_KERNEL_ATTENTION_GRAD, .attention = {5, 36, 8, 100, 1, 2, 0, 16, 20}},
               "attention_grad 5x36x8x100x1 kv2 w16 v20");
    check_text((struct pp_call){PP_KERNEL_ROPE_GRAD, .rope = {5, 35, 8, 192, 64, 0, 128, 128}},
               "rope_grad 5x35x8x192 turn64/128 v128");
    check_text((struct pp_call){PP_KERNEL_TO_PIECES, .pieces = {175, 1536, 1536, 2, 1024}, .precision = PP_BF16},
               "to_pieces 175x1536x1536x2 v1024 bf16");
    check_text((struct pp_call){PP_KERNEL_SUM_KEYS, .pieces = {175, 1536, 1536, 2, 1024}},
               "sum_keys 175x1536x1536x2 v1024");
    check_text((struct pp_call){PP_KERNEL_LATENT_NORM, .latent = {5, 35, 512, 64}}, "latent_norm 5x35x512x64");
    check_text((struct pp_call){PP_KERNEL_LATENT_NORM_GRAD, .latent = {5, 35, 1536}, .precision = PP_BF16},
               "latent_norm_grad 5x35x1536x0 bf16");
    check_text((struct pp_call){PP_KERNEL_JOIN_HEADS, .heads = {5, 35, 8, 128, 64, 96, 512}},
               "join_heads 5x35x8x128x64x96x512");
    check_text(
        (struct pp_call){PP_KERNEL_SPLIT_HEADS, .heads = {128, 131072, 128, 128, 64, 128, 512}, .precision = PP_BF16},
        "split_heads 128x131072x128x128x64x128x512 bf16");
}

/* Chunks of rows, whose keys and values go round. */
static void test_names_of_a_ring(void **state)
{
    (void)state;
    check_text((struct pp_call){PP_KERNEL_FLASH, .attention = {5, 36, 8, 100, 1, 2, 36}, .precision = PP_BF16},
               "flash 5x36x8x100x1 kv2 of36 bf16");
    check_text((struct pp_call){PP_KERNEL_MERGE, .merge = {36, 8, 100}, .precision = PP_BF16}, "merge 36x8x100 bf16");
    check_text((struct pp_call){PP_KERNEL_ADD_COLUMNS, .columns = {36, 400, 1200, 400}}, "add_columns 36x400");
    check_text((struct pp_call){PP_KERNEL_ADD_COLUMNS, .columns = {36, 400, 1200, 400, 1}, .precision = PP_BF16},
               "add_columns 36x400 adds bf16");
}

/* A product of FP8 factors, and what rounds these: a product is named as one of bf16, as which it counts. */
static void test_names_of_fp8(void **state)
{
    (void)state;
    const struct pp_ref there = {.region = PP_MEM_WORK};
    check_text((struct pp_call){PP_KERNEL_GEMM_FP8, .gemm = {176, 608, 208}, .precision = PP_BF16},
               "gemm_fp8 176x608x208 bf16");
    check_text((struct pp_call){PP_KERNEL_GEMM_FP8, .gemm = {176, 608, 208, 2, 1, 8, 1}, .precision = PP_BF16},
               "gemm_fp8 176x608x208 times8 e5m2 writes bf16 wide");
    check_text((struct pp_call){PP_KERNEL_AMAX, .fp8 = {176, 608}, .precision = PP_BF16}, "amax 176x608 bf16");
    check_text((struct pp_call){PP_KERNEL_AMAX, .fp8 = {176, 608, 8}, .precision = PP_BF16},
               "amax 176x608 times8 bf16");
    check_text((struct pp_call){PP_KERNEL_TO_FP8, .fp8 = {176, 608}, .precision = PP_BF16, .at.to_fp8.q = there},
               "to_fp8 176x608 bf16");
    check_text(
        (struct pp_call){PP_KERNEL_TO_FP8, .fp8 = {176, 608, 8}, .precision = PP_BF16, .at.to_fp8.turned = there},
        "to_fp8 176x608 times8 turned bf16");
    check_text((struct pp_call){PP_KERNEL_TO_FP8, .fp8 = {176, 608, 0, 1}, .precision = PP_BF16,
                                .at.to_fp8 = {.q = there, .turned = there}},
               "to_fp8 176x608 e5m2 both bf16");
}

static void test_names_by_operands(void **state)
{
    (void)state;
    const struct pp_ref there = {.region = PP_MEM_WORK};
    check_text((struct pp_call){PP_KERNEL_LAYERNORM, .norm = {5, 35, 200}, .site = 3, .at.norm.y = there},
               "layernorm 5x35x200 drop");
    check_text((struct pp_call){PP_KERNEL_LAYERNORM, .norm = {5, 35, 200}, .site = 3},
               "layernorm 5x35x200 unsent drop");
    check_text((struct pp_call){PP_KERNEL_LAYERNORM, .norm = {5, 35, 200, 1}, .at.norm.y = there},
               "layernorm 5x35x200 plain");
    check_text((struct pp_call){PP_KERNEL_LAYERNORM_GRAD, .norm = {5, 35, 200, 1}, .at.norm_grad.dr = there,
                                .at.norm_grad.add = there},
               "layernorm_grad 5x35x200 plain sum");
    check_text((struct pp_call){PP_KERNEL_RMSNORM, .norm = {5, 35, 200, 1}, .at.norm.y = there},
               "rmsnorm 5x35x200 plain");
    check_text((struct pp_call){PP_KERNEL_SWIGLU, .activation = {5, 35, 200}, .site = 3, .precision = PP_BF16},
               "swiglu 5x35x200 nobias drop bf16");
    check_text(
        (struct pp_call){PP_KERNEL_SWIGLU, .activation = {5, 35, 200}, .at.swiglu.bias = {.region = PP_MEM_PARAM}},
        "swiglu 5x35x200");
    check_text((struct pp_call){PP_KERNEL_GELU, .activation = {5, 35, 200, 1}, .site = 3},
               "gelu 5x35x200 tanh nobias drop");
    check_text((struct pp_call){PP_KERNEL_GELU, .activation = {5, 35, 200}}, "gelu 5x35x200 nobias");
    check_text((struct pp_call){PP_KERNEL_GELU_GRAD, .activation = {5, 35, 200, 1}}, "gelu_grad 5x35x200 tanh");
    check_text((struct pp_call){PP_KERNEL_ATTENTION, .attention = {5, 35, 2, 100, 1},
                                .at.attention.bias = {.region = PP_MEM_PARAM}},
               "attention 5x35x2x100x1");
    check_text((struct pp_call){PP_KERNEL_CROSS_ENTROPY, .loss = {5, 35, 100, 1, 100}}, "cross_entropy 5x35x100x1");
    check_text((struct pp_call){PP_KERNEL_CROSS_ENTROPY, .loss = {5, 35, 100, 1, 128}}, "cross_entropy 5x35x100x1/128");
}

/* What writes a gradient of parameters, to which others add; a gradient of data is always written. */
static void test_names_of_what_writes_gradients(void **state)
{
    (void)state;
    for (int adds = 0; adds < 2; adds++) {
        check_text((struct pp_call){PP_KERNEL_GEMM_TN, .gemm = {64, 32, 16, PP_GEMM_GRADIENT}, .adds = adds},
                   adds ? "gemm_tn 64x32x16" : "gemm_tn 64x32x16 writes");
        check_text((struct pp_call){PP_KERNEL_GEMM_NN, .gemm = {64, 32, 16, PP_GEMM_WRITE}, .adds = adds},
                   "gemm_nn 64x32x16");
        check_text((struct pp_call){PP_KERNEL_EMBED_GRAD, .embed = {5, 35, 200, 1000}, .adds = adds},
                   adds ? "embed_grad 5x35x200x1000" : "embed_grad 5x35x200x1000 writes");
    }
}

/* The names of a program and of its calls. */
static void print_names(const struct pp_shape *shape, int kind, char *text, size_t size)
{
    struct pp_model *model;
    struct pp_program program;
    char name[PP_CALL_NAME];
    const struct pp_program_spec spec = {
        .seq = 5, .slot_rows = 3, .training = true, .split_backward = kind == PP_I || kind == PP_W};
    const struct pp_class cls = {.kind = kind, .rows = kind == PP_STEP || kind == PP_NORM ? 0 : 3};
    if (pp_model_create(shape, 2, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
    if (pp_model_program(model, &cls, &spec, &program) != PP_OK) fail_msg("%s", pp_message());
    size_t used = (size_t)snprintf(text, size, "%s\n", program.signature);
    for (int i = 0; i < program.ncalls; i++)
        used += (size_t)snprintf(text + used, size - used, "%s\n", pp_call_text(&program.calls[i], name, sizeof name));
    assert_true(used < size);
    pp_program_free(&program);
    pp_model_free(model);
}

/* Where layers have no experts, the work and its name are those of a model that has none; only there. */
static void test_layers_without_experts_are_those_of_other_models(void **state)
{
    (void)state;
    static const int kinds[] = {PP_F, PP_B, PP_I, PP_W, PP_NORM, PP_STEP};
    static char mixed[1 << 16], dense[1 << 16];
    struct pp_shape shape = {.d_model = 12, .heads = 3, .d_ff = 48, .layers = 8, .vocab = 101, .bias = PP_NO_BIAS};
    shape.normalization = PP_RMSNORM;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct pp_shape experts = shape;
        experts.d_ff = 20;
        experts.dense_ff = 48;
        experts.experts = 8;
        experts.experts_per_token = 2;
        experts.capacity_factor = 1.25;
        experts.shared_ff = 24;
        experts.dense_layers = 4;
        print_names(&shape, kinds[i], dense, sizeof dense);
        print_names(&experts, kinds[i], mixed, sizeof mixed);
        assert_string_equal(mixed, dense);
        experts.dense_layers = 3;
        print_names(&experts, kinds[i], mixed, sizeof mixed);
        assert_string_not_equal(mixed, dense);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_of_calls),
                                       cmocka_unit_test(test_every_name_has_room),
                                       cmocka_unit_test(test_names_of_latent_attention),
                                       cmocka_unit_test(test_names_of_a_ring),
                                       cmocka_unit_test(test_names_of_fp8),
                                       cmocka_unit_test(test_names_of_what_writes_gradients),
                                       cmocka_unit_test(test_names_by_operands),
                                       cmocka_unit_test(test_layers_without_experts_are_those_of_other_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
