/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of tied embeddings: where the sum of their gradients stands, what it waits for and what waits for it, in every
 * schedule and over many shapes.
 */
#include "exec/walk.h"
#include "tests/unit/overlap_case.h"

static bool is_tied(const struct pp_plan *plan, int stage) { return stage == 0 || stage == plan->stages - 1; }

static bool makes(int kind) { return kind == PP_B || kind == PP_W; }

/* The one sum of a plan, or -1. */
static int32_t find_sum(const struct pp_plan *plan)
{
    int32_t sum = -1;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        if (plan->tasks[id].kind != PP_REDUCE_TIED) continue;
        assert_int_equal(sum, -1);
        sum = id;
    }
    return sum;
}

/* The last that makes a stage's gradients, or sums them over replicas. */
static int32_t find_final(const struct pp_plan *plan, int stage)
{
    int32_t made = -1, summed = -1;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        if (t->stage != stage) continue;
        if (makes(t->kind)) made = id;
        if (t->kind == PP_REDUCE_GRAD) summed = id;
    }
    assert_true(made >= 0 && (summed >= 0) == (plan->replicas > 1));
    return summed >= 0 ? summed : made;
}

static void check_sum(const struct pp_plan *plan, int32_t sum)
{
    const struct pp_task *t = &plan->tasks[sum];
    const struct pp_lane *lane = &plan->lanes[t->lane];
    assert_int_equal(lane->kind, PP_LANE_TIED);
    assert_int_equal(lane->src, plan->stage_rank[0]);
    assert_int_equal(lane->dst, plan->stage_rank[plan->stages - 1]);
    assert_int_equal(plan->classes[t->cls].kind, PP_REDUCE_TIED);
    assert_int_equal(t->dep[0], find_final(plan, 0));
    assert_int_equal(t->dep[1], find_final(plan, plan->stages - 1));
    assert_int_equal(t->dep[2], -1);
    assert_true(t->microbatch < 0 && t->act < 0 && t->ckpt < 0 && t->in < 0 && t->out < 0 && t->flags == 0);
}

/* What is first done with final gradients: of the tied stages behind the sum, of others as ever. On a rank that has
 * both, tied ones come last: they wait for another rank. */
static void check_after(const struct pp_plan *plan, int32_t sum)
{
    const int kind = plan->clip ? PP_NORM : PP_STEP;
    int done[STAGES] = {0};
    bool tied_begun[STAGES] = {false};
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        if (t->kind != PP_NORM && t->kind != PP_STEP) continue;
        const bool tied = is_tied(plan, t->stage);
        assert_true(id > sum);
        if (t->kind == kind && tied) assert_int_equal(t->dep[0], sum);
        if (t->kind == kind && !tied) assert_int_equal(t->dep[0], plan->replicas > 1 ? find_final(plan, t->stage) : -1);
        if (t->kind != kind) continue;
        assert_true(tied || !tied_begun[t->lane]);
        if (tied) tied_begun[t->lane] = true;
        done[t->stage]++;
    }
    for (int s = 0; s < plan->stages; s++) assert_int_equal(done[s], 1);
}

/* Both ranks have it in their lists, once and in one order with all else; a rank that has both stages, once. */
static void check_lists(const struct pp_plan *plan, int32_t sum)
{
    for (int r = 0; r < plan->ranks; r++) {
        int found = 0;
        for (int64_t i = plan->issue_start[r]; i < plan->issue_start[r + 1]; i++) {
            if (pp_issue_task(plan->issue[i]) != sum) continue;
            assert_false(pp_issue_is_recv(plan->issue[i]));
            assert_true(i == plan->issue_start[r] || pp_issue_task(plan->issue[i - 1]) < sum);
            found++;
        }
        assert_int_equal(found, r == plan->stage_rank[0] || r == plan->stage_rank[plan->stages - 1]);
    }
}

/* In a worker's walk: so much of what combines must be done. */
static void check_walks(const struct pp_plan *plan)
{
    for (int rank = 0; rank < plan->ranks; rank++) {
        struct pp_walk *walk;
        int done = 0, of_tied = 0, of_sum[STAGES] = {0};
        assert_int_equal(pp_walk_create(plan, rank, &walk), PP_OK);
        for (int i = 0; i < walk->nstops; i++) {
            const struct pp_stop *stop = &walk->stops[i];
            const struct pp_task *t = &plan->tasks[stop->task];
            done += pp_combines(t->kind);
            if (t->kind == PP_REDUCE_TIED) of_tied = done;
            if (t->kind == PP_REDUCE_GRAD) of_sum[t->stage] = done;
            if (t->kind != (plan->clip ? PP_NORM : PP_STEP)) continue;
            assert_int_equal(stop->reductions, is_tied(plan, t->stage) ? of_tied : of_sum[t->stage]);
            assert_true(of_tied > 0 || !is_tied(plan, t->stage));
        }
        pp_walk_free(walk);
    }
}

