/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs: --times as text, machine files (also broken ones), and what is taken from a profile.
 */
#include "sim/cost_waits.h"
#include "sim/embedded.h"
#include "tests/unit/cost_case.h"

static void test_times(void **state)
{
    (void)state;
    struct pp_given_times t;
    assert_int_equal(pp_given_times_parse("10,12.5,8", &t), PP_OK);
    expect_near(t.forward_ms, 10, 0, "F");
    expect_near(t.input_ms, 12.5, 0, "I");
    expect_near(t.weight_ms, 8, 0, "W");
    expect_near(t.hop_ms, 0, 0, "C");
    assert_int_equal(pp_given_times_parse("1e1,.5,0,0.601", &t), PP_OK);
    expect_near(t.forward_ms, 10, 0, "F");
    expect_near(t.hop_ms, 0.601, 0, "C");
    static const char *const bad[] = {"",        "1",        "1,2",      "1,2,3,4,5", "1,2,3,",  ",1,2,3",
                                      "1,,3",    "-1,2,3",   "1,2,x",    "1 ,2,3",    "1, 2,3",  "nan,1,1",
                                      "inf,1,1", "0x10,1,1", "1e99,1,1", "0,0,0",     "1,2,3,",  "1,2,3;4",
                                      "1,2,3 ",  "+1,2,3",   "1e,2,3",   ".,1,1",     "1,2,3\n", "0,0,0,5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (pp_given_times_parse(bad[i], &t) != PP_USAGE) fail_msg("\"%s\" is taken", bad[i]);
        assert_non_null(strstr(pp_message(), "--times"));
    }
}

/* A stage takes 1/V of the rank's time, B = I + W, R = F, and a task on two microbatches twice as much. */
static void test_times_of_classes(void **state)
{
    (void)state;
    struct pp_plan_spec spec = {.schedule = "interleaved",
                                .ranks = 2,
                                .virtual_stages = 2,
                                .microbatches = 4,
                                .replicas = 1,
                                .checkpoint = PP_CHECKPOINT_ALWAYS,
                                .training = true};
    struct pp_plan *plan = build_plan(&spec);
    struct pp_cost *cost;
    const struct pp_given_times times = {10, 12, 8, 3};
    assert_int_equal(pp_cost_from_times(plan, &times, &cost), PP_OK);
    for (int c = 0; c < plan->nclasses; c++) {
        int kind = plan->classes[c].kind;
        int64_t expected = kind == PP_F || kind == PP_R ? 5000000 : kind == PP_B ? 10000000 : 0;
        assert_int_equal(cost->classes[c].ns, expected);
    }
    assert_int_equal(cost->link.latency_ns, 3000000);
    assert_int_equal(cost->source, PP_COST_TIMES);
    pp_cost_free(cost);
    pp_plan_free(plan);
}

