/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of tied embeddings that are broken on purpose, and lists in other orders.
 */
#include "tests/unit/overlap_case.h"

static struct pp_plan *tied_plan(const char *schedule, int p, int v, int replicas, bool clip)
{
    struct pp_plan_spec spec = spec_of(schedule, p, v, 4);
    spec.parts = NULL;
    spec.replicas = replicas;
    spec.clip = clip;
    spec.tied = true;
    return build_plan(&spec);
}

static int32_t find(const struct pp_plan *plan, int kind, int stage)
{
    int32_t found = -1;
    for (int32_t id = 0; id < plan->ntasks; id++)
        if (plan->tasks[id].kind == kind && plan->tasks[id].stage == stage) found = id;
    if (found < 0) fail_msg("there is no %s of stage %d", pp_kinds[kind].name, stage);
    return found;
}

static void expect_bad(const struct pp_plan *plan, const char *text)
{
    const pp_status status = pp_plan_check(plan);
    if (status != PP_INPUT || !strstr(pp_message(), text))
        fail_msg("%d, \"%s\", not \"%s\"", status, pp_message(), text);
}

/* What the check says after a change of one task, which is taken back. */
#define BROKEN(id, change, text)                                                                                       \
    do {                                                                                                               \
        struct pp_task *const t = &plan->tasks[id], good = *t;                                                         \
        change;                                                                                                        \
        expect_bad(plan, text);                                                                                        \
        *t = good;                                                                                                     \
        assert_int_equal(pp_plan_check(plan), PP_OK);                                                                  \
    } while (0)

static const char early[] = "it sums gradients before they are made",
                  another_lane[] = "it runs on a lane of another kind";

/* It waits for the last gradients of both stages, summed over replicas if there are several. */
static void test_inputs(void **state)
{
    (void)state;
    for (int replicas = 1; replicas <= 2; replicas++) {
        struct pp_plan *plan = tied_plan("1f1b", 3, 1, replicas, true);
        const int32_t sum = find(plan, PP_REDUCE_TIED, 0);
        for (int i = 0; i < 2; i++) {
            const int stage = i * (plan->stages - 1);
            BROKEN(sum, t->dep[i] = -1, early);
            BROKEN(sum, t->dep[i] = t->dep[!i], early);
            BROKEN(sum, t->dep[i] = find(plan, PP_F, stage), early);
            if (replicas > 1) BROKEN(sum, t->dep[i] = find(plan, PP_B, stage), early);
        }
        pp_plan_free(plan);
    }
}

/* Where replicas share in groups, over these: whatever the plan lacks is missed. */
static void test_groups(void **state)
{
    (void)state;
    for (int shards = 0; shards < 2; shards++) {
        struct pp_plan_spec spec = spec_of("1f1b", 2, 1, 4);
        spec.parts = NULL;
        spec.replicas = 4;
        spec.tied = spec.clip = true;
        spec.zero = shards ? PP_ZERO_GRADIENTS : PP_ZERO_OPTIMIZER;
        struct pp_plan *plan = build_plan(&spec);
        assert_int_equal(pp_plan_check(plan), PP_OK);
        plan->shard_group = 2; /* nothing is summed over groups */
        expect_bad(plan, shards ? "it does not wait for all of its stage's gradients" : early);
        pp_plan_free(plan);
        spec.shard_group = 2;
        plan = build_plan(&spec);
        const int32_t sum = find(plan, PP_REDUCE_TIED, 0), made = find(plan, shards ? PP_ADD_GRAD : PP_REDUCE_GRAD, 0);
        BROKEN(sum, t->dep[0] = made, early);
        pp_plan_free(plan);
    }
}

/* NORM waits for it, or STEP where nothing is clipped, of these two stages alone; others for their sum. */
static void test_outputs(void **state)
{
    (void)state;
    static const char unshared[] = "it does not wait for the gradient that its stage shares";
    for (int clip = 0; clip < 2; clip++) {
        struct pp_plan *plan = tied_plan("interleaved", 2, 2, 2, clip);
        const int kind = clip ? PP_NORM : PP_STEP;
        for (int stage = 0; stage < plan->stages; stage += plan->stages - 1) {
            BROKEN(find(plan, kind, stage), t->dep[0] = -1, unshared);
            BROKEN(find(plan, kind, stage), t->dep[0] = find(plan, PP_REDUCE_GRAD, stage), unshared);
        }
        BROKEN(find(plan, kind, 1), t->dep[0] = -1, "it does not wait for the sum of its stage's gradients");
        pp_plan_free(plan);
    }
}

