/* SPDX-License-Identifier: Apache-2.0
 *
 * Both kinds of attention against a double-precision oracle, their gradients against differences of the oracle and,
 * where rows are long, against its formulas; also where heads share keys and values, and with windows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

struct shape {
    int rows, seq, heads, dh;
    bool causal;
    double p;
    int kv; /* heads of keys and values; 0: as many */
    int window;
    int dv; /* columns of a value; 0: dh */
};

static const struct shape shapes[] = {
    {2, 9, 4, 3, false, 0},
    {2, 5, 2, 6, true, 0},
    {2, 9, 4, 3, true, 0.25},
    {1, 7, 3, 12, false, 0.25},
    {2, 35, 2, 20, true, 0.2},
    {1, 35, 1, 40, false, 0.2},
    {1, 1, 2, 2, true, 0},
    {1, 48, 2, 8, true, 0.5},
    {1, 23, 2, 100, true, 0.25},
    {1, 70, 1, 16, false, 0.25},
    {1, 1, 1, 1, false, 0},
    {2, 3, 3, 1, true, 0.2},
    {2, 9, 4, 3, true, 0.25, 2},
    {1, 35, 6, 20, false, 0, 2},
    {2, 7, 4, 5, true, 0.25, 1},
    /* windows of one token, of some, of all but one, of all, and of more; the last reach over blocks of queries */
    {2, 9, 2, 3, true, 0, 0, 1},
    {1, 9, 4, 3, true, 0.25, 2, 4},
    {1, 9, 2, 6, true, 0, 0, 8},
    {1, 9, 2, 6, true, 0.2, 0, 9},
    {1, 9, 2, 6, true, 0, 0, 50},
    {1, 70, 2, 5, true, 0.25, 1, 3},
    {1, 100, 1, 16, true, 0.2, 0, 37},
    /* values narrower than keys, and wider */
    {2, 9, 3, 6, true, 0.25, 0, 0, 4},
    {1, 9, 4, 3, true, 0.25, 2, 4, 7},
    {2, 7, 2, 12, false, 0, 0, 0, 1},
    {1, 70, 2, 5, true, 0.25, 1, 3, 20},
};
/* Whole blocks of queries, one query more, several blocks; products that the library computes and tiny ones. */
static const struct shape long_shapes[] = {
    {1, 64, 2, 5, true, 0.2},
    {2, 65, 1, 1, true, 0.25},
    {1, 65, 1, 9, false, 0.25},
    {1, 128, 1, 3, true, 0},
    {1, 200, 2, 7, true, 0.3},
    {1, 150, 1, 40, false, 0.1},
    {1, 301, 1, 1, true, 0.2},
    {2, 130, 2, 16, false, 0},
    {2, 130, 4, 3, true, 0.2, 2},
    {1, 301, 2, 4, true, 0.2, 1, 1},
    {2, 301, 1, 16, true, 0, 0, 18},
    {1, 301, 4, 9, true, 0.25, 2, 64},
    {1, 301, 1, 40, true, 0.1, 0, 65},
    {1, 192, 2, 3, true, 0.2, 0, 100},
    {1, 301, 1, 5, true, 0.2, 0, 300},
    {1, 200, 2, 24, true, 0.2, 0, 0, 16},
    {2, 130, 4, 3, true, 0.2, 2, 70, 9},
};
enum { MOST_KEYS = 512 };

static int kv_of(const struct shape *s) { return s->kv ? s->kv : s->heads; }
static int value_columns(const struct shape *s) { return s->dv ? s->dv : s->dh; }
static int width_of(const struct shape *s) { return s->heads * s->dh + kv_of(s) * (s->dh + value_columns(s)); }
/* Where token j's key, and value, for queries of head h lie in a row. */
static int64_t key_at(const struct shape *s, int h, int j)
{
    return (int64_t)j * width_of(s) + (s->heads + h / (s->heads / kv_of(s))) * s->dh;
}
static int64_t value_at(const struct shape *s, int h, int j)
{
    const int group = s->heads / kv_of(s);
    return (int64_t)j * width_of(s) + (s->heads + kv_of(s)) * s->dh + h / group * value_columns(s);
}