static char *read_machine(const char *name, size_t *size)
{
    char path[512], *text = calloc(1, 65536);
    snprintf(path, sizeof path, "%s/../sim/machines/%s.json", PP_TEST_FILES, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("cannot open %s", path);
    *size = fread(text, 1, 65535, file);
    fclose(file);
    return text;
}

/* Inside the program are the same machines as in the files; all are sound. */
static void test_machines(void **state)
{
    (void)state;
    for (const struct pp_embedded *m = pp_embedded_machines; m->name; m++) {
        struct pp_machine inside, file;
        size_t size;
        char *text = read_machine(m->name, &size);
        if (pp_machine_find(m->name, &inside) != PP_OK) fail_msg("%s", pp_message());
        assert_int_equal(pp_machine_parse(text, size, "file", &file), PP_OK);
        assert_memory_equal(&inside, &file, sizeof file);
        assert_string_equal(inside.name, m->name);
        assert_true(inside.flops_per_ns[PP_FP32] > 0 && inside.bytes_per_ns >= inside.loaded_bytes_per_ns);
        free(text);
    }
    struct pp_machine m;
    assert_int_equal(pp_machine_find(NULL, &m), PP_OK);
    assert_string_equal(m.name, "cpu");
    assert_int_equal(pp_machine_find("cray", &m), PP_USAGE);
    assert_non_null(strstr(pp_message(), "epyc-zen5"));
    assert_true(pp_machine_find("./no-such.json", &m) == PP_INPUT && pp_machine_find("/", &m) == PP_IO);
}

#define EFFICIENCY "\"efficiency\": 0.8"
#define TILES(figures) EFFICIENCY ", \"tiles\": " figures
#define FIGURES                                                                                                        \
    "\"multiprocessors\": 9, \"start_us\": 1, \"peak\": 1, \"load\": 1, \"store\": 1, \"split_us\": 1, \"memory\": 1"

/* One replacement in a sound file, and the words that the message must have. */
static void test_bad_machines(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
    } cases[] = {{"\"cores\": 2", "\"cores\": -2", "cores"},
                 {"\"cores\": 2", "\"cores\": 2.5", "cores"},
                 {"\"cores\": 2", "\"core\": 2", "cores"},
                 {"\"cores\": 2", "\"cores\": 2, \"colour\": 1", "colour"},
                 {"\"cores\": 2", "\"cores\": 2, \"cores\": 2", "line"},
                 {"\"name\": \"cpu\"", "\"name\": \"\"", "name"},
                 {"\"name\": \"cpu\"", "\"name\": \"a name that is much too long for a machine\"", "name"},
                 {"\"name\": \"cpu\"", "\"name\": 5", "name"},
                 {"\"fp32\": {", "\"fp16\": {", "\"precisions.fp16\" is none of fp32, tf32, bf16, fp8"},
                 {"\"efficiency\": 0.8", "\"efficiency\": 1.8", "efficiency"},
                 {"\"efficiency\": 0.8", "\"efficiency\": 0", "efficiency"},
                 {"\"efficiency\": 0.8", "\"eff\": 0.8", "efficiency"},
                 {EFFICIENCY, TILES("5"), "fp32.tiles\" must be an object"},
                 {EFFICIENCY, TILES("{}"), "fp32.tiles.multiprocessors\" is missing"},
                 {EFFICIENCY, TILES("{" FIGURES ", \"a\": 1}"), "fp32.tiles.a\" is not a field"},
                 {EFFICIENCY, EFFICIENCY ", \"tile\": {" FIGURES "}", "and may hold tiles"},
                 {EFFICIENCY, TILES("{" FIGURES "}"), "precisions.fp32\" must have no tiles"},
                 {"\"fp32\": {", "\"bf16\": {", "precisions.fp32\" is missing"},
                 {", \"shared_gb_per_s\": 0", "", "memory.shared_gb_per_s"},
                 {"\"usable_gib\": 0, ", "", "memory.usable_gib"},
                 {"\"usable_gib\": 0", "\"usable_gib\": -1", "memory.usable_gib"},
                 {"\"shared_gb_per_s\": 0", "\"shared_gb_per_s\": -1", "memory.shared_gb_per_s"},
                 {"\"peak_gflops\": 96", "\"peak_gflops\": \"96\"", "peak_gflops"},
                 {"\"gb_per_s\": 15", "\"gb_per_s\": 0", "memory.gb_per_s"},
                 {"\"gb_per_s\": 15", "\"gb_per_s\": 1e400", "line"},
                 {"\"gb_per_s\": 15", "\"gb_per_s\": null", "memory.gb_per_s"},
                 {"\"receiver_copies\": true", "\"receiver_copies\": 1", "link.receiver_copies"},
                 {"\"latency_us\": 2,", "", "link.latency_us"},
                 {"\"reduce\":", "\"reduces\":", "reduce"},
                 {"\"takes\": 0", "\"takes\": 0.91", "reduce.takes\" is more than 0.9"},
                 {"\"takes\": 0", "\"takes\": 0.5", "reduce.takes\" must be 0"},
                 {"\"host\": {\"devices\": 0}", "\"hosts\": 1", "host"},
                 {"\"devices\": 0", "\"device\": 0", "host.devices"},
                 {"\"devices\": 0", "\"devices\": -1", "host.devices"},
                 {"\"devices\": 0", "\"devices\": 2", "host.devices\" must be 0"},
                 {"\"network\": {\"latency_us\": 0,", "\"network\": {", "network.latency_us"},
                 {"\"latency_us\": 0, \"gb_per_s\": 0", "\"latency_us\": 0, \"gb_per_s\": -1", "network.gb_per_s"},
                 {"\"memory\": {", "\"memory\": [{", "line"}};
    size_t size;
    char *text = read_machine("cpu", &size), broken[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pp_machine m;
        const char *at = strstr(text, cases[i].from);
        if (!at) fail_msg("the machine file has no %s", cases[i].from);
        snprintf(broken, sizeof broken, "%.*s%s%s", (int)(at - text), text, cases[i].to, at + strlen(cases[i].from));
        if (pp_machine_parse(broken, strlen(broken), "some.json", &m) != PP_INPUT) fail_msg("%s is taken", cases[i].to);
        if (!strstr(pp_message(), cases[i].message) || !strstr(pp_message(), "some.json"))
            fail_msg("\"%s\" does not say %s", pp_message(), cases[i].message);
    }
    free(text);
}

