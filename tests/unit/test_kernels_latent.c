/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of latent attention against their definitions in double precision; the gradient of the norm is made of the
 * whole Jacobian. Rotation of some columns of a head against the rotation of all of a narrower one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

/* ---- norms ---- */

struct vector {
    int tokens, rank, shared;
    float eps;
};

static double rstd_of(const struct vector *v, const float *x)
{
    double squares = 0;
    for (int j = 0; j < v->rank; j++) squares += (double)x[j] * x[j];
    return 1 / sqrt(squares / v->rank + (double)v->eps);
}

static void check_norm(const struct vector *v, const float *x, const float *gamma, const float *y, const float *rstd)
{
    double expected[512];
    for (int t = 0; t < v->tokens; t++, x += v->rank + v->shared, y += v->rank) {
        const double scale = rstd_of(v, x);
        for (int j = 0; j < v->rank; j++) expected[j] = x[j] * scale * gamma[j];
        assert_near(y, expected, v->rank, 2e-6);
        assert_near(rstd + t, &scale, 1, 2e-6);
    }
}

/* before: what the weight's gradient was; NULL: it is written. */
static void check_norm_grad(const struct vector *v, const float *x, const float *gamma, const float *dy,
                            const float *got, const float *dgamma, const float *before)
{
    double expected[512], sums[512] = {0};
    for (int t = 0; t < v->tokens; t++, x += v->rank + v->shared, got += v->rank + v->shared, dy += v->rank) {
        const double scale = rstd_of(v, x);
        for (int i = 0; i < v->rank; i++) {
            expected[i] = 0;
            for (int j = 0; j < v->rank; j++) /* of output j by input i */
                expected[i] +=
                    dy[j] * (double)gamma[j] * ((i == j) * scale - (double)x[i] * x[j] * pow(scale, 3) / v->rank);
            sums[i] += dy[i] * x[i] * scale;
        }
        assert_near(got, expected, v->rank, 1e-5);
    }
    for (int j = 0; j < v->rank && before; j++) sums[j] += (double)before[j];
    assert_near(dgamma, sums, v->rank, 1e-5);
}

static void check_vector(const struct pp_cpu_isa *isa, const struct vector *v, bool adds)
{
    const int width = v->rank + v->shared;
    const int64_t n = (int64_t)v->tokens * width;
    float *x = case_floats(n, 1), *given = case_copy(x, n), *gamma = case_floats(v->rank, 2);
    float *y = case_floats((int64_t)v->tokens * v->rank, 3), *rstd = case_floats(v->tokens, 4);
    float *dy = case_floats((int64_t)v->tokens * v->rank, 5), *dshared = case_floats((int64_t)v->tokens * v->shared, 6);
    float *before = case_floats(v->rank, 7), *dgamma = case_copy(before, v->rank);
    const struct pp_call call = {.latent = {1, v->tokens, v->rank, v->shared}, .adds = adds, .eps = v->eps};
    struct pp_frame frame = case_frame();
    isa->run[PP_KERNEL_LATENT_NORM](&(struct pp_cpu_call){&call, &frame, .p = {y, rstd, x, gamma}});
    assert_same(x, given, n);
    check_norm(v, x, gamma, y, rstd);
    isa->run[PP_KERNEL_LATENT_NORM_GRAD](
        &(struct pp_cpu_call){&call, &frame, .p = {x, rstd, dy, v->shared ? dshared : NULL, gamma, dgamma}});
    check_norm_grad(v, given, gamma, dy, x, dgamma, adds ? before : NULL);
    for (int t = 0; t < v->tokens; t++)
        assert_same(x + (int64_t)t * width + v->rank, dshared + (int64_t)t * v->shared, v->shared);
    case_free(x, given, gamma, y, rstd, dy, dshared, before, dgamma, NULL);
}

/* Vectors of one column, of fewer and of more than a processor's vector; with columns behind them, and without. */
static void test_norms(void **state)
{
    (void)state;
    const struct vector vectors[] = {
        {3, 1, 2, 0.5f}, {5, 6, 0, 0.1f}, {4, 10, 4, 1e-5f}, {2, 64, 16, 1e-6f}, {3, 300, 6, 0.1f}};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < 2 * sizeof vectors / sizeof vectors[0]; i++) check_vector(isa, &vectors[i / 2], i % 2);
}

/* ---- heads ---- */

struct heads {
    int tokens, heads, still, shared, values, rank;
};

static int columns_of(const struct heads *s) { return s->still + s->shared; }

/* Where in a token's qkv query, key and value columns of a head begin. */
static int query_at(const struct heads *s, int h) { return h * columns_of(s); }
static int key_at(const struct heads *s, int h) { return (s->heads + h) * columns_of(s); }
static int value_at(const struct heads *s, int h) { return 2 * s->heads * columns_of(s) + h * s->values; }

/* qkv of one token, number by number. */
static void check_joined(const struct heads *s, const float *qkv, const float *q, const float *kv, const float *shared)
{
    for (int h = 0; h < s->heads; h++) {
        const float *own = kv + h * (s->still + s->values);
        assert_same(qkv + query_at(s, h), q + h * columns_of(s), columns_of(s));
        assert_same(qkv + key_at(s, h), own, s->still);
        assert_same(qkv + key_at(s, h) + s->still, shared, s->shared);
        assert_same(qkv + value_at(s, h), own + s->still, s->values);
    }
}

