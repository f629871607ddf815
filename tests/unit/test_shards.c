/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans whose replicas keep shares of gradients, or of parameters, too: what they gather, and plans that are broken on
 * purpose.
 */
#include "schedules/schedule.h"
#include "tests/unit/plan_case.h"

enum { MOST_STAGES = 16 };

static struct pp_plan_spec shards_of(const char *schedule, int p, int v, int m, int *parts, int layers)
{
    struct pp_plan_spec spec = spec_of(schedule, p, v, m);
    for (int s = 0; s < p * v; s++) parts[s] = layers;
    spec.replicas = 2;
    spec.zero = PP_ZERO_PARAMETERS;
    spec.parts = parts;
    return spec;
}

static int count(const struct pp_plan *plan, int kind)
{
    int n = 0;
    for (int64_t i = 0; i < plan->ntasks; i++) n += plan->tasks[i].kind == kind;
    return n;
}

/* What two slots have to gather for a rank that reads parts one after the other, each into the slot that is not read:
 * the rank's own order of computations, as the plan has it. */
static int gathers_needed(const struct pp_plan *plan, int rank)
{
    int held[2] = {-1, -1}, reading = -1, n = 0;
    for (int64_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *t = &plan->tasks[i];
        const struct pp_class *cls = &plan->classes[t->cls];
        const int parts = cls->parts > 1 ? cls->parts : 1, part = t->kind == PP_B ? parts - 1 - cls->part : cls->part;
        const int unit = t->stage * 1000 + part;
        if (t->lane != rank || (t->kind != PP_F && t->kind != PP_B && t->kind != PP_R)) continue;
        if (held[0] != unit && held[1] != unit) held[reading == 0] = unit, n++;
        reading = held[0] == unit ? 0 : 1;
    }
    return n;
}

static int rank_stages(const struct pp_schedule *schedule) { return schedule->virtual_stages == PP_ONE_STAGE ? 1 : 2; }

/* Those that cut backwards cannot share gradients. */
static bool has_whole_backwards(const struct pp_schedule *schedule)
{
    const struct pp_plan_spec spec = spec_of(schedule->name, 2, rank_stages(schedule), 4);
    struct pp_plan *plan = build(&spec);
    const bool whole = !plan->split_backward;
    pp_plan_free(plan);
    return whole;
}

static void check_plan(const struct pp_plan_spec *spec, int layers)
{
    struct pp_plan *plan = build(spec);
    const int all = plan->stages * plan->microbatches * layers;
    int needed = 0;
    if (pp_plan_check(plan) != PP_OK) fail_msg("%s: %s", spec->schedule, pp_message());
    for (int r = 0; r < plan->ranks; r++) needed += gathers_needed(plan, r);
    assert_int_equal(count(plan, PP_GATHER_PARAM), needed);
    assert_int_equal(count(plan, PP_PUT_PARAM), needed);
    assert_int_equal(count(plan, PP_F), all);
    for (int i = 0; i < 3 && plan->training; i++)
        assert_int_equal(count(plan, (const int[]){PP_B, PP_REDUCE_GRAD, PP_ADD_GRAD}[i]), all);
    for (int i = 0; i < plan->npools; i++)
        if (plan->pools[i].kind == PP_POOL_PARAM || plan->pools[i].kind == PP_POOL_GRAD)
            assert_true(plan->pools[i].slots <= 2);
    pp_plan_free(plan);
}

static void check_shapes(const struct pp_schedule *schedule)
{
    int parts[MOST_STAGES];
    for (int p = 1; p <= 4; p *= 2)
        for (int layers = 1; layers <= 3; layers++)
            for (int checkpoint = 0; checkpoint < PP_CHECKPOINTS; checkpoint++) {
                struct pp_plan_spec spec = shards_of(schedule->name, p, rank_stages(schedule), 4, parts, layers);
                spec.checkpoint = checkpoint;
                check_plan(&spec, layers);
                spec.training = false;
                check_plan(&spec, layers);
            }
}

static void test_shapes(void **state)
{
    (void)state;
    const struct pp_schedule *schedule;
    int checked = 0;
    for (int i = 0; (schedule = pp_schedule_at(i)); i++)
        if (has_whole_backwards(schedule)) check_shapes(schedule), checked++;
    assert_true(checked >= 5); /* gpipe, 1f1b, 1f1b-eager, interleaved, bfs, and what comes later */
}

