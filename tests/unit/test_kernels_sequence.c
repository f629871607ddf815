/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of workers that have parts of the tokens, against the same kernels of one that has all; and those that say
 * what the workers of a rank make together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

/* Tokens that four workers have unequal parts of: 4, 4, 2 and none of a microbatch; in pieces others. */
enum { PART_ROWS = 2, PART_SEQ = 5, WHOLE = PART_ROWS * PART_SEQ, WORKERS = 4, ROOM = PART_ROWS * 2 };

/* Brute force: the number of the worker's t-th token among those of all, in the room for which there may be none. */
static int64_t number_of(const struct pp_call *call, int workers, int rank, int t)
{
    const int pieces = call->norm.pieces ? call->norm.pieces : 1, own = call->norm.rows * call->norm.seq / pieces;
    return t / own * own * workers + rank * own + t % own;
}

static int tokens_of(const struct pp_call *call, int workers, int rank)
{
    int n = 0;
    for (int t = 0; t < call->norm.rows * call->norm.seq; t++)
        n += number_of(call, workers, rank, t) < call->norm.whole;
    return n;
}

static void check_pieces_of(const struct pp_call *call, int workers)
{
    int all = 0;
    for (int rank = 0; rank < workers; rank++) {
        const struct pp_frame frame = {.first_row = 100, .tensor = workers, .tensor_rank = rank};
        const struct pp_tokens tokens = pp_call_tokens(call, &frame);
        assert_int_equal(tokens.n, tokens_of(call, workers, rank));
        for (int t = 0; t < tokens.n; t++) {
            const int64_t gaps = tokens.run ? t / tokens.run * tokens.gap : 0;
            assert_int_equal(tokens.first + t + gaps, 100 * tokens.seq + number_of(call, workers, rank, t));
        }
        all += (int)tokens.n;
    }
    assert_int_equal(all, call->norm.whole);
}

static void test_tokens_in_pieces(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 5; workers++)
        for (int rows = 1; rows <= 3; rows++)
            for (int seq = 1; seq <= 13; seq++) {
                const int part = (seq + workers - 1) / workers;
                for (int pieces = 1; pieces <= rows * part; pieces++)
                    if (rows * part % pieces == 0)
                        check_pieces_of(&(struct pp_call){.norm = {rows, part, 8, 0, rows * seq, pieces}}, workers);
            }
}

