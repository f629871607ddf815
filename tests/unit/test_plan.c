/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan builder and pp_plan_check: every registered schedule over many shapes, known peaks and counts, and orders
 * that cannot be.
 */
#include <time.h>

#include "schedules/schedule.h"
#include "tests/unit/plan_case.h"

/* Calls fn for every (schedule, P, V, M) of a grid that is legal. Without backwards every M is. */
typedef void (*shape_fn)(struct pp_plan_spec *spec);

static bool has_stages(const struct pp_schedule *schedule, int v)
{
    return schedule->virtual_stages == PP_ANY_STAGES || v == (schedule->virtual_stages == PP_ONE_STAGE ? 1 : 2);
}

static int each_shape(shape_fn fn, bool training)
{
    static const int ms[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16};
    int n = 0;
    for (int i = 0; pp_schedule_at(i); i++)
        for (int p = 1; p <= 6; p++)
            for (int v = 1; v <= 3; v++)
                for (size_t m = 0; m < sizeof ms / sizeof *ms; m++) {
                    struct pp_plan_spec spec = spec_of(pp_schedule_at(i)->name, p, v, ms[m]);
                    if (!has_stages(pp_schedule_at(i), v)) continue;
                    if (training && pp_schedule_check(spec.schedule, p, v, ms[m]) != PP_OK) continue;
                    spec.training = training;
                    fn(&spec);
                    n++;
                }
    return n;
}

static void check_variants(struct pp_plan_spec *spec)
{
    for (int variant = 0; variant < 12; variant++) {
        spec->checkpoint = variant % 3;
        spec->replicas = 1 + variant / 3 % 2;
        spec->zero = variant % 2;
        spec->clip = variant / 6;
        spec->rounds_weights = variant / 2 % 2;
        spec->recv_buffers = variant % 4;
        struct pp_plan *plan = build(spec);
        if (pp_plan_check(plan) != PP_OK)
            fail_msg("%s P%d V%d M%d: %s", spec->schedule, spec->ranks, spec->virtual_stages, spec->microbatches,
                     pp_message());
        pp_plan_free(plan);
    }
}

static void check_forwards(struct pp_plan_spec *spec)
{
    spec->recv_buffers = 1;
    spec->rounds_weights = spec->microbatches % 2;
    struct pp_plan *plan = build(spec);
    if (pp_plan_check(plan) != PP_OK) fail_msg("forward only: %s", pp_message());
    for (int64_t i = 0; i < plan->ntasks; i++)
        assert_true(plan->tasks[i].kind == PP_F || plan->tasks[i].kind == PP_XFER_F);
    pp_plan_free(plan);
}

static void test_all_shapes(void **state)
{
    (void)state;
    const int shapes = each_shape(check_variants, true);
    assert_true(shapes > 200);
    assert_true(each_shape(check_forwards, false) > shapes);
}

static void expect_peak(const char *schedule, int p, int v, int m, int rank, double peak)
{
    struct pp_plan_spec spec = spec_of(schedule, p, v, m);
    struct pp_plan *plan = build(&spec);
    if (plan->peak_microbatches[rank] != peak)
        fail_msg("%s P%d V%d M%d rank %d: peak %g, expected %g", schedule, p, v, m, rank, plan->peak_microbatches[rank],
                 peak);
    pp_plan_free(plan);
}

/* Formulas of the literature: GPipe M; 1F1B min(M, P-r); interleaved ((V-1)P + 2(P-1-r) + 1)/V, at most M. */
static void test_peaks(void **state)
{
    (void)state;
    for (int p = 1; p <= 8; p++)
        for (int r = 0; r < p; r++) {
            expect_peak("gpipe", p, 1, 8, r, 8);
            expect_peak("1f1b", p, 1, 8, r, p - r < 8 ? p - r : 8);
            for (int v = 1; v <= 3; v++) {
                double peak = (v - 1) * p + 2 * (p - 1 - r) + 1, most = 3 * p * v;
                expect_peak("interleaved", p, v, 3 * p, r, (peak < most ? peak : most) / v);
            }
        }
}

