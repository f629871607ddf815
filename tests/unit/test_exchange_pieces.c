/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs whose exchanges of experts stand beside products, in pieces: while one is under way nobody touches what it
 * writes, or writes what it sends; all are awaited; and all together they are as many bytes and operations as the
 * program that waits for each.
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
#include "tests/unit/call_overlap.h"

enum { SEQ = 6, ROWS = 4, EXPERTS = 24 };

/* An exchange that was started, and whether it is still under way. */
struct pending {
    const struct pp_call *call;
    bool waits;  /* nobody has waited for it */
    int kernels; /* that were called meanwhile */
};

struct walk {
    const struct pp_program *program;
    struct pending pending[PP_BESIDE_MAX];
    int npending, started;
    int hidden; /* exchanges beside which kernels were called */
    int sums;   /* over tensor ranks, under way */
    int64_t moved;
    double flops;
};

/* Of two exchanges, too: none writes what the other one reads or writes. */
static void check_apart(struct walk *w, const struct pp_call *call)
{
    const int to = PP_OPERAND(exchange, to), from = PP_OPERAND(exchange, from);
    for (int k = 0; k < w->npending; k++)
        for (int i = 0; i < PP_CALL_REFS && w->pending[k].waits; i++) {
            const bool writes = pp_call_operand(call, i).use & PP_USE_WRITE;
            char text[96];
            if (!overlap(call, i, w->pending[k].call, to) && !(writes && overlap(call, i, w->pending[k].call, from)))
                continue;
            fail_msg("%s: operand %d of %s is in memory of exchange %d", w->program->signature, i,
                     pp_call_text(call, text, sizeof text), k + 1);
        }
}

static void start(struct walk *w, const struct pp_call *call)
{
    const int number = call->exchange.beside;
    if (number == 1) w->npending = 0;
    assert_int_equal(number, w->npending + 1);
    assert_int_equal(w->sums, 0);
    assert_in_range(number, 1, PP_BESIDE_MAX);
    w->pending[w->npending++] = (struct pending){.call = call, .waits = true};
    w->started++;
}

/* Those up to the number of the same type are there. */
static void await(struct walk *w, int number)
{
    assert_in_range(number, 1, w->npending);
    const int type = pp_call_join(w->pending[number - 1].call).type;
    for (int k = 0; k < number; k++) {
        struct pending *p = &w->pending[k];
        if (!p->waits || pp_call_join(p->call).type != type) continue;
        p->waits = false;
        w->hidden += p->kernels > 0;
    }
}

static void check_none(const struct walk *w)
{
    for (int k = 0; k < w->npending; k++) assert_false(w->pending[k].waits);
}

static void pass(struct walk *w, const struct pp_call *call)
{
    const struct pp_join_work join = pp_call_join(call);
    w->flops += pp_call_flops(call);
    w->moved += join.bytes;
    if (join.op == PP_JOIN_AWAIT && w->sums == 0) {
        await(w, join.beside);
        return;
    }
    if (join.beside == 1) check_none(w); /* sums have the same numbers */
    check_apart(w, call);
    if (join.op == PP_JOIN_AWAIT)
        w->sums = join.beside == w->sums ? 0 : w->sums;
    else if (join.beside && join.op != PP_JOIN_ALL_TO_ALL)
        w->sums = join.beside;
    else if (join.beside)
        start(w, call);
    else
        for (int k = 0; k < w->npending && join.op == PP_JOIN_NONE; k++) w->pending[k].kernels++;
}

static struct walk walk(const struct pp_program *program)
{
    struct walk w = {.program = program};
    for (int i = 0; i < program->ncalls; i++) pass(&w, &program->calls[i]);
    check_none(&w);
    return w;
}

static void make(const struct pp_shape *shape, const struct pp_class *cls, const struct pp_program_spec *spec,
                 struct pp_program *out)
{
    struct pp_model *model;
    if (pp_model_create(shape, 1, NULL, NULL, &model) != PP_OK) fail_msg("%s", pp_message());
    if (pp_model_program(model, cls, spec, out) != PP_OK) fail_msg("%s", pp_message());
    pp_model_free(model);
}

/* Of the exchanges of a layer: forward, of each piece, gates, rows, and rows back; and as many backward. */
static int exchanges_of(int kind, int pieces, int layers) { return kind == PP_W ? 0 : 3 * pieces * layers; }

