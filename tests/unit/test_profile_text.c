/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles as text: what is looked up in them is what is looked up in the database that they came from.
 */
#include "core/database/db_profile_text.h"
#include "tests/unit/db_case.h"

static void add(struct pp_db *db, int64_t run, enum pp_sample_kind kind, const char *name, const char *context,
                int load, int64_t count, int64_t mean_ns)
{
    const struct pp_sample sample = {.name = name,
                                     .context = context,
                                     .load = load,
                                     .count = count,
                                     .median_ns = mean_ns - 3,
                                     .p5_ns = mean_ns - 5,
                                     .p95_ns = mean_ns + 5,
                                     .min_ns = mean_ns - 9,
                                     .mean_ns = mean_ns,
                                     .flops = NAN,
                                     .moved_bytes = NAN};
    must(pp_db_add_sample(db, run, kind, &sample));
}

/* A GPU that is shared by two and by none, an older profile of it, and a newer one that was interrupted. */
static void fill(struct pp_db *db, const struct pp_config *config)
{
    const struct pp_run about = {
        .tool = "ppprof", .device = "cuda", .device_text = "a GPU\twith a tab", .processes = 1, .cores = 16};
    struct pp_run_result result = pp_result_none;
    result.reference_ns = 305600;
    result.status = "ok";
    static const int ages[] = {2, 1, 3};
    for (int i = 0; i < 3; i++) {
        const int age = ages[i];
        result.status = age == 3 ? "interrupted" : "ok";
        int64_t run;
        must(pp_db_run_begin(db, &about, config, NULL, &run));
        add(db, run, PP_SAMPLE_TASK, "F 2l", "1f1b never share 1/2", 1, 20, 5000 * age);
        add(db, run, PP_SAMPLE_TASK, "F 2l", "1f1b never share 1/2", 2, 20, 7000 * age);
        add(db, run, PP_SAMPLE_TASK, "F 2l", "gpipe never share 1/2", 2, 20, 7700 * age);
        add(db, run, PP_SAMPLE_TASK, "F 2l", "gpipe always share 1/2", 2, 20, 7900 * age);
        add(db, run, PP_SAMPLE_TASK, "F 2l", "gpipe never", 1, 20, 3000 * age);
        if (age == 3) add(db, run, PP_SAMPLE_TASK, "F 9l", "gpipe never", 1, 2, 9000);
        add(db, run, PP_SAMPLE_KERNEL, "gemm_nt 4x4x4", "F 2l share 1/2", 1, 10, 400 * age);
        add(db, run, PP_SAMPLE_KERNEL, "gemm_nt 4x4x4", "F 1l share 1/2", 1, 30, 440 * age);
        add(db, run, PP_SAMPLE_KERNEL, "gemm_nt 4x4x4", "F 2l", 1, 10, 220 * age);
        add(db, run, PP_SAMPLE_KERNEL, "all kernels", "F 2l", 1, 1, 1);
        add(db, run, PP_SAMPLE_KERNEL, PP_SAMPLE_GAP, "F 2l share 1/2", 1, 7, -20);
        add(db, run, PP_SAMPLE_KERNEL, PP_SAMPLE_ISSUE, "F 2l share 1/2", 2, 7, 900 * age);
        add(db, run, PP_SAMPLE_KERNEL, PP_SAMPLE_ISSUE, "F 2l share 1/4", 2, 7, 950 * age);
        must(pp_db_add_link(db, run, "inproc p2p", "ns_per_byte", 1.0 / 3));
        must(pp_db_add_link(db, run, "", "", 7));
        must(pp_db_run_end(db, run, &result));
    }
}

static void collect(void *arg, const char *signature, int load, int64_t ns)
{
    (void)signature, (void)load;
    *(int64_t *)arg += ns;
}

static void expect_times(struct pp_db *db, const struct pp_config *config)
{
    static const struct {
        const char *context;
        int load;
        int64_t task_ns, kernel_ns; /* 0: there is none */
    } cases[] = {{"1f1b never share 1/2", 1, 5000, 430},
                 {"1f1b never share 1/2", 2, 7000, 0},
                 {"1f1b never", 1, 3000, 220},
                 {"1f1b never share 1/4", 1, 0, 0},
                 {"zbv never share 1/2", 2, 7700, 0}};
    int64_t ns;
    int64_t each = 0;
    double value;
    bool found;
    int cores;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        must(pp_db_find_task(db, &(struct pp_db_setting){"cuda", 1, cases[i].context}, "F 2l", cases[i].load, &ns,
                             &found));
        assert_int_equal(found ? ns : 0, cases[i].task_ns);
        must(pp_db_find_kernel_mean(db, &(struct pp_db_setting){"cuda", 1, cases[i].context}, "gemm_nt 4x4x4",
                                    cases[i].load, &ns, &found));
        assert_int_equal(found ? ns : 0, cases[i].kernel_ns);
    }
    must(pp_db_find_kernel_mean(db, &(struct pp_db_setting){"cuda", 1, "x share 1/2"}, PP_SAMPLE_GAP, 1, &ns, &found));
    assert_true(found && ns == -20);
    must(pp_db_find_issue(db, &(struct pp_db_setting){"cuda", 1, "1f1b never share 1/2"}, "F 2l", 2, &ns, &found));
    assert_true(found && ns == 900);
    must(pp_db_find_issue(db, &(struct pp_db_setting){"cuda", 1, "1f1b never share 1/4"}, "F 2l", 1, &ns, &found));
    assert_true(found && ns == 950);
    must(pp_db_find_task(db, &(struct pp_db_setting){"cuda", 1, "gpipe never"}, "F 9l", 1, &ns,
                         &found)); /* in none that ended well */
    assert_true(found && ns == 9000);
    must(pp_db_find_kernel(db, "cuda", 1, "gemm_nt 4x4x4", &ns, &found));
    assert_true(found && ns == (400 * 10 + 440 * 30 + 220 * 10) / 50);
    must(pp_db_each_task(db, &(struct pp_db_setting){"cuda", 1, "zbv never share 1/2"}, "F 2", collect, &each));
    assert_int_equal(each, 5000 + 7700);
    must(pp_db_find_link(db, config, 0, "inproc p2p", "ns_per_byte", &value, &found));
    assert_true(found && value == 1.0 / 3);
    must(pp_db_find_link(db, config, 0, "", "", &value, &found));
    assert_true(found && value == 7);
    must(pp_db_has_profile(db, "cuda", &cores, &found));
    assert_true(found && cores == 16);
    near(number(db, "SELECT max(reference_ns) FROM run"), 305600);
}

