/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of FP8 products on the CPU against their definition, in double. What FP8 numbers are is tested by
 * test_fp8.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/calls/fp8.h"
#include "tests/unit/kernel_case.h"

static const struct matrices {
    int rows, width, times; /* times 0: one */
} cases[] = {{1, 1, 0}, {3, 5, 0}, {16, 48, 0}, {7, 2, 3}, {33, 17, 2}};
enum { CASES = sizeof cases / sizeof *cases };

static int64_t elements_of(const struct matrices *s) { return (int64_t)PP_TIMES(s) * s->rows * s->width; }

static struct pp_call fp8_call(enum pp_kernel kernel, const struct matrices *s, bool gradient)
{
    return (struct pp_call){.kernel = kernel, .fp8 = {s->rows, s->width, s->times, gradient}};
}

static float amax_of(const struct pp_cpu_isa *isa, const struct matrices *s, float *x)
{
    const struct pp_call call = fp8_call(PP_KERNEL_AMAX, s, false);
    struct pp_frame frame = case_frame();
    float amax = -1;
    case_run(isa, PP_KERNEL_AMAX, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){&amax, x});
    return amax;
}

/* The largest number of any sign in any place; NaN does not count, an infinity does. */
static void test_amax(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int c = 0; c < CASES; c++) {
        const int64_t n = elements_of(&cases[c]);
        float *x = case_floats(n, 1);
        for (int64_t at = 0; at < n; at++) {
            const float was = x[at];
            for (int sign = -1; sign <= 1; sign += 2) {
                x[at] = (float)sign * 2.5f;
                assert_true(amax_of(isa, &cases[c], x) == 2.5f);
            }
            x[at] = was;
        }
        x[n / 2] = NAN;
        assert_true(n == 1 ? amax_of(isa, &cases[c], x) == 0 : amax_of(isa, &cases[c], x) > 0);
        assert_true(amax_of(isa, &cases[c], x) < 1);
        x[0] = -INFINITY;
        assert_true(amax_of(isa, &cases[c], x) == INFINITY);
        for (int64_t i = 0; i < n; i++) x[i] = i % 2 ? 0.f : -0.f;
        const float none = amax_of(isa, &cases[c], x);
        assert_true(none == 0 && !signbit(none));
        free(x);
    }
}

struct rounded {
    uint8_t *q, *turned; /* NULL: not asked for */
    float scale;
};

static struct rounded to_fp8(const struct pp_cpu_isa *isa, const struct matrices *s, bool gradient, float *x,
                             float amax, bool straight, bool turned)
{
    const struct pp_call call = fp8_call(PP_KERNEL_TO_FP8, s, gradient);
    const size_t n = (size_t)elements_of(s);
    struct pp_frame frame = case_frame();
    struct rounded r = {.q = straight ? malloc(n) : NULL, .turned = turned ? malloc(n) : NULL, .scale = -1};
    case_run(isa, PP_KERNEL_TO_FP8, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){r.q, r.turned, &r.scale, x, &amax});
    return r;
}

/* The same number either way, wherever it is asked for. */
static void check_numbers(const struct matrices *s, bool gradient, const float *x, float factor,
                          const struct rounded *r)
{
    for (int at = 0; at < PP_TIMES(s); at++)
        for (int i = 0; i < s->rows; i++)
            for (int j = 0; j < s->width; j++) {
                const int64_t matrix = (int64_t)at * s->rows * s->width, straight = matrix + i * s->width + j;
                const uint8_t expected = pp_fp8(x[straight] * factor, gradient);
                if (r->q) assert_int_equal(r->q[straight], expected);
                if (r->turned) assert_int_equal(r->turned[matrix + j * s->rows + i], expected);
            }
}

static void check_rounding(const struct pp_cpu_isa *isa, const struct matrices *s, bool gradient, float *x, float amax)
{
    const float largest = gradient ? 57344 : 448, factor = pp_fp8_factor(amax, gradient);
    for (int form = 1; form <= 3; form++) {
        const struct rounded r = to_fp8(isa, s, gradient, x, amax, form & 1, form & 2);
        check_numbers(s, gradient, x, factor, &r);
        const double expected = amax > 0 ? amax / largest : 1;
        if (amax != INFINITY) assert_near(&r.scale, &expected, 1, 1e-6);
        case_free(r.q ? r.q : r.turned, r.q && r.turned ? r.turned : NULL, NULL);
    }
}

static void test_rounding(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int c = 0; c < CASES; c++)
        for (int gradient = 0; gradient < 2; gradient++) {
            const int64_t n = elements_of(&cases[c]);
            float *x = case_floats(n, 1), *zeros = calloc((size_t)n, sizeof *zeros);
            check_rounding(isa, &cases[c], gradient, x, amax_of(isa, &cases[c], x));
            check_rounding(isa, &cases[c], gradient, x, 0.25f); /* many are too large */
            check_rounding(isa, &cases[c], gradient, zeros, 0);
            for (int64_t i = 0; i < n; i++) x[i] *= 0x1p-120f;
            check_rounding(isa, &cases[c], gradient, x, amax_of(isa, &cases[c], x));
            case_free(x, zeros, NULL);
        }
}

