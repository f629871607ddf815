/* SPDX-License-Identifier: Apache-2.0
 *
 * ppreport --why: each cause alone is found in its row, and the rows add up to the gap, whatever the traces are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "analysis/why.h"
#include "tests/unit/synthetic_db.h"

#define PATH "why.db"

/* What happens in a run beyond the made-up lengths of its tasks. */
struct habits {
    int64_t longer_ns[PP_KINDS];  /* each task of the kind */
    int64_t poll_ns;              /* between two computations of a rank */
    int64_t slot_ns;              /* a computation waits for memory */
    int64_t receiver_ns;          /* a receive is posted so long after its send */
    int64_t between_ns, other_ns; /* a step of worker 0 over its makespan; a batch over the traced step */
};

/* One microbatch on one rank, which is two workers. */
static const struct synthetic_case two_workers = {"gpipe", 1, 1, 1, 1, PP_CHECKPOINT_NEVER, 0, 2};
static const struct synthetic_case two_ranks = {"1f1b", 2, 1, 4, 1, PP_CHECKPOINT_NEVER, 0};
/* First and last stage on two ranks of three, or on one: the sum of their gradients comes behind those over
 * replicas, and behind it norm and step. */
static const struct synthetic_case tied_ranks = {"1f1b", 3, 1, 4, 2, PP_CHECKPOINT_NEVER, 0, .tied = true},
                                   tied_rank = {"gpipe", 1, 1, 4, 1, PP_CHECKPOINT_NEVER, 0, .tied = true};

/* One step of one replica, of the first worker of each rank; returns its makespan (it begins at 0). */
static int64_t sweep(const struct pp_plan *plan, const struct habits *h, struct pp_trace *trace)
{
    int64_t *end = calloc((size_t)plan->ntasks, sizeof *end),
            *lane_free = calloc((size_t)plan->nlanes, sizeof *lane_free);
    int64_t last = 0;
    for (int32_t i = 0; i < plan->ntasks; i++) {
        const struct pp_task *task = &plan->tasks[i];
        const struct pp_lane *lane = &plan->lanes[task->lane];
        const bool computes = pp_kinds[task->kind].computes, moves = lane->kind == PP_LANE_CHANNEL;
        int64_t posted = lane_free[task->lane], start = synthetic_ready(task, end);
        if (computes && posted > 0) posted += h->poll_ns;
        if (posted > start) start = posted;
        if (computes && start > 0) start += h->slot_ns;
        const int64_t send = start;
        if (moves) start += h->receiver_ns;
        end[i] = lane_free[task->lane] = start + synthetic_ns(plan, task) + h->longer_ns[task->kind];
        if (moves) {
            synthetic_event(trace, lane->src * plan->members, i, PP_SIDE_SEND, send, start, end[i]);
            synthetic_event(trace, lane->dst * plan->members, i, PP_SIDE_RECV, start, start, end[i]);
        } else {
            for (int k = 0; k < pp_lane_ranks(plan, lane); k++)
                synthetic_event(trace, pp_lane_rank(lane, k) * plan->members, i, PP_SIDE_RUN, computes ? posted : start,
                                start, end[i]);
        }
        if (computes && end[i] > last) last = end[i];
    }
    free(end);
    free(lane_free);
    return last;
}

static void store(struct pp_db *db, const struct synthetic_case *c, bool predicted, const struct habits *h)
{
    struct synthetic s;
    struct pp_trace trace = {0};
    int64_t run;
    synthetic_open(&s, c);
    struct pp_run info = {
        predicted ? "ppsim" : "ppexec", "cpu", "synthetic", "inproc", predicted ? "profile" : NULL, 1, 2};
    must(pp_db_run_begin(db, &info, &s.config, &s.job, &run));
    must(pp_db_add_tasks(db, &s.job, s.job.train));
    const int64_t ns = sweep(s.job.train, h, &trace) + h->between_ns;
    must(pp_db_add_events(db, run, s.job.train, &trace));
    if (!predicted)
        must(pp_db_add_step(db, run, &(struct pp_db_step){.ns = ns, .tokens = 700, .loss = 5.0, .traced = true}));
    struct pp_run_result result = {.ms_per_batch = (double)(ns + h->other_ns) / 1e6,
                                   .bubble = NAN,
                                   .makespan_ms = NAN,
                                   .test_loss = NAN,
                                   .lower_bound_ms = NAN,
                                   .status = "ok"};
    must(pp_db_run_end(db, run, &result));
    pp_trace_clear(&trace);
    synthetic_close(&s);
}

static struct pp_db *fresh(void)
{
    struct pp_db *db;
    unlink(PATH);
    must(pp_db_open(PATH, PP_DB_WRITE, &db));
    return db;
}

