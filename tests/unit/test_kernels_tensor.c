/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of workers that share a stage's tensors, against the same kernels of one that has them whole. Where nothing
 * is summed the bits are the same, dropout's too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

enum { ROWS = 2, SEQ = 3, T = ROWS * SEQ, TENSOR = 3 };

/* Columns first .. first+n-1 of each row. The caller frees it. */
static float *columns(const float *from, int rows, int width, int first, int n)
{
    float *out = case_floats((int64_t)rows * n, 0);
    for (int r = 0; r < rows; r++) memcpy(out + r * n, from + r * width + first, sizeof *out * (size_t)n);
    return out;
}

/* Positions of either kind are added once, by the worker that has the word; the gradient of learnt ones is whole in
 * each. */
static void check_embedding(const struct pp_cpu_isa *isa, enum pp_positions positions)
{
    enum { VOCAB = 11, WORDS = 4, D = 20 };
    int32_t tokens[T] = {3, 0, 10, 3, 8, 7};
    struct pp_frame frame = case_frame();
    struct pp_call call = {.embed = {ROWS, SEQ, D, VOCAB, positions}, .site = CASE_SITE, .p = 0.25f, .scale = 2},
                   of_places = {.positions = {ROWS, SEQ, D, SEQ}, .site = CASE_SITE, .p = 0.25f};
    float *weight = case_floats(TENSOR * WORDS * D, 1), *scratch = case_floats(SEQ * D, 2), sum[T * D] = {0};
    float *out = case_floats(T * D, 3), *grad = case_floats(VOCAB * D, 4), *dy = case_floats(T * D, 5);
    float *places = case_floats(SEQ * D, 8), whole[SEQ * D], each[SEQ * D];
    float *made = positions == PP_POSITIONS_SINUSOIDAL ? scratch : NULL;
    case_run(isa, PP_KERNEL_EMBED, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){out, tokens, weight, made, places});
    case_run(isa, PP_KERNEL_EMBED_GRAD, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){grad, tokens, dy});
    case_run(isa, PP_KERNEL_POSITIONS_GRAD, &of_places, 1, 0, &frame, (void *[PP_CALL_REFS]){whole, dy});
    call.embed.vocab = WORDS;
    for (int rank = 0; rank < TENSOR; rank++) {
        float *part = case_floats(T * D, 6), *mine = case_floats(WORDS * D, 7), *words = weight + rank * WORDS * D;
        const int there = VOCAB - rank * WORDS < WORDS ? VOCAB - rank * WORDS : WORDS;
        case_run(isa, PP_KERNEL_EMBED, &call, TENSOR, rank, &frame,
                 (void *[PP_CALL_REFS]){part, tokens, words, made, places});
        case_run(isa, PP_KERNEL_EMBED_GRAD, &call, TENSOR, rank, &frame, (void *[PP_CALL_REFS]){mine, tokens, dy});
        case_run(isa, PP_KERNEL_POSITIONS_GRAD, &of_places, TENSOR, rank, &frame, (void *[PP_CALL_REFS]){each, dy});
        for (int i = 0; i < T * D; i++) sum[i] += part[i];
        assert_same(mine, grad + rank * WORDS * D, there * D);
        for (int i = there * D; i < WORDS * D; i++) assert_true(mine[i] == 0);
        assert_same(each, whole, SEQ * D);
        case_free(part, mine, NULL);
    }
    assert_near(sum, out, T * D, 0);
    case_free(weight, scratch, out, grad, dy, places, NULL);
}

static void test_embedding(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int positions = 0; positions <= PP_POSITIONS_LEARNED; positions++) check_embedding(isa, positions);
}

/* One that works on columns: operands are of so many times `width` columns; the last may be a bias. */
struct by_columns {
    enum pp_kernel kernel;
    int times[3];
    bool bias;
};

/* The worker's part of an operand: of each of its `times` halves the same columns. */
static float *part_of(const float *whole, int rows, int width, int times, int rank)
{
    const int mine = width / TENSOR;
    float *out = case_floats((int64_t)rows * mine * times, 0);
    for (int k = 0; k < times; k++) {
        float *half = columns(whole, rows, width * times, k * width + rank * mine, mine);
        for (int r = 0; r < rows; r++)
            memcpy(out + (r * times + k) * mine, half + r * mine, sizeof *out * (size_t)mine);
        free(half);
    }
    return out;
}

