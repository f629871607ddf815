/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring of keys and values: attention of each chunk of a row to each chunk of it, and what makes one of that, against
 * attention of whole rows. Whoever has the chunks, calls of one chunk and one are the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

/* Numbers of an allocation that are what this kernel must not touch. */
enum { BEHIND = 3 };

/* ---- merge, add_columns ---- */

/* Some differ by so much that one part is nothing beside the other, and their exponentials are no floats. */
static void spread(float *lse, int64_t n)
{
    static const float by[] = {1, 30, 700, 0};
    for (int64_t i = 0; i < n; i++) lse[i] *= by[i % 4];
}

static void check_merge(const struct pp_cpu_isa *isa, int tokens, int heads, int dv)
{
    const int64_t rows = (int64_t)tokens * heads, n = rows * dv;
    const struct pp_call call = {.merge = {tokens, heads, dv}};
    struct pp_frame frame = case_frame();
    float *ctx = case_floats(n + BEHIND, 1), *lse = case_floats(rows + BEHIND, 2), *part = case_floats(n, 3),
          *part_lse = case_floats(rows, 4);
    spread(lse, rows);
    spread(part_lse, rows);
    float *was = case_copy(ctx, n + BEHIND), *lse_was = case_copy(lse, rows + BEHIND);
    case_run(isa, PP_KERNEL_MERGE, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){ctx, lse, part, part_lse});
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i / dv % heads * tokens + i / dv / heads;
        const double a = lse_was[at], b = part_lse[at], most = a > b ? a : b,
                     sum = most + log(exp(a - most) + exp(b - most)),
                     expected = was[i] * exp(a - sum) + part[i] * exp(b - sum);
        assert_near(&ctx[i], &expected, 1, 1e-6);
        assert_near(&lse[at], &sum, 1, 3e-7);
    }
    assert_same(ctx + n, was + n, BEHIND);
    assert_same(lse + rows, lse_was + rows, BEHIND);
    case_free(ctx, lse, part, part_lse, was, lse_was, NULL);
}

static void test_merge(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    {
        check_merge(isa, 1, 1, 1);
        check_merge(isa, 5, 3, 7);
        check_merge(isa, 7, 2, 16);
        check_merge(isa, 3, 5, 33);
    }
}

static void check_columns(const struct pp_cpu_isa *isa, struct pp_columns_dims dims)
{
    const struct pp_call call = {.columns = dims};
    struct pp_frame frame = case_frame();
    const int64_t room = (int64_t)dims.rows * dims.to_pitch + BEHIND;
    float *to = case_floats(room, 1), *expected = case_copy(to, room),
          *from = case_floats((int64_t)dims.rows * dims.from_pitch, 2);
    for (int64_t i = 0; i < (int64_t)dims.rows * dims.width; i++) {
        float *at = expected + i / dims.width * dims.to_pitch + i % dims.width;
        const double x = from[i / dims.width * dims.from_pitch + i % dims.width];
        *at = (float)(dims.adds ? *at + x : x);
    }
    case_run(isa, PP_KERNEL_ADD_COLUMNS, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){to, from});
    assert_same(to, expected, room);
    case_free(to, expected, from, NULL);
}

static void test_columns(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int adds = 0; adds < 2; adds++) {
        check_columns(isa, (struct pp_columns_dims){1, 1, 1, 1, adds});
        check_columns(isa, (struct pp_columns_dims){5, 13, 17, 29, adds});
        check_columns(isa, (struct pp_columns_dims){3, 64, 64, 80, adds});
        check_columns(isa, (struct pp_columns_dims){4, 35, 51, 35, adds});
    }
}

/* ---- attention, chunk by chunk ---- */

enum { ROWS = 2, KV = 2 };

struct shape {
    int chunk, chunks, heads, dh, dv;
    bool causal;
};

