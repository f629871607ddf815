/* SPDX-License-Identifier: Apache-2.0
 *
 * Bias + dropout + residual + layer normalisation against a double-precision oracle, its gradient against differences
 * of it.
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layernorm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