/* Several hosts without a network between them. */
static void test_hosts_without_network(void **state)
{
    (void)state;
    static const char said[] = "\"gb_per_s\": 45}";
    size_t size;
    struct pp_machine m;
    char *text = read_machine("h100", &size), *at = strstr(text, said);
    assert_non_null(at);
    assert_true(pp_machine_parse(text, size, "h100", &m) == PP_OK && m.host_devices == 8);
    memcpy(at, "\"gb_per_s\": 0 }", sizeof said - 1);
    assert_int_equal(pp_machine_parse(text, size, "h100", &m), PP_INPUT);
    assert_non_null(strstr(pp_message(), "\"network.gb_per_s\" must be 0.001 at least"));
    free(text);
}

/* Cut short anywhere, or with random bytes in it, a file is refused or taken, never more. */
static void test_damaged_machines(void **state)
{
    (void)state;
    size_t size;
    struct pp_machine m;
    char *text = read_machine("h100", &size), *copy = malloc(size);
    for (size_t n = 0; n + 2 < size; n++) {
        memcpy(copy, text, n);
        assert_int_equal(pp_machine_parse(copy, n, "cut", &m), PP_INPUT);
    }
    uint64_t random = 7;
    for (int i = 0; i < 3000; i++) {
        memcpy(copy, text, size);
        for (int k = 1 + random_below(&random, 4); k > 0; k--)
            copy[random_below(&random, (int)size)] = (char)next_random(&random);
        if (pp_machine_parse(copy, size, "damaged", &m) == PP_OK)
            assert_true(m.flops_per_ns[0] + m.flops_per_ns[1] + m.flops_per_ns[2] > 0 && m.link_bytes_per_ns > 0);
    }
    free(copy);
    free(text);
}

static void test_machine_cost(void **state)
{
    (void)state;
    struct pp_job *job = create_job("--replicas 2");
    struct pp_machine m;
    struct pp_cost *cost;
    assert_int_equal(pp_machine_find("cpu", &m), PP_OK);
    assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_OK);
    for (int c = 0; c < cost->nclasses; c++) {
        const struct pp_class *cls = &job->train->classes[c];
        bool transfer = cls->kind == PP_XFER_F || cls->kind == PP_XFER_B;
        assert_true(transfer || cost->classes[c].ns > 0);
        assert_true(cost->classes[c].loaded_ns >= cost->classes[c].ns);
        if (transfer) assert_int_equal(cost->classes[c].bytes, cls->rows * 35 * 200 * 4);
        if (cls->kind == PP_REDUCE_GRAD)
            assert_int_equal(cost->classes[c].bytes, job->model->stages[cls->stage].param_bytes);
    }
    assert_int_equal(cost->workers, 4);
    assert_int_equal(cost->cores, 2);
    pp_cost_free(cost);
    pp_job_free(job);
}

/* A profile in which every shape takes rows * UNIT ns alone and twice that beside another worker (without rows: 7
 * UNIT). */