/* Once, behind all gradients of the two stages, and by their ranks. */
static void test_place(void **state)
{
    (void)state;
    struct pp_plan *plan = tied_plan("1f1b", 3, 1, 2, true);
    const int32_t sum = find(plan, PP_REDUCE_TIED, 0), norm = find(plan, PP_NORM, 1);
    struct pp_lane *lane = &plan->lanes[plan->tasks[sum].lane];
    BROKEN(norm, *t = plan->tasks[sum], "done twice");
    for (int stage = 0; stage < 3; stage += 2)
        BROKEN(norm, *t = plan->tasks[find(plan, PP_REDUCE_GRAD, stage)], "it is another part");
    for (int end = 0; end < 2; end++) {
        int32_t *const rank = end ? &lane->dst : &lane->src, good = *rank;
        for (int wrong = 1; wrong < 100; wrong += 98) { /* a rank between them, none */
            *rank = wrong;
            expect_bad(plan, wrong < 3 ? "its lane does not join the first and the last stage" : "is not at its place");
        }
        *rank = good;
    }
    BROKEN(sum, t->stage = 2, "a cost class of another kind or stage");
    plan->classes[plan->tasks[sum].cls].stage = plan->tasks[sum].stage = 2;
    expect_bad(plan, early);
    pp_plan_free(plan);
}

/* The sum of tied gradients comes behind those over replicas. */
static void test_late(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("zbv", 2, 2, 4);
    spec.parts = NULL;
    spec.tied = true;
    spec.zero = PP_ZERO_OPTIMIZER;
    struct pp_plan *plan = build_plan(&spec); /* stage 0 is gathered behind stage 3, which the next step waits for */
    struct pp_task *sum = &plan->tasks[find(plan, PP_REDUCE_GRAD, 3)],
                   *tied = &plan->tasks[find(plan, PP_REDUCE_TIED, 0)],
                   *gather = &plan->tasks[find(plan, PP_GATHER_PARAM, 3)];
    const int32_t made = sum->dep[0], cls = sum->cls;
    tied->dep[1] = made;
    sum->kind = PP_GATHER_PARAM;
    sum->cls = gather->cls;
    gather->kind = PP_REDUCE_GRAD;
    gather->cls = cls;
    gather->dep[0] = made;
    expect_bad(plan, "it makes gradients that are summed already");
    pp_plan_free(plan);
}

/* Of a stage between the two. */
static void test_another(void **state)
{
    (void)state;
    struct pp_plan *plan = tied_plan("1f1b", 3, 1, 2, true);
    struct pp_task *another = &plan->tasks[find(plan, PP_NORM, 1)];
    const int32_t cls = another->cls;
    *another = plan->tasks[find(plan, PP_REDUCE_TIED, 0)];
    another->cls = cls;
    plan->classes[cls].kind = another->kind;
    plan->classes[cls].stage = another->stage = 1;
    expect_bad(plan, "done twice");
    pp_plan_free(plan);
}

static void test_missing(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("1f1b", 3, 1, 4);
    spec.optimizer = false;
    struct pp_plan *plan = build_plan(&spec);
    plan->tied = true;
    expect_bad(plan, "the sum of tied gradients is missing");
    pp_plan_free(plan);
}

static void test_lanes(void **state)
{
    (void)state;
    struct pp_plan *plan = tied_plan("zbv", 2, 2, 2, true);
    const int32_t sum = find(plan, PP_REDUCE_TIED, 0), all = find(plan, PP_NORM_ALL, -1),
                  reduce = find(plan, PP_REDUCE_GRAD, 0);
    const int32_t lanes[] = {plan->tasks[all].lane, plan->tasks[reduce].lane, 0, plan->ranks};
    for (int i = 0; i < 4; i++) BROKEN(sum, t->lane = lanes[i], another_lane);
    BROKEN(all, t->lane = plan->tasks[sum].lane, another_lane);
    BROKEN(reduce, t->lane = plan->tasks[sum].lane, another_lane);
    BROKEN(find(plan, PP_STEP, 0), t->lane = plan->tasks[sum].lane, another_lane);
    plan->tied = false;
    expect_bad(plan, another_lane);
    pp_plan_free(plan);
}

