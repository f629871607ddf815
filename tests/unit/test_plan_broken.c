/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that are broken on purpose: pp_plan_check() names what is wrong, and where.
 */
#include "tests/unit/plan_case.h"

/* Breaks a copy of a good plan in one place; the check must name it. */
static void expect_bad(struct pp_plan *plan, int32_t *field, int32_t value, const char *text)
{
    int32_t good = *field;
    *field = value;
    pp_status status = pp_plan_check(plan);
    *field = good;
    assert_int_equal(status, PP_INPUT);
    if (!strstr(pp_message(), text)) fail_msg("\"%s\" does not contain \"%s\"", pp_message(), text);
    assert_int_equal(pp_plan_check(plan), PP_OK);
}

static int32_t find(const struct pp_plan *plan, int kind, int stage, int microbatch)
{
    for (int64_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *t = &plan->tasks[i];
        if (t->kind == kind && t->stage == stage && t->microbatch == microbatch) return (int32_t)i;
    }
    fail();
    return -1;
}

static void test_broken(void **state)
{
    (void)state;
    const struct pp_plan_spec spec = spec_of("1f1b", 2, 1, 4);
    struct pp_plan *plan = build(&spec);
    struct pp_task *f = &plan->tasks[find(plan, PP_F, 1, 2)], *b = &plan->tasks[find(plan, PP_B, 0, 1)];
    struct pp_task *x = &plan->tasks[find(plan, PP_XFER_F, 0, 3)];
    expect_bad(plan, &f->microbatch, 1, "rank 1");
    expect_bad(plan, &f->dep[0], -1, "nothing delivers");
    expect_bad(plan, &f->dep[0], find(plan, PP_XFER_F, 0, 1), "another stage or microbatch");
    expect_bad(plan, &b->dep[0], (int32_t)plan->ntasks - 1, "cycle");
    expect_bad(plan, &b->stage, 1, "another rank");
    expect_bad(plan, &x->lane, 0, "another kind");
    expect_bad(plan, &x->dep[1], -1, "may still be in use");
    expect_bad(plan, &f->cls, 1000, "cost class");
    expect_bad(plan, &f->stage, -1, "out of range");
    expect_bad(plan, &b->microbatch, -1, "out of range");
    expect_bad(plan, &x->stage, -1, "out of range");
    /* Swap two transfers in the receiver's list only. */
    int32_t *issue = NULL, *second = NULL;
    for (int64_t i = plan->issue_start[1]; i < plan->issue_start[2]; i++) {
        if (!pp_issue_is_recv(plan->issue[i])) continue;
        if (!issue)
            issue = &plan->issue[i];
        else if (!second)
            second = &plan->issue[i];
    }
    int32_t first = *issue;
    *issue = *second;
    *second = first;
    assert_int_equal(pp_plan_check(plan), PP_INPUT);
    assert_non_null(strstr(pp_message(), "deadlock"));
    pp_plan_free(plan);
}

/* A plan with slots of two parts: those of the last stage have an end. */
static void test_broken_acts(void **state)
{
    (void)state;
    int64_t bytes[4][PP_ACT_PARTS] = {{100}, {100}, {100}, {100, 0, 50}};
    struct pp_plan_spec spec = spec_of("interleaved", 2, 2, 4);
    spec.act_bytes[0] = bytes;
    struct pp_plan *plan = build(&spec);
    struct pp_task *f = &plan->tasks[find(plan, PP_F, 3, 0)], *other = &plan->tasks[find(plan, PP_F, 0, 0)];
    int32_t *act = plan->acts[f->act];
    assert_int_equal(pp_plan_check(plan), PP_OK);
    assert_true(act[PP_ACT_LAYERS] >= 0 && act[PP_ACT_MORE] < 0 && act[PP_ACT_ENDS] >= 0);
    assert_true(plan->acts[other->act][PP_ACT_ENDS] < 0);
    expect_bad(plan, &f->act, plan->nacts, "activation slot out of range");
    expect_bad(plan, &act[PP_ACT_LAYERS], -1, "no slots for its parts");
    expect_bad(plan, &act[PP_ACT_ENDS], plan->nslots, "no slots for its parts");
    expect_bad(plan, &act[PP_ACT_ENDS], act[PP_ACT_LAYERS], "no slots for its parts");
    expect_bad(plan, &act[PP_ACT_ENDS], plan->acts[other->act][PP_ACT_LAYERS], "no slots for its parts");
    expect_bad(plan, &act[PP_ACT_ENDS], f->in, "no slots for its parts");
    pp_plan_free(plan);
}

static int32_t lane_of(const struct pp_plan *plan, int kind)
{
    int32_t lane = 0;
    while (lane < plan->nlanes && plan->lanes[lane].kind != kind) lane++;
    assert_in_range(lane, 0, plan->nlanes - 1);
    return lane;
}