static struct pp_call call_of(const struct shape *s)
{
    return (struct pp_call){.attention = {s->rows, s->seq, s->heads, s->dh, s->causal, s->kv, 0, s->window, s->dv},
                            .site = s->p > 0 ? CASE_SITE : 0,
                            .p = (float)s->p};
}

/* The first key that query i sees. */
static int first_key(const struct shape *s, int i) { return s->window && i >= s->window ? i - s->window + 1 : 0; }

/* ctx of one query; qkv: [T, width] with bias, in double. Returns 1 / (1 - p) * sum of kept probabilities * v. */
static void oracle_query(const struct shape *s, const double *qkv, int r, int h, int i, double *ctx)
{
    const int width = width_of(s), open = s->causal ? i + 1 : s->seq, first = first_key(s, i);
    const double *row = qkv + (int64_t)r * s->seq * width, *q = row + (int64_t)i * width + h * s->dh;
    const uint32_t number = (uint32_t)(((CASE_FIRST_ROW + r) * s->heads + h) * s->seq + i);
    double score[MOST_KEYS], sum = 0;
    for (int j = first; j < open; j++) {
        score[j] = 0;
        for (int k = 0; k < s->dh; k++) score[j] += q[k] * row[key_at(s, h, j) + k];
        sum += score[j] = exp(score[j] / sqrt(s->dh));
    }
    for (int k = 0; k < value_columns(s); k++) ctx[k] = 0;
    for (int j = first; j < open; j++) {
        const double p = case_drop(number, j, s->p, score[j] / sum);
        for (int k = 0; k < value_columns(s); k++) ctx[k] += p * row[value_at(s, h, j) + k];
    }
}

static void oracle(const struct shape *s, const double *qkv, double *ctx)
{
    for (int r = 0; r < s->rows; r++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->seq; i++)
                oracle_query(s, qkv, r, h, i, ctx + ((int64_t)(r * s->seq + i) * s->heads + h) * value_columns(s));
}

static double weighted(const struct shape *s, const double *qkv, const float *weight, double *ctx)
{
    const int64_t n = (int64_t)s->rows * s->seq * s->heads * value_columns(s);
    double sum = 0;
    oracle(s, qkv, ctx);
    for (int64_t i = 0; i < n; i++) sum += weight[i] * ctx[i];
    return sum;
}

/* Differences at some 40 places of qkv. */
static void check_grad(const struct shape *s, double *qkv, const float *dctx, const float *dqkv, double *ctx)
{
    const int64_t n = (int64_t)s->rows * s->seq * width_of(s), stride = n > 40 ? n / 40 | 1 : 1;
    const double h = 1e-4;
    for (int64_t i = 0; i < n; i += stride) {
        const double kept = qkv[i];
        qkv[i] = kept + h;
        const double above = weighted(s, qkv, dctx, ctx);
        qkv[i] = kept - h;
        const double expected = (above - weighted(s, qkv, dctx, ctx)) / (2 * h);
        qkv[i] = kept;
        assert_near(dqkv + i, &expected, 1, 3e-5);
    }
}

