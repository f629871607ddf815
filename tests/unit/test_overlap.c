/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans whose gradients are summed in parts beside the last backward, and whose parameters are gathered in parts beside
 * the first forward: every schedule over many shapes, walks.
 */
#include <stdio.h>

#include "exec/walk.h"
#include "schedules/csv.h"
#include "tests/unit/overlap_case.h"

enum { TAKES = PP_TASK_TAKE_ACT | PP_TASK_TAKE_CKPT, FREES = PP_TASK_FREE_ACT | PP_TASK_FREE_CKPT };

static bool is_backward(int kind) { return kind == PP_B || kind == PP_W; }

/* The first part has the input and takes slots, the last one has the output and frees them. */
static void check_ends(const struct pp_plan *plan, int kind, int stage, int parts)
{
    const struct pp_task *first = &plan->tasks[part_task(plan, kind, stage, 0, parts)];
    const struct pp_task *end = &plan->tasks[part_task(plan, kind, stage, parts - 1, parts)];
    const bool inside = kind == PP_F ? stage > 0 : kind == PP_B && stage + 1 < plan->stages;
    const bool sends = kind == PP_F ? stage + 1 < plan->stages : kind == PP_B && stage > 0;
    assert_int_equal(first->dep[0] >= 0, inside);
    assert_true(first->in >= 0 || !inside || plan->recv_buffers == 0);
    assert_true(end->out >= 0 || !sends || plan->recv_buffers == 0);
    assert_true(is_backward(kind) ? end->flags & PP_TASK_FREE_ACT : first->flags & PP_TASK_TAKE_ACT);
}

/* All else is the same. */
static void check_pieces(const struct pp_plan *plan, int kind, int stage, int parts)
{
    const struct pp_task *first = &plan->tasks[part_task(plan, kind, stage, 0, parts)];
    check_ends(plan, kind, stage, parts);
    for (int i = 0; i < parts; i++) {
        const struct pp_task *t = &plan->tasks[part_task(plan, kind, stage, i, parts)];
        assert_int_equal(t->microbatch, first->microbatch);
        assert_int_equal(t->count, first->count);
        assert_int_equal(t->lane, plan->stage_rank[stage]);
        assert_int_equal(t->act, first->act);
        assert_int_equal(t->ckpt, first->ckpt);
        assert_int_equal(!(t->flags & PP_TASK_MORE), i + 1 == parts);
        assert_int_equal(t->flags & PP_TASK_FIRST, first->flags & PP_TASK_FIRST);
        assert_true(i == 0 || (t->in < 0 && t->dep[0] < 0 && !(t->flags & TAKES)));
        assert_true(i + 1 == parts || (t->out < 0 && t->dep[1] < 0 && !(t->flags & FREES)));
    }
}

/* Each sum is of what the part of the same number has made, right behind it; what follows waits for the last. */
static void check_sums(const struct pp_plan *plan, int stage, int parts, int kind)
{
    int32_t sum = -1;
    for (int i = 0; i < parts; i++) {
        const int32_t made = part_task(plan, kind, stage, i, parts);
        sum = part_task(plan, PP_REDUCE_GRAD, stage, i, parts);
        assert_int_equal(plan->tasks[sum].dep[0], made);
        assert_int_equal(plan->lanes[plan->tasks[sum].lane].kind, PP_LANE_REDUCE);
        assert_int_equal(plan->lanes[plan->tasks[sum].lane].src, plan->stage_rank[stage]);
        for (int32_t id = made + 1; id < sum; id++) assert_true(plan->tasks[id].lane != plan->stage_rank[stage]);
    }
    const int32_t after = part_task(plan, plan->clip ? PP_NORM : PP_STEP, stage, 0, 1);
    assert_int_equal(plan->tasks[after].dep[0], sum);
}

static int waits_of_gathers(const struct pp_plan *plan, int stage)
{
    int n = 0;
    for (int i = 0; i < plan->nwraps; i++) {
        const struct pp_task *from = &plan->tasks[plan->wraps[i].from];
        assert_true(from->kind != PP_GATHER_PARAM); /* ranks begin at once */
        if (from->kind != PP_STEP || from->stage != stage) continue;
        assert_int_equal(plan->wraps[i].to, part_task(plan, PP_GATHER_PARAM, stage, 0, some_parts[stage]));
        n++;
    }
    return n;
}