static void test_tokens_of_a_worker(void **state)
{
    (void)state;
    static const struct {
        int rows, part_seq, whole, rank;
        int64_t first_row, first, n;
    } cases[] = {{3, 5, 0, 0, 7, 35, 15},
                 {3, 5, 0, 1, 7, 35, 15},
                 {1, 2, 5, 0, 0, 0, 2},
                 {1, 2, 5, 1, 0, 2, 2},
                 {1, 2, 5, 2, 0, 4, 1},
                 {1, 2, 5, 3, 0, 6, 0},
                 {3, 2, 15, 2, 4, 32, 3},
                 {3, 2, 15, 3, 4, 38, 0},
                 {2, 3, 12, 1, 100, 606, 6},
                 {2, 1, 2, 1, 3, 5, 0},
                 {1000, 1000000, INT32_MAX, 3, 0, 3000000000, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct pp_call call = {.norm = {cases[i].rows, cases[i].part_seq, 8, 0, cases[i].whole}};
        const struct pp_frame frame = {.first_row = cases[i].first_row, .tensor = 4, .tensor_rank = cases[i].rank};
        const struct pp_tokens tokens = pp_call_tokens(&call, &frame);
        assert_int_equal(tokens.first, cases[i].first);
        assert_int_equal(tokens.n, cases[i].n);
    }
}

/* Of a norm, a residual or a gradient of one: what its operands are. */
struct by_tokens {
    enum pp_kernel kernel;
    bool plain;
    int tokens; /* bits: operands of [T,d]; the third is [T], of norms */
    int sums;   /* bits: sums over tokens, [d] */
};

enum { MOST_D = 20 };

/* Numbers of a token in operand i; 0: it is of no tokens. */
static int width_of(const struct by_tokens *k, const struct pp_call *call, int i)
{
    if (i == 2 && pp_kernel_is_norm(k->kernel)) return 1;
    return k->tokens >> i & 1 ? call->norm.d : 0;
}

/* Takes the worker's tokens out of what one has that has all. */
static void take_tokens(float *mine, const float *all, const struct pp_call *call, int rank, int width)
{
    for (int t = 0; t < tokens_of(call, WORKERS, rank); t++)
        memcpy(mine + t * width, all + number_of(call, WORKERS, rank, t) * width, sizeof *mine * (size_t)width);
}

/* The worker's operands among those of all; what is behind its tokens must stay. Sums go to `sums`. */
static void check_worker(const struct pp_cpu_isa *isa, const struct by_tokens *k, const struct pp_call *call, int rank,
                         float *const *before, float *const *after, float *sums)
{
    struct pp_frame frame = case_frame();
    void *mine[PP_CALL_REFS] = {0};
    for (int i = 0; i < PP_CALL_REFS; i++) {
        const int width = width_of(k, call, i);
        if (!before[i]) continue;
        mine[i] = width ? case_floats(ROOM * width, 99 + (uint32_t)i) : before[i];
        if (k->sums >> i & 1) mine[i] = sums + (i - 5) * call->norm.d;
        if (width) take_tokens(mine[i], before[i], call, rank, width);
    }
    struct pp_call own = *call;
    own.adds = rank > 0;
    case_run(isa, k->kernel, &own, WORKERS, rank, &frame, mine);
    for (int i = 0; i < PP_CALL_REFS; i++) {
        const int width = width_of(k, call, i);
        if (!before[i] || !width) continue;
        float *wanted = case_floats(ROOM * width, 99 + (uint32_t)i);
        take_tokens(wanted, after[i], call, rank, width);
        assert_same(mine[i], wanted, ROOM * width);
        case_free(mine[i], wanted, NULL);
    }
}

static void check_tokens(const struct pp_cpu_isa *isa, const struct by_tokens *k, int d, double p, int pieces)
{
    struct pp_call call = {.kernel = k->kernel,
                           .norm = {PART_ROWS, PART_SEQ, d, k->plain},
                           .site = p > 0 ? CASE_SITE : 0,
                           .p = (float)p,
                           .eps = 1e-5f};
    float *before[PP_CALL_REFS] = {0}, *after[PP_CALL_REFS] = {0}, sums[2 * MOST_D];
    struct pp_frame frame = case_frame();
    for (int i = 0; i < PP_CALL_REFS; i++) {
        if (!pp_call_operand(&call, i).name) continue;
        before[i] = case_floats(WHOLE * d, (uint32_t)i + 1);
        after[i] = case_copy(before[i], WHOLE * d);
    }
    case_run(isa, k->kernel, &call, 1, 0, &frame, (void *const *)after);
    call.norm.seq = (PART_SEQ + WORKERS - 1) / WORKERS;
    call.norm.whole = WHOLE;
    call.norm.pieces = pieces;
    for (int rank = 0; rank < WORKERS; rank++) check_worker(isa, k, &call, rank, before, after, sums);
    for (int i = 5; i < 7; i++)
        if (k->sums >> i & 1 && after[i]) assert_near(sums + (i - 5) * d, after[i], d, 1e-6);
    for (int i = 0; i < PP_CALL_REFS; i++) {
        free(before[i]);
        free(after[i]);
    }
}

/* Each worker's rows are those of one that has all, bit for bit, and it touches no more than there are. Gradients of
 * what all have add up. */
static void test_parts_of_tokens(void **state)
{
    (void)state;
    static const struct by_tokens kernels[] = {
        {PP_KERNEL_LAYERNORM, false, 0x8b, 0},         {PP_KERNEL_LAYERNORM, true, 0x8b, 0},
        {PP_KERNEL_RMSNORM, false, 0x8b, 0},           {PP_KERNEL_RMSNORM, true, 0x8b, 0},
        {PP_KERNEL_LAYERNORM_GRAD, false, 0x8b, 0x60}, {PP_KERNEL_LAYERNORM_GRAD, true, 0x8b, 0x60},
        {PP_KERNEL_RMSNORM_GRAD, false, 0x8b, 0x20},   {PP_KERNEL_RMSNORM_GRAD, true, 0x8b, 0x20},
        {PP_KERNEL_RESIDUAL, false, 0x7, 0},           {PP_KERNEL_RESIDUAL_GRAD, false, 0x3, 0}};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        for (int way = 0; way < 12; way++)
            check_tokens(isa, &kernels[i], way % 2 ? 7 : MOST_D, way / 2 % 2 ? 0.4 : 0, 1 << way / 4);
}

/* Three workers with parts of each row draw what one draws that has the rows, wherever these stand in the batch: in its
 * beginning, and so far behind that its tokens are more than the generator counts. */
static void check_parts_of_rows(const struct pp_cpu_isa *isa, enum pp_kernel kernel, int64_t first_row)
{
    enum { ROWS = 2, SEQ = 9, PARTS = 3, PART = SEQ / PARTS, D = 20, ALL = ROWS * SEQ * D };
    const bool adds = kernel == PP_KERNEL_RESIDUAL;
    float *in = case_floats(ALL, 3), *whole = case_floats(ALL, 4);
    struct pp_call call = {.kernel = kernel, .norm = {ROWS, SEQ, D}, .site = CASE_SITE, .p = 0.4f};
    struct pp_frame frame = case_frame();
    frame.first_row = first_row;
    case_run(isa, kernel, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){whole, in, adds ? in : NULL});
    call.norm.seq = PART;
    frame.context = PARTS;
    for (int rank = 0; rank < PARTS; rank++) {
        float mine[ROWS * PART * D], *of = case_floats(ROWS * PART * D, 6);
        frame.context_rank = rank;
        for (int row = 0; row < ROWS; row++)
            memcpy(of + row * PART * D, in + (row * SEQ + rank * PART) * D, sizeof *of * PART * D);
        case_run(isa, kernel, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){mine, of, adds ? of : NULL});
        for (int row = 0; row < ROWS; row++)
            assert_same(mine + row * PART * D, whole + (row * SEQ + rank * PART) * D, PART * D);
        free(of);
    }
    case_free(in, whole, NULL);
}

