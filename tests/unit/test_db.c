/* SPDX-License-Identifier: Apache-2.0
 *
 * The database: what is written can be read, and views compute what docs/METRICS.md says.
 */
#include "tests/unit/db_case.h"

static void test_schema(void **state)
{
    (void)state;
    static const char *const views[] = {"v_ms_per_batch",  "v_bubble",  "v_memory", "v_task_kind", "v_pair",
                                        "v_configuration", "v_compare", "v_kind",   "v_task_edge"};
    struct pp_db *db = open_db(PP_DB_WRITE);
    near(number(db, "PRAGMA user_version"), 7);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        char text[64];
        snprintf(text, sizeof text, "SELECT count(*) FROM %s", views[i]);
        near(number(db, text), 0);
    }
    must(pp_db_close(db));
    must(pp_db_close(open_db(PP_DB_WRITE)));
    must(pp_db_close(open_db(PP_DB_READ)));
}

static void test_run(void **state)
{
    (void)state;
    struct synthetic s;
    synthetic_open(&s, &two_stages);
    struct pp_db *db = open_db(PP_DB_WRITE);
    int64_t run = begin_run(db, &s, "ppexec");
    must(pp_db_add_tasks(db, &s.job, s.job.train));
    must(pp_db_add_tasks(db, &s.job, s.job.train)); /* does nothing */
    near(number(db, "SELECT count(*) FROM task"), (double)s.job.train->ntasks);
    near(number(db, "SELECT count(*) FROM plan"), 1);
    near(number(db, "SELECT sum(taken_bytes) - sum(freed_bytes) FROM task"), 0);
    near(number(db, "SELECT count(*) FROM task WHERE kind = 'F' AND taken_bytes > 0"), 8);
    near(number(db, "SELECT count(*) FROM run_config"), number(db, "SELECT count(DISTINCT name) FROM run_config"));
    near(number(db, "SELECT value FROM run_config WHERE name = 'd-model'"), s.config.model.d_model);
    near(number(db, "SELECT stages * 1000 + chunks * 10 + replicas FROM run"), 2041);
    near(number(db, "SELECT parameters FROM run"), 12025582);
    must(pp_db_add_epoch(db, run, 0, NAN, 17));
    near(number(db, "SELECT valid_loss IS NULL FROM epoch"), 1);
    struct pp_run_result result = {.ms_per_batch = 12.5, .bubble = NAN, .status = "ok"};
    must(pp_db_run_end(db, run, &result));
    near(number(db, "SELECT ms_per_batch FROM run WHERE status = 'ok' AND bubble IS NULL AND ended IS NOT NULL"), 12.5);
    must(pp_db_close(db));
    synthetic_close(&s);
}

/* More statements than are kept, while one is read from row by row. */
static void test_many_statements(void **state)
{
    (void)state;
    enum { MANY = 3 * PP_DB_STATEMENTS };
    static char texts[MANY][40];
    struct pp_db *db = open_db(PP_DB_WRITE);
    sqlite3_stmt *rows;
    bool found;
    must(pp_db_query(db, "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3", NULL, 0, &rows));
    must(pp_db_row(db, rows, &found));
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < MANY; i++) {
            int64_t value = -1;
            snprintf(texts[i], sizeof texts[i], "SELECT %d", i);
            must(pp_db_integer(db, texts[i], NULL, 0, &value, &found));
            assert_true(found && value == i);
        }
    for (int i = 2; i <= 3; i++) {
        must(pp_db_row(db, rows, &found));
        assert_true(found && sqlite3_column_int(rows, 0) == i);
    }
    must(pp_db_row(db, rows, &found));
    assert_false(found);
    must(pp_db_close(db));
}

static void collect(void *arg, const char *signature, int load, int64_t median_ns)
{
    char *text = arg;
    sprintf(text + strlen(text), "%s/%d/%lld;", signature, load, (long long)median_ns);
}