static void expect_less(const char *schedule, const struct pp_plan *than, int rank)
{
    struct pp_plan_spec spec = spec_of(schedule, than->ranks, than->virtual_stages, than->microbatches);
    struct pp_plan *plan = build(&spec);
    assert_true(plan->peak_microbatches[rank] < than->peak_microbatches[rank]);
    pp_plan_free(plan);
}

/* Who holds all microbatches names a schedule that holds fewer, and nobody else does. */
static void test_leaner(void **state)
{
    (void)state;
    enum { P = 4, M = 16 };
    for (int i = 0; pp_schedule_at(i); i++) {
        const struct pp_schedule *schedule = pp_schedule_at(i);
        const int v = schedule->virtual_stages == PP_ONE_STAGE ? 1 : 2;
        struct pp_plan_spec spec = spec_of(schedule->name, P, v, M);
        struct pp_plan *plan = build(&spec);
        if ((plan->peak_microbatches[0] == M) != (schedule->leaner != NULL))
            fail_msg("%s holds %g of %d microbatches; a leaner schedule is %s", schedule->name,
                     plan->peak_microbatches[0], M, schedule->leaner ? schedule->leaner : "not named");
        for (int r = 0; r < P && schedule->leaner; r++) expect_less(schedule->leaner, plan, r);
        pp_plan_free(plan);
    }
}

static int count(const struct pp_plan *plan, int kind)
{
    int n = 0;
    for (int64_t i = 0; i < plan->ntasks; i++) n += plan->tasks[i].kind == kind;
    return n;
}

static void test_counts(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("interleaved", 4, 2, 8);
    spec.replicas = 2;
    spec.checkpoint = PP_CHECKPOINT_EXCEPT_LAST;
    struct pp_plan *plan = build(&spec);
    static const int expected[PP_KINDS] = {
        [PP_F] = 64,          [PP_B] = 64,   [PP_R] = 56,       [PP_XFER_F] = 56, [PP_XFER_B] = 56,
        [PP_REDUCE_GRAD] = 8, [PP_NORM] = 8, [PP_NORM_ALL] = 1, [PP_STEP] = 8};
    for (int k = 0; k < PP_KINDS; k++) assert_int_equal(count(plan, k), expected[k]);
    pp_plan_free(plan);

    /* 1F1B, P=256, M=2048: the graph of published simulator comparisons has 2,093,056 tasks. */
    spec = spec_of("1f1b", 256, 1, 2048);
    spec.optimizer = false;
    plan = build(&spec);
    assert_int_equal(plan->ntasks, 2093056);
    assert_int_equal(pp_plan_check(plan), PP_OK);
    assert_true(sizeof(struct pp_task) + 6 <= 64);
    pp_plan_free(plan);
}

static void test_hash(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("1f1b", 2, 1, 4);
    struct pp_plan *a = build(&spec), *b = build(&spec);
    assert_true(a->hash == b->hash && a->hash == pp_plan_hash(a));
    pp_plan_free(b);
    spec.checkpoint = PP_CHECKPOINT_ALWAYS;
    b = build(&spec);
    assert_true(a->hash != b->hash);
    pp_plan_free(b);
    spec = spec_of("1f1b", 2, 1, 4);
    spec.rounds_weights = true;
    b = build(&spec);
    assert_true(a->hash != b->hash);
    pp_plan_free(b);
    static const int rows[] = {3, 3, 3, 2};
    spec = spec_of("1f1b", 2, 1, 4);
    spec.rows = rows;
    b = build(&spec);
    assert_true(a->hash != b->hash);
    assert_int_equal(b->first_row[3], 9);
    pp_plan_free(a);
    pp_plan_free(b);
}

/* A forward of rank 0 writes a send slot only after an earlier transfer emptied it; a fast sender is held by the
 * receiver. */