static void check_sums(const struct pp_path *path, int64_t batch_ns)
{
    int64_t sum = 0;
    for (int c = 0; c < PP_CAUSES; c++) sum += path->cause_ns[c];
    assert_int_equal(sum, batch_ns);
    for (int c = 0; c < PP_CAUSE_OUTSIDE; c++) assert_true(path->cause_ns[c] >= 0);
}

static void add_profile(struct pp_db *db)
{
    struct synthetic s;
    int64_t run;
    synthetic_open(&s, &two_ranks);
    s.config.split = "parameters"; /* another cut of the same model */
    struct pp_run info = {"ppprof", "cpu", "synthetic", NULL, NULL, 1, 2};
    must(pp_db_run_begin(db, &info, &s.config, NULL, &run));
    for (int load = 1; load <= 2; load++) {
        struct pp_sample sample = {
            .name = "B 4l seq35 rows5", .load = load, .count = 9, .median_ns = 3000 + 1000 * load};
        must(pp_db_add_sample(db, run, PP_SAMPLE_TASK, &sample));
    }
    struct pp_run_result result = {.status = "ok"};
    must(pp_db_run_end(db, run, &result));
    synthetic_close(&s);
}

static struct pp_why why_of(const struct synthetic_case *c, bool profile, const struct habits *predicted,
                            const struct habits *measured)
{
    struct pp_db *db = fresh();
    struct pp_table table;
    struct pp_why why;
    if (profile) add_profile(db);
    store(db, c, true, predicted);
    store(db, c, false, measured);
    must(pp_compare_read(db, 0, &table));
    must(pp_why_read(db, &table, 0, &why));
    check_sums(&why.predicted, why.predicted_ns);
    check_sums(&why.measured, why.measured_ns);
    pp_table_free(&table);
    must(pp_db_close(db));
    return why;
}

/* Only this cause tells the two runs apart, by a whole number of times `once_ns`. */
static void check_only(const struct pp_why *why, enum pp_cause cause, int64_t once_ns)
{
    for (int c = 0; c < PP_CAUSES; c++) {
        const int64_t difference = why->measured.cause_ns[c] - why->predicted.cause_ns[c];
        if (c != (int)cause && difference != 0)
            fail_msg("%s is %lld ns off, but %s was changed", pp_cause_names[c], (long long)difference,
                     pp_cause_names[cause]);
        if (c == (int)cause) assert_true(difference > 0 && difference % once_ns == 0);
    }
    assert_int_equal(why->measured_ns - why->predicted_ns,
                     why->measured.cause_ns[cause] - why->predicted.cause_ns[cause]);
}

static void test_each_cause(void **state)
{
    (void)state;
    static const struct {
        enum pp_cause cause;
        struct habits habits;
        const struct synthetic_case *c; /* NULL: two_ranks */
    } cases[] = {
        {PP_CAUSE_F, {.longer_ns[PP_F] = 1009}},
        {PP_CAUSE_B, {.longer_ns[PP_B] = 1009}},
        {PP_CAUSE_MOVING, {.longer_ns = {[PP_XFER_F] = 1009, [PP_XFER_B] = 1009}}},
        {PP_CAUSE_WAITING, {.receiver_ns = 1009}},
        {PP_CAUSE_WAITING, {.slot_ns = 1009}},
        {PP_CAUSE_POLLING, {.poll_ns = 1009}},
        {PP_CAUSE_COMBINING, {.longer_ns[PP_NORM] = 1009}},
        {PP_CAUSE_COMBINING, {.longer_ns[PP_NORM_ALL] = 1009}},
        {PP_CAUSE_STEP, {.longer_ns[PP_STEP] = 1009}},
        {PP_CAUSE_COMBINING, {.longer_ns[PP_REDUCE_TIED] = 1009}, &tied_ranks},
        {PP_CAUSE_COMBINING, {.longer_ns[PP_REDUCE_GRAD] = 1009}, &tied_ranks},
        {PP_CAUSE_COMBINING, {.longer_ns[PP_REDUCE_TIED] = 1009}, &tied_rank},
        {PP_CAUSE_OUTSIDE, {.between_ns = 1009}},
        {PP_CAUSE_UNTRACED, {.other_ns = 1009}},
    };
    const struct habits none = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_why why = why_of(cases[i].c ? cases[i].c : &two_ranks, false, &none, &cases[i].habits);
        if (cases[i].habits.slot_ns == 0) check_only(&why, cases[i].cause, 1009);
        assert_true(why.measured.cause_ns[cases[i].cause] > why.predicted.cause_ns[cases[i].cause]);
        assert_int_equal(why.measured.cause_ns[PP_CAUSE_RESIDUAL], 0);
        pp_why_free(&why);
    }
}