static void add_times(struct pp_db *db, int64_t run, int64_t ns)
{
    struct pp_sample sample = {.name = "F 1l seq35 rows5",
                               .load = 1,
                               .count = 9,
                               .median_ns = ns,
                               .p5_ns = ns - 1,
                               .p95_ns = ns + 1,
                               .min_ns = ns - 2,
                               .flops = 1e9,
                               .moved_bytes = NAN};
    must(pp_db_add_sample(db, run, PP_SAMPLE_TASK, &sample));
    sample.load = 2, sample.median_ns = ns + 5;
    must(pp_db_add_sample(db, run, PP_SAMPLE_TASK, &sample));
    sample.name = "F 1l seq35 rows%", sample.load = 1;
    must(pp_db_add_sample(db, run, PP_SAMPLE_TASK, &sample));
    sample.name = "gemm", sample.context = "F";
    must(pp_db_add_sample(db, run, PP_SAMPLE_KERNEL, &sample));
    sample.name = "inproc p2p", sample.bytes = 4096;
    must(pp_db_add_sample(db, run, PP_SAMPLE_LINK, &sample));
    must(pp_db_add_link(db, run, "inproc p2p", "latency_ns", 3.5 * (double)ns));
}

/* Of one run: a time of the same schedule with other checkpoints goes before others. */
static void test_other_contexts(void **state)
{
    (void)state;
    struct synthetic s;
    int64_t ns = 0;
    bool found;
    char text[64] = "";
    synthetic_open(&s, &two_stages);
    struct pp_db *db = open_db(PP_DB_WRITE);
    const int64_t run = begin_run(db, &s, "ppprof");
    for (int i = 0; i < 2; i++) {
        const char *context = i ? "gpipe always" : "1f1b always";
        struct pp_sample sample = {.name = "R", .context = context, .load = 1, .median_ns = 55 + i};
        must(pp_db_add_sample(db, run, PP_SAMPLE_TASK, &sample));
    }
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, "1f1b never"}, "R", 1, &ns, &found));
    assert_true(found && ns == 55);
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, "zb-h1 never"}, "R", 1, &ns, &found));
    assert_true(found && ns == 56);
    must(pp_db_knows_words(db, "cpu", 1, "R", &found));
    assert_true(found);
    must(pp_db_knows_words(db, "cpu", 1, " d4096 ", &found));
    assert_false(found);
    must(pp_db_each_task(db, &(struct pp_db_setting){"cpu", 1, "1f1b never"}, "R", collect, text));
    assert_string_equal(text, "R/1/55;");
    must(pp_db_close(db));
    synthetic_close(&s);
}

static void expect_kernel(struct pp_db *db, const char *issued, int64_t mean, int64_t issue)
{
    const struct pp_db_setting setting = {"cpu", 1, "1f1b never"};
    int64_t ns = 0;
    bool found;
    for (int again = 0; again < 2; again++) {
        must(pp_db_find_kernel_mean(db, &setting, "gemm", 1, &ns, &found));
        assert_int_equal(found ? ns : 0, mean);
        must(pp_db_find_issue(db, &setting, issued, 1, &ns, &found));
        assert_int_equal(found ? ns : 0, issue);
    }
}

/* What a look-up has found is kept, but only as long as nothing else can be found. */
static void test_kept_answers(void **state)
{
    (void)state;
    struct synthetic s;
    synthetic_open(&s, &two_stages);
    pp_plan_free(s.job.train);
    s.job.train = NULL;
    struct pp_db *db = open_db(PP_DB_WRITE);
    expect_kernel(db, "F 2l", 0, 0);
    for (int i = 1; i <= 2; i++) {
        const int64_t run = begin_run(db, &s, "ppprof");
        struct pp_sample sample = {.name = PP_SAMPLE_GAP, .context = "F 2l", .load = 1, .count = 1, .median_ns = 1};
        must(pp_db_add_sample(db, run, PP_SAMPLE_KERNEL, &sample));
        expect_kernel(db, "F 2l", i > 1 ? 10 : 0, i > 1 ? 7 : 0);
        sample.name = "gemm", sample.median_ns = 10 * i;
        must(pp_db_add_sample(db, run, PP_SAMPLE_KERNEL, &sample));
        sample.name = PP_SAMPLE_ISSUE, sample.median_ns = 7 * i;
        must(pp_db_add_sample(db, run, PP_SAMPLE_KERNEL, &sample));
        sample.context = "F 2l rows5", sample.median_ns = 99;
        must(pp_db_add_sample(db, run, PP_SAMPLE_KERNEL, &sample));
        expect_kernel(db, "F 2l", 10 * i, 7 * i);
    }
    must(pp_db_run_end(db, 1, &(struct pp_run_result){.status = "ok"})); /* now it goes before the newer one */
    expect_kernel(db, "F 2l", 10, 7);
    expect_kernel(db, "F 2", 10, 0);
    must(pp_db_close(db));
    synthetic_close(&s);
}