/* Up to the sum it is the plan that it is without; behind it, too, but for one lane and the order of stages. */
static void compare_plans(const struct pp_plan *plan, const struct pp_plan *other, int32_t sum)
{
    assert_int_equal(plan->ntasks, other->ntasks + 1);
    assert_int_equal(plan->nclasses, other->nclasses + 1);
    assert_int_equal(plan->nlanes, other->nlanes + 1);
    assert_int_equal(find_sum(other), -1);
    assert_memory_equal(plan->tasks, other->tasks, (size_t)sum * sizeof *plan->tasks);
    assert_int_equal(plan->npools, other->npools);
    assert_memory_equal(plan->pools, other->pools, (size_t)plan->npools * sizeof *plan->pools);
    for (int r = 0; r < plan->ranks; r++) assert_true(plan->peak_microbatches[r] == other->peak_microbatches[r]);
    assert_true(plan->hash != other->hash && plan->hash == pp_plan_hash(plan));
    int kinds[PP_KINDS] = {0};
    for (int32_t id = 0; id < other->ntasks; id++) kinds[plan->tasks[id].kind]++, kinds[other->tasks[id].kind]--;
    kinds[plan->tasks[other->ntasks].kind]++;
    for (int k = 0; k < PP_KINDS; k++) assert_int_equal(kinds[k], k == PP_REDUCE_TIED);
}

static void check_plan(struct pp_plan_spec spec)
{
    struct pp_plan *plan = build_plan(&spec);
    const int32_t sum = find_sum(plan);
    assert_true(plan->tied && sum >= 0);
    check_sum(plan, sum);
    check_after(plan, sum);
    check_lists(plan, sum);
    check_walks(plan);
    spec.tied = false;
    struct pp_plan *other = build_plan(&spec);
    assert_false(other->tied);
    compare_plans(plan, other, sum);
    pp_plan_free(other);
    pp_plan_free(plan);
}

/* One replica; two; two with shares of the optimizer; these with gathering in front. Each as a whole and in parts. */
static void check_shape(struct pp_plan_spec spec)
{
    spec.tied = true;
    for (int way = 0; way < 8; way++)
        for (int rest = 0; rest < 4; rest++) {
            spec.replicas = way < 2 ? 1 : 2;
            spec.zero = way >= 4;
            spec.gather_first = way >= 6;
            spec.parts = way % 2 ? some_parts : NULL;
            spec.clip = rest % 2;
            spec.recv_buffers = rest / 2 * 2;
            check_plan(spec);
        }
}

static void test_all_shapes(void **state)
{
    (void)state;
    static const int ms[] = {1, 2, 4, 6};
    int shapes = 0;
    for (int i = 0; pp_schedule_at(i); i++)
        for (int p = 1; p <= 4; p++)
            for (int v = 1; v <= 3; v++)
                for (size_t m = 0; m < sizeof ms / sizeof *ms; m++) {
                    const char *name = pp_schedule_at(i)->name;
                    if (pp_schedule_check(name, p, v, ms[m]) != PP_OK) continue;
                    check_shape(spec_of(name, p, v, ms[m]));
                    shapes++;
                }
    assert_true(shapes > 100);
}

/* Nothing is summed where nothing is stepped, and the plan is the one without. */
static void test_without_effect(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct pp_plan_spec spec = spec_of("1f1b", 3, 1, 4);
        spec.optimizer = way != 0;
        spec.training = way != 1;
        spec.tied = true;
        struct pp_plan *plan = build_plan(&spec);
        spec.tied = false;
        struct pp_plan *other = build_plan(&spec);
        assert_false(plan->tied);
        assert_int_equal(find_sum(plan), -1);
        assert_true(plan->hash == other->hash && plan->ntasks == other->ntasks && plan->nlanes == other->nlanes);
        pp_plan_free(plan);
        pp_plan_free(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_shapes), cmocka_unit_test(test_without_effect)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
