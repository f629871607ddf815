/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding, relu and cross-entropy, forward and backward, against double-precision oracles.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

enum { ROWS = 2, SEQ = 3, T = ROWS * SEQ, VOCAB = 11 };

static const int32_t tokens[T] = {3, 0, 10, 3, 3, 7};

static double position(int t, int j, int d)
{
    const double angle = t * exp(-log(10000) * (j / 2 * 2) / d);
    return j % 2 ? cos(angle) : sin(angle);
}

static uint32_t row_number(int t) { return (uint32_t)(CASE_FIRST_ROW * SEQ + t); }

static void check_embed(const struct pp_cpu_isa *isa, int d, double p, double scale)
{
    float *out = case_floats(T * d, 1), *weight = case_floats(VOCAB * d, 2), *scratch = case_floats(SEQ * d, 3);
    float *grad = case_floats(VOCAB * d, 4), *dy = case_floats(T * d, 5);
    double *expected = calloc((size_t)(VOCAB * d), sizeof *expected);
    assert_non_null(expected);
    struct pp_frame frame = case_frame();
    struct pp_call call = {
        .embed = {ROWS, SEQ, d, VOCAB}, .site = p > 0 ? CASE_SITE : 0, .p = (float)p, .scale = (float)scale};
    struct pp_cpu_call forward = {&call, &frame, .p = {out, (void *)tokens, weight, scratch}};
    isa->run[PP_KERNEL_EMBED](&forward);
    for (int t = 0; t < T; t++)
        for (int j = 0; j < d; j++) {
            const double value = weight[tokens[t] * d + j] * (double)(float)scale + position(t % SEQ, j, d);
            const double dropped = case_drop(row_number(t), j, p, value);
            assert_near(out + t * d + j, &dropped, 1, 1e-6);
            expected[tokens[t] * d + j] += case_drop(row_number(t), j, p, dy[t * d + j]) * scale;
        }
    struct pp_cpu_call backward = {&call, &frame, .p = {grad, (void *)tokens, dy}};
    isa->run[PP_KERNEL_EMBED_GRAD](&backward);
    assert_near(grad, expected, VOCAB * d, 1e-5);
    call.adds = true;
    isa->run[PP_KERNEL_EMBED_GRAD](&backward);
    for (int i = 0; i < VOCAB * d; i++) expected[i] *= 2;
    assert_near(grad, expected, VOCAB * d, 1e-5);
    case_free(out, weight, scratch, grad, dy, expected, NULL);
}

static void test_embedding(void **state)
{
    (void)state;
    const int widths[] = {2, 12, 36, 60, 200, 2100};
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 6; i++) {
        check_embed(isa, widths[i], 0, 1);
        check_embed(isa, widths[i], 0.25, sqrt(widths[i]));
    }
}

/* A table of more places than there are tokens. Words are scaled, places are not. */
static void check_learned(const struct pp_cpu_isa *isa, int d, double p)
{
    enum { PLACES = SEQ + 2 };
    const float scale = 3;
    float *out = case_floats(T * d, 1), *weight = case_floats(VOCAB * d, 2), *places = case_floats(SEQ * d, 3);
    float *grad = case_floats(PLACES * d, 4), *dy = case_floats(T * d, 5), *again;
    double *expected = calloc((size_t)(PLACES * d), sizeof *expected);
    assert_non_null(expected);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.embed = {ROWS, SEQ, d, VOCAB, PP_POSITIONS_LEARNED},
                           .site = p > 0 ? CASE_SITE : 0,
                           .p = (float)p,
                           .scale = scale};
    struct pp_cpu_call forward = {&call, &frame, .p = {out, (void *)tokens, weight, NULL, places}};
    isa->run[PP_KERNEL_EMBED](&forward);
    for (int t = 0; t < T; t++)
        for (int j = 0; j < d; j++) {
            const double value = (double)weight[tokens[t] * d + j] * scale + places[t % SEQ * d + j];
            const double dropped = case_drop(row_number(t), j, p, value);
            assert_near(out + t * d + j, &dropped, 1, 1e-6);
            expected[t % SEQ * d + j] += case_drop(row_number(t), j, p, dy[t * d + j]);
        }
    call.positions = (struct pp_positions_dims){ROWS, SEQ, d, PLACES};
    struct pp_cpu_call backward = {&call, &frame, .p = {grad, dy}};
    isa->run[PP_KERNEL_POSITIONS_GRAD](&backward);
    assert_near(grad, expected, PLACES * d, 1e-6);
    for (int i = SEQ * d; i < PLACES * d; i++) grad[i] = 7; /* of longer rows before */
    again = case_copy(grad, PLACES * d);
    call.adds = true;
    isa->run[PP_KERNEL_POSITIONS_GRAD](&backward);
    for (int i = 0; i < SEQ * d; i++) expected[i] += again[i];
    assert_near(grad, expected, SEQ * d, 1e-6);
    assert_same(grad + SEQ * d, again + SEQ * d, 2 * d);
    case_free(out, weight, places, grad, dy, again, expected, NULL);
}