static void add_profile(struct pp_db *db, const struct pp_job *job, double latency_ns)
{
    const struct pp_run run = {.tool = "ppprof", .device = "cpu", .processes = 1, .cores = 2};
    const struct pp_run_result result = {.status = "ok"};
    int64_t id;
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
    for (int c = 0; c < job->train->nclasses; c++)
        for (int load = 1; load <= 2 && pp_kinds[job->train->classes[c].kind].computes; load++) {
            int rows = job->train->classes[c].rows;
            int64_t ns = (int64_t)(rows ? rows : 7) * UNIT * load;
            struct pp_sample sample = {.name = job->phase[PP_TRAIN].programs[c].signature,
                                       .context = "",
                                       .load = load,
                                       .count = 9,
                                       .median_ns = ns,
                                       .p5_ns = ns,
                                       .p95_ns = ns,
                                       .min_ns = ns};
            assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_TASK, &sample), PP_OK);
        }
    const struct {
        const char *link, *parameter;
        double value;
    } figures[] = {{"inproc p2p", "latency_ns", latency_ns}, {"inproc p2p", "send_overhead_ns", 60},
                   {"inproc p2p", "recv_overhead_ns", 70},   {"inproc p2p", "ns_per_byte", 0.25},
                   {"worker", "task_overhead_ns", 40},       {"worker", "step_overhead_ns", 900}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        assert_int_equal(pp_db_add_link(db, id, figures[i].link, figures[i].parameter, figures[i].value), PP_OK);
    assert_int_equal(pp_db_run_end(db, id, &result), PP_OK);
}

