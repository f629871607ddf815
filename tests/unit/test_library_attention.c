/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of other software: operations as its authors count them, and times at the share of the peak that a machine
 * file says.
 */
#include <math.h>

#include "kernels/kernels.h"
#include "sim/machine_calls.h"
#include "tests/unit/cost_case.h"

static struct pp_call flash(bool gradient, int tokens, int width, bool causal)
{
    const int kernel = gradient ? PP_KERNEL_FLASH_GRAD : PP_KERNEL_FLASH;
    struct pp_call call = {.kernel = kernel, .precision = PP_BF16, .attention = {2, tokens, 16, width, causal}};
    for (int i = 0; i < 5; i++) call.ref[i].region = PP_MEM_ACT;
    return call;
}

static double asked(const struct pp_call *call, int pass) { return pp_call_work(call, true).attention[pass]; }

/* 4 rows heads tokens^2 width forward and 2.5 times that backward; with a mask half, and half of the blocks of 64
 * queries on the diagonal besides. */
static void test_operations(void **state)
{
    (void)state;
    const double all = 4.0 * 2 * 16 * 4096 * 4096 * 128;
    for (int pass = 0; pass < 2; pass++) {
        const struct pp_call full = flash(pass, 4096, 128, false), causal = flash(pass, 4096, 128, true);
        const double expected = pass ? 2.5 * all : all;
        assert_true(asked(&full, pass) == expected && asked(&full, !pass) == 0);
        assert_true(asked(&causal, pass) == expected * (0.5 + 32.0 / 4096));
        assert_true(pp_call_work(&full, false).attention[pass] == 0); /* a processor has no tensor cores */
    }
    struct pp_call latent = flash(true, 4096, 192, false);
    latent.attention.dv = 128;
    assert_true(asked(&latent, 1) == 2.0 * 2 * 16 * 4096 * 4096 * (3 * 192 + 2 * 128));
    for (int width = 8; width <= 272; width += 4) { /* other kernels' heads, which need not be those of ours */
        const struct pp_call call = flash(false, 4096, width, false);
        assert_true(asked(&call, 0) == (width % 8 == 0 && width <= 256 ? all / 128 * width : 0));
    }
    struct pp_call plain = flash(false, 4096, 128, false);
    plain.precision = PP_FP32;
    assert_true(asked(&plain, 0) == 0);
    plain.kernel = PP_KERNEL_ATTENTION, plain.precision = PP_BF16;
    assert_true(asked(&plain, 0) == 0);
}

static void test_times(void **state)
{
    (void)state;
    struct pp_machine m, own;
    assert_int_equal(pp_machine_find("h100", &m), PP_OK);
    own = m;
    m.attention[0] = 0.5, m.attention[1] = 0.25, m.peak_flops_per_ns[PP_BF16] = 1e6;
    assert_int_equal(pp_machine_take_library(&m), PP_OK);
    assert_string_equal(m.name, "h100+library");
    for (int pass = 0; pass < 2; pass++) {
        const struct pp_call call = flash(pass, 8192, 128, false);
        const struct pp_work work = pp_call_work(&call, true);
        const double ns = work.attention[pass] / (1e6 * m.attention[pass]);
        assert_true(fabs(pp_machine_work_ns(&m, &work) - ns) < 1e-6 * ns);
        assert_true(pp_machine_work_ns(&own, &work) != ns);
        m.bytes_per_ns = work.bytes / (2 * ns); /* memory that takes longer counts */
        assert_true(fabs(pp_machine_work_ns(&m, &work) - 2 * ns) < 1e-6 * ns);
        m.bytes_per_ns = own.bytes_per_ns;
    }
    struct pp_machine_calls calls; /* two workers on a GPU have half of it each */
    const struct pp_call call = flash(false, 8192, 128, false);
    pp_machine_calls_begin(&calls, &m, &pp_model_ops, 2);
    const double half = asked(&call, 0) / (1e6 * m.attention[0] / 2);
    assert_true(fabs(pp_machine_roofline(&calls, &call).ns - half) < 1e-6 * half);
}

static void test_unknown(void **state)
{
    (void)state;
    struct pp_machine m;
    assert_int_equal(pp_machine_find("cpu", &m), PP_OK);
    assert_int_equal(pp_machine_take_library(&m), PP_USAGE);
    assert_non_null(strstr(pp_message(), "machine cpu does not say"));
    assert_int_equal(pp_machine_find("b200", &m), PP_OK);
    snprintf(m.name, sizeof m.name, "%s", "a_name_of_as_many_as_31_bytes.x");
    assert_int_equal(pp_machine_take_library(&m), PP_OK);
    assert_string_equal(m.name, "a_name_of_as_many_as_31+library");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_operations), cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_unknown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
