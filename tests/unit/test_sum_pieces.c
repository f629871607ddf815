/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs whose sums over tensor ranks stand beside products, in pieces: while one is under way nothing touches its
 * memory, all are awaited, and all together they are as many bytes and operations as the program that has them whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/shape/pieces.h"
#include "kernels/kernels.h"
#include "kernels/model.h"

enum { SEQ = 6, ROWS = 4, TENSOR = 2, MOST = PP_SUM_PIECES_MAX };

/* Memory of a join that was asked for and not awaited. */
struct pending {
    int64_t begin, end;
    int region;
};

struct walk {
    const struct pp_program *program;
    struct pending pending[MOST];
    int npending, longest; /* the longest series */
    bool between;          /* a kernel ran while a join was under way */
    int64_t moved;         /* bytes of all joins over the tensor ranks */
    double flops;
};

static int64_t bytes_of(const struct pp_call *call, int i)
{
    const struct pp_operand o = pp_call_operand(call, i);
    return o.elements * o.element_bytes;
}

/* The worker's own part, where that is meant, may be any of them. */
static bool touches(const struct pp_call *call, int i, const struct pending *p)
{
    const struct pp_ref *ref = &call->ref[i];
    const int64_t end = ref->offset + bytes_of(call, i) + (TENSOR - 1) * ref->part_bytes;
    return ref->region == p->region && ref->offset < p->end && p->begin < end && bytes_of(call, i) > 0;
}

static void check_apart(struct walk *w, const struct pp_call *call)
{
    for (int k = 0; k < w->npending; k++)
        for (int i = 0; i < PP_CALL_REFS; i++)
            if (touches(call, i, &w->pending[k])) {
                char text[96];
                fail_msg("%s: operand %d of %s is in memory of join %d", w->program->signature, i,
                         pp_call_text(call, text, sizeof text), k + 1);
            }
    w->between = w->between || w->npending > 0;
}

/* Pieces of one sum: of one kind and size, one behind the other, with numbers from 1 on. */
static void add_pending(struct walk *w, const struct pp_call *call, int number)
{
    const int64_t begin = call->at.join.memory.offset;
    assert_true(number == w->npending + 1 && number <= MOST);
    if (w->npending > 0) {
        const struct pending *before = &w->pending[w->npending - 1];
        assert_true(call->at.join.memory.region == before->region && begin == before->end);
        assert_int_equal(bytes_of(call, 0), before->end - before->begin);
    }
    w->pending[w->npending++] = (struct pending){begin, begin + bytes_of(call, 0), call->at.join.memory.region};
    if (w->npending > w->longest) w->longest = w->npending;
}

/* Those up to the number are there; a series ends with its last one. */
static void await(struct walk *w, int number)
{
    assert_in_range(number, 1, w->npending);
    for (int k = 0; k < number; k++) w->pending[k].end = w->pending[k].begin;
    if (number == w->npending) w->npending = 0;
}

static struct walk walk(const struct pp_program *program)
{
    struct walk w = {.program = program};
    for (int i = 0; i < program->ncalls; i++) {
        const struct pp_call *call = &program->calls[i];
        const struct pp_join_work join = pp_call_join(call);
        w.flops += pp_call_flops(call);
        w.moved += join.bytes;
        if (join.op == PP_JOIN_AWAIT)
            await(&w, join.beside);
        else if (join.beside)
            add_pending(&w, call, join.beside);
        else if (join.bytes > 0)
            assert_int_equal(w.npending, 0);
        else
            check_apart(&w, call);
    }
    assert_int_equal(w.npending, 0);
    return w;
}

/* Is there a product whose sum can stand beside it? */
static bool has_products(const struct pp_model *model, int stage, int kind)
{
    const struct pp_stage *s = &model->stages[stage];
    const bool sums = s->layers > 0 || (kind != PP_F && s->decode);
    return sums && (kind != PP_W || pp_shape_parts_tokens(&model->shape));
}