static char *written(struct pp_db *db)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    must(pp_profile_text_write(db, out));
    fclose(out);
    return text;
}

static struct pp_db *read_back(const char *text, pp_status expected)
{
    struct pp_db *db;
    FILE *in = *text ? fmemopen((char *)text, strlen(text), "r") : fopen("/dev/null", "r");
    must(pp_db_open(":memory:", PP_DB_WRITE, &db));
    const pp_status status = pp_profile_text_read(in, "some.tsv", db);
    if (status != expected) fail_msg("status %d: %s", status, pp_message());
    fclose(in);
    return db;
}

static void test_there_and_back(void **state)
{
    (void)state;
    struct synthetic s;
    synthetic_open(&s, &two_stages);
    s.config.device = "cuda";
    struct pp_db *db = open_db(PP_DB_WRITE);
    fill(db, &s.config);
    expect_times(db, &s.config);
    char *text = written(db);
    must(pp_db_close(db));
    db = read_back(text, PP_OK);
    expect_times(db, &s.config);
    char *again = written(db);
    assert_string_equal(text, again);
    must(pp_db_close(db));
    free(text);
    free(again);
    synthetic_close(&s);
}

static void test_none(void **state)
{
    (void)state;
    struct pp_db *db = open_db(PP_DB_WRITE);
    assert_int_equal(pp_profile_text_write(db, stdout), PP_INPUT);
    assert_non_null(strstr(pp_message(), "no profile"));
    must(pp_db_close(db));
}

#define HEAD "# ppkit profile 1\n"
#define RUN "run\tcpu\ta cpu\t2\t1\t1\t2026\t1.0\tok\t0\tw\n"

/* What is wrong is named with its line. */
static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line, *why;
    } cases[] = {
        {"SQLite format 3", "line 1", "ppreport --profiles"},
        {HEAD, "line 1", "no line \"run\""},
        {HEAD "link\tinproc p2p\tlatency_ns\t5\n", "line 2", "comes before"},
        {HEAD RUN "link\tinproc p2p\tlatency_ns\n", "line 3", "4 fields, not 3"},
        {HEAD RUN "link\tinproc p2p\tlatency_ns\tfive\n", "line 3", "no number"},
        {HEAD RUN "link\tinproc p2p\tlatency_ns\tinf\n", "line 3", "no number"},
        {HEAD RUN "task\tF\t-\t1\t9\t5\t5\t5\t-5\n", "line 3", "\"-5\""},
        {HEAD RUN "task\tF\t-\t0\t9\t5\t5\t5\t5\n", "line 3", "\"0\""},
        {HEAD RUN "task\tF\t\t1\t9\t5\t5\t5\t5\n", "line 3", "empty"},
        {HEAD RUN "task\tF\t-\t1\t9\t5\t5\t5\t5\t6\n", "line 3", "not 10"},
        {HEAD RUN "task\tF\t-\t1\t9\t5\t5\t5\t5\t6\t7\t8\n", "line 3", "not 12"},
        {HEAD RUN "kernel\tgap\t-\t1\t9\t1e5\n", "line 3", "\"1e5\""},
        {HEAD RUN "kernel\tgap\t-\t1\t9\t9999999999999999999999\n", "line 3", "whole number"},
        {HEAD "\n# a remark\n" RUN "kernels\tgap\t-\t1\t9\t5\n", "line 5", "no word"},
        {HEAD "run\tcpu\ta cpu\t0\t1\t1\t2026\t1.0\tok\t0\tw\n", "line 2", "\"0\""},
        {"", "it is empty", ""},
        {"# ppkit profile 1\r\n", "line 1", "CR LF"},
        {HEAD RUN "kernel\tgap\t-\t1\t9\t5\n", "line 3", "cut short"},
        {HEAD RUN "end\nkernel\tgap\t-\t1\t9\t5\n", "line 4", "after"},
        {HEAD RUN "kernel\tgap\tpart 1/2\t1\t9\t5\n", "line 3", "share 1/N"},
        {HEAD RUN "kernel\tg\303\244p\t-\t1\t9\t5\n", "line 3", "printable"},
        {HEAD RUN "kernel\tgap\t-\t4294967296\t9\t5\n", "line 3", "\"4294967296\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        must(pp_db_close(read_back(cases[i].text, PP_INPUT)));
        if (!strstr(pp_message(), "some.tsv") || !strstr(pp_message(), cases[i].line) ||
            !strstr(pp_message(), cases[i].why))
            fail_msg("\"%s\" does not say %s: %s", pp_message(), cases[i].line, cases[i].why);
    }
    must(pp_db_close(read_back(HEAD RUN "kernel\tgap\t-\t1\t9\t-5\nend", PP_OK)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_there_and_back, empty_folder),
                                       cmocka_unit_test_setup(test_none, empty_folder),
                                       cmocka_unit_test_setup(test_bad, empty_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
