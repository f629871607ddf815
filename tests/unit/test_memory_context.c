/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of workers that have parts of the same rows, against the formulas of docs/MEMORY.md: activation slots, and
 * scratch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "kernels/model.h"
#include "tests/unit/program_scratch.h"

/* Models that differ in the context alone, and tokens of a row: of all workers, and of one. */
struct shared {
    struct pp_shape shape;
    struct pp_model *one, *many, *gathering, *ring; /* the last two: of keys and values; NULL unless with flash */
    int row, own, context;
};

enum { WAYS = 128, ROW = 48, SLOT_ROWS = 16 };

/* Heads of 64 columns, 16 of queries. */
static struct shared shared_of(int way)
{
    struct shared s = {.row = ROW, .shape = {.d_model = 512, .heads = 16, .d_ff = 1024, .layers = 6, .vocab = 2048}};
    s.context = way % 2 ? 4 : 2;
    s.shape.head_dim = 64;
    s.shape.attention = way / 2 % 2;
    s.shape.norm = way / 4 % 2;
    s.shape.precision = way / 8 % 2 ? PP_BF16 : PP_FP32;
    s.shape.kv_heads = way / 16 % 2 ? 8 : 0;
    s.shape.tensor = 1 + way / 32 % 2;
    s.shape.sequence = way % 3 == 0;
    s.shape.activation = way % 3 == 0 ? PP_GELU : PP_RELU;
    s.shape.bias = way / 64 ? PP_NO_BIAS : PP_BIAS;
    if (way / 64) {
        s.shape.experts = 8;
        s.shape.experts_per_token = 2;
        s.shape.capacity_factor = 1.25;
    }
    s.own = ROW / s.context;
    assert_int_equal(pp_model_create(&s.shape, 3, NULL, NULL, &s.one), PP_OK);
    s.shape.context = s.context;
    assert_int_equal(pp_model_create(&s.shape, 3, NULL, NULL, &s.many), PP_OK);
    const pp_status with_flash = s.shape.attention == PP_ATTENTION_FLASH ? PP_OK : PP_USAGE;
    struct pp_shape other = s.shape;
    other.context_kind = PP_CONTEXT_ALL_GATHER;
    assert_int_equal(pp_model_create(&other, 3, NULL, NULL, &s.gathering), with_flash);
    other.context_kind = PP_CONTEXT_RING;
    assert_int_equal(pp_model_create(&other, 3, NULL, NULL, &s.ring), with_flash);
    return s;
}

static void free_shared(struct shared *s)
{
    pp_model_free(s->one);
    pp_model_free(s->many);
    if (s->gathering) pp_model_free(s->gathering);
    if (s->ring) pp_model_free(s->ring);
}

/* A slot is that of one worker with rows of its own tokens alone, but for what attention keeps of its heads: that is of
 * all tokens, probabilities of pairs of them; flash reads what it has made of all once more. */
static void test_slots_of_parts_of_rows(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        struct shared s = shared_of(way);
        const int64_t tokens = SLOT_ROWS * s.own, heads = 16 / s.shape.tensor, e = pp_element_bytes(s.shape.precision);
        const int64_t more =
            s.shape.attention == PP_ATTENTION_FLASH ? tokens * heads * 64 * e : tokens * heads * (s.row - s.own) * e;
        for (int split = 0; split < 2; split++)
            for (int stage = 0; stage < 3; stage++) {
                const struct pp_program_spec whole = {s.row, SLOT_ROWS, true, split},
                                             part = {s.own, SLOT_ROWS, true, split};
                assert_int_equal(pp_model_act_bytes(s.many, stage, &whole) - pp_model_act_bytes(s.one, stage, &part),
                                 2 * more);
                const struct pp_model *flash[] = {s.gathering, s.ring}; /* which keep nothing of it */
                for (int k = 0; k < 2 && s.gathering; k++)
                    assert_int_equal(pp_model_act_bytes(flash[k], stage, &whole),
                                     pp_model_act_bytes(s.one, stage, &part));
            }
        assert_int_equal(s.many->parameters, s.one->parameters);
        free_shared(&s);
    }
}