/* The place of a rank's entry of the kind, the last one. */
static int64_t entry_of(const struct pp_plan *plan, int rank, int kind)
{
    for (int64_t i = plan->issue_start[rank + 1] - 1; i >= plan->issue_start[rank]; i--)
        if (plan->tasks[pp_issue_task(plan->issue[i])].kind == kind) return i;
    fail_msg("rank %d issues no %s", rank, pp_kinds[kind].name);
    return -1;
}

static void swap(struct pp_plan *plan, int64_t a, int64_t b)
{
    const int32_t entry = plan->issue[a];
    plan->issue[a] = plan->issue[b];
    plan->issue[b] = entry;
}

/* Rank 0 would sum before it receives the gradient that rank 1 sends before it sums; and the other way around. */
static void test_deadlock(void **state)
{
    (void)state;
    struct pp_plan *plan = tied_plan("1f1b", 2, 1, 1, true);
    for (int rank = 0; rank < 2; rank++) {
        const int64_t sum = entry_of(plan, rank, PP_REDUCE_TIED), moved = entry_of(plan, rank, PP_XFER_B),
                      all = entry_of(plan, rank, PP_NORM_ALL);
        swap(plan, sum, moved);
        expect_bad(plan, "deadlock");
        swap(plan, sum, moved);
        swap(plan, sum, all); /* behind the norm of all, which waits for both ranks */
        expect_bad(plan, "deadlock");
        swap(plan, sum, all);
        assert_int_equal(pp_plan_check(plan), PP_OK);
    }
    pp_plan_free(plan);
}

/* It is missing in one list, or stands in that of a rank that has no part in it. */
static void test_lists(void **state)
{
    (void)state;
    struct pp_plan *plan = tied_plan("1f1b", 3, 1, 1, true);
    const int32_t sum = find(plan, PP_REDUCE_TIED, 0);
    for (int rank = 0; rank < 3; rank++) {
        const int64_t i = entry_of(plan, rank, rank == 1 ? PP_NORM : PP_REDUCE_TIED);
        const int32_t good = plan->issue[i];
        plan->issue[i] = rank == 1 ? sum << 1 : find(plan, PP_NORM, rank) << 1;
        expect_bad(plan, rank == 1 ? "it stands in the list of another rank" : "deadlock");
        plan->issue[i] = good;
        assert_int_equal(pp_plan_check(plan), PP_OK);
        if (rank == 1) continue;
        plan->issue[i] |= 1; /* as a receive */
        expect_bad(plan, "it stands in the list of another rank");
        plan->issue[i] = good;
    }
    pp_plan_free(plan);
    plan = tied_plan("zbv", 2, 2, 1, true); /* of a rank that has both, nobody else misses it */
    const int64_t i = entry_of(plan, 0, PP_REDUCE_TIED);
    plan->issue[i] = find(plan, PP_NORM, 3) << 1;
    expect_bad(plan, "it is missing in an issue list");
    pp_plan_free(plan);
}

/* Lists need not be in the order of ids: a send may come behind the computation that follows it. */
static void test_other_order(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        int p, v;
    } shapes[] = {{"gpipe", 2, 1}, {"gpipe", 4, 1}, {"interleaved", 3, 2}, {"zbv", 2, 2}, {"dualpipev", 3, 2}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int clip = 0; clip < 2; clip++) {
            struct pp_plan_spec spec = spec_of(shapes[k].schedule, shapes[k].p, shapes[k].v, 6);
            spec.parts = NULL;
            spec.tied = true;
            spec.clip = clip;
            struct pp_plan *plan = build_plan(&spec);
            int64_t i = 0;
            while (plan->tasks[pp_issue_task(plan->issue[i])].kind != PP_XFER_F ||
                   plan->tasks[pp_issue_task(plan->issue[i + 1])].kind != PP_F)
                i++;
            swap(plan, i, i + 1);
            if (pp_plan_check(plan) != PP_OK) fail_msg("%s: %s", shapes[k].schedule, pp_message());
            pp_plan_free(plan);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inputs),   cmocka_unit_test(test_groups),  cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_place),    cmocka_unit_test(test_missing), cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_deadlock), cmocka_unit_test(test_lists),   cmocka_unit_test(test_other_order),
        cmocka_unit_test(test_another),  cmocka_unit_test(test_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