static void test_profile(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    unlink("profile.db");
    assert_int_equal(pp_db_open("profile.db", PP_DB_WRITE, &db), PP_OK);

    struct pp_job *job = create_job("--rows 20 --chunks 5"); /* 4 rows each */
    assert_null(cost_of(job, db, &origin));                  /* an empty database fits nothing */
    add_profile(db, job, 500);
    struct pp_cost *cost = cost_of(job, db, &origin);
    assert_non_null(cost);
    assert_int_equal(origin.from[PP_COST_PROFILE], origin.classes);
    assert_int_equal(cost->source, PP_COST_PROFILE);
    assert_false(origin.link_computed);
    assert_string_equal(origin.transport, "inproc");
    assert_int_equal(cost->link.latency_ns, 500);
    assert_int_equal(cost->link.recv_overhead_ns, 70);
    assert_int_equal(cost->launch_ns, 40);
    assert_int_equal(cost->step_overhead_ns, 900);
    assert_int_equal(cost->cores, 2);
    for (int c = 0; c < cost->nclasses; c++)
        if (job->train->classes[c].kind == PP_B) {
            assert_int_equal(cost->classes[c].ns, 4 * UNIT);
            assert_int_equal(cost->classes[c].loaded_ns, 8 * UNIT);
        }
    pp_cost_free(cost);
    pp_job_free(job);

    job = create_job("--rows 20 --chunks 2"); /* 10 rows each: beyond what was measured; the update was measured */
    cost = cost_of(job, db, &origin);
    assert_int_equal(cost->source, PP_COST_SCALED);
    assert_int_equal(origin.from[PP_COST_SCALED], 6); /* F, two kinds of B */
    assert_int_equal(origin.from[PP_COST_PROFILE], 4);
    assert_non_null(strstr(origin.first[PP_COST_SCALED], "rows10"));
    pp_cost_free(cost);
    add_profile(db, job, 500);
    pp_job_free(job);

    job = create_job("--rows 21 --chunks 3"); /* 7 rows each: between 4 and 10 */
    cost = cost_of(job, db, &origin);
    assert_int_equal(cost->source, PP_COST_INTERPOLATED);
    assert_int_equal(origin.from[PP_COST_INTERPOLATED], 6);
    assert_int_equal(origin.from[PP_COST_MACHINE], 0);
    for (int c = 0; c < cost->nclasses; c++)
        if (job->train->classes[c].kind == PP_F) assert_int_equal(cost->classes[c].ns, 7 * UNIT);
    pp_cost_free(cost);
    pp_job_free(job);

    job = create_job("--rows 20 --chunks 5 --d-model 100"); /* another model: nothing fits */
    assert_null(cost_of(job, db, &origin));
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* What others took of a profile's time: the newest says it; an older one may not know; more than all is refused. */
static void test_taken(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    struct pp_job *job = create_job("--rows 20 --chunks 5");
    struct pp_machine m;
    unlink("taken.db");
    assert_int_equal(pp_db_open("taken.db", PP_DB_WRITE, &db), PP_OK);
    assert_int_equal(pp_machine_find("cpu", &m), PP_OK);
    static const double taken[] = {0, 0.6, 0.3, 1.5};
    for (int i = 0; i < 4; i++) {
        struct pp_cost *cost;
        add_profile(db, job, 500);
        if (i > 0) assert_int_equal(pp_db_add_link(db, i + 1, "worker", PP_WORKER_TAKEN, taken[i]), PP_OK);
        pp_status status = pp_cost_from_profile(job, db, &m, &cost, &origin);
        assert_int_equal(status, i < 3 ? PP_OK : PP_INPUT);
        if (i < 3) expect_near(origin.taken, taken[i], 0, "taken");
        if (i < 3) pp_cost_free(cost);
    }
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* Waits are the times alone for one worker, those beside others for more; nothing may be missing. */
static void test_waits(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    unlink("waits.db");
    assert_int_equal(pp_db_open("waits.db", PP_DB_WRITE, &db), PP_OK);
    for (int stages = 1; stages <= 2; stages++) {
        struct pp_job *job = create_job(stages == 1 ? "--device delay --stages 1 --rows 20 --chunks 5 --straggler 0:3"
                                                    : "--device delay --stages 2 --rows 20 --chunks 5 --jitter 4");
        assert_int_equal(pp_waits_from_profile(job, db, "cpu", &origin), PP_INPUT);
        add_profile(db, job, 500);
        if (pp_waits_from_profile(job, db, "cpu", &origin) != PP_OK) fail_msg("%s", pp_message());
        assert_int_equal(origin.from[PP_COST_PROFILE], origin.classes);
        assert_true(job->times.slow_factor == (stages == 1 ? 3 : 0) && job->times.jitter == (stages == 1 ? 0 : 0.04));
        int64_t message = 4 * config.tokens * config.model.d_model * (int64_t)sizeof(float);
        expect_near(job->times.hop_ms * 1e6, stages == 1 ? 0 : 500 + 60 + 70 + (double)message / 4, 0.5, "hop");
        for (int c = 0; c < job->train->nclasses; c++) {
            const struct pp_class *cls = &job->train->classes[c];
            int64_t ns = pp_kinds[cls->kind].computes ? (cls->rows ? cls->rows : 7) * UNIT : 0;
            int64_t given;
            assert_int_equal(pp_given_class_ns(&job->times, job->train, cls, &given), PP_OK);
            assert_int_equal(given, ns * (stages == 1 ? 3 : 2));
        }
        pp_job_free(job);
    }
    struct pp_job *job = create_job("--device delay --rows 20 --chunks 2"); /* 10 rows: not measured */
    assert_int_equal(pp_waits_from_profile(job, db, "cpu", &origin), PP_INPUT);
    assert_non_null(strstr(pp_message(), "rows10"));
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* The hop is that of the same model, not of the newest profile, whatever straggles. */
static void test_waits_link(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    unlink("waits_link.db");
    assert_int_equal(pp_db_open("waits_link.db", PP_DB_WRITE, &db), PP_OK);
    struct pp_job *job = create_job("--stages 2 --rows 20 --chunks 5");
    add_profile(db, job, 500);
    pp_job_free(job);
    job = create_job("--stages 2 --rows 20 --chunks 5 --d-model 100");
    add_profile(db, job, 9000000);
    pp_job_free(job);
    job = create_job("--device delay --stages 2 --rows 20 --chunks 5 --straggler 1:2 --jitter 4");
    if (pp_waits_from_profile(job, db, "cpu", &origin) != PP_OK) fail_msg("%s", pp_message());
    int64_t message = 4 * config.tokens * config.model.d_model * (int64_t)sizeof(float);
    expect_near(job->times.hop_ms * 1e6, 500 + 60 + 70 + (double)message / 4, 0.5, "hop");
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_times_of_classes),
                                       cmocka_unit_test(test_machines),
                                       cmocka_unit_test(test_bad_machines),
                                       cmocka_unit_test(test_hosts_without_network),
                                       cmocka_unit_test(test_damaged_machines),
                                       cmocka_unit_test(test_machine_cost),
                                       cmocka_unit_test(test_profile),
                                       cmocka_unit_test(test_taken),
                                       cmocka_unit_test(test_waits),
                                       cmocka_unit_test(test_waits_link)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
