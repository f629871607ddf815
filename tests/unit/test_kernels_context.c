/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of workers that have parts of the tokens of each row, and of attention a part of the heads, against the same
 * kernels of one that has all: where nothing is summed over tokens the bits are the same, dropout's too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/kernel_case.h"

/* Of a row two workers have 9 tokens each, and three 6. */
enum { ROWS = 3, SEQ = 18, WHOLE = ROWS * SEQ, D = 24, VOCAB = 11, PLACES = SEQ + 2 };

/* One of `context` workers that have parts of the rows, or (halves) two chunks of each; and one of `tensor`, which have
 * parts of the columns, or, where it is by tokens, of that worker's tokens. */
struct worker {
    int context, context_rank, tensor, tensor_rank;
    bool by_tokens, halves;
};

static int own_tokens(const struct worker *w) { return ROWS * SEQ / w->context; }

/* Tokens of a row for which a tensor rank has room. */
static int part_seq(const struct worker *w)
{
    const int own = SEQ / w->context;
    return w->by_tokens ? (own + w->tensor - 1) / w->tensor : own;
}

static int tokens_of(const struct worker *w)
{
    const int room = ROWS * part_seq(w), left = own_tokens(w) - (w->by_tokens ? w->tensor_rank * room : 0);
    return left < room ? left : room;
}

/* Where a row's token t that it has stands in it. */
static int place_of(const struct worker *w, int t)
{
    const int own = SEQ / w->context, chunk = own / 2;
    if (!w->halves) return w->context_rank * own + t;
    return (t < chunk ? w->context_rank : 2 * w->context - 1 - w->context_rank) * chunk + t % chunk;
}

/* The number of its i-th token among all. */
static int token_at(const struct worker *w, int i)
{
    const int own = SEQ / w->context, at = i + (w->by_tokens ? w->tensor_rank * ROWS * part_seq(w) : 0);
    return at / own * SEQ + place_of(w, at % own);
}

/* Its numbers, of 4 bytes, of so many tokens: of each of `times` times `width` columns its own. The caller frees
 * them. */
static void *cut(const void *whole, const struct worker *w, bool of_tokens, int times, int width)
{
    const int parts = w->by_tokens || width == 1 ? 1 : w->tensor, mine = width / parts,
              n = of_tokens ? tokens_of(w) : 1;
    float *out = case_floats((int64_t)n * times * mine, 77);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < times; k++)
            memcpy(out + (i * times + k) * mine,
                   (const float *)whole + ((of_tokens ? token_at(w, i) : 0) * times + k) * width +
                       (parts > 1 ? w->tensor_rank * mine : 0),
                   sizeof *out * (size_t)mine);
    return out;
}

static struct pp_frame frame_of(const struct worker *w)
{
    struct pp_frame frame = case_frame();
    frame.context = w->context;
    frame.context_rank = w->context_rank;
    frame.halves = w->halves;
    return frame;
}

/* ---- norms, residuals, activations ---- */

/* Its operands: T [tokens,d], U [tokens,2d], r [tokens]; d [d], D [2d]: what all have; s [d]: a sum over tokens. */
struct by_tokens {
    enum pp_kernel kernel;
    const char *operands;
    bool plain; /* or gelu's tanh */
};

static bool is_of_tokens(char operand) { return strchr("TUr", operand) != NULL; }
static int times_of(char operand) { return operand == 'U' || operand == 'D' ? 2 : 1; }
static int width_of(char operand) { return operand == 'r' ? 1 : D; }