/* Two calls of a row each give the bits of one of both. */
static void check_rows_in_turn(const struct pp_cpu_isa *isa, int d)
{
    float *dy = case_floats(T * d, 1), *whole = case_floats(SEQ * d, 2), *turns = case_floats(SEQ * d, 3);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.positions = {ROWS, SEQ, d, SEQ}, .site = CASE_SITE, .p = 0.25f};
    isa->run[PP_KERNEL_POSITIONS_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {whole, dy}});
    call.positions.rows = 1;
    for (int row = 0; row < ROWS; row++, frame.first_row++, call.adds = true)
        isa->run[PP_KERNEL_POSITIONS_GRAD](&(struct pp_cpu_call){&call, &frame, .p = {turns, dy + row * SEQ * d}});
    assert_same(turns, whole, SEQ * d);
    case_free(dy, whole, turns, NULL);
}

static void test_learned_positions(void **state)
{
    (void)state;
    const int widths[] = {2, 12, 36, 60, 200, 2100};
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 6; i++) {
        check_learned(isa, widths[i], 0);
        check_learned(isa, widths[i], 0.25);
        check_rows_in_turn(isa, widths[i]);
    }
}

/* Far positions: the table is made by turning, and must not drift. */
static void test_far_positions(void **state)
{
    (void)state;
    enum { FAR = 5000, D = 6 };
    static const int32_t zeros[FAR];
    float *out = case_floats(FAR * D, 1), *scratch = case_floats(FAR * D, 2), weight[D] = {0};
    struct pp_frame frame = case_frame();
    struct pp_call call = {.embed = {1, FAR, D, 1}, .scale = 1};
    struct pp_cpu_call forward = {&call, &frame, .p = {out, (void *)zeros, weight, scratch}};
    pp_cpu_isa_best()->run[PP_KERNEL_EMBED](&forward);
    for (int t = 0; t < FAR; t += 7)
        for (int j = 0; j < D; j++) {
            const double expected = position(t, j, D);
            assert_near(out + t * D + j, &expected, 1, 1e-7);
        }
    case_free(out, scratch, NULL);
}

static void check_relu(const struct pp_cpu_isa *isa, int width, double p)
{
    float *u = case_floats(T * width, 1), *bias = case_floats(width, 2), *du = case_floats(T * width, 3);
    float *before = case_copy(u, T * width), *given = case_copy(du, T * width);
    struct pp_frame frame = case_frame();
    struct pp_call call = {.activation = {ROWS, SEQ, width}, .site = p > 0 ? CASE_SITE : 0, .p = (float)p};
    struct pp_cpu_call forward = {&call, &frame, .p = {u, bias}}, backward = {&call, &frame, .p = {du, u}};
    isa->run[PP_KERNEL_RELU](&forward);
    isa->run[PP_KERNEL_RELU_GRAD](&backward);
    for (int i = 0; i < T * width; i++) {
        const int t = i / width, j = i % width;
        const double h = (double)before[i] + bias[j];
        const double expected = case_drop(row_number(t), j, p, h > 0 ? h : 0);
        const double gradient = h > 0 ? case_drop(row_number(t), j, p, given[i]) : 0;
        assert_near(u + i, &expected, 1, 1e-6);
        assert_near(du + i, &gradient, 1, 1e-6);
    }
    case_free(u, bias, du, before, given, NULL);
}

static void test_relu(void **state)
{
    (void)state;
    const int widths[] = {1, 20, 36, 60, 200, 2050};
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 6; i++) {
        check_relu(isa, widths[i], 0);
        check_relu(isa, widths[i], 0.25);
    }
}

/* Loss of one row in double. */
static double row_loss(const double *logits, int n, int target)
{
    double sum = 0;
    for (int j = 0; j < n; j++) sum += exp(logits[j] - logits[target]);
    return log(sum);
}

/* Logits of magnitude `magnitude` in rows of vocab + pad columns, gradient in place or apart. */
struct entropy_case {
    int vocab, pad;
    bool apart;
    float magnitude;
};