static void test_slots(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("gpipe", 2, 1, 8);
    struct pp_plan *plan = build(&spec);
    int waits = 0, slots = 0;
    for (int64_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *t = &plan->tasks[i];
        if (t->kind == PP_F && t->stage == 0 && t->dep[1] >= 0) {
            waits++;
            assert_int_equal(plan->tasks[t->dep[1]].kind, PP_XFER_F);
            assert_int_equal(plan->tasks[t->dep[1]].in, t->out);
        }
    }
    for (int i = 0; i < plan->npools; i++)
        if (plan->pools[i].kind == PP_POOL_RECV) slots += plan->pools[i].slots;
    assert_int_equal(waits, 6);
    assert_int_equal(slots, 4);
    pp_plan_free(plan);
}

static void refuse(const char *schedule, int p, int v, int m, const char *text)
{
    struct pp_plan *plan = NULL;
    struct pp_plan_spec spec = spec_of(schedule, p, v, m);
    assert_int_equal(pp_plan_build(&spec, &plan), PP_USAGE);
    assert_null(plan);
    if (!strstr(pp_message(), text)) fail_msg("\"%s\" does not contain \"%s\"", pp_message(), text);
}

/* All of them, whole. */
static void test_names(void **state)
{
    (void)state;
    char names[1024] = "";
    for (int i = 0; pp_schedule_at(i); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? "|" : "", pp_schedule_at(i)->name);
    assert_string_equal(pp_schedules.names(), names);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("gpipe", 2, 2, 4, "--virtual must be 1");
    refuse("zbv", 2, 1, 4, "two stages per rank: --virtual must be 2, not 1");
    refuse("dualpipev", 2, 3, 6, "--virtual must be 2");
    refuse("interleaved", 4, 2, 9, "8 and 10 microbatches work");
    refuse("zero", 4, 2, 9, pp_schedules.names());
    refuse("1f1b", 0, 1, 1, "at least 1");
}

/* Lists need not follow the ids, as long as nothing waits for ever: a send may be issued after the next forward. An end
 * that is missing is found. */
static void test_other_issue_orders(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("gpipe", 2, 1, 4);
    spec.recv_buffers = 0;
    struct pp_plan *plan = build(&spec);
    int32_t *list = plan->issue, send = list[1], forward = list[2];
    assert_int_equal(plan->tasks[pp_issue_task(send)].kind, PP_XFER_F);
    assert_int_equal(plan->tasks[pp_issue_task(forward)].kind, PP_F);
    list[1] = forward;
    list[2] = send;
    if (pp_plan_check(plan) != PP_OK) fail_msg("%s", pp_message());
    list[1] = send;
    list[2] = forward;
    plan->issue_start[plan->ranks]--;
    assert_int_equal(pp_plan_check(plan), PP_INPUT);
    assert_non_null(strstr(pp_message(), "missing in an issue list"));
    plan->issue_start[plan->ranks]++;
    assert_int_equal(pp_plan_check(plan), PP_OK);
    pp_plan_free(plan);
}

/* Orders that no builder can serve: rank 1 wants microbatch 1 first, rank 0 needs its gradient before it goes on. */
static void test_deadlock(void **state)
{
    (void)state;
    struct pp_order orders[2] = {0};
    static const int stage_rank[] = {0, 1};
    assert_int_equal(pp_order_add(&orders[0], PP_F, 0, 0), PP_OK);
    assert_int_equal(pp_order_add(&orders[0], PP_B, 0, 0), PP_OK);
    assert_int_equal(pp_order_add(&orders[0], PP_F, 0, 1), PP_OK);
    assert_int_equal(pp_order_add(&orders[0], PP_B, 0, 1), PP_OK);
    for (int m = 1; m >= 0; m--) {
        assert_int_equal(pp_order_add(&orders[1], PP_F, 1, m), PP_OK);
        assert_int_equal(pp_order_add(&orders[1], PP_B, 1, m), PP_OK);
    }
    struct pp_plan_spec spec = spec_of("made by hand", 2, 1, 2);
    struct pp_plan *plan = NULL;
    assert_int_equal(pp_plan_build_orders(&spec, orders, stage_rank, &plan), PP_USAGE);
    assert_non_null(strstr(pp_message(), "rank 0 waits for the input of B of stage 0, microbatch 0"));
    orders[1].n = 3;
    assert_int_equal(pp_plan_build_orders(&spec, orders, stage_rank, &plan), PP_INPUT);
    assert_non_null(strstr(pp_message(), "has no backward"));
    free(orders[0].ops);
    free(orders[1].ops);
}

