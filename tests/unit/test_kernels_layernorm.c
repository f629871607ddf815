/* SPDX-License-Identifier: Apache-2.0
 *
 * Bias + dropout + residual + layer normalisation against a double-precision oracle, its gradient against differences
 * of it; the same where the normalisation comes first: plain, and with the residual stream beside it. All of it also by
 * the root mean square, which has no beta.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

enum { ROWS = 2, SEQ = 3, T = ROWS * SEQ };
static const double eps = 1e-5;

/* A norm and its gradient. */
struct kind {
    int norm, grad; /* enum pp_kernel */
    bool rms;
};
static const struct kind kinds[] = {{PP_KERNEL_LAYERNORM, PP_KERNEL_LAYERNORM_GRAD, false},
                                    {PP_KERNEL_RMSNORM, PP_KERNEL_RMSNORM_GRAD, true}};
enum { KINDS = 2 };

/* Operands of one row in double. */
struct row {
    int d;
    bool rms;
    uint32_t number; /* of the row vector */
    double p;
    double *x, *z, *gamma, *beta; /* z with its bias */
};

static void oracle_row(const struct row *row, double *y, double *rstd)
{
    const int d = row->d;
    double mean = 0, variance = 0;
    for (int j = 0; j < d; j++) mean += (y[j] = row->x[j] + case_drop(row->number, j, row->p, row->z[j])) / d;
    if (row->rms) mean = 0;
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
    bool rms;
    float *x, *z, *bias, *gamma, *beta, *dy;
};

static struct operands make_operands(const struct kind *kind, int d)
{
    struct operands o = {d,
                         kind->rms,
                         case_floats(T * d, 1),
                         case_floats(T * d, 2),
                         case_floats(d, 3),
                         case_floats(d, 4),
                         case_floats(d, 5),
                         case_floats(T * d, 6)};
    if (kind->rms) memset(o.beta, 0, sizeof *o.beta * (size_t)d);
    return o;
}

/* An operand that only layer norms have. */
static float *unless_rms(const struct operands *o, float *p) { return o->rms ? NULL : p; }

static void free_operands(struct operands *o) { case_free(o->x, o->z, o->bias, o->gamma, o->beta, o->dy, NULL); }

/* The oracle's row t. store: [4 * d] */
static struct row make_row(const struct operands *o, int t, double p, double *store)
{
    const int d = o->d;
    struct row row = {.d = d, .rms = o->rms, .number = (uint32_t)(CASE_FIRST_ROW * SEQ + t), .p = p, .x = store};
    row.z = row.x + d;
    row.gamma = row.z + d;
    row.beta = row.gamma + d;
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
        if (o->rms) expected_beta = 0.5; /* as it was */
        assert_near(dbeta + j, &expected_beta, 1, 2e-5);
    }
}

static void check_norm(const struct pp_cpu_isa *isa, const struct kind *kind, int d, double p, bool adds)
{
    struct operands o = make_operands(kind, d);
    float *y = case_floats(T * d, 7), *z = case_copy(o.z, T * d), *rstd = case_floats(T, 8);
    float *dr = case_floats(T * d, 9), *dgamma = case_floats(d, 10), *dbeta = case_floats(d, 11);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.norm = {ROWS, SEQ, d}, .site = p > 0 ? CASE_SITE : 0, .p = (float)p, .eps = (float)eps};
    struct pp_cpu_call forward = {&call, &frame, .p = {y, z, rstd, o.x, o.bias, o.gamma, unless_rms(&o, o.beta)}};
    isa->run[kind->norm](&forward);
    static double store[4 * 4096], expected[4096];
    for (int t = 0; t < T; t++) {
        struct row row = make_row(&o, t, p, store);
        double expected_rstd;
        oracle_row(&row, expected, &expected_rstd);
        assert_near(y + t * d, expected, d, 1e-5);
        assert_near(rstd + t, &expected_rstd, 1, 1e-5);
    }
    for (int j = 0; j < d; j++) dgamma[j] = dbeta[j] = 0.5f;
    call.adds = adds;
    struct pp_cpu_call backward = {&call, &frame, .p = {dr, z, rstd, o.dy, o.gamma, dgamma, unless_rms(&o, dbeta)}};
    isa->run[kind->grad](&backward);
    for (int t = 0; t < T; t++) check_grad_row(&o, t, p, dr, z);
    check_param_grads(&o, p, adds ? 0.5 : 0, dgamma, dbeta);
    case_free(y, z, rstd, dr, dgamma, dbeta, NULL);
    free_operands(&o);
}