/* Of gradients alone: backwards are cut, and each part of each is summed; parameters are gathered once, behind their
 * step or before the first forward. */
static void test_gradients_alone(void **state)
{
    (void)state;
    int parts[MOST_STAGES];
    for (int i = 0; pp_schedule_at(i / 2); i++) {
        const struct pp_schedule *schedule = pp_schedule_at(i / 2);
        const bool first = i % 2;
        if (!has_whole_backwards(schedule)) continue;
        struct pp_plan_spec spec = shards_of(schedule->name, 2, rank_stages(schedule), 4, parts, 3);
        spec.zero = PP_ZERO_GRADIENTS;
        spec.gather_first = first;
        struct pp_plan *plan = build(&spec);
        const int cells = plan->stages * plan->microbatches;
        if (pp_plan_check(plan) != PP_OK) fail_msg("%s: %s", schedule->name, pp_message());
        assert_int_equal(pp_plan_zero(plan), 2);
        assert_int_equal(count(plan, PP_F), cells + (first ? 2 * plan->stages : 0));
        assert_int_equal(count(plan, PP_B), 3 * cells);
        assert_int_equal(count(plan, PP_REDUCE_GRAD), 3 * cells);
        assert_int_equal(count(plan, PP_ADD_GRAD), 3 * cells);
        assert_int_equal(count(plan, PP_PUT_PARAM), 0);
        assert_int_equal(count(plan, PP_GATHER_PARAM), plan->stages * (first ? 3 : 1));
        for (int p = 0; p < plan->npools; p++) assert_true(plan->pools[p].kind != PP_POOL_PARAM);
        pp_plan_free(plan);
        spec.training = false;
        plan = build(&spec);
        assert_int_equal(pp_plan_zero(plan), 0);
        assert_int_equal(pp_plan_check(plan), PP_OK);
        pp_plan_free(plan);
    }
}

/* One part on each rank is gathered once in a step; two that are used by turns, too. */
static void test_kept(void **state)
{
    (void)state;
    int parts[MOST_STAGES];
    for (int layers = 1; layers <= 3; layers++) {
        const struct pp_plan_spec spec = shards_of("1f1b", 2, 1, 4, parts, layers);
        struct pp_plan *plan = build(&spec);
        const int gathers = count(plan, PP_GATHER_PARAM);
        if (layers < 3) assert_int_equal(gathers, 2 * layers);
        if (layers == 3) assert_true(gathers > 2 * layers);
        pp_plan_free(plan);
    }
}

static void test_cut_backwards(void **state)
{
    (void)state;
    int parts[MOST_STAGES];
    struct pp_plan_spec spec = shards_of("zb-h1", 2, 1, 4, parts, 2);
    struct pp_plan *plan;
    assert_int_equal(pp_plan_build(&spec, &plan), PP_USAGE);
    assert_non_null(strstr(pp_message(), "zb-h1 cuts backwards"));
    spec = shards_of("1f1b", 2, 1, 4, parts, 2);
    spec.batch_w = 2;
    assert_int_equal(pp_plan_build(&spec, &plan), PP_USAGE);
    assert_non_null(strstr(pp_message(), "--zero 3: --batch-w cuts backwards"));
    spec.zero = PP_ZERO_GRADIENTS;
    assert_int_equal(pp_plan_build(&spec, &plan), PP_USAGE);
    assert_non_null(strstr(pp_message(), "--zero 2: --batch-w cuts backwards"));
}

static struct pp_task *nth(struct pp_plan *plan, int kind, int n)
{
    for (int64_t i = 0; i < plan->ntasks; i++)
        if (plan->tasks[i].kind == kind && n-- == 0) return &plan->tasks[i];
    fail();
    return NULL;
}

/* What the check says of the plan as it is; then good is put back. */
static void expect_bad(struct pp_plan *plan, struct pp_task *task, struct pp_task good, const char *text)
{
    const pp_status status = pp_plan_check(plan);
    *task = good;
    if (status != PP_INPUT || !strstr(pp_message(), text))
        fail_msg("%d, \"%s\", not \"%s\"", status, pp_message(), text);
}

#define BROKEN_ONCE(task, change, text)                                                                                \
    do {                                                                                                               \
        const struct pp_task good = *(task);                                                                           \
        change;                                                                                                        \
        expect_bad(plan, task, good, text);                                                                            \
    } while (0)