static void check_gradient(const struct entropy_case *e, const float *plain, const float *bias, const int32_t *target,
                           const float *dlogits, double *loss)
{
    const int vocab = e->vocab, columns = vocab + e->pad;
    double *row = malloc(sizeof *row * (size_t)vocab);
    assert_non_null(row);
    for (int t = 0; t < T; t++) {
        const float *got = dlogits + t * columns;
        for (int j = 0; j < vocab; j++) row[j] = (double)plain[t * columns + j] + bias[j];
        *loss += row_loss(row, vocab, target[t]);
        for (int j = 0; j<vocab; j += vocab> 100 ? vocab / 40 : 1) {
            const double gradient = 0.125 * (exp(-row_loss(row, vocab, j)) - (j == target[t]));
            assert_true(fabs(got[j] - gradient) <= 1e-7 + 2e-6 * fabs(gradient));
        }
        for (int j = vocab; j < columns; j++) assert_true(got[j] == 0);
    }
    free(row);
}

static void check_cross_entropy(const struct pp_cpu_isa *isa, const struct entropy_case *e)
{
    const int columns = e->vocab + e->pad, n = T * columns;
    float *logits = case_floats(n, 1), *bias = case_floats(e->vocab, 2);
    int32_t target[T];
    double loss = -1, expected = 0;
    for (int i = 0; i < n; i++) logits[i] *= e->magnitude;
    for (int t = 0; t < T; t++) target[t] = t * 7 % e->vocab;
    float *plain = case_copy(logits, n), *apart = case_floats(n, 3), *dlogits = e->apart ? apart : logits;
    struct pp_frame frame = case_frame();
    frame.loss = &loss;
    frame.loss_scale = 0.125f;
    struct pp_call call = {.loss = {ROWS, SEQ, e->vocab, 0, columns}};
    struct pp_cpu_call c = {&call, &frame, .p = {logits, bias, target}};
    isa->run[PP_KERNEL_CROSS_ENTROPY](&c);
    assert_memory_equal(logits, plain, sizeof *plain * (size_t)n);
    const double loss_only = loss;
    call.loss.gradient = 1;
    c.at.loss.dlogits = dlogits;
    isa->run[PP_KERNEL_CROSS_ENTROPY](&c);
    assert_true(loss == loss_only);
    check_gradient(e, plain, bias, target, dlogits, &expected);
    assert_near(&loss, &expected, 1, 2e-6);
    if (e->apart) assert_memory_equal(logits, plain, sizeof *plain * (size_t)n);
    frame.loss = NULL; /* recomputation: nobody asks */
    isa->run[PP_KERNEL_CROSS_ENTROPY](&c);
    case_free(logits, bias, plain, apart, NULL);
}

static void test_cross_entropy(void **state)
{
    (void)state;
    const struct entropy_case cases[] = {{2, 0, false, 1},      {17, 0, false, 60},    {100, 0, false, 1},
                                         {28782, 0, false, 1},  {28782, 0, false, 60}, {2, 62, false, 1},
                                         {17, 3, true, 60},     {100, 0, true, 1},     {100, 28, true, 1},
                                         {28782, 18, false, 1}, {28782, 18, true, 60}};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_cross_entropy(isa, &cases[i]);
}

/* A training run that breaks must show it: what is not a number stays that, as in PyTorch. */
static void check_not_a_number(const struct pp_cpu_isa *isa, int width, int at)
{
    float *u = case_floats(T * width, 1), *bias = case_floats(width, 2);
    int32_t target[T] = {0};
    double loss = 0;
    struct pp_frame frame = case_frame();
    frame.loss = &loss;
    struct pp_call relu = {.activation = {ROWS, SEQ, width}}, entropy = {.loss = {ROWS, SEQ, width, 1, width}};
    struct pp_cpu_call c = {&relu, &frame, .p = {u, bias}}, e = {&entropy, &frame, .p = {u, bias, target, u}};
    u[at] = NAN;
    isa->run[PP_KERNEL_RELU](&c);
    assert_true(isnan(u[at]));
    isa->run[PP_KERNEL_CROSS_ENTROPY](&e);
    assert_true(isnan(loss) && isnan(u[at]));
    case_free(u, bias, NULL);
}

static void test_not_a_number(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int at = 0; at < 37; at += 6) check_not_a_number(isa, 37, at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding),     cmocka_unit_test(test_learned_positions),
        cmocka_unit_test(test_far_positions), cmocka_unit_test(test_relu),
        cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