static void check_kind(struct pp_shape *shape, int kind, int asked, const struct pp_program_spec *spec)
{
    struct pp_program beside, waiting;
    const struct pp_class cls = {kind, 0, ROWS, 0, 1};
    shape->exchange_pieces = 0;
    make(shape, &cls, spec, &waiting);
    shape->exchange_pieces = asked;
    make(shape, &cls, spec, &beside);
    const struct walk of_beside = walk(&beside), of_waiting = walk(&waiting);
    assert_int_equal(of_waiting.started, 0);
    assert_int_equal(of_beside.moved, of_waiting.moved);
    assert_true(of_beside.flops == of_waiting.flops);
    assert_int_equal(beside.work_bytes, waiting.work_bytes);
    assert_true(strcmp(beside.signature, waiting.signature) != 0);
    const int pieces = pp_exchange_pieces(shape), most = exchanges_of(kind, pieces, shape->layers);
    if (!spec->checkpoint_layers && kind != PP_R) assert_int_equal(of_beside.started, most);
    /* The first rows that come hide behind what all tokens go through, and the last ones behind gradients of weights;
     * all others behind other pieces. Gates come before the rows. */
    if (kind == PP_F && shape->shared_ff) assert_int_equal(of_beside.hidden, most);
    if (kind == PP_B && shape->shared_ff && !spec->checkpoint_layers) assert_int_equal(of_beside.hidden, most);
    if (kind == PP_F && pieces > 1) assert_true(of_beside.hidden >= most - 3 * shape->layers);
    pp_program_free(&beside);
    pp_program_free(&waiting);
}

static struct pp_shape shape_of(int way)
{
    struct pp_shape shape = {.d_model = 16,
                             .heads = 4,
                             .d_ff = 32,
                             .layers = 2,
                             .vocab = 30,
                             .dropout = 0.1,
                             .experts = EXPERTS,
                             .experts_per_token = 2,
                             .capacity_factor = 1.25,
                             .bias = PP_NO_BIAS,
                             .replicas = 4};
    shape.expert_parallel = way % 2 ? 4 : 2;
    shape.tensor = way / 2 % 2 ? 2 : 1;
    shape.sequence = way / 4 % 2;
    shape.sum_pieces = way / 4 % 2 ? 2 : 1;
    shape.norm = way / 8 % 2 ? PP_NORM_FIRST : PP_NORM_LAST;
    shape.activation = way / 8 % 2 ? PP_SWIGLU : PP_RELU;
    shape.precision = way / 16 % 2 ? PP_BF16 : PP_FP32;
    if (way / 32 % 2) shape.shared_ff = 24;
    shape.shared_gate = way / 32 % 2 && way % 2;
    return shape;
}

static void test_beside(void **state)
{
    static const int kinds[] = {PP_F, PP_R, PP_B, PP_I, PP_W};
    (void)state;
    for (int way = 0; way < 64; way++)
        for (int asked = 1; asked <= 7; asked++)
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                struct pp_shape shape = shape_of(way);
                const bool split = kinds[k] == PP_I || kinds[k] == PP_W;
                check_kind(&shape, kinds[k], asked, &(struct pp_program_spec){SEQ, ROWS, true, split});
                if (kinds[k] == PP_F || kinds[k] == PP_B)
                    check_kind(&shape, kinds[k], asked, &(struct pp_program_spec){SEQ, ROWS, true, false, true});
            }
}

/* The most that divide a worker's experts; one if each task rounds its weights to FP8; none without expert ranks. */
static void test_number(void **state)
{
    (void)state;
    struct pp_shape shape = {.experts = 24, .expert_parallel = 2, .tensor = 2};
    const int pieces[] = {1, 1, 2, 3, 3, 3, 6, 6};
    for (int asked = 0; asked < 8; asked++) {
        shape.exchange_pieces = asked;
        assert_int_equal(pp_exchange_pieces(&shape), pieces[asked]);
        assert_int_equal(pp_shape_most_beside(&shape), asked ? 3 * pieces[asked] : 0);
    }
    shape.precision = PP_FP8;
    assert_int_equal(pp_exchange_pieces(&shape), 6);
    shape.zero = PP_ZERO_PARAMETERS;
    assert_int_equal(pp_exchange_pieces(&shape), 1);
    shape = (struct pp_shape){.experts = 24, .exchange_pieces = 4};
    assert_int_equal(pp_exchange_pieces(&shape), 1);
    assert_int_equal(pp_shape_most_beside(&shape), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_beside), cmocka_unit_test(test_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