/* Of one worker: after are all operands behind the kernel; what it sums is added to sums. */
static void check_worker(const struct pp_cpu_isa *isa, const struct by_tokens *k, struct pp_call call,
                         const struct worker *w, float *const *before, float *const *after, double (*sums)[D])
{
    void *mine[PP_CALL_REFS] = {0};
    struct pp_frame frame = frame_of(w);
    call.norm.seq = part_seq(w); /* norms and activations: rows, seq and columns are the same dimensions of both */
    if (w->by_tokens)
        call.norm.whole = own_tokens(w);
    else
        call.activation.width = D / w->tensor;
    for (int i = 0; k->operands[i]; i++)
        if (before[i])
            mine[i] =
                cut(before[i], w, is_of_tokens(k->operands[i]), times_of(k->operands[i]), width_of(k->operands[i]));
    case_run(isa, k->kernel, &call, w->tensor, w->tensor_rank, &frame, mine);
    for (int i = 0; k->operands[i]; i++) {
        const char operand = k->operands[i];
        if (!before[i]) continue;
        for (int j = 0; j < D && operand == 's'; j++) sums[i][j] += ((float *)mine[i])[j];
        if (is_of_tokens(operand)) {
            float *expected = cut(after[i], w, true, times_of(operand), width_of(operand));
            const int columns = width_of(operand) == 1 ? 1 : call.norm.d;
            assert_same(mine[i], expected, (int64_t)tokens_of(w) * times_of(operand) * columns);
            free(expected);
        }
        free(mine[i]);
    }
}

/* context workers of `tensor` ranks each. */
static void check_tokens(const struct pp_cpu_isa *isa, const struct by_tokens *k, struct worker w, double p)
{
    struct pp_call call = {k->kernel, .norm = {ROWS, SEQ, D, k->plain}, .p = (float)p, .eps = 1e-5f};
    if (p > 0) call.site = CASE_SITE;
    float *before[PP_CALL_REFS] = {0}, *after[PP_CALL_REFS] = {0};
    double sums[PP_CALL_REFS][D] = {{0}};
    struct pp_frame frame = case_frame();
    for (int i = 0; k->operands[i]; i++) {
        if (k->operands[i] == '-') continue;
        before[i] = case_floats(WHOLE * 2 * D, (uint32_t)i + 1);
        after[i] = case_copy(before[i], WHOLE * 2 * D);
    }
    case_run(isa, k->kernel, &call, 1, 0, &frame, (void *const *)after);
    for (w.context_rank = 0; w.context_rank < w.context; w.context_rank++)
        for (w.tensor_rank = 0; w.tensor_rank < w.tensor; w.tensor_rank++)
            check_worker(isa, k, call, &w, before, after, sums);
    for (int i = 0; k->operands[i]; i++) {
        if (k->operands[i] == 's') assert_near(after[i], sums[i], D, 1e-6);
        free(before[i]);
        free(after[i]);
    }
}

/* Of two workers or three, with parts of the rows; of three, with chunks: without dropout and with it, one of a rank or
 * two. */
enum { WAYS = 12 };
static struct worker way_of(int way, bool by_tokens)
{
    const bool halves = way >= 8;
    return (struct worker){halves ? 3 : 2 + way % 2, 0, 1 + way / 2 % 2, 0, by_tokens && way / 2 % 2, halves};
}
static double drop_of(int way) { return (way >= 8 ? way % 2 : way / 4) ? 0.4 : 0; }

/* Norms and residuals also where tensor ranks have parts of a worker's tokens. */
static void test_parts_of_rows(void **state)
{
    (void)state;
    static const struct by_tokens kernels[] = {
        {PP_KERNEL_LAYERNORM, "TTrTdddT", false},      {PP_KERNEL_LAYERNORM, "TTrTdddT", true},
        {PP_KERNEL_RMSNORM, "TTrTdd-T", false},        {PP_KERNEL_RMSNORM, "TTrTdd-T", true},
        {PP_KERNEL_LAYERNORM_GRAD, "TTrTdssT", false}, {PP_KERNEL_LAYERNORM_GRAD, "TTrTdssT", true},
        {PP_KERNEL_RMSNORM_GRAD, "TTrTds-T", false},   {PP_KERNEL_RMSNORM_GRAD, "TTrTds-T", true},
        {PP_KERNEL_RESIDUAL, "TTTd", false},           {PP_KERNEL_RESIDUAL_GRAD, "TT", false}};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        for (int way = 0; way < WAYS; way++) check_tokens(isa, &kernels[i], way_of(way, true), drop_of(way));
}

