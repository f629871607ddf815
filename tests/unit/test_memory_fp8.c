/* SPDX-License-Identifier: Apache-2.0
 *
 * The scratch of FP8 products against the formula of docs/MEMORY.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/model.h"
#include "tests/unit/program_scratch.h"

/* Behind the scratch that bf16 has: the largest factor on each side, one byte for each number; where gradients are
 * rounded both ways, the two of a linear's outputs that wait for the gradients of their weights; and scales of 16 bytes
 * each. Weights have copies of their own (test_program_memory.c), but where replicas share them. */
static void test_scratch_of_fp8(void **state)
{
    (void)state;
    enum { T = 16 * 32, D = 1024, FF = 2048, QKV = (16 + 2 * 4) * 64, SCALES = 192 };
    for (int turn = 0; turn < 8; turn++) {
        struct pp_shape shape = {.d_model = D, .heads = 16, .kv_heads = 4, .d_ff = FF, .layers = 6, .vocab = 2048};
        const bool gated = turn % 2;
        const int64_t up = gated ? 2 * FF : FF; /* columns of linear1 */
        struct pp_model *bf16, *fp8;
        shape.activation = gated ? PP_SWIGLU : PP_GELU;
        shape.norm = turn / 2 % 2;
        shape.replicas = 2;
        shape.zero = turn / 4 ? PP_ZERO_PARAMETERS : PP_ZERO_NONE;
        shape.precision = PP_BF16;
        assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &bf16), PP_OK);
        shape.precision = PP_FP8;
        assert_int_equal(pp_model_create(&shape, 3, NULL, NULL, &fp8), PP_OK);
        const int64_t weights = shape.zero == PP_ZERO_PARAMETERS ? up * D : 0, inputs = T * FF,
                      gradients = T * (D + (up > QKV ? up : QKV));
        const struct {
            int kind;
            int64_t bytes;
        } expected[] = {{PP_F, T * FF + weights + SCALES},
                        {PP_R, T * FF + weights + SCALES},
                        {PP_B, T * up + (weights > inputs ? weights : inputs) + gradients + SCALES},
                        {PP_I, T * up + weights + SCALES},
                        {PP_W, T * (up + FF) + SCALES},
                        {PP_STEP, 0}};
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
            const bool split = expected[i].kind == PP_I || expected[i].kind == PP_W;
            assert_int_equal(scratch_of(fp8, expected[i].kind, split, 32) -
                                 scratch_of(bf16, expected[i].kind, split, 32),
                             expected[i].bytes);
        }
        pp_model_free(bf16);
        pp_model_free(fp8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scratch_of_fp8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
