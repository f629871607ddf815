/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU forward and backward, exact and by tanh, and residuals without a norm, against double-precision oracles; without
 * a bias too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

enum { ROWS = 2, SEQ = 3, T = ROWS * SEQ };
static const double pi = 3.14159265358979323846;

static uint32_t row_number(int t) { return (uint32_t)(CASE_FIRST_ROW * SEQ + t); }

static double below(double a) { return erfc(-a / sqrt(2)) / 2; }
static double gelu(double a) { return a * below(a); }
static double gelu_slope(double a) { return below(a) + a * exp(-a * a / 2) / sqrt(2 * pi); }

/* By tanh: with twice its argument, 2z, (1 + tanh(z)) / 2 = 1 / (1 + exp(-2z)), which keeps the digits of tails. */
static double twice(double a) { return 2 * sqrt(2 / pi) * (a + 0.044715 * a * a * a); }
static double twice_slope(double a) { return 2 * sqrt(2 / pi) * (1 + 3 * 0.044715 * a * a); }
static double logistic(double a) { return 1 / (1 + exp(-a)); }
static double gelu_tanh(double a) { return a * logistic(twice(a)); }
static double gelu_tanh_slope(double a)
{
    return logistic(twice(a)) + a * logistic(twice(a)) * logistic(-twice(a)) * twice_slope(a);
}

/* The kinds, as activation.tanh has them. exponent: of the tail, of which a float's last place is lost in the tail. */
static double normal_exponent(double a) { return a * a / 2; }
static const struct {
    const char *name;
    double (*value)(double), (*slope)(double), (*exponent)(double);
} gelus[] = {{"gelu", gelu, gelu_slope, normal_exponent}, {"gelu by tanh", gelu_tanh, gelu_tanh_slope, twice}};
enum { GELUS = sizeof gelus / sizeof *gelus };

/* Says which of them is wrong where, and by what. */
static void fail_at(const struct pp_cpu_isa *isa, int kind, const char *what, double a, double made, double expected)
{
    fail_msg("%s: %s, %s at %.9g: %.9g, not %.9g", isa->name, gelus[kind].name, what, a, made, expected);
}

/* Over the range where anything happens, to a few units of float's last place; a tail that is less than that beside 1
 * keeps its digits. */
static void check_range(const struct pp_cpu_isa *isa, int kind)
{
    enum { N = 100001 };
    static float a[N], u[N], du[N], bias[N];
    for (int i = 0; i < N; i++) {
        a[i] = -14 + (float)i * (28.f / (N - 1));
        du[i] = 1;
    }
    struct pp_frame frame = case_frame();
    struct pp_call call = {.activation = {1, 1, N, kind}};
    isa->run[PP_KERNEL_GELU](&(struct pp_cpu_call){&call, &frame, .p = {u, a, bias}});
    isa->run[PP_KERNEL_GELU_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {du, a}});
    for (int i = 0; i < N; i++) {
        const double value = gelus[kind].value(a[i]), slope = gelus[kind].slope(a[i]);
        const double most = 3e-7 * fabs(value) * (2 + fabs(gelus[kind].exponent(a[i]))) + 2e-37;
        if (!(fabs(u[i] - value) <= most)) fail_at(isa, kind, "value", a[i], u[i], value);
        if (!(fabs(du[i] - slope) <= 3e-7)) fail_at(isa, kind, "slope", a[i], du[i], slope);
    }
}

static void check_ends(const struct pp_cpu_isa *isa, int kind)
{
    float a[] = {-1000, -1e30f, 1000, 1e30f, 0, NAN}, u[6], du[] = {1, 1, 1, 1, 1, 1}, bias[6] = {0};
    struct pp_frame frame = case_frame();
    struct pp_call call = {.activation = {1, 1, 6, kind}};
    isa->run[PP_KERNEL_GELU](&(struct pp_cpu_call){&call, &frame, .p = {u, a, bias}});
    isa->run[PP_KERNEL_GELU_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {du, a}});
    assert_true(fabsf(u[0]) < 1e-30f && fabsf(u[1]) < 1e-6f && u[2] == 1000 && u[3] == 1e30f && u[4] == 0);
    assert_true(fabsf(du[0]) < 1e-30f && du[2] == 1 && fabsf(du[4] - 0.5f) < 1e-6f);
    assert_true(isnan(u[5]) && isnan(du[5])); /* a training run that breaks must show it */
}

