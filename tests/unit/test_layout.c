/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory layout over a made-up model: regions never overlap, plans share pools, sums agree, live peaks match a replay.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/model/layout.h"
#include "schedules/builder.h"

enum { SEQ = 7, D = 16, WORK = 12345 };

/* The last stage has an end, and every third one has more layers. */
static const int64_t token_bytes[3][PP_ACT_PARTS] = {{400, 0, 0}, {400, 100, 0}, {400, 0, 500}};

static const int64_t *token_bytes_of(int stages, int stage)
{
    return token_bytes[stage == stages - 1 ? 2 : stage % 3 == 1];
}

static void act_bytes(const struct pp_model *model, int stage, const struct pp_program_spec *spec,
                      int64_t parts[PP_ACT_PARTS])
{
    for (int i = 0; i < PP_ACT_PARTS; i++) {
        const int64_t bytes = (int64_t)spec->slot_rows * spec->seq * token_bytes_of(model->nstages, stage)[i];
        parts[i] = !spec->training ? bytes / 2 : spec->again ? bytes / 5 : bytes;
    }
    if (spec->training && !spec->again) parts[PP_ACT_LAYERS] += 100 * spec->split_backward;
}

static const struct pp_model_ops ops = {.act_bytes = act_bytes};

struct world {
    struct pp_stage stages[8];
    struct pp_model model;
    struct pp_plan *train, *eval;
    struct pp_program programs[2][64];
    struct pp_phase phases[2];
    struct pp_layout *layout;
};

static struct pp_plan *build(const char *schedule, int p, int v, int rows, int chunks, int checkpoint, bool training,
                             const int64_t (*slot_bytes)[PP_ACT_PARTS])
{
    int cut[64];
    struct pp_plan *plan = NULL;
    struct pp_plan_spec spec = {.schedule = schedule,
                                .ranks = p,
                                .virtual_stages = v,
                                .microbatches = pp_chunk_rows(rows, chunks, cut),
                                .rows = cut,
                                .replicas = 1,
                                .recv_buffers = 2,
                                .training = training,
                                .optimizer = true,
                                .clip = true,
                                .checkpoint = checkpoint,
                                .act_bytes = {slot_bytes}};
    if (pp_plan_build(&spec, &plan) != PP_OK) fail_msg("%s", pp_message());
    return plan;
}

static void open_world(struct world *w, const char *schedule, int p, int v, int chunks, int checkpoint, int precision)
{
    int64_t slot_bytes[8][PP_ACT_PARTS];
    const int stages = p * v;
    memset(w, 0, sizeof *w);
    for (int s = 0; s < stages; s++) memcpy(slot_bytes[s], token_bytes_of(stages, s), sizeof *slot_bytes);
    for (int s = 0; s < stages; s++)
        w->stages[s] = (struct pp_stage){.layers = 1 + s % 3,
                                         .param_bytes = 1000 * (s + 1),
                                         .value_bytes = 1000 * (s + 1),
                                         .param16_bytes = precision == PP_BF16 ? 400 * (s + 1) : 0,
                                         .share_bytes = 1000 * (s + 1)};
    w->model =
        (struct pp_model){.nstages = stages, .stages = w->stages, .shape.d_model = D, .shape.precision = precision};
    w->model.shape.optimizer = precision == PP_BF16 ? PP_ADAMW : PP_SGD;
    w->train = build(schedule, p, v, 20, chunks, checkpoint, true, slot_bytes);
    w->eval = build(schedule, p, v, 10, 2, checkpoint, false, slot_bytes);
    for (int i = 0; i < 64; i++) w->programs[0][i].work_bytes = w->programs[1][i].work_bytes = WORK;
    w->phases[0] = (struct pp_phase){.plan = w->train, .seq = SEQ, .programs = w->programs[0]};
    w->phases[1] = (struct pp_phase){.plan = w->eval, .seq = SEQ, .programs = w->programs[1]};
    if (pp_layout_create(&w->model, &ops, w->phases, 2, &w->layout) != PP_OK) fail_msg("%s", pp_message());
}

static void close_world(struct world *w)
{
    pp_layout_free(w->layout);
    pp_plan_free(w->train);
    pp_plan_free(w->eval);
}