static void check_columns(const struct pp_cpu_isa *isa, const struct by_columns *k, int width)
{
    float *whole[3] = {0}, *parts[TENSOR][3] = {{0}};
    struct pp_frame frame = case_frame();
    struct pp_call call = {.activation = {ROWS, SEQ, width}, .site = CASE_SITE, .p = 0.4f};
    void *operands[PP_CALL_REFS] = {0};
    const int n = k->times[2] ? 3 : 2;
    for (int i = 0; i < n; i++) {
        const int rows = k->bias && i == n - 1 ? 1 : T;
        operands[i] = whole[i] = case_floats((int64_t)rows * width * k->times[i], (uint32_t)i + 1);
        for (int rank = 0; rank < TENSOR; rank++) parts[rank][i] = part_of(whole[i], rows, width, k->times[i], rank);
    }
    case_run(isa, k->kernel, &call, 1, 0, &frame, operands);
    call.activation.width = width / TENSOR;
    for (int rank = 0; rank < TENSOR; rank++) {
        void *mine[PP_CALL_REFS] = {parts[rank][0], parts[rank][1], parts[rank][2]};
        case_run(isa, k->kernel, &call, TENSOR, rank, &frame, mine);
        float *expected = part_of(whole[0], T, width, k->times[0], rank);
        assert_same(parts[rank][0], expected, (int64_t)T * k->times[0] * width / TENSOR);
        free(expected);
        for (int i = 0; i < 3; i++) free(parts[rank][i]);
    }
    for (int i = 0; i < 3; i++) free(whole[i]);
}

static void test_activations(void **state)
{
    (void)state;
    static const struct by_columns kernels[] = {
        {PP_KERNEL_RELU, {1, 1, 0}, true},   {PP_KERNEL_RELU_GRAD, {1, 1, 0}, false},
        {PP_KERNEL_GELU, {1, 1, 1}, true},   {PP_KERNEL_GELU_GRAD, {1, 1, 0}, false},
        {PP_KERNEL_SWIGLU, {1, 2, 2}, true}, {PP_KERNEL_SWIGLU_GRAD, {2, 1, 0}, false},
    };
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        check_columns(isa, &kernels[i], 4 * TENSOR);
        check_columns(isa, &kernels[i], 52 * TENSOR);
    }
}

/* Heads of one worker among those of all: which scores are dropped shows in the context. */
static void check_attention(const struct pp_cpu_isa *isa, bool flash)
{
    enum { KV = 1, GROUP = 2, DH = 4, HEADS = KV * GROUP, ALL = TENSOR * HEADS };
    const int64_t probabilities = ROWS * ALL * SEQ * SEQ, bytes = pp_attention_scratch(SEQ, 2 * DH);
    const enum pp_kernel kernel = flash ? PP_KERNEL_FLASH : PP_KERNEL_ATTENTION;
    struct pp_frame frame = case_frame();
    struct pp_call call = {.attention = {ROWS, SEQ, ALL, DH, true, TENSOR * KV}, .site = CASE_SITE, .p = 0.4f};
    float *qkv = case_floats(T * (ALL + 2 * TENSOR * KV) * DH, 1), *ctx = case_floats(T * ALL * DH, 2);
    float *p = case_floats(probabilities, 3), *scratch = malloc((size_t)bytes);
    float *parts[TENSOR];
    for (int rank = 0; rank < TENSOR; rank++) {
        const int width = (ALL + 2 * TENSOR * KV) * DH, mine = (HEADS + 2 * KV) * DH;
        float *q = columns(qkv, T, width, rank * HEADS * DH, HEADS * DH);
        float *k = columns(qkv, T, width, (ALL + rank * KV) * DH, KV * DH);
        float *v = columns(qkv, T, width, (ALL + (TENSOR + rank) * KV) * DH, KV * DH);
        parts[rank] = case_floats(T * mine, 0);
        for (int t = 0; t < T; t++) {
            memcpy(parts[rank] + t * mine, q + t * HEADS * DH, sizeof *q * HEADS * DH);
            memcpy(parts[rank] + t * mine + HEADS * DH, k + t * KV * DH, sizeof *k * KV * DH);
            memcpy(parts[rank] + t * mine + (HEADS + KV) * DH, v + t * KV * DH, sizeof *v * KV * DH);
        }
        case_free(q, k, v, NULL);
    }
    case_run(isa, kernel, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){ctx, p, qkv, NULL, scratch});
    call.attention.heads = HEADS;
    call.attention.kv = KV;
    for (int rank = 0; rank < TENSOR; rank++) {
        float *mine = case_floats(T * HEADS * DH, 4);
        float *expected = columns(ctx, T, ALL * DH, rank * HEADS * DH, HEADS * DH);
        case_run(isa, kernel, &call, TENSOR, rank, &frame, (void *[PP_CALL_REFS]){mine, p, parts[rank], NULL, scratch});
        assert_same(mine, expected, T * HEADS * DH);
        case_free(mine, expected, parts[rank], NULL);
    }
    case_free(qkv, ctx, p, scratch, NULL);
}

static void test_attention(void **state)
{
    (void)state;
    assert_int_equal(pp_gemm_open(1), PP_OK);
    FOR_EACH_ISA(isa)
    for (int flash = 0; flash < 2; flash++) check_attention(isa, flash);
}