/* Gathering begins the step, in the order of the stages, and each part of the first forward waits for its own; no
 * other task does. */
static void check_gathers(const struct pp_plan *plan, int stage, int parts)
{
    int waiting = 0;
    for (int i = 0; i < parts; i++) {
        const int32_t id = part_task(plan, PP_GATHER_PARAM, stage, i, parts);
        const struct pp_task *f = &plan->tasks[part_task(plan, PP_F, stage, i, parts)];
        assert_int_equal(f->dep[2], id);
        assert_int_equal(plan->tasks[id].dep[0], -1);
        for (int32_t k = 0; k < id; k++) assert_int_equal(plan->tasks[k].kind, PP_GATHER_PARAM);
    }
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        waiting += t->stage == stage && pp_kinds[t->kind].computes && t->dep[2] >= 0;
    }
    assert_int_equal(waiting, parts);
    assert_int_equal(waits_of_gathers(plan, stage), 1);
}

static void check_walks(const struct pp_plan *plan)
{
    for (int rank = 0; rank < plan->ranks; rank++) {
        struct pp_walk *walk;
        int done = 0, of_gather[STAGES][8] = {{0}}, of_sum[STAGES] = {0};
        assert_int_equal(pp_walk_create(plan, rank, &walk), PP_OK);
        for (int i = 0; i < walk->nstops; i++) {
            const struct pp_stop *stop = &walk->stops[i];
            const struct pp_task *t = &plan->tasks[stop->task];
            const struct pp_class *cls = &plan->classes[t->cls];
            int expected = 0;
            done += pp_combines(t->kind);
            if (t->kind == PP_GATHER_PARAM) of_gather[t->stage][cls->part] = done;
            if (t->kind == PP_REDUCE_GRAD) of_sum[t->stage] = done;
            if (t->kind == PP_F && t->dep[2] >= 0) expected = of_gather[t->stage][cls->part];
            if (t->kind == PP_NORM || (t->kind == PP_STEP && !plan->clip)) expected = of_sum[t->stage];
            if (plan->gathers_first || t->kind != PP_GATHER_PARAM) assert_int_equal(stop->reductions, expected);
        }
        pp_walk_free(walk);
    }
}

/* Memory is what it is without parts, and all tasks are there but for those that are cut. */
static void compare_plans(const struct pp_plan *plan, const struct pp_plan *whole)
{
    int64_t more = 0;
    int classes = 0, kinds = plan->gathers_first ? 4 : 2;
    for (int s = 0; s < plan->stages; s++) {
        more += kinds * (int64_t)(some_parts[s] - 1);
        classes += some_parts[s] > 1 ? kinds * some_parts[s] : 0;
    }
    for (int c = 0; c < plan->nclasses; c++) classes -= plan->classes[c].parts > 0;
    assert_int_equal(classes, 0);
    assert_int_equal(plan->ntasks, whole->ntasks + more);
    assert_int_equal(plan->issue_start[plan->ranks], whole->issue_start[plan->ranks] + more);
    assert_int_equal(plan->npools, whole->npools);
    assert_memory_equal(plan->pools, whole->pools, (size_t)plan->npools * sizeof *plan->pools);
    for (int r = 0; r < plan->ranks; r++) assert_true(plan->peak_microbatches[r] == whole->peak_microbatches[r]);
    assert_true((plan->hash != whole->hash) == (more > 0));
}

/* The kind that makes a stage's gradients. */
static int weights_of(const struct pp_plan *plan, int stage)
{
    for (int32_t id = 0; id < plan->ntasks; id++)
        if (plan->tasks[id].kind == PP_W && plan->tasks[id].stage == stage) return PP_W;
    return PP_B;
}

