/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz_db.h"

#include "analysis/chrome.h"
#include "analysis/compare.h"
#include "analysis/plot.h"
#include "analysis/why.h"
#include "core/database/db_profile_text.h"
#include "kernels/model.h"
#include "sim/predict.h"
#include "tests/unit/synthetic_db.h"

static struct pp_config config;
static struct pp_point *points;
static char path[320];
static uint8_t *bytes;
static size_t nbytes;

const char *fuzz_db_path(void) { return path; }

const uint8_t *fuzz_db_bytes(size_t *size)
{
    *size = nbytes;
    return bytes;
}

static struct pp_predictor predictor(struct pp_db *db)
{
    struct pp_predictor p = {.config = &config, .schedules = &pp_schedules, .ops = &pp_model_ops, .db = db};
    must(pp_machine_find(NULL, &p.machine));
    return p;
}

static void add_profile(struct pp_db *db)
{
    static const char *const parameters[] = {"latency_ns", "send_overhead_ns", "recv_overhead_ns", "ns_per_byte"};
    struct pp_run info = {"ppprof", "cpu", "synthetic", "inproc", NULL, 1, 2};
    struct pp_predictor p = predictor(NULL);
    struct pp_job *job;
    char context[PP_CONTEXT_SIZE];
    int64_t run;
    const struct pp_sample of_kernel = {.name = "gemm", .context = "F", .load = 1, .count = 3, .median_ns = 1000},
                           of_link = {.name = "inproc p2p", .load = 1, .bytes = 4096, .count = 3, .median_ns = 1000};
    must(pp_predict_job(&p, &points[0], &job));
    must(pp_db_run_begin(db, &info, &config, NULL, &run));
    for (int c = 0; c < 2 * job->train->nclasses; c++) {
        if (!pp_kinds[job->train->classes[c / 2].kind].computes) continue;
        struct pp_sample sample = {.name = job->phase[PP_TRAIN].programs[c / 2].signature,
                                   .context = pp_job_context(job, 1, context, sizeof context),
                                   .load = 1 + c % 2,
                                   .median_ns = 1000};
        must(pp_db_add_sample(db, run, PP_SAMPLE_TASK, &sample));
    }
    must(pp_db_add_sample(db, run, PP_SAMPLE_KERNEL, &of_kernel));
    must(pp_db_add_sample(db, run, PP_SAMPLE_LINK, &of_link));
    for (int i = 0; i < 4; i++) must(pp_db_add_link(db, run, "inproc p2p", parameters[i], 5));
    must(pp_db_add_link(db, run, "inproc allreduce", "latency_ns", 5));
    must(pp_db_add_link(db, run, "worker", "task_overhead_ns", 5));
    struct pp_run_result result = {.ms_per_batch = NAN, .reference_ns = 1000, .status = "ok"};
    must(pp_db_run_end(db, run, &result));
    pp_job_free(job);
}

static void script(const char *text)
{
    sqlite3 *sql;
    fuzz_must(sqlite3_open(path, &sql) == SQLITE_OK, "the database opens");
    sqlite3_exec(sql, "PRAGMA legacy_alter_table = ON", NULL, NULL, NULL);
    fuzz_must(sqlite3_exec(sql, text, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(sql));
    sqlite3_close(sql);
}

int fuzz_db_tables(char names[FUZZ_TABLES][FUZZ_NAME])
{
    static const char query[] =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY 1";
    sqlite3 *sql;
    sqlite3_stmt *statement;
    int n = 0;
    fuzz_must(sqlite3_open(path, &sql) == SQLITE_OK, "the database opens");
    fuzz_must(sqlite3_prepare_v2(sql, query, -1, &statement, NULL) == SQLITE_OK, sqlite3_errmsg(sql));
    for (; sqlite3_step(statement) == SQLITE_ROW; n++) {
        fuzz_must(n < FUZZ_TABLES, "there is room for all tables");
        snprintf(names[n], FUZZ_NAME, "%s", (const char *)sqlite3_column_text(statement, 0));
    }
    sqlite3_finalize(statement);
    for (int i = 0; i < n; i++) {
        char text[64];
        snprintf(text, sizeof text, "SELECT 1 FROM %s", names[i]);
        fuzz_must(sqlite3_prepare_v2(sql, text, -1, &statement, NULL) == SQLITE_OK, sqlite3_errmsg(sql));
        fuzz_must(sqlite3_step(statement) == SQLITE_ROW, names[i]); /* it has rows */
        sqlite3_finalize(statement);
    }
    sqlite3_close(sql);
    return n;
}

/* Without rules, as a program of another day could have written it. */
static void free_tables(void)
{
    char tables[FUZZ_TABLES][FUZZ_NAME];
    const int n = fuzz_db_tables(tables);
    for (int i = 0; i < n; i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "CREATE TABLE other AS SELECT * FROM %s; DROP TABLE %s; ALTER TABLE other RENAME TO %s", tables[i],
                 tables[i], tables[i]);
        script(text);
    }
}

