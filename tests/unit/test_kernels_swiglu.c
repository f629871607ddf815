/* SPDX-License-Identifier: Apache-2.0
 *
 * SwiGLU forward and backward against double-precision oracles.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

enum { ROWS = 2, SEQ = 3, T = ROWS * SEQ };

static uint32_t row_number(int t) { return (uint32_t)(CASE_FIRST_ROW * SEQ + t); }

static double logistic(double g) { return 1 / (1 + exp(-g)); }
static double silu(double g) { return g * logistic(g); }
static double silu_slope(double g) { return logistic(g) * (1 + g * logistic(-g)); }

/* Over the range where anything happens, to a few units of float's last place; small values keep their digits. */
static void check_range(const struct pp_cpu_isa *isa)
{
    enum { N = 60001 };
    static float a[2 * N], u[N], du[N];
    for (int i = 0; i < N; i++) {
        a[i] = -80 + (float)i * (160.f / (N - 1));
        a[N + i] = du[i] = 1;
    }
    struct pp_frame frame = case_frame();
    struct pp_call call = {.activation = {1, 1, N}};
    isa->run[PP_KERNEL_SWIGLU](&(struct pp_cpu_call){&call, &frame, .p = {u, a}});
    isa->run[PP_KERNEL_SWIGLU_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {a, du}});
    for (int i = 0; i < N; i++) {
        const float g = -80 + (float)i * (160.f / (N - 1));
        const double value = silu(g), slope = silu_slope(g);
        if (!(fabs(u[i] - value) <= 6e-7 * fabs(value)))
            fail_msg("%s: silu(%.9g) = %.9g, not %.9g", isa->name, g, u[i], value);
        if (!(fabs(a[i] - slope) <= 6e-7 * fabs(slope) + 2e-7))
            fail_msg("%s: silu'(%.9g) = %.9g, not %.9g", isa->name, g, a[i], slope);
        if (a[N + i] != u[i]) fail_msg("%s: the gradient of h is %.9g, not %.9g", isa->name, a[N + i], u[i]);
    }
}

static void check_ends(const struct pp_cpu_isa *isa)
{
    float a[] = {-1000, 1000, 0, NAN, 1, 1, 1, 1}, u[4], du[] = {1, 1, 1, 1};
    struct pp_frame frame = case_frame();
    struct pp_call call = {.activation = {1, 1, 4}};
    isa->run[PP_KERNEL_SWIGLU](&(struct pp_cpu_call){&call, &frame, .p = {u, a}});
    isa->run[PP_KERNEL_SWIGLU_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {a, du}});
    assert_true(fabsf(u[0]) < 1e-30f && u[1] == 1000 && u[2] == 0 && isnan(u[3]));
    assert_true(fabsf(a[0]) < 1e-30f && a[1] == 1 && a[2] == 0.5f && isnan(a[3]) && isnan(a[7]));
}

/* s alone, and its gradient in place of what it was. */
static void check_sigmoid(const struct pp_cpu_isa *isa)
{
    enum { N = 2003 };
    static float x[N + 1], dx[N + 1], dy[N];
    for (int i = 0; i < N; i++) {
        x[i] = -80 + (float)i * (160.f / (N - 1));
        dy[i] = (float)(i % 7 - 3);
    }
    x[N] = dx[N] = 3; /* is nobody's */
    struct pp_frame frame = case_frame();
    struct pp_call call = {.sigmoid = {N}};
    isa->run[PP_KERNEL_SIGMOID](&(struct pp_cpu_call){&call, &frame, .p = {x}});
    isa->run[PP_KERNEL_SIGMOID_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {dx, dy, x}});
    for (int i = 0; i < N; i++) {
        const double g = -80 + (float)i * (160.f / (N - 1)), value = logistic(g), slope = dy[i] * value * logistic(-g);
        if (!(fabs(x[i] - value) <= 6e-7 * value)) fail_msg("%s: s(%g) = %.9g, not %.9g", isa->name, g, x[i], value);
        if (!(fabs(dx[i] - slope) <= 4e-7)) fail_msg("%s: s'(%g) = %.9g, not %.9g", isa->name, g, dx[i], slope);
    }
    assert_true(x[N] == 3 && dx[N] == 3);
}

static void test_range(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    {
        check_range(isa);
        check_ends(isa);
        check_sigmoid(isa);
    }
}

static void check_swiglu(const struct pp_cpu_isa *isa, int width, double p, bool biased)
{
    float *u = case_floats(T * width, 1), *a = case_floats(2 * T * width, 2), *bias = case_floats(2 * width, 3);
    float *du = case_floats(T * width, 4), *before = case_copy(a, 2 * T * width), *given = case_copy(du, T * width);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.activation = {ROWS, SEQ, width}, .site = p > 0 ? CASE_SITE : 0, .p = (float)p};
    isa->run[PP_KERNEL_SWIGLU](&(struct pp_cpu_call){&call, &frame, .p = {u, a, biased ? bias : NULL}});
    float *kept = case_copy(a, 2 * T * width);
    isa->run[PP_KERNEL_SWIGLU_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {a, du}});
    assert_memory_equal(du, given, sizeof *du * (size_t)(T * width));
    if (!biased) assert_memory_equal(kept, before, sizeof *a * (size_t)(2 * T * width));
    for (int i = 0; i < T * width; i++) {
        const int t = i / width, j = i % width, at = 2 * t * width + j;
        const double g = (double)before[at] + (biased ? bias[j] : 0);
        const double h = (double)before[at + width] + (biased ? bias[width + j] : 0);
        const double expected = case_drop(row_number(t), j, p, silu(g) * h);
        const double d = case_drop(row_number(t), j, p, given[i]);
        const double of_g = d * h * silu_slope(g), of_h = d * silu(g);
        assert_near(kept + at, &g, 1, 1e-6);
        assert_near(kept + at + width, &h, 1, 1e-6);
        assert_near(u + i, &expected, 1, 1e-6);
        assert_near(a + at, &of_g, 1, 1e-6);
        assert_near(a + at + width, &of_h, 1, 1e-6);
    }
    case_free(u, a, bias, du, before, given, kept, NULL);
}

static void test_swiglu(void **state)
{
    (void)state;
    const int widths[] = {1, 20, 36, 60, 200, 2050};
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 6; i++)
        for (int biased = 0; biased < 2; biased++) {
            check_swiglu(isa, widths[i], 0, biased);
            check_swiglu(isa, widths[i], 0.25, biased);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_range), cmocka_unit_test(test_swiglu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