static void check_plan(struct pp_plan_spec spec)
{
    struct pp_plan *plan = build_plan(&spec);
    assert_int_equal(plan->gathers_first, spec.gather_first && spec.zero);
    for (int s = 0; s < plan->stages; s++) {
        const int parts = some_parts[s], kind = weights_of(plan, s);
        check_pieces(plan, kind, s, parts);
        check_sums(plan, s, parts, kind);
        if (!plan->gathers_first) continue;
        check_pieces(plan, PP_F, s, parts);
        check_gathers(plan, s, parts);
    }
    check_walks(plan);
    spec.parts = NULL;
    struct pp_plan *whole = build_plan(&spec);
    compare_plans(plan, whole);
    pp_plan_free(whole);
    pp_plan_free(plan);
}

static void test_all_shapes(void **state)
{
    (void)state;
    static const int ms[] = {1, 2, 3, 4, 6, 10};
    int n = 0;
    for (int i = 0; pp_schedule_at(i); i++)
        for (int p = 1; p <= 5; p++)
            for (int v = 1; v <= 3; v++)
                for (size_t m = 0; m < sizeof ms / sizeof *ms; m++, n++) {
                    struct pp_plan_spec spec = spec_of(pp_schedule_at(i)->name, p, v, ms[m]);
                    if (pp_schedule_check(spec.schedule, p, v, ms[m]) != PP_OK) continue;
                    spec.zero = n % 3 > 0;
                    spec.gather_first = n % 3 > 1;
                    spec.rounds_weights = n % 2;
                    spec.checkpoint = n % 3;
                    spec.batch_w = n % 5;
                    spec.recv_buffers = n % 4;
                    spec.clip = n % 2;
                    check_plan(spec);
                    spec.gather_first = true;
                    spec.zero = PP_ZERO_OPTIMIZER;
                    if (spec.batch_w < 2 && strcmp(spec.schedule, "1f1b") == 0) spec.checkpoint = PP_CHECKPOINT_LAYERS;
                    check_plan(spec);
                }
}

/* Also of a file. */
static void test_csv(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("zb-h1", 3, 1, 5);
    spec.gather_first = true;
    spec.zero = PP_ZERO_OPTIMIZER;
    struct pp_plan *plan = build_plan(&spec), *again;
    FILE *out = fopen("./overlap.csv", "w");
    assert_non_null(out);
    assert_int_equal(pp_plan_csv(plan, out), PP_OK); /* each operation once, or it could not be read */
    fclose(out);
    spec.schedule = "./overlap.csv";
    check_plan(spec);
    again = build_plan(&spec);
    assert_true(plan->hash == again->hash);
    pp_plan_free(again);
    pp_plan_free(plan);
    remove(spec.schedule);
}

/* Nothing is summed of one replica, nor in evaluation; without shares there is nothing to gather. */
static void test_without_effect(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct pp_plan_spec spec = spec_of("1f1b", 3, 1, 4);
        spec.zero = way != 1;
        spec.gather_first = true;
        if (way == 0) spec.replicas = 1;
        if (way == 2) spec.training = false;
        struct pp_plan *plan = build_plan(&spec);
        if (way != 1) spec.parts = NULL;
        spec.gather_first = false;
        struct pp_plan *other = build_plan(&spec);
        assert_false(plan->gathers_first);
        assert_true(plan->hash == other->hash && plan->ntasks == other->ntasks);
        pp_plan_free(plan);
        pp_plan_free(other);
    }
}

/* Other parts, another plan; so are the same tasks whose classes say otherwise. */
static void test_hash(void **state)
{
    (void)state;
    static const int other[STAGES] = {3, 1, 2, 4, 3};
    struct pp_plan_spec spec = spec_of("1f1b", 5, 1, 4);
    struct pp_plan *plan = build_plan(&spec), *same = build_plan(&spec);
    assert_true(plan->hash == same->hash);
    pp_plan_free(same);
    spec.parts = other;
    same = build_plan(&spec);
    assert_true(plan->hash != same->hash);
    pp_plan_free(same);
    for (int c = 0; c < plan->nclasses; c++) {
        if (plan->classes[c].parts < 2) continue;
        plan->classes[c].part ^= 1;
        assert_true(plan->hash != pp_plan_hash(plan));
        plan->classes[c].part ^= 1;
        plan->classes[c].parts++;
        assert_true(plan->hash != pp_plan_hash(plan));
        plan->classes[c].parts--;
    }
    assert_true(plan->hash == pp_plan_hash(plan));
    pp_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_shapes),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_without_effect),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