/* An infinity becomes NaN, and with it all products of its matrix: so a run that went wrong shows it. */
static void test_infinity(void **state)
{
    (void)state;
    const struct matrices s = {2, 3, 0};
    FOR_EACH_ISA(isa)
    for (int gradient = 0; gradient < 2; gradient++) {
        float x[6] = {1, -2, 3, -INFINITY, 5, 6};
        const struct rounded r = to_fp8(isa, &s, gradient, x, amax_of(isa, &s, x), true, false);
        for (int i = 0; i < 6; i++) {
            const float got = pp_fp8_float(r.q[i], gradient);
            assert_true(i == 3 ? isnan(got) : got == 0);
        }
        const struct rounded b = to_fp8(isa, &s, false, (float[6]){1, 2, 3, 4, 5, 6}, 6, true, false);
        float c[4] = {0}, scales[2] = {r.scale, b.scale};
        const struct pp_call call = {.kernel = PP_KERNEL_GEMM_FP8, .gemm = {2, 2, 3, .gradient = gradient}};
        struct pp_frame frame = case_frame();
        case_run(isa, PP_KERNEL_GEMM_FP8, &call, 1, 0, &frame,
                 (void *[PP_CALL_REFS]){c, r.q, b.q, &scales[0], &scales[1]});
        for (int i = 0; i < 4; i++) assert_true(isnan(c[i]));
        case_free(r.q, b.q, NULL);
    }
}

/* All finite codes; NaN would hide the others. */
static uint8_t *case_codes(int64_t n, bool gradient, uint32_t salt)
{
    float *numbers = case_floats(n, salt);
    uint8_t *codes = malloc((size_t)n);
    for (int64_t i = 0; i < n; i++) codes[i] = pp_fp8(numbers[i] * (gradient ? 60000.f : 460.f), gradient);
    free(numbers);
    return codes;
}

struct product {
    int m, n, k, times;
    enum pp_gemm_mode mode;
    bool gradient, adds;
    int rank; /* of two tensor ranks */
};

static bool adds(const struct product *p)
{
    return p->mode == PP_GEMM_ADD || (p->mode == PP_GEMM_GRADIENT && p->adds) ||
           (p->mode == PP_GEMM_ADD_ONCE && p->rank == 0);
}

static double element(const struct product *p, const uint8_t *a, const uint8_t *b, int i, int j)
{
    double sum = 0;
    for (int l = 0; l < p->k; l++)
        sum += (double)pp_fp8_float(a[i * p->k + l], p->gradient) * pp_fp8_float(b[j * p->k + l], false);
    return sum;
}

static void check_product(const struct pp_cpu_isa *isa, const struct product *p)
{
    const int m = p->m, n = p->n, k = p->k, times = PP_TIMES(p);
    uint8_t *a = case_codes(times * m * k, p->gradient, 1), *b = case_codes(times * n * k, false, 2);
    float *c = case_floats(times * m * n, 3), *before = case_copy(c, times * m * n);
    float scale_a = 0x1p-20f * 3, scale_b = 0.01f;
    const struct pp_call call = {
        .kernel = PP_KERNEL_GEMM_FP8, .adds = p->adds, .gemm = {m, n, k, p->mode, 0, p->times, p->gradient}};
    struct pp_frame frame = case_frame();
    case_run(isa, PP_KERNEL_GEMM_FP8, &call, 2, p->rank, &frame, (void *[PP_CALL_REFS]){c, a, b, &scale_a, &scale_b});
    for (int i = 0; i < times * m * n; i++) {
        const int at = i / (m * n), row = i % (m * n) / n;
        const double made = element(p, a + at * m * k, b + at * n * k, row, i % n);
        const double expected = (double)scale_a * scale_b * made + (adds(p) ? before[i] : 0);
        assert_near(c + i, &expected, 1, 1e-6);
    }
    case_free(a, b, c, before, NULL);
}

static void test_products(void **state)
{
    (void)state;
    static const int sizes[][3] = {{1, 1, 1}, {5, 7, 3}, {16, 32, 48}, {33, 2, 64}};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int mode = PP_GEMM_WRITE; mode <= PP_GEMM_ADD_ONCE; mode++)
            for (int way = 0; way < 8; way++)
                for (int times = 0; times <= 3; times += 3)
                    check_product(isa, &(struct product){.m = sizes[i][0],
                                                         .n = sizes[i][1],
                                                         .k = sizes[i][2],
                                                         .times = times,
                                                         .mode = (enum pp_gemm_mode)mode,
                                                         .gradient = way & 1,
                                                         .adds = way & 2,
                                                         .rank = way / 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_amax), cmocka_unit_test(test_rounding),
                                       cmocka_unit_test(test_infinity), cmocka_unit_test(test_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
