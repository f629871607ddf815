/* SPDX-License-Identifier: Apache-2.0
 *
 * What ppreport makes of a database: tables in three forms, data for pictures, and a Chrome trace.
 */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "analysis/chrome.h"
#include "analysis/compare.h"
#include "analysis/picture_files.h"
#include "analysis/plot.h"
#include "tests/unit/synthetic_db.h"

#define PATH "report.db"

static const struct synthetic_case cases[] = {
    {"gpipe", 2, 1, 4, 1, PP_CHECKPOINT_NEVER, 0.02},
    {"1f1b", 2, 1, 4, 1, PP_CHECKPOINT_NEVER, -0.03},
    {"interleaved", 2, 2, 4, 2, PP_CHECKPOINT_EXCEPT_LAST, 0.05},
};

struct report {
    struct pp_db *db;
    struct pp_table table;
};

/* Runs 1, 2: gpipe, 3, 4: 1f1b, 5, 6: interleaved; odd = predicted. */
static int open_report(void **state)
{
    static struct report report;
    struct pp_db *db;
    unlink(PATH);
    must(pp_db_open(PATH, PP_DB_WRITE, &db));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        synthetic_run(db, &cases[i], true, NULL);
        synthetic_run(db, &cases[i], false, NULL);
    }
    must(pp_db_close(db));
    must(pp_db_open(PATH, PP_DB_READ, &report.db));
    must(pp_compare_read(report.db, 0, &report.table));
    *state = &report;
    return 0;
}

static int close_report(void **state)
{
    struct report *report = *state;
    pp_table_free(&report->table);
    must(pp_db_close(report->db));
    return 0;
}

static int64_t row_of(const struct pp_table *table, const char *schedule)
{
    int64_t row = 0;
    while (strcmp(pp_table_text(table, row, PP_CONF_SCHEDULE), schedule) != 0) row++;
    return row;
}

static void near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) fail_msg("%.9g is not %.9g", value, expected);
}

static void test_compare(void **state)
{
    struct report *r = *state;
    char title[256];
    assert_int_equal(r->table.nrows, 3);
    assert_int_equal(pp_compare_main(&r->table), row_of(&r->table, "interleaved")); /* the newest */
    struct pp_pair pair = pp_compare_pair(&r->table, row_of(&r->table, "1f1b"));
    assert_int_equal(pair.predicted, 3);
    assert_int_equal(pair.measured, 4);
    assert_string_equal(pp_compare_title(&r->table, row_of(&r->table, "gpipe"), title, sizeof title),
                        "small, gpipe, P = 2, V = 1, 4 chunks, D = 1, checkpoint never");
    double p = pp_table_real(&r->table, 0, PP_CONF_PREDICTED_MS);
    double m = pp_table_real(&r->table, 0, PP_CONF_MEASURED_MS);
    near(pp_table_real(&r->table, 0, PP_CONF_ERROR_PERCENT), 100 * (p - m) / m, 1e-9);
}

static void test_run(void **state)
{
    struct report *r = *state;
    struct pp_table one;
    for (int run = 1; run <= 6; run++) {
        must(pp_compare_read(r->db, run, &one));
        assert_int_equal(one.nrows, 1);
        struct pp_pair pair = pp_compare_pair(&one, 0);
        assert_true(pair.predicted == run || pair.measured == run);
        pp_table_free(&one);
    }
    assert_int_equal(pp_compare_read(r->db, 99, &one), PP_INPUT);
    assert_non_null(strstr(pp_message(), "run 99"));
}

static void test_kinds(void **state)
{
    struct report *r = *state;
    struct pp_table kinds;
    struct pp_pair pair = pp_compare_pair(&r->table, row_of(&r->table, "interleaved"));
    must(pp_compare_kinds(r->db, &pair, &kinds));
    int64_t row = 0;
    while (strcmp(pp_table_text(&kinds, row, PP_OF_KIND_KIND), "F") != 0) row++;
    near(pp_table_real(&kinds, row, PP_OF_KIND_PER_STEP), 16, 0); /* 4 stages, 4 microbatches, one replica */
    near(pp_table_real(&kinds, row, PP_OF_KIND_PREDICTED_US), 5000 * 1.05, 1e-6);
    near(pp_table_real(&kinds, row, PP_OF_KIND_MEASURED_US), 5000, 100);
    pp_table_free(&kinds);
}