/* The last worker has one word less than it has room for, and a column that is no word's. */
static void test_cross_entropy(void **state)
{
    (void)state;
    enum { VOCAB = 11, WORDS = 4, COLUMNS = 5 };
    int32_t targets[T] = {3, 0, 10, 4, 8, 7};
    FOR_EACH_ISA(isa)
    {
        double loss, expected_loss;
        struct pp_frame frame = case_frame();
        struct pp_call call = {.loss = {ROWS, SEQ, VOCAB, true, VOCAB, VOCAB}};
        float *logits = case_floats(T * VOCAB, 1), *bias = case_floats(TENSOR * WORDS, 2);
        float *gradient = case_floats(T * VOCAB, 3), *own[TENSOR], told[TENSOR][TENSOR * T * PP_ENTROPY_PART];
        float sum[TENSOR * T * PP_ENTROPY_PART] = {0};
        for (int i = 0; i < T * VOCAB; i++) logits[i] *= 20;
        frame.loss_scale = 0.5f;
        frame.loss = &expected_loss;
        case_run(isa, PP_KERNEL_CROSS_ENTROPY, &call, 1, 0, &frame,
                 (void *[PP_CALL_REFS]){logits, bias, targets, gradient});
        call = (struct pp_call){.loss = {ROWS, SEQ, WORDS, true, COLUMNS, VOCAB}};
        frame.loss = &loss;
        for (int rank = 0; rank < TENSOR; rank++) {
            const int n = VOCAB - rank * WORDS < WORDS ? VOCAB - rank * WORDS : WORDS;
            own[rank] = case_floats(T * COLUMNS, 9);
            for (int t = 0; t < T; t++)
                memcpy(own[rank] + t * COLUMNS, logits + t * VOCAB + rank * WORDS, sizeof *logits * (size_t)n);
            case_run(isa, PP_KERNEL_CROSS_ENTROPY_PART, &call, TENSOR, rank, &frame,
                     (void *[PP_CALL_REFS]){own[rank], bias + rank * WORDS, targets, NULL, told[rank]});
            for (int i = 0; i < TENSOR * T * PP_ENTROPY_PART; i++) sum[i] += told[rank][i];
        }
        for (int rank = 0; rank < TENSOR; rank++) {
            const int n = VOCAB - rank * WORDS < WORDS ? VOCAB - rank * WORDS : WORDS;
            loss = 0;
            case_run(isa, PP_KERNEL_CROSS_ENTROPY_JOIN, &call, TENSOR, rank, &frame,
                     (void *[PP_CALL_REFS]){own[rank], bias + rank * WORDS, targets, own[rank], sum});
            assert_near(&loss, &expected_loss, 1, 1e-6);
            for (int t = 0; t < T; t++) {
                assert_near(own[rank] + t * COLUMNS, gradient + t * VOCAB + rank * WORDS, n, 1e-6);
                for (int j = n; j < COLUMNS; j++) assert_true(own[rank][t * COLUMNS + j] == 0);
            }
            free(own[rank]);
        }
        case_free(logits, bias, gradient, NULL);
    }
}

/* What all workers have counts once; what products add to is added once. */
static void test_once(void **state)
{
    (void)state;
    enum { N = 6 };
    assert_int_equal(pp_gemm_open(1), PP_OK);
    FOR_EACH_ISA(isa)
    for (int rank = 0; rank < 2; rank++) {
        struct pp_frame frame = case_frame();
        double sums[2] = {-1, -1}, square = 0;
        float *g = case_floats(N * N, 1), *c = case_floats(N * N, 2), *product = case_floats(N * N, 3);
        for (int i = 0; i < N * N; i++) square += (double)g[i] * g[i];
        frame.sums = sums;
        for (int once = 0; once < 2; once++) {
            const struct pp_call call = {.sumsq = {N, N, once, once}};
            case_run(isa, PP_KERNEL_SUMSQ, &call, 2, rank, &frame, (void *[PP_CALL_REFS]){g});
        }
        const double expected[] = {square, rank ? 0 : square};
        assert_near(sums, expected, 2, 1e-12);
        for (int mode = 0; mode < 2; mode++) {
            float *to = case_copy(c, N * N);
            const struct pp_call call = {.gemm = {N, N, N, mode ? PP_GEMM_ADD_ONCE : PP_GEMM_WRITE}};
            case_run(isa, PP_KERNEL_GEMM_NN, &call, 2, rank, &frame, (void *[PP_CALL_REFS]){mode ? to : product, g, g});
            for (int i = 0; i < N * N && !rank && mode; i++) product[i] += c[i];
            if (mode) assert_near(to, product, N * N, 1e-6);
            free(to);
        }
        case_free(g, c, product, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding),     cmocka_unit_test(test_activations), cmocka_unit_test(test_attention),
        cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