/* Activation functions also where tensor ranks have parts of the columns. */
static void test_activations(void **state)
{
    (void)state;
    static const struct by_tokens kernels[] = {
        {PP_KERNEL_RELU, "Td", false},    {PP_KERNEL_RELU_GRAD, "TT", false},  {PP_KERNEL_GELU, "TTd", false},
        {PP_KERNEL_GELU, "TTd", true},    {PP_KERNEL_GELU_GRAD, "TT", false},  {PP_KERNEL_GELU_GRAD, "TT", true},
        {PP_KERNEL_SWIGLU, "TUD", false}, {PP_KERNEL_SWIGLU_GRAD, "UT", false}};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        for (int way = 0; way < WAYS; way++) check_tokens(isa, &kernels[i], way_of(way, false), drop_of(way));
}

/* ---- the embedding ---- */

/* What one has of all, and what the gradients are. */
struct embedding {
    int32_t tokens[WHOLE];
    float *weight, *table, *dy, *out, *grad;
};

static void run_embedding(const struct pp_cpu_isa *isa, const struct worker *w, enum pp_positions positions,
                          const struct embedding *e)
{
    const struct pp_call call = {
        .embed = {ROWS, SEQ / w->context, D, VOCAB, positions}, .site = CASE_SITE, .p = 0.25f, .scale = 2};
    float *made = positions == PP_POSITIONS_SINUSOIDAL ? case_floats(SEQ / w->context * D, 6) : NULL;
    float *learned = positions == PP_POSITIONS_LEARNED ? e->table : NULL;
    struct pp_frame frame = frame_of(w);
    case_run(isa, PP_KERNEL_EMBED, &call, 1, 0, &frame,
             (void *[PP_CALL_REFS]){e->out, (void *)e->tokens, e->weight, made, learned});
    case_run(isa, PP_KERNEL_EMBED_GRAD, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){e->grad, (void *)e->tokens, e->dy});
    free(made);
}

/* Positions that are made come from sines of another token than the row's first: they may differ in the last bit. */
static void check_embedding(const struct pp_cpu_isa *isa, int context, bool halves, enum pp_positions positions)
{
    struct worker w = {1, 0, 1, 0, false, false};
    struct embedding all = {{0},
                            case_floats(VOCAB * D, 1),
                            case_floats(PLACES * D, 2),
                            case_floats(WHOLE * D, 3),
                            case_floats(WHOLE * D, 4),
                            case_floats(VOCAB * D, 5)};
    double sums[VOCAB * D] = {0};
    for (int t = 0; t < WHOLE; t++) all.tokens[t] = (t * t + 3 * t) % VOCAB;
    run_embedding(isa, &w, positions, &all);
    w.context = context;
    w.halves = halves;
    for (; w.context_rank < context; w.context_rank++) {
        const int n = tokens_of(&w) * D;
        struct embedding own = {
            {0}, all.weight, all.table, cut(all.dy, &w, true, 1, D), case_floats(n, 7), case_floats(VOCAB * D, 8)};
        float *expected = cut(all.out, &w, true, 1, D);
        int32_t *tokens = cut(all.tokens, &w, true, 1, 1);
        memcpy(own.tokens, tokens, sizeof *tokens * (size_t)tokens_of(&w));
        run_embedding(isa, &w, positions, &own);
        if (positions == PP_POSITIONS_SINUSOIDAL)
            assert_near(own.out, expected, n, 2e-7);
        else
            assert_same(own.out, expected, n);
        for (int i = 0; i < VOCAB * D; i++) sums[i] += own.grad[i];
        case_free(expected, tokens, own.dy, own.out, own.grad, NULL);
    }
    assert_near(all.grad, sums, VOCAB * D, 1e-6);
    case_free(all.weight, all.table, all.dy, all.out, all.grad, NULL);
}

