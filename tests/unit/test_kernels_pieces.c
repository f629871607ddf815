/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces in which workers that have parts of the tokens exchange heads: against their definition, column by column.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

struct shape {
    int tokens, width, shared, parts, values; /* as the kernel's n[] */
};

/* Of less than a vector, of whole ones, of some and a rest; as qkv, and as what attention makes of it. */
static const struct shape shapes[] = {
    {1, 2, 0, 2},    {1, 3, 3, 3},   {5, 6, 0, 3},    {5, 6, 6, 2},     {7, 14, 6, 2},   {3, 32, 0, 2},  {3, 32, 16, 2},
    {2, 48, 48, 3},  {4, 66, 0, 2},  {4, 66, 22, 2},  {2, 99, 33, 3},   {3, 51, 9, 3},   {1, 130, 2, 2}, {6, 102, 0, 3},
    {9, 210, 30, 3}, {2, 100, 4, 2}, {11, 128, 8, 2}, {3, 192, 192, 3}, {2, 34, 102, 2}, {3, 5, 5, 1},
    {3, 12, 12, 3, 6},   {2, 40, 40, 2, 32}, {5, 18, 6, 2, 22},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, BORDER = 16 };

static int values_of(const struct shape *s) { return s->values ? s->values : s->shared; }
static int row_of(const struct shape *s) { return s->width + s->shared + values_of(s); }

/* Where a token's column lies in pieces: in that of the part that has it, behind the columns before it of the same and
 * of former kinds. */
static int64_t place_of(const struct shape *s, int token, int column)
{
    const int kinds[] = {s->width, s->shared, values_of(s)};
    int kind = 0, before = 0;
    for (; column >= kinds[kind]; kind++) {
        column -= kinds[kind];
        before += kinds[kind] / s->parts;
    }
    const int each = kinds[kind] / s->parts, part = column / each;
    return ((int64_t)part * s->tokens + token) * (row_of(s) / s->parts) + before + column % each;
}

static struct pp_call call_of(const struct shape *s)
{
    return (struct pp_call){.pieces = {s->tokens, s->width, s->shared, s->parts, s->values}};
}

static void check_to(const struct pp_cpu_isa *isa, const struct shape *s, bool with_bias)
{
    const struct pp_call call = call_of(s);
    const int width = row_of(s);
    const int64_t n = (int64_t)s->tokens * width;
    struct pp_frame frame = case_frame();
    float *from = case_floats(n, 1), *given = case_copy(from, n), *to = case_floats(n + BORDER, 2);
    float *border = case_copy(to + n, BORDER), *bias = case_floats(width, 3), *expected = case_floats(n, 4);
    for (int t = 0; t < s->tokens; t++)
        for (int j = 0; j < width; j++) expected[place_of(s, t, j)] = from[t * width + j] + (with_bias ? bias[j] : 0);
    case_run(isa, PP_KERNEL_TO_PIECES, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){to, from, with_bias ? bias : NULL});
    assert_same(to, expected, n);
    assert_same(to + n, border, BORDER);
    assert_same(from, given, n);
    case_free(from, given, to, border, bias, expected, NULL);
}

static void test_to_pieces(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 2 * SHAPES; i++) check_to(isa, &shapes[i / 2], i % 2);
}

static void check_from(const struct pp_cpu_isa *isa, const struct shape *s)
{
    const struct pp_call call = call_of(s);
    const int width = row_of(s);
    const int64_t n = (int64_t)s->tokens * width;
    struct pp_frame frame = case_frame();
    float *from = case_floats(n, 1), *to = case_floats(n + BORDER, 2), *border = case_copy(to + n, BORDER);
    float *again = case_floats(n, 3);
    case_run(isa, PP_KERNEL_FROM_PIECES, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){to, from});
    for (int t = 0; t < s->tokens; t++)
        for (int j = 0; j < width; j++) assert_same(&to[t * width + j], &from[place_of(s, t, j)], 1);
    assert_same(to + n, border, BORDER);
    case_run(isa, PP_KERNEL_TO_PIECES, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){again, to});
    assert_same(again, from, n);
    case_free(from, to, border, again, NULL);
}

/* And back again. */
static void test_from_pieces(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int i = 0; i < SHAPES; i++) check_from(isa, &shapes[i]);
}

/* ---- workers that exchange them ---- */

enum { ROWS = 2, SEQ = 12, T = ROWS * SEQ, HEADS = 12, KV = 6, DH = 5, WIDTH = (HEADS + 2 * KV) * DH, MOST = 3 };

/* By the definition of all_to_all: of the k-th piece for a worker, what worker after worker has of it; n numbers in
 * each piece, `each` pieces for each worker. to: what one of them gets. */
static void exchange(float *const *from, int workers, int me, int each, int n, float *to)
{
    for (int k = 0; k < each; k++)
        for (int w = 0; w < workers; w++, to += n) memcpy(to, from[w] + (me * each + k) * n, sizeof *to * (size_t)n);
}

/* Heads of a worker, of a token of all: its queries, keys and values. */
static void check_heads(const float *got, const float *qkv, int me, int workers)
{
    const int q = HEADS / workers * DH, kv = KV / workers * DH;
    for (int t = 0; t < T; t++, qkv += WIDTH, got += q + 2 * kv) {
        assert_same(got, qkv + me * q, q);
        assert_same(got + q, qkv + HEADS * DH + me * kv, kv);
        assert_same(got + q + kv, qkv + (HEADS + KV) * DH + me * kv, kv);
    }
}

/* Each worker gets the whole rows of its heads, as attention wants them: [rows, all tokens, heads]. */
static void test_exchanged_pieces_are_whole_rows(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int workers = 2; workers <= MOST; workers++) {
        const int seq = SEQ / workers, n = ROWS * seq * WIDTH;
        const struct pp_call call = {.pieces = {ROWS * seq, HEADS * DH, KV * DH, workers}};
        struct pp_frame frame = case_frame();
        float *qkv = case_floats(T * WIDTH, 1), *pieces[MOST], *got = case_floats(n, 2);
        for (int w = 0; w < workers; w++) {
            float *own = case_floats(n, 3);
            for (int r = 0; r < ROWS; r++)
                memcpy(own + r * seq * WIDTH, qkv + (r * SEQ + w * seq) * WIDTH, sizeof *own * (size_t)(seq * WIDTH));
            pieces[w] = case_floats(n, 4);
            case_run(isa, PP_KERNEL_TO_PIECES, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){pieces[w], own});
            free(own);
        }
        for (int w = 0; w < workers; w++) {
            exchange(pieces, workers, w, ROWS, seq * WIDTH / workers, got);
            check_heads(got, qkv, w, workers);
        }
        for (int w = 0; w < workers; w++) free(pieces[w]);
        case_free(qkv, got, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_to_pieces),
        cmocka_unit_test(test_from_pieces),
        cmocka_unit_test(test_exchanged_pieces_are_whole_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