void fuzz_db_make(int free_values)
{
    static const char *const words[] = {"ppsim", "--preset", "lab", "--replicas", "2"};
    static const struct synthetic_case c = {"1f1b", 2, 1, 2, 2, PP_CHECKPOINT_NEVER, 0.05};
    struct pp_db *db;
    int npoints;
    pp_log_init("fuzz", true);
    fuzz_config(PP_PPSIM, words, sizeof words / sizeof *words, &config);
    must(pp_points(&config, &pp_schedules, &points, &npoints));
    fuzz_path("pp.db", path, sizeof path);
    must(pp_db_open(path, PP_DB_WRITE, &db));
    synthetic_run(db, &c, true, NULL);
    must(pp_db_add_epoch(db, synthetic_run(db, &c, false, NULL), 0, 5, 1000000));
    add_profile(db);
    must(pp_db_close(db));
    script("UPDATE run SET started = '2026-01-01T00:00:00.000Z', host = 'here'; " /* the same bytes every day */
           "UPDATE run SET ended = started WHERE ended IS NOT NULL");
    if (free_values) free_tables();
    script("PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM");
    FILE *file = fopen(path, "rb");
    struct stat info;
    fuzz_must(file && fstat(fileno(file), &info) == 0, "the database can be read");
    nbytes = (size_t)info.st_size;
    bytes = malloc(nbytes);
    fuzz_must(bytes && fread(bytes, 1, nbytes, file) == nbytes, "the database can be read");
    fclose(file);
}

static void report(struct pp_db *db, int run)
{
    struct pp_table table = {0};
    FILE *out = fopen("/dev/null", "w");
    if (pp_compare_read(db, run, &table) == PP_OK) {
        char folder[300];
        int64_t row = pp_compare_main(&table);
        for (int format = PP_FORMAT_TABLE; format <= PP_FORMAT_JSON; format++) {
            (void)!pp_compare_print(db, &table, format, out);
            (void)!pp_why_print(db, &table, format, out);
        }
        snprintf(folder, sizeof folder, "%s", fuzz_folder());
        struct pp_plots plots = {.db = db, .table = &table, .folder = folder};
        for (int kind = 0; kind < PP_PLOT_KINDS; kind++) (void)!pp_plot_draw(&plots, kind, row);
        (void)!pp_chrome_write(db, &table, row, "/dev/null");
    }
    pp_table_free(&table);
    fclose(out);
}

static void write_profiles(struct pp_db *db)
{
    FILE *out = fopen("/dev/null", "w");
    (void)!pp_profile_text_write(db, out);
    fclose(out);
}

static void simulate(struct pp_db *db)
{
    struct pp_predictor p = predictor(db);
    struct pp_prediction prediction;
    char device[32];
    int64_t ns;
    bool found;
    (void)!pp_db_newest_device(db, device, sizeof device);
    (void)!pp_db_find_kernel(db, "cpu", 1, "gemm", &ns, &found);
    (void)!pp_db_find_issue(db, &(struct pp_db_setting){"cpu", 1, ""}, "F", 1, &ns, &found);
    if (pp_predict(&p, &points[0], false, &prediction) == PP_OK) pp_prediction_free(&prediction);
}

void fuzz_db_read(void)
{
    struct pp_db *db;
    if (pp_db_open(path, PP_DB_READ, &db) != PP_OK) return;
    report(db, 0);
    report(db, 1);
    write_profiles(db);
    simulate(db);
    (void)pp_db_close(db);
}

void fuzz_db_write(void)
{
    struct pp_run info = {"ppexec", "cpu", "synthetic", "inproc", NULL, 1, 2};
    struct pp_db *db;
    int64_t run;
    if (pp_db_open(path, PP_DB_WRITE, &db) != PP_OK) return;
    if (pp_db_run_begin(db, &info, &config, NULL, &run) == PP_OK &&
        pp_db_add_step(db, run, &(struct pp_db_step){.ns = 1000, .tokens = 10, .loss = 1}) == PP_OK)
        (void)pp_db_flush(db);
    (void)pp_db_close(db);
}