/* A norm of x alone: the oracle's row with nothing in z. */
static void check_plain(const struct pp_cpu_isa *isa, const struct kind *kind, int d, bool adding)
{
    struct operands o = make_operands(kind, d);
    float *y = case_floats(T * d, 7), *xhat = case_floats(T * d, 8), *rstd = case_floats(T, 9);
    float *dr = case_floats(T * d, 10), *dgamma = case_floats(d, 11), *dbeta = case_floats(d, 12);
    float *add = case_copy(dr, T * d);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.norm = {ROWS, SEQ, d, 1}, .eps = (float)eps};
    memset(o.z, 0, sizeof *o.z * (size_t)(T * d));
    memset(o.bias, 0, sizeof *o.bias * (size_t)d);
    for (int j = 0; j < d; j++) dbeta[j] = 0.5f;
    isa->run[kind->norm](
        &(struct pp_cpu_call){&call, &frame, .p = {y, xhat, rstd, o.x, NULL, o.gamma, unless_rms(&o, o.beta), NULL}});
    float *kept = case_copy(xhat, T * d);
    static double store[4 * 4096], expected[4096];
    for (int t = 0; t < T; t++) {
        struct row row = make_row(&o, t, 0, store);
        double expected_rstd;
        oracle_row(&row, expected, &expected_rstd);
        assert_near(y + t * d, expected, d, 1e-5);
        assert_near(rstd + t, &expected_rstd, 1, 1e-5);
    }
    float *const add_to = adding ? dr : NULL, *const of_beta = unless_rms(&o, dbeta);
    isa->run[kind->grad](
        &(struct pp_cpu_call){&call, &frame, .p = {dr, xhat, rstd, o.dy, o.gamma, dgamma, of_beta, add_to}});
    assert_memory_equal(xhat, kept, sizeof *xhat * (size_t)(T * d));
    check_param_grads(&o, 0, 0, dgamma, dbeta);
    for (int i = 0; adding && i < T * d; i++) dr[i] -= add[i];
    for (int t = 0; t < T; t++) check_grad_row(&o, t, 0, dr, dr);
    case_free(y, xhat, rstd, dr, dgamma, dbeta, add, kept, NULL);
    free_operands(&o);
}

/* The stream beside the norm: the same y and gradients, and r over x. bias: NULL is as good as zeros. */
static void check_stream(const struct pp_cpu_isa *isa, const struct kind *kind, int d, double p)
{
    struct operands o = make_operands(kind, d);
    float *y[2], *z[2], *rstd = case_floats(T, 9), *x = case_copy(o.x, T * d), *add = case_floats(T * d, 13);
    float *dr[2], *dgamma = case_floats(d, 11), *dbeta = case_floats(d, 12);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.norm = {ROWS, SEQ, d}, .site = p > 0 ? CASE_SITE : 0, .p = (float)p, .eps = (float)eps};
    float *const bias = d % 2 ? NULL : o.bias;
    if (!bias) memset(o.bias, 0, sizeof *o.bias * (size_t)d);
    for (int k = 0; k < 2; k++) {
        y[k] = case_floats(T * d, 7);
        z[k] = case_copy(o.z, T * d);
        dr[k] = case_copy(add, T * d);
        float *const beta = unless_rms(&o, o.beta), *const of_beta = unless_rms(&o, dbeta);
        isa->run[kind->norm](&(struct pp_cpu_call){
            &call, &frame, .at.norm = {y[k], z[k], rstd, k ? x : o.x, k ? bias : o.bias, o.gamma, beta, k ? x : NULL}});
        isa->run[kind->grad](&(struct pp_cpu_call){
            &call, &frame, .at.norm_grad = {dr[k], z[k], rstd, o.dy, o.gamma, dgamma, of_beta, k ? dr[k] : NULL}});
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

static void test_norm(void **state)
{
    (void)state;
    const int widths[] = {2, 7, 12, 36, 60, 200, 2100}; /* the last is wider than one tile of random numbers */
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 7 * KINDS; i++) {
        check_norm(isa, &kinds[i / 7], widths[i % 7], 0, false);
        check_norm(isa, &kinds[i / 7], widths[i % 7], 0.25, true);
    }
}

static void test_norm_first(void **state)
{
    (void)state;
    const int widths[] = {2, 7, 12, 36, 60, 200, 2100};
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 7 * KINDS; i++) {
        const struct kind *kind = &kinds[i / 7];
        check_plain(isa, kind, widths[i % 7], false);
        check_plain(isa, kind, widths[i % 7], true);
        check_stream(isa, kind, widths[i % 7], 0);
        check_stream(isa, kind, widths[i % 7], 0.25);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norm), cmocka_unit_test(test_norm_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
