/* SPDX-License-Identifier: Apache-2.0
 *
 * The norm of queries and keys against a double-precision oracle, whose gradient is made of the whole Jacobian of a
 * head.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

/* kv 0: as many as heads */
struct shape {
    int rows, seq, heads, dh, kv;
    float eps;
};

static int kv_of(const struct shape *s) { return s->kv ? s->kv : s->heads; }
static int normal_of(const struct shape *s) { return (s->heads + kv_of(s)) * s->dh; }
static int width_of(const struct shape *s) { return (s->heads + 2 * kv_of(s)) * s->dh; }
static int64_t tokens_of(const struct shape *s) { return (int64_t)s->rows * s->seq; }

static double scale_of(const struct shape *s, const double *x)
{
    double squares = 0;
    for (int j = 0; j < s->dh; j++) squares += x[j] * x[j];
    return 1 / sqrt(squares / s->dh + (double)s->eps);
}

/* The head of a token's queries or keys, in double. */
static double *head_at(const struct shape *s, const float *numbers, int64_t token, int stride, int head)
{
    double *out = malloc(sizeof *out * (size_t)s->dh);
    assert_non_null(out);
    for (int j = 0; j < s->dh; j++) out[j] = numbers[token * stride + head * s->dh + j];
    return out;
}

static void check_forward(const struct shape *s, const float *const gamma[2], const float *got, const float *kept)
{
    double expected[512];
    for (int64_t t = 0; t < tokens_of(s); t++)
        for (int h = 0; h < s->heads + kv_of(s); h++) {
            double *x = head_at(s, kept, t, normal_of(s), h);
            const double scale = scale_of(s, x);
            for (int j = 0; j < s->dh; j++) expected[j] = x[j] * scale * gamma[h >= s->heads][j];
            assert_near(got + t * width_of(s) + h * s->dh, expected, s->dh, 2e-6);
            free(x);
        }
}

/* grads: of both weights, which were `before` where the call adds. */
static void check_backward(const struct shape *s, const float *const gamma[2], const float *kept, const float *dy,
                           const float *got, float *const grads[2], const float *before)
{
    double expected[512], sums[2][512] = {{0}};
    for (int64_t t = 0; t < tokens_of(s); t++)
        for (int h = 0; h < s->heads + kv_of(s); h++) {
            const int of = h >= s->heads;
            double *x = head_at(s, kept, t, normal_of(s), h), *d = head_at(s, dy, t, width_of(s), h);
            const double scale = scale_of(s, x);
            for (int i = 0; i < s->dh; i++) {
                expected[i] = 0;
                for (int j = 0; j < s->dh; j++) /* of output j by input i */
                    expected[i] += d[j] * gamma[of][j] * ((i == j) * scale - x[i] * x[j] * pow(scale, 3) / s->dh);
                sums[of][i] += d[i] * x[i] * scale;
            }
            assert_near(got + t * width_of(s) + h * s->dh, expected, s->dh, 1e-5);
            free(x);
            free(d);
        }
    for (int of = 0; of < 2; of++) {
        for (int j = 0; j < s->dh && before; j++) sums[of][j] += (double)before[j];
        assert_near(grads[of], sums[of], s->dh, 1e-5);
    }
}

/* Values, and their gradients, are not the kernel's. */
static void check_values(const struct shape *s, const float *given, const float *bias, const float *got)
{
    for (int64_t t = 0; t < tokens_of(s); t++)
        for (int j = normal_of(s); j < width_of(s); j++)
            assert_true(got[t * width_of(s) + j] == given[t * width_of(s) + j] + (bias ? bias[j] : 0));
}

static void check_shape(const struct pp_cpu_isa *isa, const struct shape *s, bool biased, bool adds)
{
    const int64_t n = tokens_of(s) * width_of(s), normal = tokens_of(s) * normal_of(s);
    float *x = case_floats(n, 1), *bias = case_floats(width_of(s), 2), *given = case_copy(x, n);
    float *kept = case_floats(normal, 3), *dy = case_floats(n, 6), *before = case_floats(s->dh, 7);
    float *gamma[] = {case_floats(s->dh, 4), case_floats(s->dh, 5)};
    float *grads[] = {case_copy(before, s->dh), case_copy(before, s->dh)}, *dx = case_copy(dy, n);
    const float *const weights[] = {gamma[0], gamma[1]};
    struct pp_frame frame = case_frame();
    const struct pp_call call = {
        .attention = {s->rows, s->seq, s->heads, s->dh, 0, s->kv}, .adds = adds, .eps = s->eps};
    isa->run[PP_KERNEL_QK_NORM](
        &(struct pp_cpu_call){&call, &frame, .p = {x, biased ? bias : NULL, kept, gamma[0], gamma[1]}});
    for (int64_t i = 0; i < normal; i++) {
        const int64_t token = i / normal_of(s), column = i % normal_of(s);
        assert_true(kept[i] == given[token * width_of(s) + column] + (biased ? bias[column] : 0));
    }
    check_values(s, given, biased ? bias : NULL, x);
    check_forward(s, weights, x, kept);
    isa->run[PP_KERNEL_QK_NORM_GRAD](
        &(struct pp_cpu_call){&call, &frame, .p = {dx, kept, gamma[0], gamma[1], grads[0], grads[1]}});
    check_values(s, dy, NULL, dx);
    check_backward(s, weights, kept, dy, dx, grads, adds ? before : NULL);
    case_free(x, bias, given, kept, dy, before, gamma[0], gamma[1], grads[0], grads[1], dx, NULL);
}

/* Heads of one column, of fewer and of more than a vector; as many heads of keys as of queries, and fewer. */
static void test_qk_norm(void **state)
{
    (void)state;
    const struct shape shapes[] = {{2, 3, 1, 2, 1, 1e-5f},  {1, 2, 2, 1, 1, 0.5f},   {2, 9, 4, 6, 2, 0.1f},
                                   {1, 5, 3, 64, 1, 1e-6f}, {2, 4, 2, 100, 0, 0.1f}, {1, 3, 1, 300, 0, 1e-5f}};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < 4 * sizeof shapes / sizeof shapes[0]; i++)
        check_shape(isa, &shapes[i / 4], i % 2, i / 2 % 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_qk_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