static void test_embedding(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int context = 2; context <= 3; context++)
        for (int positions = 0; positions <= PP_POSITIONS_LEARNED; positions++)
            for (int halves = 0; halves < context - 1; halves++)
                check_embedding(isa, context, halves, (enum pp_positions)positions);
}

/* A worker has the gradients of its places, as one that has all; of others' places 0, or what was there. */
static void check_positions(const struct pp_cpu_isa *isa, int context, bool halves, bool adds)
{
    struct pp_call call = {.positions = {ROWS, SEQ, D, PLACES}, .site = CASE_SITE, .adds = adds, .p = 0.25f};
    float *dy = case_floats(WHOLE * D, 1), *was = case_floats(PLACES * D, 2), *all = case_copy(was, PLACES * D);
    struct worker w = {context, 0, 1, 0, false, halves};
    struct pp_frame frame = case_frame();
    case_run(isa, PP_KERNEL_POSITIONS_GRAD, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){all, dy});
    call.positions.seq = SEQ / context;
    for (int t = 0; t < PLACES * D && !adds; t++) was[t] = 0;
    for (; w.context_rank < context; w.context_rank++) {
        float *part = cut(dy, &w, true, 1, D), *own = adds ? case_copy(was, PLACES * D) : case_floats(PLACES * D, 3);
        frame = frame_of(&w);
        case_run(isa, PP_KERNEL_POSITIONS_GRAD, &call, 1, 0, &frame, (void *[PP_CALL_REFS]){own, part});
        float *expected = case_copy(was, PLACES * D);
        for (int t = 0; t < SEQ / context; t++) {
            const int at = place_of(&w, t) * D;
            memcpy(expected + at, all + at, sizeof *all * D);
        }
        assert_same(own, expected, PLACES * D);
        free(expected);
        case_free(part, own, NULL);
    }
    case_free(dy, was, all, NULL);
}

static void test_gradients_of_positions(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    for (int way = 0; way < 6; way++) check_positions(isa, way % 3 ? 3 : 2, way % 3 == 2, way / 3);
}

/* ---- attention ---- */

enum { KV = 6, GROUP = 2, HEADS = KV * GROUP, DH = 4, WIDTH = (HEADS + 2 * KV) * DH };

/* Columns, or whatever lies in rows of so many numbers: first .. first+n-1 of each. The caller frees it. */
static float *columns(const float *from, int rows, int width, int first, int n)
{
    float *out = case_floats((int64_t)rows * n, 0);
    for (int r = 0; r < rows; r++) memcpy(out + r * n, from + r * width + first, sizeof *out * (size_t)n);
    return out;
}

/* Queries, keys and values of the i-th of n workers, of each token. */
static float *heads_of(const float *qkv, int i, int n)
{
    const int q = HEADS / n * DH, kv = KV / n * DH, firsts[] = {i * q, HEADS * DH + i * kv, (HEADS + KV) * DH + i * kv};
    float *out = case_floats(WHOLE * (q + 2 * kv), 0);
    for (int t = 0; t < WHOLE; t++) {
        float *to = out + t * (q + 2 * kv);
        for (int k = 0; k < 3; to += k++ ? kv : q)
            memcpy(to, qkv + t * WIDTH + firsts[k], sizeof *to * (size_t)(k ? kv : q));
    }
    return out;
}

/* Operands: what attention keeps is P, or, flash, lse. */
struct attention {
    float *ctx, *kept, *qkv, *dctx;
};

