/* SPDX-License-Identifier: Apache-2.0
 *
 * Bias + dropout + residual + layer normalisation against a double-precision oracle, its gradient against differences
 * of it; the same where the normalisation comes first: plain, and with the residual stream beside it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

enum { ROWS = 2, SEQ = 3, T = ROWS * SEQ };
static const double eps = 1e-5;

/* Operands of one row in double. */
struct row {
    int d;
    uint32_t number; /* of the row vector */
    double p;
    double *x, *z, *gamma, *beta; /* z with its bias */
};

static void oracle_row(const struct row *row, double *y, double *rstd)
{
    const int d = row->d;
    double mean = 0, variance = 0;
    for (int j = 0; j < d; j++) mean += (y[j] = row->x[j] + case_drop(row->number, j, row->p, row->z[j])) / d;
    for (int j = 0; j < d; j++) variance += (y[j] - mean) * (y[j] - mean) / d;
    *rstd = 1 / sqrt(variance + eps);
    for (int j = 0; j < d; j++) y[j] = (y[j] - mean) * *rstd * row->gamma[j] + row->beta[j];
}

/* sum of weight * y: the number whose gradient is taken */
static double weighted(const struct row *row, const float *weight)
{
    double y[4096], rstd, sum = 0;
    oracle_row(row, y, &rstd);
    for (int j = 0; j < row->d; j++) sum += weight[j] * y[j];
    return sum;
}

static double difference(const struct row *row, const float *weight, double *value)
{
    const double kept = *value, h = 1e-4;
    *value = kept + h;
    const double above = weighted(row, weight);
    *value = kept - h;
    const double below = weighted(row, weight);
    *value = kept;
    return (above - below) / (2 * h);
}

struct operands {
    int d;
    float *x, *z, *bias, *gamma, *beta, *dy;
};

static struct operands make_operands(int d)
{
    return (struct operands){d,
                             case_floats(T * d, 1),
                             case_floats(T * d, 2),
                             case_floats(d, 3),
                             case_floats(d, 4),
                             case_floats(d, 5),
                             case_floats(T * d, 6)};
}

static void free_operands(struct operands *o) { case_free(o->x, o->z, o->bias, o->gamma, o->beta, o->dy, NULL); }

/* The oracle's row t. store: [4 * d] */
static struct row make_row(const struct operands *o, int t, double p, double *store)
{
    const int d = o->d;
    struct row row = {d, (uint32_t)(CASE_FIRST_ROW * SEQ + t), p, store, store + d, store + 2 * d, store + 3 * d};
    for (int j = 0; j < d; j++) {
        row.x[j] = o->x[t * d + j];
        row.z[j] = (double)o->z[t * d + j] + o->bias[j];
        row.gamma[j] = o->gamma[j];
        row.beta[j] = o->beta[j];
    }
    return row;
}

static void check_grad_row(const struct operands *o, int t, double p, const float *dr, const float *dz)
{
    static double store[4 * 4096];
    const int d = o->d, stride = d > 100 ? d / 23 : 1;
    struct row row = make_row(o, t, p, store);
    for (int j = 0; j < d; j += stride) {
        const double expected_dr = difference(&row, o->dy + t * d, &row.x[j]);
        const double expected_dz = difference(&row, o->dy + t * d, &row.z[j]);
        assert_near(dr + t * d + j, &expected_dr, 1, 2e-5);
        assert_near(dz + t * d + j, &expected_dz, 1, 2e-5);
    }
}

/* gamma's and beta's gradients: sums over rows, on top of `start` */
static void check_param_grads(const struct operands *o, double p, double start, const float *dgamma, const float *dbeta)
{
    static double store[4 * 4096];
    const int d = o->d, stride = d > 100 ? d / 23 : 1;
    for (int j = 0; j < d; j += stride) {
        double expected_gamma = start, expected_beta = start;
        for (int t = 0; t < T; t++) {
            struct row row = make_row(o, t, p, store);
            expected_gamma += difference(&row, o->dy + t * d, &row.gamma[j]);
            expected_beta += o->dy[t * d + j];
        }
        assert_near(dgamma + j, &expected_gamma, 1, 2e-5);
        assert_near(dbeta + j, &expected_beta, 1, 2e-5);
    }
}

static void check_layernorm(const struct pp_cpu_isa *isa, int d, double p, bool accumulate)
{
    struct operands o = make_operands(d);
    float *y = case_floats(T * d, 7), *z = case_copy(o.z, T * d), *rstd = case_floats(T, 8);
    float *dr = case_floats(T * d, 9), *dgamma = case_floats(d, 10), *dbeta = case_floats(d, 11);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.n = {ROWS, SEQ, d}, .site = p > 0 ? CASE_SITE : 0, .f = {(float)p, (float)eps}};
    struct pp_cpu_call forward = {&call, &frame, {y, z, rstd, o.x, o.bias, o.gamma, o.beta}};
    isa->run[PP_KERNEL_LAYERNORM](&forward);
    static double store[4 * 4096], expected[4096];
    for (int t = 0; t < T; t++) {
        struct row row = make_row(&o, t, p, store);
        double expected_rstd;
        oracle_row(&row, expected, &expected_rstd);
        assert_near(y + t * d, expected, d, 1e-5);
        assert_near(rstd + t, &expected_rstd, 1, 1e-5);
    }
    for (int j = 0; j < d; j++) dgamma[j] = dbeta[j] = 0.5f;
    frame.accumulate = accumulate;
    struct pp_cpu_call backward = {&call, &frame, {dr, z, rstd, o.dy, o.gamma, dgamma, dbeta}};
    isa->run[PP_KERNEL_LAYERNORM_GRAD](&backward);
    for (int t = 0; t < T; t++) check_grad_row(&o, t, p, dr, z);
    check_param_grads(&o, p, accumulate ? 0.5 : 0, dgamma, dbeta);
    case_free(y, z, rstd, dr, dgamma, dbeta, NULL);
    free_operands(&o);
}