static int seq_of(const struct shape *s) { return s->chunk * s->chunks; }
static int queries_of(const struct shape *s) { return s->heads * s->dh; }
static int keys_of(const struct shape *s) { return KV * (s->dh + s->dv); }
static int width_of(const struct shape *s) { return queries_of(s) + keys_of(s); }

/* Operands of attention: of whole rows, where keys is NULL, or of a chunk's queries and a chunk's keys. */
struct attention {
    float *ctx, *lse, *qkv, *dctx, *keys, *dkeys;
};

/* Of another worker's chunks, too, the places are those in one chunk. */
static struct pp_frame ring_frame(void)
{
    struct pp_frame frame = case_frame();
    frame.context = 3;
    frame.context_rank = 1;
    frame.halves = true;
    return frame;
}

static void run(const struct pp_cpu_isa *isa, const struct shape *s, enum pp_kernel kernel, bool causal,
                const struct attention *a)
{
    const int seq = a->keys ? s->chunk : seq_of(s);
    const struct pp_call call = {.attention = {ROWS, seq, s->heads, s->dh, causal, KV, a->keys ? seq : 0, 0, s->dv},
                                 .scale = 4};
    struct pp_frame frame = a->keys ? ring_frame() : case_frame();
    float *scratch = malloc((size_t)pp_flash_scratch(seq, seq, s->dh + s->dv));
    assert_non_null(scratch);
    if (kernel == PP_KERNEL_FLASH)
        case_run(isa, kernel, &call, 1, 0, &frame,
                 (void *[PP_CALL_REFS]){a->ctx, a->lse, a->qkv, NULL, scratch, a->keys});
    else
        case_run(isa, kernel, &call, 1, 0, &frame,
                 (void *[PP_CALL_REFS]){a->qkv, a->lse, a->ctx, a->dctx, scratch, a->keys, a->dkeys});
    free(scratch);
}

/* Columns first .. first+n-1, of `width`, of a chunk of each of `rows` rows. */
static float *cut(const struct shape *s, const float *from, int rows, int chunk, int width, int first, int n)
{
    float *out = case_floats((int64_t)rows * s->chunk * n, 9);
    for (int i = 0; i < rows * s->chunk; i++) {
        const int64_t token = (int64_t)(i / s->chunk) * seq_of(s) + chunk * s->chunk + i % s->chunk;
        memcpy(out + (int64_t)i * n, from + token * width + first, sizeof *out * (size_t)n);
    }
    return out;
}

/* Queries of a chunk; where its keys and values would be, nothing is read. */
static float *cut_queries(const struct shape *s, const float *qkv, int chunk)
{
    const int width = width_of(s);
    float *out = cut(s, qkv, ROWS, chunk, width, 0, width);
    for (int64_t i = 0; i < (int64_t)ROWS * s->chunk * width; i++)
        if (i % width >= queries_of(s)) out[i] = NAN;
    return out;
}

/* Does a chunk's queries see another chunk's keys? */
static bool sees(const struct shape *s, int queries, int keys) { return !s->causal || keys < queries; }

/* Attention of a chunk to all that it sees: first to itself. */
static void attend(const struct pp_cpu_isa *isa, const struct shape *s, const float *qkv, int chunk, float *ctx,
                   float *lse)
{
    const int64_t row = (int64_t)s->chunk * s->heads, tokens = ROWS * row;
    const struct pp_call call = {.merge = {s->chunk, s->heads, s->dv}};
    struct pp_frame frame = ring_frame();
    float *part = case_floats(tokens * s->dv, 5), *part_lse = case_floats(tokens, 6), *q = cut_queries(s, qkv, chunk);
    for (int i = 0; i < s->chunks; i++) {
        const int other = (chunk + i) % s->chunks;
        if (i && !sees(s, chunk, other)) continue;
        float *keys = cut(s, qkv, ROWS, other, width_of(s), queries_of(s), keys_of(s));
        const struct attention a = {i ? part : ctx, i ? part_lse : lse, q, NULL, keys, NULL};
        run(isa, s, PP_KERNEL_FLASH, s->causal && i == 0, &a);
        for (int r = 0; r < ROWS && i; r++)
            case_run(isa, PP_KERNEL_MERGE, &call, 1, 0, &frame,
                     (void *[PP_CALL_REFS]){ctx + r * row * s->dv, lse + r * row, part + r * row * s->dv,
                                            part_lse + r * row});
        free(keys);
    }
    case_free(part, part_lse, q, NULL);
}