#define BROKEN(task, change, text)                                                                                     \
    do {                                                                                                               \
        BROKEN_ONCE(task, change, text);                                                                               \
        assert_int_equal(pp_plan_check(plan), PP_OK);                                                                  \
    } while (0)

/* Of gradients alone, too. */
static void test_broken_gradients(void **state)
{
    (void)state;
    int parts[MOST_STAGES];
    struct pp_plan_spec spec = shards_of("gpipe", 1, 1, 2, parts, 3);
    spec.zero = PP_ZERO_GRADIENTS;
    struct pp_plan *plan = build(&spec);
    struct pp_task *backward = nth(plan, PP_B, 1), *sum = nth(plan, PP_REDUCE_GRAD, 1),
                   *add = nth(plan, PP_ADD_GRAD, 1);
    BROKEN(backward, backward->flags ^= PP_TASK_SECOND, "it writes a slot that may still be in use");
    BROKEN(sum, sum->in = -1, "it has no slot for gradients");
    BROKEN(sum, sum->cls = nth(plan, PP_REDUCE_GRAD, 2)->cls, "it sums gradients before they are made");
    BROKEN(add, add->dep[0] = -1, "it takes gradients before they are summed");
    BROKEN(add, add->flags ^= PP_TASK_FIRST, "it adds to gradients that nothing has written");
    pp_plan_free(plan);
}

static void test_broken(void **state)
{
    (void)state;
    int parts[MOST_STAGES];
    const struct pp_plan_spec spec = shards_of("gpipe", 1, 1, 2, parts, 3);
    struct pp_plan *plan = build(&spec);
    struct pp_task *put = nth(plan, PP_PUT_PARAM, 1), *gather = nth(plan, PP_GATHER_PARAM, 1);
    struct pp_task *forward = nth(plan, PP_F, 1), *backward = nth(plan, PP_B, 1);
    struct pp_task *sum = nth(plan, PP_REDUCE_GRAD, 1), *add = nth(plan, PP_ADD_GRAD, 1);
    struct pp_task *again = nth(plan, PP_ADD_GRAD, 3);
    static const char in_use[] = "it writes a slot that may still be in use";
    BROKEN(forward, forward->dep[2] = -1, in_use);
    BROKEN(forward, forward->dep[2] = nth(plan, PP_F, 0)->dep[2], in_use);
    BROKEN(put, put->out = -1, "an edge to it from the step before is missing");
    BROKEN(put, put->out ^= 1, in_use);
    BROKEN(put, put->cls = nth(plan, PP_PUT_PARAM, 2)->cls, "of which the rank has not put its own");
    BROKEN(gather, gather->dep[0] = -1, in_use);
    BROKEN(gather, gather->cls = nth(plan, PP_GATHER_PARAM, 2)->cls, "of which the rank has not put its own");
    BROKEN(backward, backward->flags ^= PP_TASK_SECOND, in_use);
    BROKEN(sum, sum->dep[0] = -1, "it sums gradients before they are made");
    BROKEN(sum, sum->in = -1, "it has no slot for gradients");
    BROKEN(sum, sum->cls = nth(plan, PP_REDUCE_GRAD, 2)->cls, "it sums gradients before they are made");
    BROKEN(add, add->dep[0] = -1, "it takes gradients before they are summed");
    BROKEN(add, add->cls = nth(plan, PP_ADD_GRAD, 2)->cls, "it takes gradients before they are summed");
    BROKEN(add, add->flags ^= PP_TASK_FIRST, "it adds to gradients that nothing has written");
    BROKEN(again, again->flags ^= PP_TASK_FIRST, "it overwrites earlier gradients");
    struct pp_task *last = nth(plan, PP_ADD_GRAD, 5);
    BROKEN(last, (last->kind = PP_PUT_PARAM, last->cls = put->cls, last->out = put->out, last->dep[0] = -1),
           "it does not wait for all of its stage's gradients");
    /* Those of another part are put and gathered. */
    const int32_t cls = gather->cls;
    gather->cls = nth(plan, PP_GATHER_PARAM, 2)->cls;
    BROKEN_ONCE(put, put->cls = nth(plan, PP_PUT_PARAM, 2)->cls, "it does not wait for its parameters");
    gather->cls = cls;
    assert_int_equal(pp_plan_check(plan), PP_OK);
    pp_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_gradients_alone),
                                       cmocka_unit_test(test_kept),   cmocka_unit_test(test_cut_backwards),
                                       cmocka_unit_test(test_broken), cmocka_unit_test(test_broken_gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
