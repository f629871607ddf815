/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas that share in groups, which sum shares: plans, plans that are broken on purpose, what each group has of a
 * share, and what the sums take on several hosts, against figures counted by hand.
 */
#include "core/job/process.h"
#include "exec/shares.h"
#include "tests/unit/cost_case.h"

enum { GROUPS = 3, PARTS = 2 };

/* A step of six replicas in groups of two, of stages in two parts. */
static struct pp_plan_spec spec_of(const char *schedule, bool shards)
{
    static const int parts[] = {PARTS, PARTS, PARTS, PARTS};
    return (struct pp_plan_spec){.schedule = schedule,
                                 .ranks = 2,
                                 .virtual_stages = strcmp(schedule, "interleaved") == 0 ? 2 : 1,
                                 .microbatches = 4,
                                 .replicas = 2 * GROUPS,
                                 .shard_group = 2,
                                 .zero = shards ? PP_ZERO_PARAMETERS : PP_ZERO_OPTIMIZER,
                                 .recv_buffers = 2,
                                 .training = true,
                                 .optimizer = true,
                                 .clip = true,
                                 .parts = parts};
}

static int count(const struct pp_plan *plan, int kind)
{
    int n = 0;
    for (int64_t i = 0; i < plan->ntasks; i++) n += plan->tasks[i].kind == kind;
    return n;
}

/* The last task of a kind, of a part of a stage. */
static int32_t last_of(const struct pp_plan *plan, int kind, int stage, int part)
{
    int32_t found = -1;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        if (t->kind == kind && t->stage == stage && plan->classes[t->cls].part == part) found = id;
    }
    assert_true(found >= 0);
    return found;
}

/* ---- plans ---- */

/* A share is summed behind what made it, in a lane of its own, and NORM waits for the last part. */
static void check_share(const struct pp_plan *plan, int stage, int part)
{
    const int32_t id = last_of(plan, PP_REDUCE_SHARE, stage, part);
    const struct pp_task *share = &plan->tasks[id];
    const struct pp_lane *lane = &plan->lanes[share->lane];
    const int32_t made = last_of(plan, plan->shards ? PP_ADD_GRAD : PP_REDUCE_GRAD, stage, part);
    assert_int_equal(share->dep[0], made);
    assert_int_equal(lane->kind, PP_LANE_REDUCE);
    assert_int_equal(lane->src, plan->stage_rank[stage]);
    assert_true(share->lane != plan->tasks[last_of(plan, PP_REDUCE_GRAD, stage, part)].lane);
    if (part + 1 == PARTS) assert_int_equal(plan->tasks[last_of(plan, PP_NORM, stage, 0)].dep[0], id);
}

static void plans_sum_shares_once_in_a_step(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved"};
    for (int i = 0; i < 6; i++) {
        struct pp_plan_spec spec = spec_of(schedules[i / 2], i % 2);
        struct pp_plan *plan = build_plan(&spec), *other;
        assert_int_equal(pp_plan_check(plan), PP_OK);
        assert_int_equal(pp_plan_shard_groups(plan), GROUPS);
        assert_int_equal(count(plan, PP_REDUCE_SHARE), plan->stages * PARTS);
        for (int s = 0; s < plan->stages * PARTS; s++) check_share(plan, s / PARTS, s % PARTS);
        spec.shard_group = 3; /* the same tasks, and another plan */
        other = build_plan(&spec);
        assert_int_equal(other->ntasks, plan->ntasks);
        assert_true(other->hash != plan->hash);
        pp_plan_free(other);
        spec.shard_group = spec.replicas;
        other = build_plan(&spec);
        assert_int_equal(other->ntasks, plan->ntasks - plan->stages * PARTS);
        pp_plan_free(other);
        pp_plan_free(plan);
    }
}

/* Where nothing is shared, or nothing learnt, groups are nobody's. */
static void plans_without_shares_have_no_groups(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("1f1b", false);
    spec.zero = PP_ZERO_NONE;
    struct pp_plan *plan = build_plan(&spec);
    assert_int_equal(plan->shard_group, plan->replicas);
    assert_int_equal(count(plan, PP_REDUCE_SHARE), 0);
    pp_plan_free(plan);
    spec = spec_of("1f1b", true);
    spec.training = false;
    plan = build_plan(&spec);
    assert_int_equal(pp_plan_check(plan), PP_OK);
    assert_int_equal(count(plan, PP_REDUCE_SHARE), 0);
    pp_plan_free(plan);
}

#define BROKEN(change, text)                                                                                           \
    do {                                                                                                               \
        const struct pp_task good = *t;                                                                                \
        change;                                                                                                        \
        if (pp_plan_check(plan) != PP_INPUT || !strstr(pp_message(), text))                                            \
            fail_msg("%s, not \"%s\"", pp_message(), text);                                                            \
        *t = good;                                                                                                     \
        assert_int_equal(pp_plan_check(plan), PP_OK);                                                                  \
    } while (0)

static void broken_plans_are_found(void **state)
{
    (void)state;
    static const char unmade[] = "it sums shares of gradients that are not summed";
    for (int shards = 0; shards < 2; shards++) {
        const struct pp_plan_spec spec = spec_of("gpipe", shards);
        struct pp_plan *plan = build_plan(&spec);
        const int32_t first = last_of(plan, PP_REDUCE_SHARE, 0, 0), second = last_of(plan, PP_REDUCE_SHARE, 0, 1);
        struct pp_task *t = &plan->tasks[second];
        BROKEN(t->dep[0] = -1, unmade);
        BROKEN(t->dep[0] = plan->tasks[first].dep[0], unmade);
        BROKEN(t->cls = plan->tasks[first].cls, shards ? unmade : "it is another part");
        t = &plan->tasks[last_of(plan, PP_NORM, 0, 0)];
        if (!shards) BROKEN(t->dep[0] = plan->tasks[second].dep[0], "it does not wait for the sum");
        pp_plan_free(plan);
    }
}