static void check_attention(const struct pp_cpu_isa *isa, const struct shape *s)
{
    const int d = s->heads * value_columns(s), width = width_of(s);
    const int64_t tokens = (int64_t)s->rows * s->seq, scores = tokens * s->heads * s->seq;
    float *qkv = case_floats(tokens * width, 1), *bias = case_floats(width, 2), *ctx = case_floats(tokens * d, 3);
    float *p = case_floats(scores, 4), *dctx = case_floats(tokens * d, 5);
    float *scratch = case_floats(pp_attention_scratch(s->seq, s->dh + value_columns(s)) / (int64_t)sizeof(float), 6);
    double *exact = malloc(sizeof *exact * (size_t)(tokens * width)),
           *expected = malloc(sizeof *expected * (size_t)(tokens * d));
    assert_non_null(exact);
    assert_non_null(expected);
    for (int64_t i = 0; i < tokens * width; i++) exact[i] = (double)qkv[i] + bias[i % width];
    struct pp_frame frame = case_frame();
    struct pp_call call = call_of(s);
    struct pp_cpu_call forward = {&call, &frame, .p = {ctx, p, qkv, bias, scratch}};
    isa->run[PP_KERNEL_ATTENTION](&forward);
    oracle(s, exact, expected);
    assert_near(ctx, expected, tokens * d, 1e-5);
    assert_near(qkv, exact, tokens * width, 1e-6);
    struct pp_cpu_call backward = {&call, &frame, .p = {qkv, p, dctx, scratch}};
    isa->run[PP_KERNEL_ATTENTION_GRAD](&backward);
    check_grad(s, exact, dctx, qkv, expected);
    case_free(qkv, bias, ctx, p, dctx, scratch, exact, expected, NULL);
}

/* What flash has to come to. */
struct expected {
    double *qkv, *ctx, *lse, *dqkv;
};

/* Adds what one query gives: its lse, its gradient, and those of the keys and values that it sees. */
static void oracle_grad_query(const struct shape *s, const struct expected *e, const float *dctx, int r, int h, int i)
{
    const int open = s->causal ? i + 1 : s->seq, first = first_key(s, i);
    const int64_t row = (int64_t)r * s->seq * width_of(s), query = row + (int64_t)i * width_of(s) + h * s->dh;
    const uint32_t number = (uint32_t)(((CASE_FIRST_ROW + r) * s->heads + h) * s->seq + i);
    const float *dc = dctx + ((int64_t)(r * s->seq + i) * s->heads + h) * value_columns(s);
    double p[MOST_KEYS], dp[MOST_KEYS], sum = 0, mean = 0;
    for (int j = first; j < open; j++) {
        p[j] = 0;
        for (int k = 0; k < s->dh; k++) p[j] += e->qkv[query + k] * e->qkv[row + key_at(s, h, j) + k];
        sum += p[j] = exp(p[j] / sqrt(s->dh));
    }
    e->lse[(int64_t)(r * s->heads + h) * s->seq + i] = log(sum);
    for (int j = first; j < open; j++) {
        const int64_t value = row + value_at(s, h, j);
        const double kept = case_drop(number, j, s->p, p[j] /= sum);
        dp[j] = 0;
        for (int k = 0; k < value_columns(s); k++) {
            dp[j] += case_drop(number, j, s->p, dc[k] * e->qkv[value + k]);
            e->dqkv[value + k] += kept * dc[k];
        }
        mean += p[j] * dp[j];
    }
    for (int j = first; j < open; j++)
        for (int k = 0; k < s->dh; k++) {
            const int64_t key = row + key_at(s, h, j) + k;
            const double ds = p[j] * (dp[j] - mean) / sqrt(s->dh);
            e->dqkv[query + k] += ds * e->qkv[key];
            e->dqkv[key] += ds * e->qkv[query + k];
        }
}