static void test_profile(void **state)
{
    (void)state;
    struct synthetic s;
    int64_t ns = 0;
    int cores = 0;
    double value;
    bool found;
    char text[512] = "";
    synthetic_open(&s, &two_stages);
    pp_plan_free(s.job.train);
    s.job.train = NULL;
    struct pp_db *db = open_db(PP_DB_WRITE);
    must(pp_db_has_profile(db, "cpu", &cores, &found));
    assert_false(found);
    add_times(db, begin_run(db, &s, "ppprof"), 100);
    add_times(db, begin_run(db, &s, "ppprof"), 200); /* the newest wins */
    s.config.threads = 7;
    add_times(db, begin_run(db, &s, "ppprof"), 300);
    must(pp_db_has_profile(db, "cpu", &cores, &found));
    assert_true(found && cores == 2);
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, ""}, "F 1l seq35 rows5", 2, &ns, &found));
    assert_true(found && ns == 205);
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 7, ""}, "F 1l seq35 rows5", 1, &ns, &found));
    assert_true(found && ns == 300);
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, "gpipe never"}, "F 1l seq35 rows5", 1, &ns,
                         &found)); /* measured in none */
    assert_true(found && ns == 200);
    struct pp_sample skewed = {.name = "B", .load = 1, .median_ns = 70, .mean_ns = 73};
    must(pp_db_add_sample(db, 1, PP_SAMPLE_TASK, &skewed)); /* what it adds to a sum is its mean */
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, ""}, "B", 1, &ns, &found));
    assert_true(found && ns == 73);
    struct pp_sample here = {.name = "F 1l seq35 rows5", .context = "gpipe never", .load = 1, .median_ns = 77};
    must(pp_db_add_sample(db, 1, PP_SAMPLE_TASK, &here)); /* in the older run */
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, "gpipe never"}, "F 1l seq35 rows5", 1, &ns, &found));
    assert_true(found && ns == 77);
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, "1f1b never"}, "F 1l seq35 rows5", 1, &ns, &found));
    assert_true(found && ns == 200);
    must(pp_db_each_task(db, &(struct pp_db_setting){"cpu", 1, "gpipe never"}, "F 1l seq35 rows5", collect, text));
    assert_string_equal(text, "F 1l seq35 rows5/1/77;F 1l seq35 rows5/2/205;");
    text[0] = '\0';
    must(pp_db_find_task(db, &(struct pp_db_setting){"cuda", 1, ""}, "F 1l seq35 rows5", 1, &ns, &found));
    assert_false(found);
    must(pp_db_find_link(db, &s.config, 0, "inproc p2p", "latency_ns", &value, &found));
    assert_true(found);
    near(value, 1050);
    must(pp_db_find_link(db, &s.config, 0, "mpi p2p", "latency_ns", &value, &found));
    assert_false(found);
    must(pp_db_each_task(db, &(struct pp_db_setting){"cpu", 1, ""}, "F 1l seq35 rows", collect, text));
    assert_string_equal(text, "F 1l seq35 rows%/1/205;F 1l seq35 rows5/1/200;F 1l seq35 rows5/2/205;");

    const struct pp_run_result ok = {.status = "ok"}; /* a profile that ended well beats those that did not */
    must(pp_db_run_end(db, 1, &ok));
    must(pp_db_find_task(db, &(struct pp_db_setting){"cpu", 1, ""}, "F 1l seq35 rows5", 2, &ns, &found));
    assert_true(found && ns == 105);
    text[0] = '\0';
    must(pp_db_each_task(db, &(struct pp_db_setting){"cpu", 1, ""}, "F 1l seq35 rows", collect, text));
    assert_string_equal(text, "F 1l seq35 rows%/1/105;F 1l seq35 rows5/1/100;F 1l seq35 rows5/2/105;");
    must(pp_db_close(db));
}

