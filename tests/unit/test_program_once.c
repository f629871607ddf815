/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs in which the calls of layers that do the same stand once, of random models: what they do, place by place, is
 * what the whole programs do, which hold no order.
 */
#include "tests/unit/phase_case.h"
#include "tests/unit/program_ways.h"

enum { MODELS = 1500 };

static struct {
    int models, programs, shorter; /* shorter: than the whole ones */
    int64_t places, calls;
} met;

static void check_class(void *model, const struct pp_class *cls, const struct pp_program_spec *spec, uint64_t *dice)
{
    struct pp_program_spec shorter = *spec;
    struct pp_program whole, once;
    (void)dice;
    shorter.once = true;
    if (pp_model_program(model, cls, spec, &whole) != PP_OK) fail_msg("%s", pp_message());
    if (pp_model_program(model, cls, &shorter, &once) != PP_OK) fail_msg("%s", pp_message());
    expect_same_program(&once, &whole);
    met.programs++;
    met.shorter += once.ncalls < whole.ncalls;
    met.places += whole.ncalls;
    met.calls += once.ncalls;
    pp_program_free(&whole);
    pp_program_free(&once);
}

/* A random model of more layers, of which some may have windows, and workers may pass keys around. */
static struct pp_shape draw(uint64_t *dice)
{
    struct pp_shape shape = random_shape(dice);
    shape.layers = 1 + random_below(dice, 12);
    shape.precision = random_below(dice, PP_PRECISIONS);
    if (shape.precision == PP_FP8 && shape.zero == PP_ZERO_PARAMETERS && shape.exchange_pieces)
        shape.exchange_pieces = 1;
    if (shape.experts && shape.layers > 1) {
        shape.dense_layers = random_below(dice, shape.layers);
        shape.experts_every = 1 + random_below(dice, 3);
        if (!shape.dense_ff) shape.dense_ff = shape.d_ff;
    }
    if (random_below(dice, 3) == 0) {
        shape.mask = PP_MASK_CAUSAL;
        shape.window = 1 + random_below(dice, 20);
        shape.window_skip = random_below(dice, 4);
    } else if (shape.context > 1 && shape.attention == PP_ATTENTION_FLASH) {
        shape.context_kind = random_below(dice, PP_CONTEXT_RING + 1);
        if (shape.context_kind == PP_CONTEXT_RING) shape.dropout = 0;
    }
    return shape;
}

static void test_random(void **state)
{
    (void)state;
    uint64_t dice = 1;
    for (int i = 0; i < MODELS; i++) {
        const struct pp_shape shape = draw(&dice);
        struct pp_model *model;
        const int stages = 1 + random_below(&dice, shape.layers < 3 ? shape.layers : 3);
        if (pp_model_create(&shape, stages, NULL, NULL, &model) != PP_OK) continue; /* sizes that do not go together */
        with_classes(model, &dice, check_class, model);
        met.models++;
        pp_model_free(model);
    }
    print_message("%d models, %d programs, %d of them shorter: %lld calls for %lld\n", met.models, met.programs,
                  met.shorter, (long long)met.calls, (long long)met.places);
    assert_true(met.models > MODELS / 2 && met.shorter > met.programs / 5 && 5 * met.calls < 4 * met.places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