/* What a function prints, as text; the caller frees it. */
static char *printed(const struct report *r, int format)
{
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    must(pp_compare_print(r->db, &r->table, format, out));
    fclose(out);
    return text;
}

static void test_forms(void **state)
{
    struct report *r = *state;
    char *text = printed(r, PP_FORMAT_JSON);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    assert_int_equal(json_array_size(json), 3);
    size_t i;
    json_t *row;
    json_array_foreach(json, i, row)
    {
        near(json_number_value(json_object_get(row, "predicted_ms")),
             pp_table_real(&r->table, (int64_t)i, PP_CONF_PREDICTED_MS), 1e-6);
        assert_true(json_array_size(json_object_get(row, "kinds")) >= 5);
        assert_int_equal(strlen(json_string_value(json_object_get(row, "plan"))), 16);
    }
    json_decref(json);
    free(text);
    text = printed(r, PP_FORMAT_TSV);
    assert_int_equal(strncmp(text, "preset\tworkload\t", 16), 0);
    assert_non_null(strstr(text, "\n\npredicted_run\tmeasured_run\tkind\t"));
    free(text);
    text = printed(r, PP_FORMAT_TABLE);
    assert_non_null(strstr(text, "interleaved"));
    free(text);
}

static void test_half_a_comparison(void **state)
{
    struct report *r = *state;
    struct pp_db *db;
    unlink("half.db");
    must(pp_db_open("half.db", PP_DB_WRITE, &db));
    struct report half = {.db = db};
    assert_int_equal(pp_compare_read(db, 0, &half.table), PP_INPUT);
    assert_non_null(strstr(pp_message(), "no finished run"));
    synthetic_run(db, &cases[0], true, NULL);
    must(pp_compare_read(db, 0, &half.table));
    char *text = printed(&half, PP_FORMAT_JSON);
    assert_non_null(strstr(text, "\"measured_ms\": null"));
    free(text);
    if (pp_plot_all(db, &half.table, 0, "half") != PP_OK && strstr(pp_message(), "could not draw"))
        fail_msg("%s", pp_message());
    pp_table_free(&half.table);
    must(pp_db_close(db));
    (void)r;
}

/* Every row of plots.def has a script, and ms/batch, of two numbers of replicas, has two; each script has two pictures,
 * if gnuplot is there. */
static void check_scripts(bool gnuplot)
{
    char path[96];
    glob_t scripts;
    struct stat info;
    assert_int_equal(glob("pictures/*.gp", 0, NULL, &scripts), 0);
    assert_int_equal(scripts.gl_pathc, PP_PLOT_KINDS + 1);
    for (size_t i = 0; i < 2 * scripts.gl_pathc && gnuplot; i++) {
        const char *script = scripts.gl_pathv[i / 2];
        snprintf(path, sizeof path, "%.*s%s", (int)strlen(script) - 3, script, i % 2 ? ".png" : ".svg");
        if (stat(path, &info) != 0 || info.st_size == 0) fail_msg("gnuplot made no %s", path);
    }
    globfree(&scripts);
}

/* Nothing is written that pp_picture_files() does not tell, and so nothing that is not compared with other files. */
static void check_names(const char *folder)
{
    struct pp_folder_files files;
    char pattern[96];
    glob_t found;
    must(pp_picture_files(&files));
    snprintf(pattern, sizeof pattern, "%s/*", folder);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int known = 0;
        while (known < files.n && strcmp(files.names[known], strrchr(found.gl_pathv[i], '/')) != 0) known++;
        if (known == files.n) fail_msg("%s is no file of pp_picture_files()", found.gl_pathv[i]);
    }
    globfree(&found);
    free(files.names);
}

