/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers and the exponential of the CPU kernels.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

/* Every number equals Random123's, whatever the number of rows and columns. */
static void test_equals_random123(void **state)
{
    (void)state;
    const uint32_t key[2] = {0xdeadbeefu, 0x01234567u};
    const int quads[] = {1, 2, 3, 5, 9, 16, 17, 50};
    static uint32_t out[7 * 50 * 4 + PP_RANDOM_ROUND];
    FOR_EACH_ISA(isa)
    for (int q = 0; q < 8; q++) {
        isa->random(key, 77, 5, 0xfffffffeu, 7, quads[q], out);
        for (int i = 0; i < 7 * quads[q]; i++) {
            philox4x32_ctr_t counter = {{(uint32_t)(i % quads[q]), 0xfffffffeu + (uint32_t)(i / quads[q]), 77, 5}};
            philox4x32_key_t k = {{key[0], key[1]}};
            philox4x32_ctr_t expected = philox4x32(counter, k);
            assert_memory_equal(out + 4 * i, expected.v, sizeof expected.v);
        }
    }
}

static void test_exponential(void **state)
{
    (void)state;
    enum { N = 100001 };
    static float from[N], to[N];
    for (int i = 0; i < N; i++) from[i] = -87 + (float)i * (174.f / N);
    FOR_EACH_ISA(isa)
    {
        isa->exp(to, from, N);
        for (int i = 0; i < N; i++) {
            const double expected = exp((double)from[i]), error = fabs(to[i] / expected - 1);
            if (!(error <= 2e-7)) fail_msg("%s: relative error %g of exp(%g)", isa->name, error, (double)from[i]);
        }
        const float extremes[] = {-INFINITY, -1000, -100, 0};
        isa->exp(to, extremes, 4);
        for (int i = 0; i < 3; i++) assert_true(to[i] >= 0 && to[i] < 2e-38f);
        assert_true(to[3] == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_random123),
        cmocka_unit_test(test_exponential),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
