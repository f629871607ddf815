/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of workers that have two chunks of each row, their queries, and the keys and values of all tokens, against
 * that of one that has all: what each makes of its queries, and the sum of what all make of keys and values. Dropout,
 * masks and rotations are those of the places in whole rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

enum { ROWS = 2, KV = 2, DH = 6, MOST_HEADS = 4 };

struct shape {
    int seq, context, heads;
    bool causal;
    int window;
};

static int own_of(const struct shape *s) { return s->seq / s->context; }
static int width_of(const struct shape *s) { return (s->heads + 2 * KV) * DH; }

/* Where a row's token t that the worker has stands: chunks c and 2 C - 1 - c of 2 C. */
static int place_of(const struct shape *s, int rank, int t)
{
    const int chunk = own_of(s) / 2;
    return (t < chunk ? rank : 2 * s->context - 1 - rank) * chunk + t % chunk;
}

/* Columns first .. first+n-1, of `width`, of the tokens that a worker has; rank -1: of all. */
static float *cut(const struct shape *s, const float *from, int rank, int width, int first, int n)
{
    const int own = rank < 0 ? s->seq : own_of(s);
    float *out = case_floats((int64_t)ROWS * own * n, 9);
    for (int row = 0; row < ROWS; row++)
        for (int t = 0; t < own; t++) {
            const int64_t token = (int64_t)row * s->seq + (rank < 0 ? t : place_of(s, rank, t));
            memcpy(out + ((int64_t)row * own + t) * n, from + token * width + first, sizeof *out * (size_t)n);
        }
    return out;
}

/* Operands of attention; keys, dkeys: of all tokens. */
struct attention {
    float *ctx, *lse, *qkv, *dctx, *keys, *dkeys;
};

static void run(const struct pp_cpu_isa *isa, const struct shape *s, bool back, struct pp_frame *frame,
                const struct attention *a)
{
    const int queries = a->keys ? own_of(s) : s->seq;
    const struct pp_call call = {
        .attention = {ROWS, queries, s->heads, DH, s->causal, KV, a->keys ? s->seq : 0, s->window},
        .site = CASE_SITE,
        .p = 0.3f};
    float *scratch = malloc((size_t)pp_flash_scratch(queries, s->seq, 2 * DH));
    assert_non_null(scratch);
    if (back)
        case_run(isa, PP_KERNEL_FLASH_GRAD, &call, 1, 0, frame,
                 (void *[PP_CALL_REFS]){a->qkv, a->lse, a->ctx, a->dctx, scratch, a->keys, a->dkeys});
    else
        case_run(isa, PP_KERNEL_FLASH, &call, 1, 0, frame,
                 (void *[PP_CALL_REFS]){a->ctx, a->lse, a->qkv, NULL, scratch, a->keys});
    free(scratch);
}

/* One worker's ctx and gradients of queries; its gradients of keys and values are added to sums. */
static void check_worker(const struct pp_cpu_isa *isa, const struct shape *s, int rank, const float *qkv,
                         const struct attention *all, const float *dqkv, double *sums)
{
    const int width = width_of(s), q = s->heads * DH, shared = 2 * KV * DH, own = ROWS * own_of(s);
    struct pp_frame frame = case_frame();
    frame.context = s->context;
    frame.context_rank = rank;
    frame.halves = true;
    const struct attention mine = {case_floats(own * q, 5),
                                   case_floats(own * s->heads, 6),
                                   cut(s, qkv, rank, width, 0, width),
                                   cut(s, all->dctx, rank, q, 0, q),
                                   cut(s, qkv, -1, width, q, shared),
                                   case_floats((int64_t)ROWS * s->seq * shared, 7)};
    float *ctx = cut(s, all->ctx, rank, q, 0, q), *dq = cut(s, dqkv, rank, width, 0, q);
    run(isa, s, false, &frame, &mine);
    assert_near(mine.ctx, ctx, own * q, 2e-6);
    run(isa, s, true, &frame, &mine);
    for (int i = 0; i < own; i++) assert_near(mine.qkv + i * width, dq + i * q, q, 1e-5);
    for (int64_t i = 0; i < (int64_t)ROWS * s->seq * shared; i++) sums[i] += mine.dkeys[i];
    case_free(mine.ctx, mine.lse, mine.qkv, mine.dctx, mine.keys, mine.dkeys, ctx, dq, NULL);
}