static void check_split(const struct heads *s, const float *dqkv, const float *dq, const float *dkv,
                        const float *dshared)
{
    for (int h = 0; h < s->heads; h++) {
        const float *own = dkv + h * (s->still + s->values);
        assert_same(dq + h * columns_of(s), dqkv + query_at(s, h), columns_of(s));
        assert_same(own, dqkv + key_at(s, h), s->still);
        assert_same(own + s->still, dqkv + value_at(s, h), s->values);
    }
    for (int j = 0; j < s->shared; j++) {
        float sum = dqkv[key_at(s, 0) + s->still + j];
        for (int h = 1; h < s->heads; h++) sum += dqkv[key_at(s, h) + s->still + j];
        assert_same(dshared + j, &sum, 1);
    }
}

static void check_heads(const struct pp_cpu_isa *isa, const struct heads *s)
{
    const int width = value_at(s, s->heads), queries = s->heads * columns_of(s),
              own = s->heads * (s->still + s->values);
    const int64_t tokens = s->tokens;
    float *qkv = case_floats(tokens * width, 1), *q = case_floats(tokens * queries, 2);
    float *kv = case_floats(tokens * own, 3), *x = case_floats(tokens * (s->rank + s->shared), 4);
    float *dshared = case_floats(tokens * s->shared, 5), *dqkv = case_floats(tokens * width, 6);
    const struct pp_call call = {.heads = {1, s->tokens, s->heads, s->still, s->shared, s->values, s->rank}};
    struct pp_frame frame = case_frame();
    isa->run[PP_KERNEL_JOIN_HEADS](&(struct pp_cpu_call){&call, &frame, .p = {qkv, q, kv, x}});
    for (int64_t t = 0; t < tokens; t++)
        check_joined(s, qkv + t * width, q + t * queries, kv + t * own, x + t * (s->rank + s->shared) + s->rank);
    isa->run[PP_KERNEL_SPLIT_HEADS](&(struct pp_cpu_call){&call, &frame, .p = {dqkv, q, kv, dshared}});
    for (int64_t t = 0; t < tokens; t++)
        check_split(s, dqkv + t * width, q + t * queries, kv + t * own, dshared + t * s->shared);
    case_free(qkv, q, kv, x, dshared, dqkv, NULL);
}

static void test_heads(void **state)
{
    (void)state;
    const struct heads shapes[] = {
        {1, 1, 1, 2, 1, 1}, {3, 3, 6, 4, 5, 10}, {4, 2, 16, 8, 40, 3}, {2, 5, 33, 64, 20, 512}};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_heads(isa, &shapes[i]);
}

/* ---- rotation ---- */

/* `turned` columns of heads, behind `still` others, turn as those of heads that have no others. */
static void check_turned(const struct pp_cpu_isa *isa, enum pp_kernel kernel, int still, int turned, int values)
{
    enum { ROWS = 2, SEQ = 5, HEADS = 3 };
    const int dh = still + turned, width = HEADS * (2 * dh + values), narrow = HEADS * 3 * turned;
    float *qkv = case_floats(ROWS * SEQ * width, 1), *given = case_copy(qkv, ROWS * SEQ * width);
    float *alone = case_floats(ROWS * SEQ * narrow, 2);
    struct pp_frame frame = case_frame();
    const struct pp_call call = {.rope = {ROWS, SEQ, HEADS, dh, turned, 0, still, values}, .turns = {100}},
                         other = {.rope = {ROWS, SEQ, HEADS, turned}, .turns = {100}};
    for (int t = 0; t < ROWS * SEQ; t++)
        for (int h = 0; h < 2 * HEADS; h++)
            memcpy(alone + t * narrow + h * turned, qkv + t * width + h * dh + still, sizeof(float) * (size_t)turned);
    isa->run[kernel](&(struct pp_cpu_call){&call, &frame, .p = {qkv}});
    isa->run[kernel](&(struct pp_cpu_call){&other, &frame, .p = {alone}});
    for (int t = 0; t < ROWS * SEQ; t++) {
        for (int h = 0; h < 2 * HEADS; h++) {
            assert_same(qkv + t * width + h * dh, given + t * width + h * dh, still);
            assert_same(qkv + t * width + h * dh + still, alone + t * narrow + h * turned, turned);
        }
        assert_same(qkv + t * width + 2 * HEADS * dh, given + t * width + 2 * HEADS * dh, HEADS * values);
    }
    case_free(qkv, given, alone, NULL);
}

static void test_rotation_of_some_columns(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int kernel = PP_KERNEL_ROPE; kernel <= PP_KERNEL_ROPE_GRAD; kernel++) {
        check_turned(isa, (enum pp_kernel)kernel, 5, 4, 7);
        check_turned(isa, (enum pp_kernel)kernel, 32, 64, 32);
        check_turned(isa, (enum pp_kernel)kernel, 1, 150, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms), cmocka_unit_test(test_heads),
                                       cmocka_unit_test(test_rotation_of_some_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