/* to, of columns from `first` on of the chunk's tokens, becomes `from`, or that is added to it. */
static void add(const struct pp_cpu_isa *isa, const struct shape *s, float *to, int chunk, int first, bool adds,
                float *from, int pitch, int n)
{
    const struct pp_call call = {.columns = {s->chunk, n, width_of(s), pitch, adds}};
    struct pp_frame frame = ring_frame();
    for (int64_t r = 0; r < ROWS; r++)
        case_run(isa, PP_KERNEL_ADD_COLUMNS, &call, 1, 0, &frame,
                 (void *[PP_CALL_REFS]){to + (r * seq_of(s) + chunk * s->chunk) * width_of(s) + first,
                                        from + r * s->chunk * pitch});
}

/* Gradients of a chunk's queries and of a chunk's keys, of what the former see of the latter. */
static void attend_back(const struct pp_cpu_isa *isa, const struct shape *s, const float *qkv, const float *dctx,
                        int chunk, int other, float *ctx, float *lse, float *sums)
{
    const int q = queries_of(s), shared = keys_of(s), width = width_of(s), d = s->heads * s->dv;
    const bool self = chunk == other;
    const struct attention a = {ctx,
                                lse,
                                cut_queries(s, qkv, chunk),
                                cut(s, dctx, ROWS, chunk, d, 0, d),
                                cut(s, qkv, ROWS, other, width, q, shared),
                                case_floats((int64_t)ROWS * s->chunk * shared, 7)};
    run(isa, s, PP_KERNEL_FLASH_GRAD, s->causal && self, &a);
    add(isa, s, sums, chunk, 0, !self, a.qkv, width, q);
    add(isa, s, sums, other, q, !self, a.dkeys, shared, shared);
    case_free(a.qkv, a.dctx, a.keys, a.dkeys, NULL);
}

/* ctx and lse of a chunk are those of the whole rows. */
static void check_chunk(const struct shape *s, const struct attention *all, int chunk, const float *ctx,
                        const float *lse)
{
    const int d = s->heads * s->dv, n = ROWS * s->chunk;
    float *expected = cut(s, all->ctx, ROWS, chunk, d, 0, d),
          *expected_lse = cut(s, all->lse, ROWS * s->heads, chunk, 1, 0, 1);
    assert_near(ctx, expected, n * d, 3e-6);
    assert_near(lse, expected_lse, n * s->heads, 2e-6);
    case_free(expected, expected_lse, NULL);
}

static void check(const struct pp_cpu_isa *isa, struct shape s)
{
    const int64_t tokens = (int64_t)ROWS * seq_of(&s), d = s.heads * s.dv, own = (int64_t)ROWS * s.chunk;
    const struct attention all = {case_floats(tokens * d, 1),
                                  case_floats(tokens * s.heads, 2),
                                  case_floats(tokens * width_of(&s), 3),
                                  case_floats(tokens * d, 4),
                                  NULL,
                                  NULL};
    float *qkv = case_copy(all.qkv, tokens * width_of(&s)), *sums = case_floats(tokens * width_of(&s), 8),
          *ctx = case_floats(s.chunks * own * d, 5), *lse = case_floats(s.chunks * own * s.heads, 6);
    run(isa, &s, PP_KERNEL_FLASH, s.causal, &all);
    for (int i = 0; i < s.chunks; i++) {
        attend(isa, &s, qkv, i, ctx + i * own * d, lse + i * own * s.heads);
        check_chunk(&s, &all, i, ctx + i * own * d, lse + i * own * s.heads);
    }
    run(isa, &s, PP_KERNEL_FLASH_GRAD, s.causal, &all);
    for (int k = 0; k < s.chunks; k++) /* first each chunk and itself */
        for (int i = 0; i < s.chunks; i++)
            if (k == 0 || sees(&s, i, (i + k) % s.chunks))
                attend_back(isa, &s, qkv, all.dctx, i, (i + k) % s.chunks, ctx + i * own * d, lse + i * own * s.heads,
                            sums);
    assert_near(sums, all.qkv, tokens * width_of(&s), 1e-5);
    case_free(all.ctx, all.lse, all.qkv, all.dctx, qkv, sums, ctx, lse, NULL);
}