/* What all other checks take for granted. */
static void test_broken_ranks(void **state)
{
    (void)state;
    static const int stage_rank[] = {0, 0};
    struct pp_order orders[2] = {0};
    struct pp_plan_spec spec = spec_of("1f1b", 2, 1, 4);
    spec.replicas = 2;
    spec.zero = PP_ZERO_OPTIMIZER;
    struct pp_plan *plan = build(&spec);
    expect_bad(plan, &plan->stage_rank[1], 2, "stage 1 lives on rank 2 of 2");
    expect_bad(plan, &plan->stage_rank[0], -1, "stage 0 lives on rank -1 of 2");
    expect_bad(plan, &plan->stage_rank[1], 0, "rank 1 has no stage");
    expect_bad(plan, &plan->ranks, 0, "0 ranks");
    expect_bad(plan, &plan->stages, 0, "0 stages");
    expect_bad(plan, &plan->microbatches, 0, "0 microbatches");
    expect_bad(plan, &plan->nlanes, 1, "1 lanes");
    expect_bad(plan, &plan->lanes[1].src, 0, "lane 1, ");
    expect_bad(plan, &plan->lanes[1].kind, PP_LANE_REDUCE, "lane 1, ");
    expect_bad(plan, &plan->lanes[lane_of(plan, PP_LANE_REDUCE)].kind, PP_LANE_COMPUTE, "is not at its place");
    expect_bad(plan, &plan->lanes[lane_of(plan, PP_LANE_REDUCE)].dst, 1000000000, "to rank 1000000000");
    expect_bad(plan, &plan->tasks[find(plan, PP_NORM, 1, -1)].dep[0], -1, "it does not wait for the sum");
    expect_bad(plan, &plan->issue[3], 2000000000, "an issue list has task 1000000000");
    pp_plan_free(plan);
    /* Orders in which one rank has nothing to do. */
    for (int s = 0; s < 2; s++) assert_int_equal(pp_order_add(&orders[0], PP_F, s, 0), PP_OK);
    for (int s = 1; s >= 0; s--) assert_int_equal(pp_order_add(&orders[0], PP_B, s, 0), PP_OK);
    spec.microbatches = spec.replicas = 1;
    spec.zero = PP_ZERO_NONE;
    assert_int_equal(pp_plan_build_orders(&spec, orders, stage_rank, &plan), PP_OK);
    plan->zero = true;
    assert_int_equal(pp_plan_check(plan), PP_INPUT);
    assert_string_equal(pp_message(), "the plan is wrong: rank 1 has no stage");
    pp_plan_free(plan);
    free(orders[0].ops);
}

/* A rank that lacks its part in what all do together is named. */
static void test_broken_collective(void **state)
{
    (void)state;
    const struct pp_plan_spec spec = spec_of("1f1b", 2, 1, 4);
    struct pp_plan *plan = build(&spec);
    const int32_t norm = find(plan, PP_NORM_ALL, -1, -1);
    int32_t *entry = &plan->issue[plan->issue_start[1]];
    while (pp_issue_task(*entry) != norm) entry++;
    expect_bad(plan, entry, pp_issue_entry(&plan->lanes[0], find(plan, PP_NORM, 1, -1), 0), "rank 0, task ");
    expect_bad(plan, &plan->tasks[norm].dep[0], norm, "all ranks, task ");
    pp_plan_free(plan);
}

/* The global norm is of all ranks, and no step is done before it is known. */
static void test_broken_norm(void **state)
{
    (void)state;
    const struct pp_plan_spec spec = spec_of("1f1b", 3, 1, 4);
    struct pp_plan *plan = build(&spec);
    const int32_t norm = find(plan, PP_NORM_ALL, -1, -1), last = find(plan, PP_STEP, 2, -1);
    struct pp_task *all = &plan->tasks[norm];
    expect_bad(plan, &all->dep[0], find(plan, PP_NORM, 1, -1), "it does not wait for all norms");
    expect_bad(plan, &all->dep[1], find(plan, PP_NORM, 1, -1), "it does not wait for all norms");
    all->flags = 0;
    assert_int_equal(pp_plan_check(plan), PP_INPUT);
    assert_non_null(strstr(pp_message(), "it does not wait for all norms"));
    all->flags = PP_TASK_DEP_RANGE;
    for (int s = 0; s < 3; s++) {
        int32_t *dep = plan->tasks[find(plan, PP_STEP, s, -1)].dep;
        expect_bad(plan, dep, -1, "it does not wait for the norm of all");
        expect_bad(plan, dep, norm - 1, "it does not wait for the norm of all");
    }
    const struct pp_task good = plan->tasks[last];
    plan->tasks[last] = *all;
    assert_int_equal(pp_plan_check(plan), PP_INPUT);
    assert_non_null(strstr(pp_message(), "done twice"));
    plan->tasks[last] = plan->tasks[find(plan, PP_NORM, 2, -1)];
    assert_int_equal(pp_plan_check(plan), PP_INPUT);
    assert_non_null(strstr(pp_message(), "it comes behind the norm of all"));
    plan->tasks[last] = good;
    assert_int_equal(pp_plan_check(plan), PP_OK);
    pp_plan_free(plan);
}

/* The first forward of a stage rounds its weights, and no other task. */
static void test_broken_rounding(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("interleaved", 2, 2, 4);
    spec.rounds_weights = true;
    struct pp_plan *plan = build(&spec);
    assert_int_equal(pp_plan_check(plan), PP_OK);
    for (int stage = 0; stage < 4; stage++) {
        int32_t *first = &plan->tasks[find(plan, PP_F, stage, 0)].cls,
                *second = &plan->tasks[find(plan, PP_F, stage, 1)].cls;
        assert_true(plan->classes[*first].rounds && !plan->classes[*second].rounds);
        expect_bad(plan, first, *second, "it does not round its stage's weights");
        expect_bad(plan, second, *first, "it rounds weights once more");
    }
    plan->rounds_weights = false;
    assert_int_equal(pp_plan_check(plan), PP_INPUT);
    assert_non_null(strstr(pp_message(), "it rounds weights once more"));
    pp_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken),       cmocka_unit_test(test_broken_acts),
        cmocka_unit_test(test_broken_ranks), cmocka_unit_test(test_broken_collective),
        cmocka_unit_test(test_broken_norm),  cmocka_unit_test(test_broken_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