/* Of many ranks that wait the first six are named, each whole. */
static void test_deadlock_of_many(void **state)
{
    (void)state;
    enum { RANKS = 10 };
    struct pp_order orders[RANKS] = {0};
    int stage_rank[RANKS];
    for (int r = 0; r < RANKS; r++) {
        stage_rank[r] = r;
        for (int i = 0; i < 2; i++) {
            const int m = r % 2 ? 1 - i : i; /* neighbours want another microbatch first */
            assert_int_equal(pp_order_add(&orders[r], PP_F, r, m), PP_OK);
            assert_int_equal(pp_order_add(&orders[r], PP_B, r, m), PP_OK);
        }
    }
    struct pp_plan_spec spec = spec_of("made by hand", RANKS, 1, 2);
    struct pp_plan *plan = NULL;
    assert_int_equal(pp_plan_build_orders(&spec, orders, stage_rank, &plan), PP_USAGE);
    const char *end = strstr(pp_message(), "rank 5 waits for the input of ");
    assert_non_null(end);
    assert_null(strchr(end, ';'));
    for (int r = 0; r < RANKS; r++) free(orders[r].ops);
}

/* Most ranks wait most of the time. Where each turn looked at all of them, this took 20 s of a processor. */
static void test_many_ranks(void **state)
{
    (void)state;
    struct pp_plan_spec spec = spec_of("gpipe", 32768, 1, 2);
    const clock_t begun = clock();
    struct pp_plan *plan = build(&spec);
    assert_true(clock() - begun < 5 * (int64_t)CLOCKS_PER_SEC);
    pp_plan_free(plan);
}

/* Whole and halved backward passes of one stage: which task writes the gradients first could not be told. So all are
 * halved. */
static void test_mixed_backward(void **state)
{
    (void)state;
    static const struct pp_op orders[3][6] = {
        {{0, 0, PP_F, 0}, {0, 1, PP_F, 0}, {0, 0, PP_I, 0}, {0, 0, PP_W, 0}, {0, 1, PP_I, 0}, {0, 1, PP_W, 0}},
        {{0, 0, PP_F, 0}, {0, 1, PP_F, 0}, {0, 0, PP_B, 0}, {0, 1, PP_I, 0}, {0, 1, PP_W, 0}},
        {{0, 0, PP_F, 0}, {0, 1, PP_F, 0}, {0, 0, PP_I, 0}, {0, 0, PP_W, 0}, {0, 1, PP_B, 0}}};
    static const int stage_rank[] = {0};
    struct pp_plan_spec spec = spec_of("made by hand", 1, 1, 2);
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) {
        struct pp_order order = {0};
        struct pp_plan *plan = NULL;
        for (int k = 0; k < (i ? 5 : 6); k++)
            assert_int_equal(pp_order_add(&order, orders[i][k].kind, 0, orders[i][k].microbatch), PP_OK);
        assert_int_equal(pp_plan_build_orders(&spec, &order, stage_rank, &plan), PP_OK);
        assert_int_equal(pp_plan_check(plan), PP_OK);
        hash[i] = plan->hash;
        pp_plan_free(plan);
        free(order.ops);
    }
    assert_int_equal(hash[0], hash[1]);
    assert_int_equal(hash[0], hash[2]);
}

static void test_chunk_rows(void **state)
{
    (void)state;
    int rows[20];
    assert_int_equal(pp_chunk_rows(20, 8, rows), 7);
    assert_int_equal(rows[0], 3);
    assert_int_equal(rows[6], 2);
    assert_int_equal(pp_chunk_rows(10, 8, rows), 5);
    assert_int_equal(pp_chunk_rows(4, 4, rows), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_shapes),
        cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_leaner),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_deadlock_of_many),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_chunk_rows),
        cmocka_unit_test(test_mixed_backward),
        cmocka_unit_test(test_other_issue_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