/* A norm of x alone: the oracle's row with nothing in z. */
static void check_plain(const struct pp_cpu_isa *isa, int d, bool adding)
{
    struct operands o = make_operands(d);
    float *y = case_floats(T * d, 7), *xhat = case_floats(T * d, 8), *rstd = case_floats(T, 9);
    float *dr = case_floats(T * d, 10), *dgamma = case_floats(d, 11), *dbeta = case_floats(d, 12);
    float *add = case_copy(dr, T * d);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.n = {ROWS, SEQ, d, 1}, .f = {0, (float)eps}};
    memset(o.z, 0, sizeof *o.z * (size_t)(T * d));
    memset(o.bias, 0, sizeof *o.bias * (size_t)d);
    isa->run[PP_KERNEL_LAYERNORM](
        &(struct pp_cpu_call){&call, &frame, {y, xhat, rstd, o.x, NULL, o.gamma, o.beta, NULL}});
    float *kept = case_copy(xhat, T * d);
    static double store[4 * 4096], expected[4096];
    for (int t = 0; t < T; t++) {
        struct row row = make_row(&o, t, 0, store);
        double expected_rstd;
        oracle_row(&row, expected, &expected_rstd);
        assert_near(y + t * d, expected, d, 1e-5);
        assert_near(rstd + t, &expected_rstd, 1, 1e-5);
    }
    isa->run[PP_KERNEL_LAYERNORM_GRAD](
        &(struct pp_cpu_call){&call, &frame, {dr, xhat, rstd, o.dy, o.gamma, dgamma, dbeta, adding ? dr : NULL}});
    assert_memory_equal(xhat, kept, sizeof *xhat * (size_t)(T * d));
    check_param_grads(&o, 0, 0, dgamma, dbeta);
    for (int i = 0; adding && i < T * d; i++) dr[i] -= add[i];
    for (int t = 0; t < T; t++) check_grad_row(&o, t, 0, dr, dr);
    case_free(y, xhat, rstd, dr, dgamma, dbeta, add, kept, NULL);
    free_operands(&o);
}

/* The stream beside the norm: the same y and gradients, and r over x. */
static void check_stream(const struct pp_cpu_isa *isa, int d, double p)
{
    struct operands o = make_operands(d);
    float *y[2], *z[2], *rstd = case_floats(T, 9), *x = case_copy(o.x, T * d), *add = case_floats(T * d, 13);
    float *dr[2], *dgamma = case_floats(d, 11), *dbeta = case_floats(d, 12);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.n = {ROWS, SEQ, d}, .site = p > 0 ? CASE_SITE : 0, .f = {(float)p, (float)eps}};
    for (int k = 0; k < 2; k++) {
        y[k] = case_floats(T * d, 7);
        z[k] = case_copy(o.z, T * d);
        dr[k] = case_copy(add, T * d);
        isa->run[PP_KERNEL_LAYERNORM](&(struct pp_cpu_call){
            &call, &frame, {y[k], z[k], rstd, k ? x : o.x, o.bias, o.gamma, o.beta, k ? x : NULL}});
        isa->run[PP_KERNEL_LAYERNORM_GRAD](
            &(struct pp_cpu_call){&call, &frame, {dr[k], z[k], rstd, o.dy, o.gamma, dgamma, dbeta, k ? dr[k] : NULL}});
    }
    assert_memory_equal(y[0], y[1], sizeof *x * (size_t)(T * d));
    for (int i = 0; i < T * d; i++) {
        const uint32_t row = (uint32_t)(CASE_FIRST_ROW * SEQ + i / d);
        const double r = o.x[i] + case_drop(row, i % d, p, (double)o.z[i] + o.bias[i % d]);
        const double gradient = (double)dr[0][i] + add[i], dz = case_drop(row, i % d, p, gradient);
        assert_near(x + i, &r, 1, 1e-6);
        assert_near(dr[1] + i, &gradient, 1, 1e-6);
        assert_near(z[1] + i, &dz, 1, 1e-6);
    }
    case_free(y[0], y[1], z[0], z[1], rstd, x, add, dr[0], dr[1], dgamma, dbeta, NULL);
    free_operands(&o);
}

static void test_layernorm(void **state)
{
    (void)state;
    const int widths[] = {2, 7, 12, 36, 60, 200, 2100}; /* the last is wider than one tile of random numbers */
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 7; i++) {
        check_layernorm(isa, widths[i], 0, false);
        check_layernorm(isa, widths[i], 0.25, true);
    }
}

static void test_norm_first(void **state)
{
    (void)state;
    const int widths[] = {2, 7, 12, 36, 60, 200, 2100};
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 7; i++) {
        check_plain(isa, widths[i], false);
        check_plain(isa, widths[i], true);
        check_stream(isa, widths[i], 0);
        check_stream(isa, widths[i], 0.25);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layernorm), cmocka_unit_test(test_norm_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