static void check_kind(const struct pp_model *pieces, const struct pp_model *whole, int stage, int kind,
                       const struct pp_program_spec *spec)
{
    struct pp_program cut, plain;
    const struct pp_class cls = {kind, stage, ROWS, 0, 1};
    if (pp_model_program(pieces, &cls, spec, &cut) != PP_OK) fail_msg("%s", pp_message());
    if (pp_model_program(whole, &cls, spec, &plain) != PP_OK) fail_msg("%s", pp_message());
    const struct walk of_cut = walk(&cut), of_plain = walk(&plain);
    assert_int_equal(of_plain.longest, 0);
    assert_int_equal(of_cut.moved, of_plain.moved);
    assert_true(of_cut.flops == of_plain.flops);
    assert_true(strcmp(cut.signature, plain.signature) != 0);
    const int64_t own = pp_shape_parts_tokens(&pieces->shape) ? ROWS * SEQ / TENSOR : ROWS * SEQ;
    if (has_products(pieces, stage, kind)) {
        assert_int_equal(of_cut.longest, pp_sum_pieces(&pieces->shape, own));
        assert_true(of_cut.between);
    }
    pp_program_free(&cut);
    pp_program_free(&plain);
}

static struct pp_shape shape_of(int way)
{
    struct pp_shape shape = {.d_model = 16, .heads = 4, .d_ff = 32, .layers = 3, .vocab = 30, .dropout = 0.1};
    shape.tensor = TENSOR;
    shape.sequence = way % 2;
    shape.norm = way / 2 % 2 ? PP_NORM_FIRST : PP_NORM_LAST;
    shape.activation = way / 4 % 2 ? PP_SWIGLU : PP_RELU;
    shape.precision = way / 8 % 2 ? PP_BF16 : PP_FP32;
    if (way / 16 % 2) shape.experts = 4;
    if (shape.experts) shape.experts_per_token = 2;
    if (shape.experts) shape.bias = PP_NO_BIAS;
    if (shape.experts) shape.shared_ff = 24;
    shape.capacity_factor = 1;
    return shape;
}

static void check_shape(int way, int sum_pieces)
{
    static const int kinds[] = {PP_F, PP_R, PP_B, PP_I, PP_W};
    struct pp_shape shape = shape_of(way);
    struct pp_model *pieces, *whole;
    if (pp_model_create(&shape, 3, NULL, NULL, &whole) != PP_OK) fail_msg("%s", pp_message());
    shape.sum_pieces = sum_pieces;
    if (pp_model_create(&shape, 3, NULL, NULL, &pieces) != PP_OK) fail_msg("%s", pp_message());
    for (int stage = 0; stage < 3; stage++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const bool split = kinds[k] == PP_I || kinds[k] == PP_W;
            check_kind(pieces, whole, stage, kinds[k], &(struct pp_program_spec){SEQ, ROWS, true, split});
            if (kinds[k] == PP_F || kinds[k] == PP_B)
                check_kind(pieces, whole, stage, kinds[k], &(struct pp_program_spec){SEQ, ROWS, true, false, true});
        }
    pp_model_free(pieces);
    pp_model_free(whole);
}

static void test_beside(void **state)
{
    (void)state;
    for (int way = 0; way < 32; way++)
        for (int pieces = 2; pieces <= 12; pieces++) check_shape(way, pieces);
}

/* The most that divide the tokens; none without a second worker. */
static void test_number(void **state)
{
    (void)state;
    struct pp_shape shape = {.tensor = 2, .sum_pieces = 4};
    assert_int_equal(pp_sum_pieces(&shape, 8), 4);
    assert_int_equal(pp_sum_pieces(&shape, 6), 3);
    assert_int_equal(pp_sum_pieces(&shape, 7), 1);
    assert_int_equal(pp_sum_pieces(&shape, 1), 1);
    shape.tensor = 1;
    assert_int_equal(pp_sum_pieces(&shape, 8), 1);
    shape = (struct pp_shape){.tensor = 2};
    assert_int_equal(pp_sum_pieces(&shape, 8), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_beside), cmocka_unit_test(test_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