static int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static const struct {
    int kind;
    bool split, attends, back;
} tasks[] = {{PP_F, false, true, false},
             {PP_B, false, true, true},
             {PP_I, true, true, true},
             {PP_R, false, true, false},
             {PP_W, true, false, false}};

/* Keys and values of all tokens, and forward of the worker's own, on the way back the gradients of all. */
static void check_gathering(const struct shared *s)
{
    const int64_t width = 2 * (s->shape.kv_heads ? 8 : 16) / s->shape.tensor * 64,
                  own = SLOT_ROWS * s->own * width * pp_element_bytes(s->shape.precision);
    const int64_t scores =
        whole_lines(pp_flash_scratch(s->own, s->row, 128)) - whole_lines(pp_flash_scratch(s->own, s->own, 128));
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks && s->gathering; i++)
        assert_int_equal(scratch_of(s->gathering, tasks[i].kind, tasks[i].split, s->row) -
                             scratch_of(s->one, tasks[i].kind, tasks[i].split, s->own),
                         tasks[i].attends ? own * (s->context + (tasks[i].back ? s->context : 1)) + scores : 0);
}

/* Keys and values of two workers; of a chunk what attention makes, and its numbers. On the way back the gradients of
 * these keys and values, and of queries; of a chunk queries, keys and values, and keys and values once more.
 * Attention's scratch is that of chunks. */
static void check_ring(const struct shared *s)
{
    const int chunk = s->own / 2, tensor = s->shape.tensor, e = pp_element_bytes(s->shape.precision);
    const int64_t queries = 16 / tensor * 64, keys = 2 * (s->shape.kv_heads ? 8 : 16) / tensor * 64,
                  tokens = SLOT_ROWS * s->own,
                  scores = whole_lines(pp_flash_scratch(chunk, chunk, 128)) -
                           whole_lines(pp_flash_scratch(s->own, s->own, 128)),
                  forward = 2 * tokens * keys * e + chunk * queries * e + whole_lines(chunk * 16 / tensor * 4),
                  back = forward + (2 * keys + queries) * tokens * e + chunk * (queries + 2 * keys) * e;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks && s->ring; i++)
        assert_int_equal(scratch_of(s->ring, tasks[i].kind, tasks[i].split, s->row) -
                             scratch_of(s->one, tasks[i].kind, tasks[i].split, s->own),
                         tasks[i].attends ? (tasks[i].back ? back : forward) + scores : 0);
}

/* What in_proj makes is scratch, and what is sent: twice the worker's tokens of queries, keys and values; attention has
 * its scratch for rows of all tokens. Weight gradients have none of these. */
static void test_scratch_of_parts_of_rows(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        struct shared s = shared_of(way);
        const bool flash = s.shape.attention == PP_ATTENTION_FLASH;
        const int64_t width = (16 + 2 * (s.shape.kv_heads ? 8 : 16)) / s.shape.tensor * 64;
        const int64_t pieces = 2 * SLOT_ROWS * s.own * width * pp_element_bytes(s.shape.precision);
        const int64_t row = flash ? pp_flash_scratch(s.row, s.row, 128) : pp_attention_scratch(s.row, 128);
        const int64_t own = flash ? pp_flash_scratch(s.own, s.own, 128) : pp_attention_scratch(s.own, 128);
        for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
            assert_int_equal(scratch_of(s.many, tasks[i].kind, tasks[i].split, s.row) -
                                 scratch_of(s.one, tasks[i].kind, tasks[i].split, s.own),
                             tasks[i].attends ? pieces + whole_lines(row) - whole_lines(own) : 0);
        check_gathering(&s);
        check_ring(&s);
        free_shared(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_of_parts_of_rows),
        cmocka_unit_test(test_scratch_of_parts_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