/* Marks every byte of a rank's arena that a region covers; nothing may be marked twice. */
static void mark(uint8_t *arena, int64_t offset, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        assert_int_equal(arena[offset + i], 0);
        arena[offset + i] = 1;
    }
}

static int64_t needed(const struct world *w, int plan, const struct pp_pool *pool)
{
    const struct pp_plan *p = w->phases[plan].plan;
    const int64_t hidden = p->rows[0] * SEQ * D * pp_element_bytes(w->model.shape.precision);
    int64_t most = 0;
    for (int s = 0; s < p->stages && pool->kind == PP_POOL_CKPT && p->checkpoint == PP_CHECKPOINT_LAYERS; s++) {
        const int64_t bytes = w->stages[s].layers * ((hidden + 63) / 64 * 64);
        if (p->stage_rank[s] == pool->rank && bytes > most) most = bytes;
    }
    if (pool->kind != PP_POOL_ACT) return most ? most : hidden;
    for (int i = 0; i < p->stages * PP_ACT_PARTS; i++) {
        const int s = i / PP_ACT_PARTS, part = i % PP_ACT_PARTS;
        const struct pp_program_spec spec = pp_phase_spec(&w->phases[plan], p->rows[0]);
        int64_t bytes[PP_ACT_PARTS];
        act_bytes(&w->model, s, &spec, bytes);
        const bool takes = p->stage_rank[s] == pool->rank && p->act_pool[s][part] == pool->key;
        if (takes && bytes[part] > most) most = bytes[part];
    }
    return most;
}

static void check_rank(const struct world *w, int plan, int rank)
{
    const struct pp_layout *l = w->layout;
    const struct pp_plan *p = w->phases[plan].plan;
    uint8_t *arena = calloc(1, (size_t)l->arena_bytes[rank]);
    for (int s = 0; s < l->nstages; s++) {
        if (p->stage_rank[s] != rank) continue;
        mark(arena, l->param_offset[s], w->stages[s].param_bytes);
        mark(arena, l->grad_offset[s], w->stages[s].param_bytes);
        assert_true((l->param16_offset[s] < 0) == (w->stages[s].param16_bytes == 0));
        if (l->param16_offset[s] >= 0) mark(arena, l->param16_offset[s], w->stages[s].param16_bytes);
        assert_true((l->state_offset[s] < 0) == (w->model.shape.optimizer == PP_SGD));
        if (l->state_offset[s] >= 0) mark(arena, l->state_offset[s], 2 * w->stages[s].param_bytes);
    }
    for (int i = 0; i < p->npools; i++)
        for (int s = 0; s < p->pools[i].slots && p->pools[i].rank == rank; s++)
            mark(arena, l->slot_offset[plan][p->pools[i].first + s], needed(w, plan, &p->pools[i]));
    mark(arena, l->data_offset[rank], 2 * l->data_elements * 4);
    mark(arena, l->work_offset[rank], WORK);
    int64_t sum = 0;
    for (int k = 0; k < PP_BYTES_KINDS; k++) sum += l->bytes[rank][k];
    assert_int_equal(sum, l->arena_bytes[rank]);
    assert_true(l->live_peak_bytes[rank] <= l->arena_bytes[rank]);
    free(arena);
}

static bool is_split(const char *schedule, int p, int v)
{
    struct pp_plan *plan = build(schedule, p, v, 20, 4, PP_CHECKPOINT_NEVER, true, NULL);
    const bool split = plan->split_backward;
    pp_plan_free(plan);
    return split;
}

static void test_disjoint(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int v;
    } schedules[] = {{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"bfs", 2},  {"zb-h1", 1},
                     {"zb-h2", 1}, {"zbv", 2},  {"v-half", 2},      {"v-min", 2}};
    enum { N = sizeof schedules / sizeof *schedules };
    enum { MODES = 4 * PP_CHECKPOINTS };
    for (int i = 0; i < N * MODES * 2; i++) {
        const int p = 1 + i / N % 4, checkpoint = i / (4 * N) % PP_CHECKPOINTS;
        const int precision = i / (MODES * N) ? PP_BF16 : PP_FP32;
        struct world w;
        if (checkpoint == PP_CHECKPOINT_LAYERS && is_split(schedules[i % N].name, p, schedules[i % N].v)) continue;
        open_world(&w, schedules[i % N].name, p, schedules[i % N].v, 4, checkpoint, precision);
        assert_int_equal(w.layout->nplans, 2);
        assert_int_equal(w.layout->data_elements, 20 * SEQ);
        for (int rank = 0; rank < p; rank++)
            for (int plan = 0; plan < 2; plan++) check_rank(&w, plan, rank);
        close_world(&w);
    }
}