/* Scratch has a border; what flash leaves there, or reads from it, shows. */
static void check_flash(const struct pp_cpu_isa *isa, const struct shape *s, bool by_differences)
{
    enum { BORDER = 16 };
    const int d = s->heads * value_columns(s), width = width_of(s);
    const int64_t tokens = (int64_t)s->rows * s->seq,
                  room = pp_flash_scratch(s->seq, s->seq, s->dh + value_columns(s)) / (int64_t)sizeof(float);
    float *qkv = case_floats(tokens * width, 1), *bias = case_floats(width, 2), *ctx = case_floats(tokens * d, 3);
    float *lse = case_floats(tokens * s->heads, 4), *dctx = case_floats(tokens * d, 5);
    float *scratch = case_floats(room + BORDER, 6);
    const struct expected e = {
        calloc((size_t)(tokens * width), sizeof(double)), calloc((size_t)(tokens * d), sizeof(double)),
        calloc((size_t)(tokens * s->heads), sizeof(double)), calloc((size_t)(tokens * width), sizeof(double))};
    assert_true(e.qkv && e.ctx && e.lse && e.dqkv);
    for (int64_t i = 0; i < room + BORDER; i++) scratch[i] = NAN;
    for (int64_t i = 0; i < tokens * width; i++) e.qkv[i] = (double)qkv[i] + bias[i % width];
    oracle(s, e.qkv, e.ctx);
    for (int r = 0; r < s->rows; r++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->seq; i++) oracle_grad_query(s, &e, dctx, r, h, i);
    struct pp_frame frame = case_frame();
    struct pp_call call = call_of(s);
    struct pp_cpu_call forward = {&call, &frame, .p = {ctx, lse, qkv, bias, scratch}};
    isa->run[PP_KERNEL_FLASH](&forward);
    assert_near(ctx, e.ctx, tokens * d, 1e-5);
    assert_near(lse, e.lse, tokens * s->heads, 1e-6);
    assert_near(qkv, e.qkv, tokens * width, 1e-6);
    for (int64_t i = 0; i < room; i++) scratch[i] = NAN;
    struct pp_cpu_call backward = {&call, &frame, .p = {qkv, lse, ctx, dctx, scratch}};
    isa->run[PP_KERNEL_FLASH_GRAD](&backward);
    assert_near(qkv, e.dqkv, tokens * width, 1e-5);
    for (int64_t i = room; i < room + BORDER; i++) assert_true(isnan(scratch[i]));
    if (by_differences) check_grad(s, e.qkv, dctx, qkv, e.ctx);
    case_free(qkv, bias, ctx, lse, dctx, scratch, e.qkv, e.ctx, e.lse, e.dqkv, NULL);
}

static void test_flash(void **state)
{
    (void)state;
    assert_int_equal(pp_gemm_open(1), PP_OK);
    FOR_EACH_ISA(isa)
    {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_flash(isa, &shapes[i], true);
        for (size_t i = 0; i < sizeof long_shapes / sizeof long_shapes[0]; i++)
            check_flash(isa, &long_shapes[i], false);
    }
}

/* Scores so far apart that their exponentials have no sum in float: nothing overflows, and the largest wins. */
static void test_flash_of_large_scores(void **state)
{
    (void)state;
    enum { SEQ = 70 };
    float qkv[SEQ * 3], ctx[SEQ], lse[SEQ], dctx[SEQ], bias[3] = {0};
    float *scratch = case_floats(pp_flash_scratch(SEQ, SEQ, 2) / (int64_t)sizeof(float), 1);
    assert_int_equal(pp_gemm_open(1), PP_OK);
    FOR_EACH_ISA(isa)
    {
        for (int i = 0; i < SEQ; i++) {
            qkv[3 * i] = 20;
            qkv[3 * i + 1] = (float)(10 * i);
            qkv[3 * i + 2] = dctx[i] = (float)i;
        }
        struct pp_frame frame = case_frame();
        struct pp_call call = {.attention = {1, SEQ, 1, 1, 1}};
        struct pp_cpu_call forward = {&call, &frame, .p = {ctx, lse, qkv, bias, scratch}};
        struct pp_cpu_call backward = {&call, &frame, .p = {qkv, lse, ctx, dctx, scratch}};
        isa->run[PP_KERNEL_FLASH](&forward);
        for (int i = 0; i < SEQ; i++) {
            assert_true(fabsf(ctx[i] - (float)i) < 1e-5f * (float)(i + 1));
            assert_true(fabsf(lse[i] - 200.0f * (float)i) < 1e-5f);
        }
        isa->run[PP_KERNEL_FLASH_GRAD](&backward);
        for (int i = 0; i < SEQ; i++) assert_true(fabsf(qkv[3 * i + 2] - (float)i) < 1e-5f * (float)(i + 1));
        for (int i = 0; i < SEQ * 3; i++) assert_true(isfinite(qkv[i]));
    }
    free(scratch);
}