/* ---- what groups have of a share ---- */

#define OPTIONS "--preset lab --layers 4 --rows 6 --chunks 2 --device cuda --clip 1 --replicas 6 --shard-degree 2 "

/* Pieces of a tensor's share: equal, whole lines, and together the share that a scatter leaves to its owner. */
static void check_pieces(const struct pp_job *job, const struct pp_class *cls, int own)
{
    const struct pp_class scatter = {
        .kind = PP_REDUCE_GRAD, .stage = cls->stage, .part = cls->part, .parts = cls->parts};
    const int worker = pp_worker_at(job->train, own, 0, 0);
    struct pp_shares *all, *share;
    assert_int_equal(pp_shares_create(job, &scatter, PP_DENSE, worker, &all), PP_OK);
    assert_int_equal(pp_shares_create(job, cls, PP_DENSE, worker, &share), PP_OK);
    assert_int_equal(share->use, PP_SHARES_SUM);
    assert_int_equal(share->n, all->n);
    for (int i = 0; i < share->n; i++) {
        const struct pp_share_tensor *whole = &all->tensors[i], *piece = &share->tensors[i];
        assert_int_equal(piece->offset, whole->offset + own * whole->part_bytes);
        assert_int_equal(piece->part_bytes * GROUPS, whole->part_bytes);
        assert_int_equal(piece->part_bytes % (PP_PART_LINE * 4), 0);
    }
    free(all);
    free(share);
}

static void each_group_sums_an_equal_part_of_a_share(void **state)
{
    (void)state;
    struct pp_job *job = create_job(OPTIONS "--zero 1 --overlap-grad-reduce --bucket-size 1B --stages 2");
    int n = 0;
    assert_int_equal(pp_most_share_bytes(job, 0) * 2, pp_most_gradient_bytes(job, 0, PP_DENSE));
    for (int c = 0; c < job->train->nclasses; c++) {
        if (job->train->classes[c].kind != PP_REDUCE_SHARE) continue;
        n++;
        for (int own = 0; own < 2; own++) check_pieces(job, &job->train->classes[c], own);
    }
    assert_int_equal(n, 4);
    pp_job_free(job);
}

/* ---- costs ---- */

/* One rank; a group is on a host, or on two. */
static void only_shares_leave_a_host_that_holds_a_group(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct pp_job *job = create_job(way / 2 ? OPTIONS "--stages 1 --zero 3" : OPTIONS "--stages 1 --zero 1");
        const struct pp_machine m = round_machine(way % 2 ? 1 : 2);
        struct pp_cost *cost;
        assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_OK);
        for (int c = 0; c < cost->nclasses; c++) {
            const struct pp_class *cls = &job->train->classes[c];
            const double bytes = (double)cost->classes[c].bytes, ns = (double)cost->classes[c].ns;
            if (cls->kind == PP_REDUCE_GRAD && way % 2 == 0) expect_near(ns, 1500 + bytes / 2 / 200, 1, "in a host");
            if (cls->kind == PP_REDUCE_GRAD && way % 2) expect_near(ns, 1500 + 5000 + bytes / 2 / 10, 1, "of two");
            if (cls->kind == PP_REDUCE_SHARE) expect_near(ns, 3000 + 2 * 2 * 5000 + bytes * 4 / 3 / 10, 1, "groups");
        }
        pp_cost_free(cost);
        pp_job_free(job);
    }
}

/* Sums between groups run beside those in groups: 100 of the first part beside 70 of the second. */
static void sums_between_groups_have_a_lane(void **state)
{
    (void)state;
    static const int64_t ns[PP_KINDS] = {[PP_F] = 100, [PP_B] = 200, [PP_REDUCE_GRAD] = 70, [PP_REDUCE_SHARE] = 100};
    for (int events = 0; events < 2; events++) {
        struct pp_plan_spec spec = spec_of("gpipe", false);
        spec.ranks = 1;
        struct sim_case c = {.plan = build_plan(&spec)};
        assert_int_equal(pp_cost_create(c.plan, PP_COST_TIMES, &c.cost), PP_OK);
        for (int k = 0; k < c.cost->nclasses; k++) {
            const struct pp_class *cls = &c.plan->classes[k];
            c.cost->classes[k].ns = c.cost->classes[k].loaded_ns =
                ns[cls->kind] / (cls->kind == PP_B && cls->parts ? 4 : 1);
        }
        simulate(&c, events);
        /* 4 F, 3 B, the first part of the last one; its sums, 70 and 100; 100 again, of the second */
        assert_int_equal(c.result.batch_ns, 4 * 100 + 3 * 200 + 50 + 70 + 100 + 100);
        release_case(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_sum_shares_once_in_a_step),
        cmocka_unit_test(plans_without_shares_have_no_groups),
        cmocka_unit_test(broken_plans_are_found),
        cmocka_unit_test(each_group_sums_an_equal_part_of_a_share),
        cmocka_unit_test(only_shares_leave_a_host_that_holds_a_group),
        cmocka_unit_test(sums_between_groups_have_a_lane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