/* Loaded tasks take 5/4 of their time alone: while both ranks compute, a fifth of it is lost. */
static void test_sharing(void **state)
{
    (void)state;
    const struct habits none = {0};
    struct pp_why without = why_of(&two_ranks, false, &none, &none), with = why_of(&two_ranks, true, &none, &none);
    const int64_t *alone = without.measured.cause_ns, *shared = with.measured.cause_ns;
    assert_int_equal(alone[PP_CAUSE_SHARING], 0);
    assert_true(shared[PP_CAUSE_SHARING] > 0);
    assert_true(shared[PP_CAUSE_SHARING] < alone[PP_CAUSE_B] / 5);
    assert_int_equal(shared[PP_CAUSE_SHARING] + shared[PP_CAUSE_B], alone[PP_CAUSE_B]);
    assert_int_equal(shared[PP_CAUSE_F], alone[PP_CAUSE_F]);
    pp_why_free(&with);
    pp_why_free(&without);
}

/* A prediction of one of the two workers stands for both: what of B is lost with both busy, is lost all the time. */
static void test_sharing_of_workers(void **state)
{
    (void)state;
    const struct habits none = {0};
    struct pp_why why = why_of(&two_workers, true, &none, &none);
    const int64_t *causes = why.predicted.cause_ns;
    assert_true(causes[PP_CAUSE_B] > 0);
    assert_int_equal(4 * causes[PP_CAUSE_SHARING], causes[PP_CAUSE_B]);
    pp_why_free(&why);
}

static uint64_t state_of_dice = 1;
static int64_t dice(int64_t n)
{
    state_of_dice = state_of_dice * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(state_of_dice >> 33) % n;
}

/* Times that no machine could have had: late, early, on clocks that disagree. */
static void disturb(struct pp_trace *trace, int64_t most_ns)
{
    for (int64_t i = 0; i < trace->nevents; i++) {
        struct pp_event *e = &trace->events[i];
        e->start_ns += dice(2 * most_ns + 1) - most_ns;
        e->posted_ns = e->start_ns - dice(most_ns + 1);
        e->end_ns = e->start_ns + dice(2 * most_ns + 1);
    }
}

static void test_any_trace(void **state)
{
    (void)state;
    static const struct synthetic_case shapes[] = {
        {"gpipe", 1, 1, 3, 1, PP_CHECKPOINT_ALWAYS, 0},
        {"gpipe", 2, 1, 4, 2, PP_CHECKPOINT_NEVER, 0},
        {"1f1b", 4, 1, 5, 1, PP_CHECKPOINT_NEVER, 0},
        {"interleaved", 2, 2, 4, 3, PP_CHECKPOINT_EXCEPT_LAST, 0},
        {"1f1b", 3, 1, 10, 2, PP_CHECKPOINT_ALWAYS, 0},
        {"interleaved", 4, 2, 4, 1, PP_CHECKPOINT_NEVER, 0},
        {"1f1b", 2, 1, 4, 2, PP_CHECKPOINT_NEVER, 0, 2},
        {"interleaved", 2, 2, 4, 1, PP_CHECKPOINT_ALWAYS, 0, 3},
        {"1f1b", 3, 1, 4, 2, PP_CHECKPOINT_NEVER, 0, 2, true},
        {"zbv", 2, 2, 4, 1, PP_CHECKPOINT_NEVER, 0, 1, true},
    };
    const struct pp_path_sharing sharing = {.alone = {0.5, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1, 1, 0.3}, .cores = 2};
    struct pp_db *db = fresh();
    for (int round = 0; round < 200; round++) {
        const struct synthetic_case *c = &shapes[round % (int)(sizeof shapes / sizeof *shapes)];
        struct synthetic s;
        struct pp_trace trace = {0};
        struct pp_path path;
        struct pp_metrics metrics;
        int64_t run;
        synthetic_open(&s, c);
        struct pp_run info = {"ppexec", "cpu", "synthetic", "inproc", NULL, 1, 2};
        must(pp_db_run_begin(db, &info, &s.config, &s.job, &run));
        must(pp_db_add_tasks(db, &s.job, s.job.train));
        const int shared = s.job.train->members;
        for (int w = 0; w < c->replicas * shared; w++)
            synthetic_step(s.job.train, 0, w / shared, w % shared, 1, 0.3, 1000, &trace);
        if (round >= (int)(sizeof shapes / sizeof *shapes)) disturb(&trace, 1 + dice(round % 2 ? 100000 : 100000000));
        must(pp_db_add_events(db, run, s.job.train, &trace));
        must(pp_path_read(db, run, 0, &sharing, &path));
        check_sums(&path, path.length_ns);
        must(pp_trace_metrics(s.job.train, &trace, 0, 0, 1, &metrics, NULL));
        assert_int_equal(path.length_ns, metrics.makespan_ns);
        assert_int_equal(path.tasks[path.n - 1].until_ns, path.length_ns);
        for (int64_t i = 1; i < path.n; i++) {
            assert_true(path.tasks[i].task > path.tasks[i - 1].task);
            assert_true(path.tasks[i].until_ns >= path.tasks[i - 1].until_ns);
        }
        pp_path_free(&path);
        pp_trace_clear(&trace);
        synthetic_close(&s);
    }
    must(pp_db_close(db));
}