/* Links, too, of a profile that ended well, unless another fits better; and the device and its cores. */
static void test_best_profile(void **state)
{
    (void)state;
    struct synthetic s;
    int cores = 0;
    double value;
    bool found;
    char device[16];
    const struct pp_run_result ok = {.status = "ok"};
    synthetic_open(&s, &two_stages);
    pp_plan_free(s.job.train);
    s.job.train = NULL;
    struct pp_db *db = open_db(PP_DB_WRITE);
    const int64_t first = begin_run(db, &s, "ppprof");
    add_times(db, first, 100);
    add_times(db, begin_run(db, &s, "ppprof"), 200);
    must(pp_db_run_end(db, first, &ok));
    must(pp_db_find_link(db, &s.config, 0, "inproc p2p", "latency_ns", &value, &found));
    near(value, 350);
    s.config.threads = 7;
    add_times(db, begin_run(db, &s, "ppprof"), 300);
    must(pp_db_find_link(db, &s.config, 0, "inproc p2p", "latency_ns", &value, &found));
    near(value, 1050);
    must(pp_db_flush(db));
    script("UPDATE run SET cores = 64 WHERE id > 1");
    must(pp_db_has_profile(db, "cpu", &cores, &found));
    assert_int_equal(cores, 2);
    script("UPDATE run SET device = 'cuda' WHERE id > 1");
    must(pp_db_newest_device(db, device, sizeof device));
    assert_string_equal(device, "cpu");
    must(pp_db_close(db));
}

/* Medians and quantiles of steps 10, 20, ... ns: warm-up, traced and short steps do not count. */
static void test_ms_per_batch(void **state)
{
    (void)state;
    struct synthetic s;
    synthetic_open(&s, &two_stages);
    struct pp_db *db = open_db(PP_DB_WRITE);
    int64_t run = begin_run(db, &s, "ppexec");
    for (int i = 0; i < 3; i++)
        must(pp_db_add_step(db, run, &(struct pp_db_step){.step = i, .ns = 99000000, .tokens = 700, .loss = NAN}));
    for (int i = 3; i < 23; i++)
        must(pp_db_add_step(db, run,
                            &(struct pp_db_step){.step = i, .ns = 1000000 * (i - 2), .tokens = 700, .loss = NAN}));
    must(pp_db_add_step(db, run, &(struct pp_db_step){.step = 23, .ns = 1, .tokens = 350, .loss = NAN}));
    must(pp_db_add_step(db, run,
                        &(struct pp_db_step){.step = 24, .ns = 98000000, .tokens = 700, .loss = NAN, .traced = true}));
    must(pp_db_flush(db));
    near(number(db, "SELECT plain_steps FROM v_ms_per_batch"), 20);
    near(number(db, "SELECT ms FROM v_ms_per_batch"), 10.5);
    near(number(db, "SELECT p5_ms FROM v_ms_per_batch"), 1);
    near(number(db, "SELECT p95_ms FROM v_ms_per_batch"), 19);
    script("UPDATE run SET ms_per_batch = 77");
    near(number(db, "SELECT ms FROM v_ms_per_batch"), 77);
    must(pp_db_close(db));
    synthetic_close(&s);
}