/* Forward, or backward, of the heads of one of so many workers. */
static void run_attention(const struct pp_cpu_isa *isa, bool flash, bool back, int workers, struct pp_frame *frame,
                          const struct attention *a)
{
    const struct pp_call call = {
        .attention = {ROWS, SEQ, HEADS / workers, DH, true, KV / workers}, .site = CASE_SITE, .p = 0.4f};
    float *scratch = malloc((size_t)(flash ? pp_flash_scratch(SEQ, SEQ, 2 * DH) : pp_attention_scratch(SEQ, 2 * DH)));
    const enum pp_kernel kernels[2][2] = {{PP_KERNEL_ATTENTION, PP_KERNEL_FLASH},
                                          {PP_KERNEL_ATTENTION_GRAD, PP_KERNEL_FLASH_GRAD}};
    void *forward[PP_CALL_REFS] = {a->ctx, a->kept, a->qkv, NULL, scratch};
    void *flash_grad[PP_CALL_REFS] = {a->qkv, a->kept, a->ctx, a->dctx, scratch};
    void *math_grad[PP_CALL_REFS] = {a->qkv, a->kept, a->dctx, scratch};
    assert_non_null(scratch);
    case_run(isa, kernels[back][flash], &call, frame->tensor, frame->tensor_rank, frame,
             !back   ? forward
             : flash ? flash_grad
                     : math_grad);
    free(scratch);
}

static void free_attention(const struct attention *a) { case_free(a->ctx, a->kept, a->qkv, a->dctx, NULL); }

/* A worker has its tensor rank's heads, and of these its context rank's. */
static void check_heads(const struct pp_cpu_isa *isa, bool flash, struct pp_frame *frame, const float *qkv,
                        const struct attention *all, const float *dqkv)
{
    const int workers = frame->tensor * frame->context, i = frame->tensor_rank * frame->context + frame->context_rank;
    const int heads = HEADS / workers, each = flash ? SEQ : SEQ * SEQ, of_token = heads * DH;
    struct attention mine = {case_floats(WHOLE * of_token, 8), case_floats(ROWS * heads * each, 9),
                             heads_of(qkv, i, workers), columns(all->dctx, WHOLE, HEADS * DH, i * of_token, of_token)};
    float *ctx = columns(all->ctx, WHOLE, HEADS * DH, i * of_token, of_token), *grad = heads_of(dqkv, i, workers);
    float *kept = columns(all->kept, ROWS, HEADS * each, i * heads * each, heads * each);
    run_attention(isa, flash, false, workers, frame, &mine);
    assert_same(mine.ctx, ctx, WHOLE * of_token);
    assert_same(mine.kept, kept, ROWS * heads * each);
    run_attention(isa, flash, true, workers, frame, &mine);
    assert_same(mine.qkv, grad, WHOLE * WIDTH / workers);
    case_free(ctx, grad, kept, NULL);
    free_attention(&mine);
}

static void check_attention(const struct pp_cpu_isa *isa, bool flash)
{
    static const struct {
        int context, tensor;
    } ways[] = {{2, 1}, {3, 1}, {3, 2}};
    struct attention all = {case_floats(WHOLE * HEADS * DH, 1), case_floats(ROWS * HEADS * SEQ * SEQ, 2),
                            case_floats(WHOLE * WIDTH, 3), case_floats(WHOLE * HEADS * DH, 4)};
    float *qkv = case_copy(all.qkv, WHOLE * WIDTH);
    struct pp_frame frame = case_frame();
    frame.tensor = 1;
    run_attention(isa, flash, false, 1, &frame, &all);
    run_attention(isa, flash, true, 1, &frame, &all);
    for (int way = 0; way < 3; way++) {
        frame.context = ways[way].context;
        frame.tensor = ways[way].tensor;
        for (int i = 0; i < frame.context * frame.tensor; i++) {
            frame.context_rank = i % frame.context;
            frame.tensor_rank = i / frame.context;
            check_heads(isa, flash, &frame, qkv, &all, all.qkv);
        }
    }
    free(qkv);
    free_attention(&all);
}

static void test_attention(void **state)
{
    (void)state;
    assert_int_equal(pp_gemm_open(1), PP_OK);
    FOR_EACH_ISA(isa)
    for (int flash = 0; flash < 2; flash++) check_attention(isa, flash);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_rows), cmocka_unit_test(test_activations),
        cmocka_unit_test(test_embedding),     cmocka_unit_test(test_gradients_of_positions),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
