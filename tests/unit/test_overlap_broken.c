/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans with parts that are broken on purpose.
 */
#include "tests/unit/overlap_case.h"

/* What the check says of the plan as it is; then good is put back. */
static void expect_bad(struct pp_plan *plan, struct pp_task *task, struct pp_task good, const char *text)
{
    const pp_status status = pp_plan_check(plan);
    *task = good;
    if (status != PP_INPUT || !strstr(pp_message(), text))
        fail_msg("%d, \"%s\", not \"%s\"", status, pp_message(), text);
    assert_int_equal(pp_plan_check(plan), PP_OK);
}

#define BROKEN(task, change, text)                                                                                     \
    do {                                                                                                               \
        const struct pp_task good = *(task);                                                                           \
        change;                                                                                                        \
        expect_bad(plan, task, good, text);                                                                            \
    } while (0)

static void break_parts(struct pp_plan *plan, int kind)
{
    static const char between[] = "it comes between two parts of another task", another[] = "it is another part";
    static const char parameters[] = "it does not wait for its parameters";
    struct pp_task *t[3];
    for (int i = 0; i < 3; i++) t[i] = &plan->tasks[part_task(plan, kind, 0, i, 3)];
    BROKEN(t[0], t[0]->flags &= (uint8_t)~PP_TASK_MORE, another);
    BROKEN(t[1], t[1]->flags &= (uint8_t)~PP_TASK_MORE, another);
    BROKEN(t[2], t[2]->flags |= PP_TASK_MORE, another);
    BROKEN(t[0], t[0]->cls = t[1]->cls, another);
    BROKEN(t[1], t[1]->cls = t[2]->cls, another);
    BROKEN(t[2], t[2]->cls = t[1]->cls, another);
    BROKEN(t[1], t[1]->cls = plan->tasks[t[0]->dep[2] < 0 ? 0 : t[0]->dep[2]].cls, "a cost class of another kind");
    BROKEN(t[1], t[1]->in = 0, "in the middle");
    if (kind == PP_F) {
        BROKEN(t[0], t[0]->dep[2] = -1, parameters);
        BROKEN(t[1], t[1]->dep[2]--, parameters);
        BROKEN(t[2], t[2]->dep[2] = -1, parameters);
    }
    BROKEN(t[1], t[1]->microbatch ^= 1, between);
    BROKEN(t[1], t[1]->act = t[1]->act > 0 ? t[1]->act - 1 : t[1]->act + 1, between);
    BROKEN(t[2], t[2]->ckpt++, between);
    BROKEN(t[2], t[2]->count++, between);
    BROKEN(t[2], t[2]->kind = kind == PP_F ? PP_B : PP_F, "a cost class of another kind");
    if (kind != PP_F) BROKEN(t[1], t[1]->flags ^= PP_TASK_FIRST, between);
}

static struct pp_task *task_of(struct pp_plan *plan, int kind, int stage, int part)
{
    return &plan->tasks[part_task(plan, kind, stage, part, some_parts[stage])];
}

static void break_sums(struct pp_plan *plan, int kind)
{
    static const char early[] = "it sums gradients before they are made";
    struct pp_task *sum = task_of(plan, PP_REDUCE_GRAD, 0, 1), *whole = task_of(plan, PP_REDUCE_GRAD, 1, 0);
    BROKEN(sum, sum->flags |= PP_TASK_MORE, "it has no parts");
    BROKEN(sum, sum->dep[0] = -1, early);
    BROKEN(sum, sum->dep[0] = part_task(plan, kind, 0, 0, 3), early);
    BROKEN(sum, sum->dep[0] = part_task(plan, kind, 0, 2, 3), "a cycle");
    /* In its place something else is done. */
    const struct pp_task *gather = task_of(plan, PP_GATHER_PARAM, 0, 1);
    BROKEN(sum, (sum->kind = gather->kind, sum->cls = gather->cls), "it is another part");
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        if (t->kind != kind || t->stage != 1 || id == whole->dep[0]) continue;
        BROKEN(whole, whole->dep[0] = id, early);
        return;
    }
    fail();
}

/* Each edge into the next step is needed: of slots, and of parameters, however they are gathered. */
static void test_broken_wraps(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct pp_plan_spec spec = spec_of("1f1b", 3, 1, 4);
        spec.zero = PP_ZERO_OPTIMIZER;
        spec.gather_first = first;
        struct pp_plan *plan = build_plan(&spec);
        for (int i = 0; i < plan->nwraps; i++) {
            const struct pp_wrap good = plan->wraps[i];
            plan->wraps[i] = (struct pp_wrap){0, 0};
            assert_int_equal(pp_plan_check(plan), PP_INPUT);
            assert_non_null(strstr(pp_message(), "an edge to it from the step before is missing"));
            plan->wraps[i] = good;
        }
        assert_int_equal(pp_plan_check(plan), PP_OK);
        pp_plan_free(plan);
    }
}

static void test_broken(void **state)
{
    (void)state;
    static const char *const schedules[] = {"1f1b", "zb-h1"};
    for (int i = 0; i < 2; i++) {
        struct pp_plan_spec spec = spec_of(schedules[i], 3, 1, 4);
        spec.gather_first = true;
        spec.zero = PP_ZERO_OPTIMIZER;
        struct pp_plan *plan = build_plan(&spec);
        const int kind = i ? PP_W : PP_B;
        struct pp_task *last = task_of(plan, kind, 0, 2), *gather = task_of(plan, PP_GATHER_PARAM, 0, 1);
        break_parts(plan, PP_F);
        break_parts(plan, kind);
        break_sums(plan, kind);
        BROKEN(last, last->flags |= PP_TASK_MORE, "it is another part");
        BROKEN(gather, gather->flags |= PP_TASK_MORE, "it has no parts");
        pp_plan_free(plan);
        spec.optimizer = false; /* the rank does nothing behind its last backward */
        plan = build_plan(&spec);
        const int64_t all = plan->ntasks;
        plan->ntasks = task_of(plan, kind, 0, 2) - plan->tasks;
        assert_int_equal(pp_plan_check(plan), PP_INPUT);
        assert_non_null(strstr(pp_message(), "its next part is missing"));
        plan->ntasks = all;
        pp_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken), cmocka_unit_test(test_broken_wraps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