static void test_pictures(void **state)
{
    static const char *const files[] = {"ms-per-batch.gp", "ms-per-batch-2-measured.dat", "bubble.dat",
                                        "bubble.gp",       "timeline-predicted.dat",      "timeline-measured.dat",
                                        "timeline.gp",     "memory-predicted.dat",        "memory-measured.dat",
                                        "memory.gp"};
    struct report *r = *state;
    struct stat info;
    char path[96], *folder;
    pp_status status = pp_plot_all(r->db, &r->table, pp_compare_main(&r->table), "pictures");
    assert_true(status == PP_OK || status == PP_UNSUPPORTED); /* without gnuplot the scripts are there all the same */
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "pictures/%s", files[i]);
        if (stat(path, &info) != 0 || info.st_size == 0) fail_msg("%s is missing", path);
    }
    check_scripts(status == PP_OK);
    check_names("pictures");
    must(pp_plot_folder("runs/pp.db", &folder));
    assert_string_equal(folder, "runs/pp-plots");
    free(folder);
    assert_int_equal(pp_plot_all(r->db, &r->table, 0, "no/such/folder"), PP_IO);
}

/* One more script than its kind may write: plots.def must say so first. */
static void test_no_room_for_a_picture(void **state)
{
    const struct report *r = *state;
    struct pp_plots plots = {.db = r->db, .table = &r->table, .folder = ".", .room = 1};
    for (int i = 0; i < 2; i++) {
        FILE *script = pp_plot_begin(&plots, "more", "title", 0);
        assert_non_null(script);
        assert_int_equal(pp_plot_finish(&plots, "more", "", script), i ? PP_INTERNAL : PP_OK);
    }
    assert_int_equal(plots.n, 1);
}

/* Every arrow begins, passes and ends once, in this order of time. */
static void check_flows(const json_t *events, size_t expected)
{
    size_t i, seen = 0;
    const json_t *event;
    static double last[4096];
    static int parts[4096];
    memset(parts, 0, sizeof parts);
    json_array_foreach(events, i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        int part = phase[0] == 's' ? 0 : phase[0] == 't' ? 1 : phase[0] == 'f' ? 2 : -1;
        if (part < 0) continue;
        size_t id = (size_t)json_integer_value(json_object_get(event, "id"));
        double at = json_number_value(json_object_get(event, "ts"));
        assert_int_equal(parts[id]++, part);
        if (part > 0) assert_true(at >= last[id]);
        last[id] = at;
        seen += part == 2;
    }
    assert_int_equal(seen, expected);
}

static void test_chrome(void **state)
{
    struct report *r = *state;
    must(pp_chrome_write(r->db, &r->table, row_of(&r->table, "interleaved"), "trace.json"));
    json_t *json = json_load_file("trace.json", 0, NULL), *events = json_object_get(json, "traceEvents");
    assert_non_null(events);
    size_t i, slices[3] = {0}, transfers = 0;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        slices[json_integer_value(json_object_get(event, "pid"))]++;
        transfers += strncmp(json_string_value(json_object_get(event, "cat")), "XFER", 4) == 0;
        assert_true(json_number_value(json_object_get(event, "dur")) >= 0);
    }
    assert_int_equal(slices[2], 6 * slices[1]); /* three steps of two replicas against one of one */
    check_flows(events, transfers);
    json_decref(json);
    assert_int_equal(pp_chrome_write(r->db, &r->table, 0, "no/such/folder/trace.json"), PP_IO);
}

/* Lines of a file that hold the text. */
static int lines_with(const char *path, const char *text)
{
    char line[1024];
    int n = 0;
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s is missing", path);
    while (fgets(line, sizeof line, file)) n += strstr(line, text) != NULL;
    fclose(file);
    return n;
}