static void test_gelu_range(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int kind = 0; kind < GELUS; kind++) {
        check_range(isa, kind);
        check_ends(isa, kind);
    }
}

static void check_gelu(const struct pp_cpu_isa *isa, int kind, int width, double p, bool biased)
{
    float *u = case_floats(T * width, 1), *a = case_floats(T * width, 2), *bias = case_floats(width, 3);
    float *du = case_floats(T * width, 4), *before = case_copy(a, T * width), *given = case_copy(du, T * width);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.activation = {ROWS, SEQ, width, kind}, .site = p > 0 ? CASE_SITE : 0, .p = (float)p};
    struct pp_cpu_call forward = {&call, &frame, .p = {u, a, biased ? bias : NULL}},
                       backward = {&call, &frame, .p = {du, a}};
    isa->run[PP_KERNEL_GELU](&forward);
    isa->run[PP_KERNEL_GELU_GRAD](&backward);
    for (int i = 0; i < T * width; i++) {
        const int t = i / width, j = i % width;
        const double h = (double)before[i] + (biased ? bias[j] : 0);
        const double expected = case_drop(row_number(t), j, p, gelus[kind].value(h));
        const double gradient = case_drop(row_number(t), j, p, given[i]) * gelus[kind].slope(h);
        assert_near(a + i, &h, 1, 1e-6);
        assert_near(u + i, &expected, 1, 1e-6);
        assert_near(du + i, &gradient, 1, 1e-6);
    }
    case_free(u, a, bias, du, before, given, NULL);
}

static void test_gelu(void **state)
{
    (void)state;
    const int widths[] = {1, 20, 36, 60, 200, 2050};
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 6 * GELUS; i++) {
        check_gelu(isa, i / 6, widths[i % 6], 0, i % 2);
        check_gelu(isa, i / 6, widths[i % 6], 0.25, true);
    }
}

/* in_place: y lies where x does. */
static void check_residual(const struct pp_cpu_isa *isa, int d, double p, bool in_place)
{
    float *x = case_floats(T * d, 1), *z = case_floats(T * d, 2), *bias = case_floats(d, 3);
    float *apart = case_floats(T * d, 4), *dz = case_floats(T * d, 5), *dy = case_floats(T * d, 6);
    float *before = case_copy(x, T * d), *kept = case_copy(z, T * d), *y = in_place ? x : apart;
    struct pp_frame frame = case_frame();
    struct pp_call call = {.activation = {ROWS, SEQ, d}, .site = p > 0 ? CASE_SITE : 0, .p = (float)p};
    isa->run[PP_KERNEL_RESIDUAL](&(struct pp_cpu_call){&call, &frame, .p = {NULL, z, x, bias}});
    assert_memory_equal(x, before, sizeof *x * (size_t)(T * d));
    isa->run[PP_KERNEL_RESIDUAL](&(struct pp_cpu_call){&call, &frame, .p = {y, z, x, bias}});
    isa->run[PP_KERNEL_RESIDUAL_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {dz, dy}});
    assert_memory_equal(z, kept, sizeof *z * (size_t)(T * d));
    for (int i = 0; i < T * d; i++) {
        const uint32_t row = row_number(i / d);
        const double expected = before[i] + case_drop(row, i % d, p, (double)z[i] + bias[i % d]);
        const double gradient = case_drop(row, i % d, p, dy[i]);
        assert_near(y + i, &expected, 1, 1e-6);
        assert_near(dz + i, &gradient, 1, 1e-6);
    }
    case_free(x, z, bias, apart, dz, dy, before, kept, NULL);
}

static void test_residual(void **state)
{
    (void)state;
    const int widths[] = {2, 7, 36, 200, 2100}; /* the last is wider than one tile of random numbers */
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 5; i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            check_residual(isa, widths[i], 0, in_place);
            check_residual(isa, widths[i], 0.25, in_place);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu_range),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_residual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