static void check(const struct pp_cpu_isa *isa, struct shape s)
{
    const int width = width_of(&s), q = s.heads * DH, shared = 2 * KV * DH, tokens = ROWS * s.seq;
    const struct attention all = {case_floats(tokens * q, 1),
                                  case_floats(tokens * s.heads, 2),
                                  case_floats(tokens * width, 3),
                                  case_floats(tokens * q, 4),
                                  NULL,
                                  NULL};
    float *qkv = case_copy(all.qkv, tokens * width);
    double *sums = calloc((size_t)(tokens * shared), sizeof *sums);
    struct pp_frame frame = case_frame();
    assert_non_null(sums);
    run(isa, &s, false, &frame, &all);
    run(isa, &s, true, &frame, &all);
    for (int rank = 0; rank < s.context; rank++) check_worker(isa, &s, rank, qkv, &all, all.qkv, sums);
    float *keys = cut(&s, all.qkv, -1, width, q, shared);
    assert_near(keys, sums, tokens * shared, 1e-5);
    case_free(all.ctx, all.lse, all.qkv, all.dctx, qkv, sums, keys, NULL);
}

/* Chunks of one token, of less than a block of queries, and of more. */
static void test_attention(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{8, 4, 2, true},       {12, 3, 4, true},      {12, 2, 2, false},
                                          {280, 2, 4, true},     {600, 3, 2, true},     {140, 1, 2, true},
                                          {8, 4, 2, true, 2},    {12, 3, 4, true, 5},   {280, 2, 4, true, 70},
                                          {280, 2, 4, true, 71}, {600, 3, 2, true, 16}, {600, 3, 2, true, 350}};
    assert_int_equal(pp_gemm_open(1), PP_OK);
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(isa, shapes[i]);
}

/* Rotated by places, to rounding: angles of later places are turned from the first one of a chunk. */
static void test_rope(void **state)
{
    (void)state;
    const struct shape s = {24, 3, MOST_HEADS, true};
    const int width = width_of(&s), own = ROWS * own_of(&s);
    struct pp_call call = {.attention = {ROWS, s.seq, s.heads, DH, 0, KV}, .turns = {100}};
    FOR_EACH_ISA(isa)
    for (int back = 0; back < 2; back++) {
        const enum pp_kernel kernel = back ? PP_KERNEL_ROPE_GRAD : PP_KERNEL_ROPE;
        float *x = case_floats(ROWS * s.seq * width, 1), *all = case_copy(x, ROWS * s.seq * width);
        struct pp_frame frame = case_frame();
        call.attention.seq = s.seq;
        case_run(isa, kernel, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){all});
        call.attention.seq = own_of(&s);
        frame.context = s.context;
        frame.halves = true;
        for (frame.context_rank = 0; frame.context_rank < s.context; frame.context_rank++) {
            float *mine = cut(&s, x, frame.context_rank, width, 0, width),
                  *expected = cut(&s, all, frame.context_rank, width, 0, width);
            case_run(isa, kernel, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){mine});
            assert_near(mine, expected, own * width, 1e-6);
            case_free(mine, expected, NULL);
        }
        case_free(x, all, NULL);
    }
}

/* What is sent of keys and values, and the sums that come back. */
static void test_keys(void **state)
{
    (void)state;
    enum { TOKENS = 5, WIDTH = 7, SHARED = 9, PARTS = 3, ROW = WIDTH + 2 * SHARED };
    const struct pp_call call = {.pieces = {TOKENS, WIDTH, SHARED, PARTS}};
    struct pp_frame frame = case_frame();
    FOR_EACH_ISA(isa)
    for (int biased = 0; biased < 2; biased++) {
        float *qkv = case_floats(TOKENS * ROW, 1), *was = case_copy(qkv, TOKENS * ROW), *bias = case_floats(ROW, 2),
              *to = case_floats(TOKENS * 2 * SHARED, 3), *parts = case_floats(PARTS * TOKENS * 2 * SHARED, 4);
        case_run(isa, PP_KERNEL_COPY_KEYS, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){to, qkv, biased ? bias : NULL});
        for (int i = 0; i < TOKENS * ROW; i++) was[i] += biased ? bias[i % ROW] : 0;
        assert_same(qkv, was, TOKENS * ROW);
        for (int t = 0; t < TOKENS; t++) assert_same(to + t * 2 * SHARED, was + t * ROW + WIDTH, 2 * SHARED);
        case_run(isa, PP_KERNEL_SUM_KEYS, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){qkv, parts});
        for (int i = 0; i < TOKENS * 2 * SHARED; i++) {
            float sum = parts[i];
            for (int k = 1; k < PARTS; k++) sum += parts[k * TOKENS * 2 * SHARED + i];
            was[i / (2 * SHARED) * ROW + WIDTH + i % (2 * SHARED)] = sum;
        }
        assert_same(qkv, was, TOKENS * ROW);
        case_free(qkv, was, bias, to, parts, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_rope),
                                       cmocka_unit_test(test_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