/* Pictures show replica 0 and the first worker of each rank: rank by rank, once. */
static void check_shown(const struct report *r)
{
    int stage, microbatch, rank, tasks = 0;
    char line[256], kind[16];
    const pp_status status = pp_plot_all(r->db, &r->table, pp_compare_main(&r->table), "shared");
    assert_true(status == PP_OK || status == PP_UNSUPPORTED);
    FILE *file = fopen("shared/timeline-measured.dat", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*f %*f %*f %*f %*d %*d %*s %15s %d %d %d", kind, &stage, &microbatch, &rank) != 4) continue;
        if (strcmp(kind, "F") != 0) continue;
        assert_int_equal(stage, rank);
        tasks++;
    }
    fclose(file);
    assert_int_equal(tasks, 8);
    assert_int_equal(lines_with("shared/memory.gp", "array arena_bytes[2] = [90000000.0, 91000000.0]"), 1);
    assert_int_equal(lines_with("shared/memory-measured.dat", "# rank"), 2);
    assert_int_equal(lines_with("shared/ms-per-batch-2.gp", "D = 2, T = 2"), 1);
}

/* Arrows go between workers of one replica that hold the same part of the tensors. */
static void check_workers(const json_t *events)
{
    size_t i, names = 0, arrows = 0;
    const json_t *event;
    int64_t from = -1;
    json_array_foreach(events, i, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const int64_t worker = json_integer_value(json_object_get(event, "tid")) / 4;
        if (phase[0] == 's') from = worker;
        if (phase[0] == 'f') {
            assert_true(from / 4 == worker / 4 && from % 2 == worker % 2 && from != worker);
            arrows++;
        }
        const char *name = json_string_value(json_object_get(json_object_get(event, "args"), "name"));
        if (phase[0] != 'M' || !name || !strstr(name, "compute")) continue;
        char text[64];
        snprintf(text, sizeof text, "replica %d rank %d tensor %d: compute", (int)worker / 4, (int)worker / 2 % 2,
                 (int)worker % 2);
        assert_string_equal(name, text);
        names++;
    }
    assert_int_equal(names, 2 + 8); /* a prediction of one worker of each rank */
    assert_true(arrows > 0);
}

/* Worker w is tensor rank w % 2 of rank w / 2 % 2 of replica w / 4; beside it, the same with whole tensors. */
static void test_shared_tensors(void **state)
{
    (void)state;
    static const struct synthetic_case sides[] = {{"1f1b", 2, 1, 4, 2, PP_CHECKPOINT_NEVER, -0.03},
                                                  {"1f1b", 2, 1, 4, 2, PP_CHECKPOINT_NEVER, -0.03, 2}};
    struct report r;
    char title[256];
    unlink("tensor.db");
    must(pp_db_open("tensor.db", PP_DB_WRITE, &r.db));
    for (int i = 0; i < 4; i++) synthetic_run(r.db, &sides[i / 2], i % 2 == 0, NULL);
    must(pp_compare_read(r.db, 0, &r.table));
    assert_int_equal(r.table.nrows, 2);
    const int64_t row = pp_compare_main(&r.table);
    assert_int_equal(pp_table_integer(&r.table, row, PP_CONF_TENSOR), 2);
    assert_int_equal(pp_table_integer(&r.table, 1 - row, PP_CONF_TENSOR), 1);
    assert_string_equal(pp_compare_title(&r.table, row, title, sizeof title),
                        "small, 1f1b, P = 2, V = 1, 4 chunks, D = 2, T = 2, checkpoint never");
    check_shown(&r);
    must(pp_chrome_write(r.db, &r.table, row, "shared.json"));
    json_t *json = json_load_file("shared.json", 0, NULL), *events = json_object_get(json, "traceEvents");
    assert_non_null(events);
    check_flows(events, (size_t)8 * (1 + 3 * 4));
    check_workers(events);
    json_decref(json);
    pp_table_free(&r.table);
    must(pp_db_close(r.db));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_half_a_comparison),
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_no_room_for_a_picture),
        cmocka_unit_test(test_chrome),
        cmocka_unit_test(test_shared_tensors),
    };
    return cmocka_run_group_tests(tests, open_report, close_report);
}
