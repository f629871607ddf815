/* SPDX-License-Identifier: Apache-2.0
 *
 * What must not change a bit of a model's gradients: cuts, recomputation, slots; and what changes the last ones.
 */
#include "tests/unit/tiny_model.h"

static void test_split_backward_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < ALL_KINDS; kind++)
        for (int stages = 1; stages <= 2; stages++) {
            struct runner split = make_runner(of_kind(tiny, kind), stages);
            split.split = true;
            compare_runs(make_runner(of_kind(tiny, kind), 2), split, 0);
        }
}

static void test_stages_and_recomputation_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < ALL_KINDS; kind++) {
        struct runner again = make_runner(of_kind(tiny, kind), 2);
        again.recompute = true;
        compare_runs(make_runner(of_kind(tiny, kind), 1), again, 0);
    }
}

/* Of one layer at a time: nothing is there of the forward but checkpoints, and the last layers of a stage have not the
 * place of the first. And of the first layers alone. */
static void test_checkpoints_of_layers_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < ALL_KINDS; kind++)
        for (int stages = 1; stages <= 2; stages++) {
            struct runner layers = make_runner(of_kind(tiny, kind), stages);
            layers.layers = true;
            layers.shape.layers = 5;
            layers.shape.attention = stages == 1 ? PP_ATTENTION_FLASH : PP_ATTENTION_MATH;
            struct runner all = make_runner(layers.shape, 1);
            compare_runs(all, layers, 0);
            layers.layers = false;
            for (layers.again = 1; layers.again <= 6; layers.again++) compare_runs(all, layers, 0);
        }
}

/* Activation functions alone: whole or in parts, split or not, W of one microbatch or of two at once, with and without
 * biases and dropout inside. */
static void test_activations_again_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < ALL_KINDS; kind++)
        for (int activation = PP_GELU; activation <= PP_GELU_TANH; activation++)
            for (int way = 0; way < 8; way++) {
                struct runner kept = make_runner(of_kind(tiny, kind), 2), again;
                if (activation == PP_SWIGLU && way % 2) continue;
                kept.shape.activation = activation;
                kept.shape.layers = 5;
                kept.rows = 6, kept.chunks = 3;
                kept.split = way % 2;
                kept.parts = way / 2 % 2 ? 2 : 0;
                if (way >= 4 && !kept.shape.experts) kept.slot_chunks = 2, kept.batch_w = kept.split;
                again = kept;
                again.inner_again = true;
                compare_runs(kept, again, 0);
            }
}

/* Tasks done in parts: all that one leaves for the next is where that finds it. Four layers in three and in four. */
static void test_parts_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < ALL_KINDS; kind++)
        for (int way = 0; way < 10; way++) {
            struct runner whole = make_runner(of_kind(tiny, kind), 1), parts;
            whole.shape.layers = 4;
            whole.shape.head_dim = kind == LLAMA ? 6 : 0;
            parts = whole;
            parts.stages = way < 4 || way == 8 ? 1 : 2;
            parts.parts = way == 0 ? 3 : 4;
            parts.split = way % 4 == 1;
            parts.layers = way % 4 == 2;
            parts.recompute = way % 4 == 3;
            if (way >= 8) parts.split = false, parts.again = way == 8 ? 3 : 1;
            if (way == 5 && !whole.shape.experts) parts.slot_chunks = 2, parts.batch_w = true;
            compare_runs(whole, parts, way == 5 ? 1e-5f : 0);
        }
}

/* Attention without stored scores: the same sums in another order, in other memory; the same scores dropped. Its own
 * bits, whatever the cut, recomputation and slots. Rows of several blocks of queries. */
static void test_flash(void **state)
{
    (void)state;
    struct runner math = make_runner(tiny, 2);
    math.seq = 150;
    struct runner flash = math;
    flash.shape.attention = PP_ATTENTION_FLASH;
    compare_runs(math, flash, 2e-5f);
    struct runner other = flash;
    other.split = true;
    compare_runs(flash, other, 0);
    other.recompute = true;
    other.slot_chunks = 2;
    compare_runs(flash, other, 0);
    other = flash;
    other.stages = 1;
    compare_runs(flash, other, 0);
}

/* A slot of several microbatches: each finds its rows. The last slot has fewer, the last microbatch too. */
static void test_shared_slots_same_bits(void **state)
{
    (void)state;
    for (int k = 2; k <= 4; k++)
        for (int split = 0; split < 2 * KINDS; split++) {
            struct runner one = make_runner(of_kind(tiny, split / 2), 2), shared;
            one.rows = 9;
            one.chunks = 5;
            shared = one;
            shared.split = split % 2;
            shared.slot_chunks = k;
            shared.recompute = k == 3;
            compare_runs(one, shared, 0);
        }
}

/* Weight gradients of several microbatches in one product: the same sums in another order. */
static void test_batched_weight_gradients(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 2; stages++)
        for (int kind = 0; kind < KINDS; kind++) {
            const int k = 2 + kind % 4;
            struct runner one = make_runner(of_kind(tiny, kind), stages), batched;
            one.rows = 9;
            one.chunks = 5;
            batched = one;
            batched.split = batched.batch_w = true;
            batched.slot_chunks = k;
            compare_runs(one, batched, 2e-5f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_backward_same_bits),
        cmocka_unit_test(test_checkpoints_of_layers_same_bits),
        cmocka_unit_test(test_activations_again_same_bits),
        cmocka_unit_test(test_parts_same_bits),
        cmocka_unit_test(test_stages_and_recomputation_same_bits),
        cmocka_unit_test(test_flash),
        cmocka_unit_test(test_shared_slots_same_bits),
        cmocka_unit_test(test_batched_weight_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