static void test_compare(void **state)
{
    (void)state;
    struct synthetic_case other = {"gpipe", 2, 1, 2, 1, PP_CHECKPOINT_NEVER, -0.1};
    int64_t predicted_ns, measured_ns;
    struct pp_db *db = open_db(PP_DB_WRITE);
    synthetic_run(db, &two_stages, true, NULL);
    near(number(db, "SELECT count(*) FROM v_compare"), 0);
    near(number(db, "SELECT count(*) FROM v_configuration WHERE newest"), 1);
    int64_t predicted = synthetic_run(db, &two_stages, true, &predicted_ns); /* the newest prediction wins */
    synthetic_run(db, &two_stages, false, NULL);
    int64_t measured = synthetic_run(db, &two_stages, false, &measured_ns);
    synthetic_run(db, &other, false, NULL);
    near(number(db, "SELECT count(*) FROM v_configuration WHERE newest"), 2);
    near(number(db, "SELECT count(*) FROM v_compare"), 1);
    near(number(db, "SELECT predicted_run FROM v_compare"), (double)predicted);
    near(number(db, "SELECT measured_run FROM v_compare"), (double)measured);
    double p = (double)predicted_ns / 1e6, m = (double)measured_ns / 1e6;
    near(number(db, "SELECT predicted_ms FROM v_compare"), p);
    near(number(db, "SELECT error_percent FROM v_compare"), 100 * (p - m) / m);
    near(number(db, "SELECT bubble_error_points FROM v_compare"),
         100 * (number(db, "SELECT predicted_bubble FROM v_compare") -
                number(db, "SELECT measured_bubble FROM v_compare")));
    near(number(db, "SELECT measured_peak_bytes FROM v_compare"), 91000000);
    near(number(db, "SELECT predicted_process_bytes FROM v_compare"), 137000000);
    near(number(db, "SELECT measured_process_bytes FROM v_compare"), 140000000);
    near(number(db, "SELECT predicted_us FROM v_kind WHERE kind = 'F'"), 10000 * 1.05);
    near(number(db, "SELECT per_step FROM v_kind WHERE kind = 'F'"), 8);
    near(number(db, "SELECT predicted_ms FROM v_kind WHERE kind = 'F'"), 8 * 10 * 1.05);
    near(number(db, "SELECT avg(bubble) FROM v_bubble WHERE run = 2"),
         number(db, "SELECT bubble FROM run WHERE id = 2"));
    script("UPDATE run SET status = 'interrupted' WHERE id = 4"); /* only finished runs are compared */
    near(number(db, "SELECT measured_run FROM v_compare"), 3);
    script("UPDATE run SET workload = 'other' WHERE id = 3");
    near(number(db, "SELECT count(*) FROM v_compare"), 0);
    must(pp_db_close(db));
}

/* One chunk makes equal plans of gpipe and 1f1b; each measurement goes with the prediction of its own schedule. */
static void test_same_plan(void **state)
{
    (void)state;
    struct synthetic_case gpipe = {"gpipe", 2, 1, 1, 1, PP_CHECKPOINT_NEVER, 0.1}, other = gpipe;
    other.schedule = "1f1b";
    struct pp_db *db = open_db(PP_DB_WRITE);
    int64_t first = synthetic_run(db, &gpipe, true, NULL), second = synthetic_run(db, &other, true, NULL);
    synthetic_run(db, &gpipe, false, NULL);
    synthetic_run(db, &other, false, NULL);
    near(number(db, "SELECT count(DISTINCT plan_hash) FROM run"), 1);
    near(number(db, "SELECT predicted_run FROM v_compare WHERE schedule = 'gpipe'"), (double)first);
    near(number(db, "SELECT predicted_run FROM v_compare WHERE schedule = '1f1b'"), (double)second);
    script("UPDATE run SET transport = 'mpi' WHERE id = 1"); /* the transport matters more */
    near(number(db, "SELECT predicted_run FROM v_compare WHERE schedule = 'gpipe'"), (double)second);
    must(pp_db_close(db));
}

/* A transfer starts when both ends are posted, whoever reported it. */
static void test_transfer_start(void **state)
{
    (void)state;
    struct synthetic s;
    struct pp_trace trace = {0};
    synthetic_open(&s, &two_stages);
    int32_t transfer = 0;
    while (s.job.train->tasks[transfer].kind != PP_XFER_F) transfer++;
    synthetic_event(&trace, 0, transfer, PP_SIDE_SEND, 40, 40, 90);
    synthetic_event(&trace, 1, transfer, PP_SIDE_RECV, 60, 0, 100);
    struct pp_db *db = open_db(PP_DB_WRITE);
    must(pp_db_add_events(db, begin_run(db, &s, "ppexec"), s.job.train, &trace));
    near(number(db, "SELECT sum(start_ns) FROM event"), 120);
    must(pp_db_add_tasks(db, &s.job, s.job.train));
    near(number(db, "SELECT mean_us FROM v_task_kind"), 0.04);
    trace.events[0].task = (int32_t)s.job.train->ntasks;
    assert_int_equal(pp_db_add_events(db, 1, s.job.train, &trace), PP_INTERNAL);
    must(pp_db_close(db));
    pp_trace_clear(&trace);
    synthetic_close(&s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, empty_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_schema),          TEST(test_run),
        TEST(test_profile),         TEST(test_ms_per_batch),
        TEST(test_compare),         TEST(test_same_plan),
        TEST(test_many_statements), TEST(test_transfer_start),
        TEST(test_best_profile),    TEST(test_other_contexts),
        TEST(test_kept_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