static void test_parts_of_rows(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    {
        check_parts_of_rows(isa, PP_KERNEL_RESIDUAL, 0);
        check_parts_of_rows(isa, PP_KERNEL_RESIDUAL, 7);
        check_parts_of_rows(isa, PP_KERNEL_RESIDUAL, 3000000001);
        check_parts_of_rows(isa, PP_KERNEL_GELU, 7);
        check_parts_of_rows(isa, PP_KERNEL_GELU, 3000000001);
    }
}

/* ---- what the workers make together ---- */

struct asked {
    struct pp_join_call what;
    int calls;
};

static void note(void *arg, const struct pp_join_call *call)
{
    struct asked *a = arg;
    *a = (struct asked){*call, a->calls + 1};
}

/* A call of 7 x 12 numbers; of an all to all also 2 (each), true (back), of joins 2 (beside): what it is. */
struct joined {
    enum pp_kernel kernel;
    enum pp_join_op op;
    int rounds, elements, beside, each, pieces;
    float alone; /* the last number where the call ran without a join: it has what it sends */
};

static void check_join(const struct joined *j)
{
    float memory[84] = {0}, from[84];
    struct asked asked = {0};
    const struct pp_join join = {.run = note, .arg = &asked};
    struct pp_frame frame = {.base = {[PP_MEM_WORK] = memory, [PP_MEM_ACT] = from}, .tensor = 2, .tensor_rank = 1};
    struct pp_call call = {.kernel = j->kernel, .exchange = {7, 12, 2, true}, .ref = {{PP_MEM_WORK}, {PP_MEM_ACT}}};
    if (j->op == PP_JOIN_SHIFT) call.exchange = (struct pp_exchange_dims){7, 12, .beside = j->beside};
    const struct pp_program program = {.calls = &call, .ncalls = 1};
    for (int i = 0; i < 84; i++) from[i] = (float)i;
    pp_cpu_run(pp_cpu_isa_best(), &program, &frame, NULL, NULL);
    assert_true(memory[83] == j->alone);
    frame.join = &join;
    pp_cpu_run(pp_cpu_isa_best(), &program, &frame, NULL, NULL);
    assert_true(asked.calls == 1 && asked.what.op == j->op && asked.what.memory == memory);
    assert_true(asked.what.elements == j->elements && asked.what.type == PP_SUM_FLOAT);
    assert_true(asked.what.beside == j->beside && asked.what.each == j->each);
    assert_true(asked.what.from == (pp_join_exchanges(j->op) ? from : NULL) && asked.what.back == (j->each > 0));
    const struct pp_join_work work = pp_call_join(&call);
    assert_true(work.op == j->op && work.rounds == j->rounds && work.bytes == (j->rounds ? j->elements * 4 : 0) &&
                work.beside == j->beside && work.pieces == j->pieces);
}

