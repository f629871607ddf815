/* SPDX-License-Identifier: Apache-2.0
 *
 * Batched weight gradients: every schedule, with slots of several microbatches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schedules/builder.h"
#include "schedules/csv.h"

enum { ROWS = 20, MOST = 20 };

struct shape {
    const char *schedule;
    int p, v, chunks, k, checkpoint;
};

static struct pp_plan *build(const struct shape *s)
{
    int rows[MOST];
    struct pp_plan_spec spec = {.schedule = s->schedule,
                                .ranks = s->p,
                                .virtual_stages = s->v,
                                .microbatches = pp_chunk_rows(ROWS, s->chunks, rows),
                                .replicas = 1,
                                .rows = rows,
                                .checkpoint = s->checkpoint,
                                .recv_buffers = 2,
                                .training = true,
                                .optimizer = true,
                                .clip = true,
                                .batch_w = s->k};
    struct pp_plan *plan;
    if (pp_schedule_check(s->schedule, s->p, s->v, spec.microbatches) != PP_OK) return NULL;
    if (pp_plan_build(&spec, &plan) != PP_OK || pp_plan_check(plan) != PP_OK)
        fail_msg("%s P%d V%d chunks %d K%d: %s", s->schedule, s->p, s->v, s->chunks, s->k, pp_message());
    return plan;
}

/* Whoever holds a slot: (stage, first microbatch of the slot), and nobody else until it is free. */
static void check_holders(const struct pp_plan *plan)
{
    int64_t *holder = calloc((size_t)plan->nslots + 1, sizeof *holder);
    assert_non_null(holder);
    for (int64_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *t = &plan->tasks[i];
        if (t->act < 0) continue;
        bool passes = t->flags & PP_TASK_TAKE_ACT && t->flags & PP_TASK_FREE_ACT;
        int64_t me = 1 + (int64_t)t->stage * plan->microbatches + t->microbatch -
                     (passes ? 0 : t->microbatch % plan->slot_microbatches);
        for (int part = 0; part < PP_ACT_PARTS; part++) {
            const int32_t slot = plan->acts[t->act][part];
            if (slot < 0) continue;
            if (t->flags & PP_TASK_TAKE_ACT) {
                assert_int_equal(holder[slot], 0);
                holder[slot] = me;
            }
            assert_int_equal(holder[slot], me);
            if (t->flags & PP_TASK_FREE_ACT) holder[slot] = 0;
        }
    }
    for (int i = 0; i < plan->nslots; i++) assert_int_equal(holder[i], 0);
    free(holder);
}

/* One W for each slot of each stage, over all of its microbatches and their rows; no B is left. */
static void check_weights(const struct pp_plan *plan)
{
    int k = plan->slot_microbatches, slots = (plan->microbatches + k - 1) / k, n = 0;
    for (int64_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *t = &plan->tasks[i];
        assert_true(k == 1 || t->kind != PP_B);
        if (t->kind != PP_W) continue;
        int left = plan->microbatches - t->microbatch, rows = 0;
        assert_int_equal(t->microbatch % k, 0);
        assert_int_equal(t->count, left < k ? left : k);
        for (int m = t->microbatch; m < t->microbatch + t->count; m++) rows += plan->rows[m];
        assert_int_equal(plan->classes[t->cls].rows, rows);
        n++;
    }
    if (k > 1) assert_int_equal(n, plan->stages * slots);
}

static void check_shape(const struct shape *s)
{
    struct pp_plan *plan = build(s);
    if (!plan) return;
    int m = plan->microbatches;
    assert_int_equal(plan->slot_microbatches, s->k < 2 ? 1 : s->k < m ? s->k : m);
    check_holders(plan);
    check_weights(plan);
    pp_plan_free(plan);
}

static void test_all_schedules(void **state)
{
    (void)state;
    static const int chunks[] = {1, 2, 4, 5, 8, 20}, ks[] = {1, 2, 3, 4, 100};
    for (int i = 0; pp_schedule_at(i); i++)
        for (int p = 1; p <= 4; p++)
            for (int v = 1; v <= 2; v++)
                for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
                    for (size_t k = 0; k < sizeof ks / sizeof *ks; k++)
                        for (int checkpoint = 0; checkpoint < 3; checkpoint++)
                            check_shape(&(struct shape){pp_schedule_at(i)->name, p, v, chunks[c], ks[k], checkpoint});
}