/* Chunks of one token, of less than a block of queries, of more, and of several; keys and values of different widths,
 * heads of queries that share them. */
static void test_attention(void **state)
{
    (void)state;
    static const struct shape shapes[] = {{1, 4, 2, 6, 6, true},   {5, 2, 4, 6, 4, true},   {7, 6, 4, 5, 9, false},
                                          {64, 4, 2, 6, 6, true},  {70, 4, 4, 6, 10, true}, {131, 2, 2, 20, 12, false},
                                          {131, 2, 6, 7, 5, true}, {9, 1, 2, 6, 6, true}};
    assert_int_equal(pp_gemm_open(1), PP_OK);
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check(isa, shapes[i]);
}

/* ---- what these calls cost ---- */

static double bytes_of(struct pp_call call)
{
    for (int i = 0; i < PP_CALL_REFS; i++)
        if (pp_call_operand(&call, i).name) call.ref[i].region = PP_MEM_ACT;
    return pp_call_bytes(&call);
}

static void test_bytes(void **state)
{
    (void)state;
    const struct pp_call merge = {PP_KERNEL_MERGE, .merge = {36, 8, 100}, .precision = PP_BF16},
                         copy = {PP_KERNEL_ADD_COLUMNS, .columns = {36, 400, 1200, 500}, .precision = PP_BF16},
                         add = {PP_KERNEL_ADD_COLUMNS, .columns = {36, 400, 1200, 500, 1}};
    assert_true(bytes_of(merge) == 36 * 8 * (3 * 100 * 2 + 3 * 4.0));
    assert_true(bytes_of(copy) == 36 * 400 * 2 * 2.0 && bytes_of(add) == 36 * 400 * 3 * 4.0);
    assert_true(pp_call_flops(&merge) == 36 * 8 * 100 * 8.0);
    assert_true(pp_call_flops(&copy) == 0 && pp_call_flops(&add) == 36 * 400);
    assert_int_equal(pp_call_operand(&add, 0).elements, 35 * 1200 + 400);
    assert_int_equal(pp_call_operand(&add, 1).elements, 35 * 500 + 400);
}

/* As many scores as of keys in qkv: of one run of queries, not of two chunks. */
static void test_scores(void **state)
{
    (void)state;
    for (int seq = 9; seq < 300; seq += 29)
        for (int i = 0; i < 8; i++) {
            const int kernel = i % 2 ? PP_KERNEL_FLASH_GRAD : PP_KERNEL_FLASH, precision = i / 4 ? PP_BF16 : PP_FP32;
            struct pp_call whole = {kernel, .attention = {1, seq, 2, 64, i / 2 % 2}, .precision = precision},
                           chunk = whole;
            chunk.attention.keys = seq;
            for (int gpu = 0; gpu < 2; gpu++)
                assert_true(pp_call_work(&whole, gpu).flops[precision] == pp_call_work(&chunk, gpu).flops[precision]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_merge), cmocka_unit_test(test_columns),
                                       cmocka_unit_test(test_attention), cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_scores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