static char *printed(struct pp_db *db, const struct pp_table *table, int format)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    must(pp_why_print(db, table, format, out));
    fclose(out);
    return text;
}

static void test_forms(void **state)
{
    (void)state;
    const struct habits none = {0}, slow = {.longer_ns = {[PP_F] = 30000000, [PP_B] = 3000000}, .between_ns = -200};
    struct pp_db *db = fresh();
    struct pp_table table;
    store(db, &two_ranks, true, &none);
    store(db, &two_ranks, false, &slow);
    must(pp_compare_read(db, 0, &table));
    char *text = printed(db, &table, PP_FORMAT_JSON);
    json_t *json = json_loads(text, 0, NULL), *one = json_array_get(json, 0), *row;
    int64_t sum = 0, stays = 0, gap = json_integer_value(json_object_get(one, "difference_ns"));
    size_t i;
    json_array_foreach(json_object_get(one, "causes"), i, row)
    {
        const int64_t ns = json_integer_value(json_object_get(row, "difference_ns"));
        if (strcmp(json_string_value(json_object_get(row, "cause")), "total") == 0)
            assert_int_equal(ns, gap);
        else
            sum += ns;
    }
    assert_int_equal(sum, gap);
    const size_t last = json_array_size(json_object_get(one, "path")) - 1;
    json_array_foreach(json_object_get(one, "path"), i, row)
    {
        const int64_t ns = json_integer_value(json_object_get(row, "measured_ns"));
        if (i == last)
            assert_int_equal(ns, stays);
        else
            stays += ns;
    }
    json_decref(json);
    free(text);
    text = printed(db, &table, PP_FORMAT_TABLE);
    assert_non_null(strstr(text, "kernels of B"));
    assert_non_null(strstr(text, "makespan"));
    free(text);
    text = printed(db, &table, PP_FORMAT_TSV);
    assert_non_null(strstr(text, "cause\tpredicted_tasks"));
    free(text);
    pp_table_free(&table);
    must(pp_db_close(db));
}

/* Several configurations, replicas and steps: the largest gap comes first, the step of median length is shown. */
static void test_order(void **state)
{
    (void)state;
    static const struct synthetic_case cases[] = {
        {"gpipe", 2, 1, 4, 1, PP_CHECKPOINT_NEVER, 0.02},
        {"interleaved", 2, 2, 4, 2, PP_CHECKPOINT_EXCEPT_LAST, -0.1},
    };
    struct pp_db *db = fresh();
    struct pp_table table;
    struct pp_why why;
    for (int i = 0; i < 4; i++) synthetic_run(db, &cases[i / 2], i % 2 == 0, NULL);
    must(pp_compare_read(db, 0, &table));
    for (int64_t row = 0; row < table.nrows; row++) {
        must(pp_why_read(db, &table, row, &why));
        check_sums(&why.predicted, why.predicted_ns);
        check_sums(&why.measured, why.measured_ns);
        assert_int_equal(why.measured_steps, 3);
        pp_why_free(&why);
    }
    char *text = printed(db, &table, PP_FORMAT_TABLE);
    assert_true(strncmp(text, "small, interleaved", 18) == 0);
    assert_non_null(strstr(text, "small, gpipe"));
    free(text);
    pp_table_free(&table);
    must(pp_db_close(db));
}

static void test_half(void **state)
{
    (void)state;
    const struct habits none = {0};
    struct pp_db *db = fresh();
    struct pp_table table;
    FILE *out = tmpfile();
    store(db, &two_ranks, true, &none);
    must(pp_compare_read(db, 0, &table));
    assert_int_equal(pp_why_print(db, &table, PP_FORMAT_TABLE, out), PP_INPUT);
    assert_non_null(strstr(pp_message(), "predicted and measured"));
    fclose(out);
    pp_table_free(&table);
    must(pp_db_close(db));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_cause),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_any_trace),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_sharing_of_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