/* Without a bias the same as with one of zeros, and qkv stays as it is. */
static void test_plain(void **state)
{
    (void)state;
    const struct shape shape = {2, 9, 4, 3, true, 0.25, 2}, *s = &shape;
    const int64_t d = s->heads * s->dh, tokens = (int64_t)s->rows * s->seq, n = tokens * width_of(s);
    float bias[3 * 4 * 3] = {0};
    FOR_EACH_ISA(isa)
    for (int kernel = PP_KERNEL_ATTENTION; kernel <= PP_KERNEL_FLASH; kernel += PP_KERNEL_FLASH - PP_KERNEL_ATTENTION) {
        float *qkv = case_floats(n, 1), *given = case_copy(qkv, n), *ctx = case_floats(tokens * d, 2);
        float *expected = case_floats(tokens * d, 3), *kept = case_floats(tokens * s->heads * s->seq, 4);
        float *scratch =
            case_floats(pp_flash_scratch(s->seq, s->seq, s->dh + value_columns(s)) / (int64_t)sizeof(float), 5);
        struct pp_frame frame = case_frame();
        struct pp_call call = call_of(s);
        isa->run[kernel](&(struct pp_cpu_call){&call, &frame, .p = {expected, kept, qkv, bias, scratch}});
        isa->run[kernel](&(struct pp_cpu_call){&call, &frame, .p = {ctx, kept, qkv, NULL, scratch}});
        assert_memory_equal(qkv, given, sizeof *qkv * (size_t)n);
        assert_memory_equal(ctx, expected, sizeof *ctx * (size_t)(tokens * d));
        case_free(qkv, given, ctx, expected, kept, scratch, NULL);
    }
}

/* Probabilities of keys that a window hides are zeros, those of whole blocks of queries, too. */
static void check_hidden(const struct pp_cpu_isa *isa)
{
    const struct shape shape = {1, 150, 1, 4, true, 0, 0, 20}, *s = &shape;
    const int64_t squares = (int64_t)s->seq * s->seq;
    float *qkv = case_floats((int64_t)s->seq * width_of(s), 1), *ctx = case_floats((int64_t)s->seq * s->dh, 2);
    float *p = case_floats(squares, 3),
          *scratch = malloc((size_t)pp_attention_scratch(s->seq, s->dh + value_columns(s)));
    struct pp_frame frame = case_frame();
    struct pp_call call = call_of(s);
    assert_non_null(scratch);
    for (int64_t i = 0; i < squares; i++) p[i] = NAN;
    isa->run[PP_KERNEL_ATTENTION](&(struct pp_cpu_call){&call, &frame, .p = {ctx, p, qkv, NULL, scratch}});
    for (int i = 0; i < s->seq; i++)
        for (int j = 0; j < s->seq; j++) {
            const bool seen = j <= i && j >= first_key(s, i);
            assert_true(seen ? p[i * s->seq + j] > 0 : p[i * s->seq + j] == 0);
        }
    case_free(qkv, ctx, p, scratch, NULL);
}

static void test_attention(void **state)
{
    (void)state;
    assert_int_equal(pp_gemm_open(1), PP_OK);
    FOR_EACH_ISA(isa)
    {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) check_attention(isa, &shapes[i]);
        check_hidden(isa);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_flash),
                                       cmocka_unit_test(test_flash_of_large_scores), cmocka_unit_test(test_plain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