/* Kernels say what is to be done with which memory, and without a join nothing; a ring carries a sum around twice. */
static void test_joins(void **state)
{
    (void)state;
    static const struct joined joins[] = {{PP_KERNEL_ALL_REDUCE, PP_JOIN_ALL_REDUCE, 2, 84, 2, 0, 0, 0},
                                          {PP_KERNEL_REDUCE_SCATTER, PP_JOIN_REDUCE_SCATTER, 1, 84, 2, 0, 0, 0},
                                          {PP_KERNEL_ALL_GATHER, PP_JOIN_ALL_GATHER, 1, 84, 2, 0, 0, 0},
                                          {PP_KERNEL_AWAIT, PP_JOIN_AWAIT, 0, 84, 2, 0, 0, 0},
                                          {PP_KERNEL_ALL_TO_ALL, PP_JOIN_ALL_TO_ALL, 1, 84, 0, 2, 2, 83},
                                          {PP_KERNEL_SHIFT, PP_JOIN_SHIFT, 1, 84, 3, 0, 1, 83}};
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++) check_join(&joins[i]);
    const struct pp_call half = {.kernel = PP_KERNEL_ALL_GATHER, .join = {7, 12}, .precision = PP_BF16};
    const struct pp_call copy = {.kernel = PP_KERNEL_COPY, .matrix = {7, 12}};
    assert_int_equal(pp_call_join(&half).bytes, 7 * 12 * 2);
    assert_int_equal(pp_call_join(&copy).op, PP_JOIN_NONE);
}

/* A rank's own part of what all have; and in a step of a ring what a context rank has by its place. */
static void test_addresses(void **state)
{
    (void)state;
    char memory[1];
    const struct pp_ref ref = {PP_MEM_WORK, .offset = 100, .row_bytes = 7, .part_bytes = 1000},
                        nowhere = {PP_MEM_NONE, .offset = 100, .row_bytes = 7, .part_bytes = 1000};
    const struct pp_frame frame = {.base = {[PP_MEM_WORK] = memory}, .act_row = 3, .tensor = 4, .tensor_rank = 2};
    assert_true((char *)pp_ref_address(&ref, &frame) - memory == 100 + 3 * 7 + 2 * 1000);
    assert_null(pp_ref_address(&nowhere, &frame));
    const struct pp_ref either = {PP_MEM_WORK, .ring_step = 2, .offset = 100, .step_bytes = 30};
    for (int rank = 0; rank < 4; rank++) {
        const struct pp_frame of_rank = {.base = {[PP_MEM_WORK] = memory}, .context = 4, .context_rank = rank};
        assert_true((char *)pp_ref_address(&either, &of_rank) - memory == (rank < 2 ? 130 : 100));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_of_a_worker),
        cmocka_unit_test(test_tokens_in_pieces),
        cmocka_unit_test(test_parts_of_tokens),
        cmocka_unit_test(test_parts_of_rows),
        cmocka_unit_test(test_joins),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