static void expect_csv(const struct shape *shape, const char *expected)
{
    char text[512] = "";
    FILE *file = tmpfile();
    struct pp_plan *plan = build(shape);
    assert_non_null(plan);
    assert_non_null(file);
    assert_int_equal(pp_plan_csv(plan, file), PP_OK);
    rewind(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    pp_plan_free(plan);
    assert_string_equal(text, expected);
}

/* The W of a slot stands where the last of its microbatches is through. */
static void test_places(void **state)
{
    (void)state;
    expect_csv(&(struct shape){"1f1b", 2, 1, 4, 2, PP_CHECKPOINT_NEVER},
               "0F0,0F1,0I0,0F2,0I1,0W0,0W1,0F3,0I2,0I3,0W2,0W3\n"
               "1F0,1I0,1F1,1I1,1W0,1W1,1F2,1I2,1F3,1I3,1W2,1W3\n");
    expect_csv(&(struct shape){"gpipe", 1, 1, 4, 3, PP_CHECKPOINT_NEVER},
               "0F0,0F1,0F2,0F3,0I0,0I1,0I2,0W0,0W1,0W2,0I3,0W3\n");
}

static int slots_of(const struct pp_plan *plan)
{
    int slots = 0;
    for (int i = 0; i < plan->npools; i++)
        if (plan->pools[i].kind == PP_POOL_ACT) slots += plan->pools[i].slots;
    return slots;
}

/* GPipe keeps all microbatches anyway: 5 microbatches fill two slots of four. */
static void test_slots(void **state)
{
    (void)state;
    struct pp_plan *plan = build(&(struct shape){"gpipe", 1, 1, 5, 4, PP_CHECKPOINT_NEVER});
    assert_int_equal(slots_of(plan), 2);
    assert_int_equal(pp_plan_most_slot_rows(plan), 16);
    assert_int_equal(pp_plan_slot_rows(plan, 4), 4);
    pp_plan_free(plan);
}

static void expect_bad(struct pp_plan *plan, const char *text)
{
    assert_int_equal(pp_plan_check(plan), PP_INPUT);
    if (!strstr(pp_message(), text)) fail_msg("\"%s\" does not say \"%s\"", pp_message(), text);
}

static struct pp_task *find(struct pp_plan *plan, int kind, int microbatch)
{
    for (int64_t i = 0; i < plan->ntasks; i++)
        if (plan->tasks[i].kind == kind && plan->tasks[i].microbatch == microbatch) return &plan->tasks[i];
    fail();
    return NULL;
}

static void test_broken(void **state)
{
    (void)state;
    struct pp_plan *plan = build(&(struct shape){"gpipe", 1, 1, 5, 4, PP_CHECKPOINT_NEVER});
    struct pp_task *w = find(plan, PP_W, 0), *last = find(plan, PP_W, 4);
    w->count = 3;
    expect_bad(plan, "microbatch 3 is missing");
    w->count = 5;
    expect_bad(plan, "before its I");
    w->count = 9;
    expect_bad(plan, "wrong number of microbatches");
    w->count = 4;
    last->flags |= PP_TASK_FIRST;
    expect_bad(plan, "overwrites earlier gradients");
    last->flags &= (uint8_t)~PP_TASK_FIRST;
    w->flags &= (uint8_t)~PP_TASK_FIRST;
    expect_bad(plan, "nothing has written");
    w->flags |= PP_TASK_FIRST;
    plan->classes[w->cls].adds = true;
    expect_bad(plan, "its cost class uses gradients in another way");
    plan->classes[w->cls].adds = false;
    assert_int_equal(pp_plan_check(plan), PP_OK);
    pp_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_schedules), cmocka_unit_test(test_places),
                                       cmocka_unit_test(test_slots), cmocka_unit_test(test_broken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