/* GPipe holds all microbatches, 1F1B at most P - r; checkpointing keeps one full slot. */
static void test_activation_bytes(void **state)
{
    (void)state;
    struct world w;
    int64_t slot = (5 * SEQ * 400 + 255) / 256 * 256;
    open_world(&w, "gpipe", 2, 1, 4, PP_CHECKPOINT_NEVER, PP_FP32);
    assert_int_equal(w.layout->bytes[0][PP_BYTES_ACT], 4 * slot);
    close_world(&w);
    open_world(&w, "1f1b", 2, 1, 4, PP_CHECKPOINT_NEVER, PP_FP32);
    assert_int_equal(w.layout->bytes[0][PP_BYTES_ACT], 2 * slot);
    close_world(&w);
    open_world(&w, "gpipe", 2, 1, 4, PP_CHECKPOINT_ALWAYS, PP_FP32);
    assert_int_equal(w.layout->bytes[0][PP_BYTES_ACT], slot);
    assert_int_equal(w.layout->bytes[0][PP_BYTES_CKPT], 0); /* recomputed from tokens */
    assert_int_equal(w.layout->bytes[1][PP_BYTES_CKPT], 4 * ((5 * SEQ * D * 4 + 255) / 256 * 256));
    assert_true(w.layout->live_peak_bytes[1] == w.layout->arena_bytes[1]);
    close_world(&w);
    open_world(&w, "gpipe", 2, 1, 4, PP_CHECKPOINT_LAYERS, PP_FP32);
    const int64_t input = (5 * SEQ * D * 4 + 63) / 64 * 64;
    assert_int_equal(w.layout->bytes[0][PP_BYTES_ACT], slot);
    assert_int_equal(w.layout->bytes[0][PP_BYTES_CKPT], 4 * ((input + 255) / 256 * 256));
    assert_int_equal(w.layout->bytes[1][PP_BYTES_CKPT], 4 * ((2 * input + 255) / 256 * 256));
    assert_true(w.layout->live_peak_bytes[1] == w.layout->arena_bytes[1]);
    close_world(&w);
    open_world(&w, "gpipe", 2, 1, 4, PP_CHECKPOINT_ALWAYS, PP_BF16);
    assert_int_equal(w.layout->bytes[1][PP_BYTES_CKPT], 4 * ((5 * SEQ * D * 2 + 255) / 256 * 256));
    assert_int_equal(w.layout->bytes[1][PP_BYTES_PARAM], 2048 + 1024); /* 2000 and their copies, 800 */
    assert_int_equal(w.layout->bytes[1][PP_BYTES_GRAD], 2048);
    assert_int_equal(w.layout->bytes[1][PP_BYTES_STATE], 4096); /* of adamw: two times 2000 */
    w.model.shape.optimizer = PP_ADAMW_BF16;
    assert_int_equal(pp_states_bytes(&w.model, &w.model.stages[1]), 2000);
    close_world(&w);
}

/* Where training keeps little in each of several slots, an evaluation has a larger one in their place. */
static void test_larger_slot_of_evaluation(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "1f1b", 4, 1, 4, PP_CHECKPOINT_SOME_LAYERS, PP_FP32);
    const int64_t train = pp_layout_align(5 * SEQ * 400 / 5), eval = pp_layout_align(5 * SEQ * 400 / 2);
    assert_int_equal(w.layout->bytes[0][PP_BYTES_ACT], 4 * train);
    assert_int_equal(w.layout->bytes[2][PP_BYTES_ACT], eval); /* which has two slots for training */
    assert_true(2 * train < eval && eval < 4 * train);
    for (int rank = 0; rank < 4; rank++)
        for (int plan = 0; plan < 2; plan++) check_rank(&w, plan, rank);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_disjoint), cmocka_unit_test(test_activation_bytes),
                                       cmocka_unit_test(test_larger_slot_of_evaluation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
