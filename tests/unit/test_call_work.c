/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that calls of kernels move, counted by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"

/* Of a call that has all its operands but this one and those that only some norms have. */
static void check_bytes_without(int missing, struct pp_call call, double expected)
{
    for (int i = 0; i < 7; i++)
        if (i != missing && pp_call_operand(&call, i).name) call.ref[i].region = PP_MEM_ACT;
    assert_true(pp_call_bytes(&call) == expected);
}

static void check_bytes(struct pp_call call, double expected) { check_bytes_without(-1, call, expected); }

static void test_bytes_moved(void **state)
{
    (void)state;
    const int m = 175, n = 600, k = 200, t = 5 * 35;
    check_bytes((struct pp_call){PP_KERNEL_GEMM_NT, {m, n, k}}, 4.0 * (m * k + n * k + m * n));
    check_bytes((struct pp_call){PP_KERNEL_GEMM_NT, {m, n, k}, .precision = PP_BF16}, 2.0 * (m * k + n * k + m * n));
    check_bytes((struct pp_call){PP_KERNEL_GEMM_TN, {m, n, k, 0, 1}, .precision = PP_BF16},
                2.0 * (m * k + n * k) + 4.0 * m * n);
    check_bytes((struct pp_call){PP_KERNEL_EMBED, {5, 35, 200, 1000}, .precision = PP_BF16}, t * 200 * (2 + 4 + 4.0));
    check_bytes((struct pp_call){PP_KERNEL_ATTENTION, {5, 35, 2, 100, 1}}, 4.0 * t * 2 * (7 * 100 + 35));
    check_bytes((struct pp_call){PP_KERNEL_FLASH, {5, 35, 2, 100, 1}}, 4.0 * t * 2 * (7 * 100 + 1));
    check_bytes((struct pp_call){PP_KERNEL_FLASH, {5, 35, 8, 100, 1, 2}}, 4.0 * t * (8 * 101 + 2 * 12 * 100));
    check_bytes_without(3, (struct pp_call){PP_KERNEL_FLASH, {5, 35, 8, 100, 1, 2}}, 4.0 * t * (8 * 101 + 12 * 100));
    check_bytes((struct pp_call){PP_KERNEL_ROPE, {5, 35, 8, 100, 0, 2}}, 4.0 * t * 2 * 12 * 100);
    check_bytes_without(1, (struct pp_call){PP_KERNEL_ROPE, {5, 35, 8, 100, 0, 2}}, 4.0 * t * 2 * 10 * 100);
    check_bytes((struct pp_call){PP_KERNEL_ROPE_GRAD, {5, 35, 8, 100, 0, 2}, .precision = PP_BF16},
                2.0 * t * 2 * 10 * 100);
    check_bytes((struct pp_call){PP_KERNEL_EMBED, {5, 35, 200, 1000, 1}}, t * 200 * (4 + 4.0));
    check_bytes((struct pp_call){PP_KERNEL_FLASH_GRAD, {5, 35, 2, 100, 1}, .precision = PP_BF16},
                t * 2 * (8 * 100 * 2 + 4.0));
    const struct pp_ref act = {.region = PP_MEM_ACT};
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM, {5, 35, 200}}, 4.0 * t * 200 * 4);
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM, {5, 35, 200}, .ref[7] = act}, 4.0 * t * 200 * 5);
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM, {5, 35, 200, 1}}, 4.0 * t * 200 * 3);
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM_GRAD, {5, 35, 200}}, 4.0 * t * 200 * 4);
    check_bytes((struct pp_call){PP_KERNEL_LAYERNORM_GRAD, {5, 35, 200, 1}, .ref[7] = act}, 4.0 * t * 200 * 4);
    check_bytes((struct pp_call){PP_KERNEL_GELU, {5, 35, 200}, .precision = PP_BF16}, 2.0 * t * 200 * 3);
    check_bytes((struct pp_call){PP_KERNEL_RMSNORM, {5, 35, 200, 1}}, 4.0 * t * 200 * 3);
    check_bytes((struct pp_call){PP_KERNEL_RMSNORM_GRAD, {5, 35, 200}, .ref[7] = act}, 4.0 * t * 200 * 5);
    check_bytes((struct pp_call){PP_KERNEL_SWIGLU, {5, 35, 200}, .precision = PP_BF16}, 2.0 * t * 200 * 5);
    check_bytes((struct pp_call){PP_KERNEL_SWIGLU_GRAD, {5, 35, 200}, .precision = PP_BF16}, 2.0 * t * 200 * 5);
    check_bytes_without(2, (struct pp_call){PP_KERNEL_SWIGLU, {5, 35, 200}}, 4.0 * t * 200 * 3);
    check_bytes_without(2, (struct pp_call){PP_KERNEL_GELU, {5, 35, 200}}, 4.0 * t * 200 * 2);
    check_bytes_without(1, (struct pp_call){PP_KERNEL_RELU, {5, 35, 200}}, 4.0 * t * 200 * 2);
    check_bytes((struct pp_call){PP_KERNEL_CROSS_ENTROPY, {5, 35, 1000, 1, 1024}}, 4.0 * t * 2000);
    check_bytes((struct pp_call){PP_KERNEL_CROSS_ENTROPY, {5, 35, 1000, 0, 1024}}, 4.0 * t * 1000);
    check_bytes((struct pp_call){PP_KERNEL_SGD, {600, 200}, .precision = PP_BF16}, 600 * 200 * (12 + 2.0));
    check_bytes((struct pp_call){PP_KERNEL_ADAMW, {600, 200}, .precision = PP_BF16}, 600 * 200 * (28 + 2.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes_moved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
