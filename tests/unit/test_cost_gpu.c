/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of GPUs: what is taken from a profile, by share.
 */
#include <math.h>

#include "core/plan/movers.h"
#include "tests/unit/cost_case.h"

/* One configuration on a GPU: rows * UNIT ns alone, twice that with its sharers; a tenth of it to issue. */
static void add_gpu_profile(struct pp_db *db, const struct pp_job *job, const char *context, int load, int64_t unit,
                            const char *carrier)
{
    const struct pp_run run = {.tool = "ppprof", .device = "cuda", .processes = 1, .cores = 16};
    static const struct {
        const char *link, *parameter;
        double value;
    } figures[] = {{NULL, "latency_ns", 9000},          {NULL, "send_overhead_ns", 3000},
                   {NULL, "recv_overhead_ns", 5000},    {NULL, "ns_per_byte", 0.004},
                   {NULL, "posts_in_order", 1},         {NULL, "receiver_copies", 0},
                   {"worker", "task_overhead_ns", 700}, {"worker", "step_overhead_ns", 20000}};
    int64_t id;
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
    for (int c = 0; c < job->train->nclasses; c++) {
        if (!pp_kinds[job->train->classes[c].kind].computes) continue;
        const char *signature = job->phase[PP_TRAIN].programs[c].signature;
        struct pp_sample task = {.name = signature, .context = context, .load = load, .count = 3, .median_ns = unit};
        struct pp_sample issue = {
            .name = PP_SAMPLE_ISSUE, .context = signature, .load = load, .count = 3, .median_ns = unit / 10};
        assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_TASK, &task), PP_OK);
        assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_KERNEL, &issue), PP_OK);
    }
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        assert_int_equal(
            pp_db_add_link(db, id, figures[i].link ? figures[i].link : carrier, figures[i].parameter, figures[i].value),
            PP_OK);
    assert_int_equal(pp_db_flush(db), PP_OK);
}

static void test_gpu_profile(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    unlink("gpu.db");
    assert_int_equal(pp_db_open("gpu.db", PP_DB_WRITE, &db), PP_OK);
    struct pp_job *job = create_job("--device cuda --gpus 1 --stages 2 --clip 0");
    add_gpu_profile(db, job, "gpipe never share 1/2", 1, 1000 * UNIT, "nccl p2p");
    add_gpu_profile(db, job, "gpipe never share 1/2", 2, 1500 * UNIT, "nccl p2p");
    add_gpu_profile(db, job, "gpipe never", 1, 600 * UNIT, "nccl p2p"); /* of a whole GPU, and newer */
    struct pp_cost *cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_PROFILE], origin.classes);
    assert_string_equal(origin.transport, "nccl");
    assert_true(cost->host_issues);
    assert_int_equal(cost->sharers, 2);
    assert_int_equal(cost->cores, 0);
    assert_int_equal(cost->launch_ns, 0);
    assert_int_equal(cost->step_overhead_ns, 20000);
    assert_true(cost->link.posts_in_order && !cost->link.receiver_copies);
    assert_int_equal(cost->link.host_wait, PP_HOST_AHEAD);
    assert_int_equal(cost->link.send_overhead_ns + cost->link.recv_overhead_ns, 0);
    for (int c = 0; c < cost->nclasses; c++) {
        bool computes = pp_kinds[job->train->classes[c].kind].computes;
        assert_int_equal(cost->classes[c].host_ns, computes ? 150 * UNIT + 700 : 4000);
        if (!computes) continue;
        assert_int_equal(cost->classes[c].ns, 1000 * UNIT);
        assert_int_equal(cost->classes[c].loaded_ns, 1500 * UNIT);
    }
    pp_cost_free(cost);
    pp_job_free(job);

    job = create_job("--device cuda --stages 2 --clip 0"); /* a GPU for each worker */
    cost = cost_of(job, db, &origin);
    assert_int_equal(cost->sharers, 1);
    assert_int_equal(cost->classes[0].ns, 600 * UNIT);
    assert_int_equal(cost->classes[0].loaded_ns, 600 * UNIT);
    pp_cost_free(cost);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* A GPU's host issues the sums over the workers of a rank, too, which is in no measured time; each as a collective. Two
 * layers in one stage: six sums forward, five backward. */
static void test_host_issues_sums(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    unlink("gpu.db");
    assert_int_equal(pp_db_open("gpu.db", PP_DB_WRITE, &db), PP_OK);
    struct pp_job *job = create_job("--device cuda --gpus 1 --stages 1 --layers 2 --tensor 2 --clip 0");
    add_gpu_profile(db, job, "gpipe never share 1/2", 1, 1000 * UNIT, "nccl p2p");
    add_gpu_profile(db, job, "gpipe never share 1/2", 2, 1500 * UNIT, "nccl p2p");
    struct pp_cost *cost = cost_of(job, db, &origin);
    assert_non_null(cost);
    assert_int_equal(origin.from[PP_COST_PROFILE], origin.classes);
    for (int c = 0; c < cost->nclasses; c++) {
        const int kind = job->train->classes[c].kind, sums = kind == PP_F ? 6 : kind == PP_B ? 5 : 0;
        if (!pp_kinds[kind].computes) continue;
        assert_int_equal(cost->classes[c].host_ns, 150 * UNIT + 700 + sums * 8000);
        assert_int_equal(cost->classes[c].ns - cost->classes[c].sums_ns, 1000 * UNIT);
        assert_true((cost->classes[c].sums_ns > 0) == (sums > 0));
    }
    pp_cost_free(cost);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* Links of every carrier are found by its name, and its hosts wait as its row says. */
static void test_links_of_every_carrier(void **state)
{
    (void)state;
    static const char *const parameters[] = {"latency_ns", "send_overhead_ns", "recv_overhead_ns", "ns_per_byte"};
    struct pp_db *db;
    char options[100], name[64];
    unlink("gpu.db");
    assert_int_equal(pp_db_open("gpu.db", PP_DB_WRITE, &db), PP_OK);
    struct pp_job *job = create_job("--device cuda --gpus 1 --stages 2 --clip 0");
    add_gpu_profile(db, job, "gpipe never share 1/2", 1, 1000 * UNIT, "nccl p2p");
    add_gpu_profile(db, job, "gpipe never share 1/2", 2, 1500 * UNIT, "nccl p2p");
    const struct pp_run run = {.tool = "ppprof", .device = "cuda", .processes = 1, .cores = 16};
    int64_t id;
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
    for (int i = 0; i < pp_nmovers; i++)
        for (int p = 0; p < 4 && pp_movers[i].moves == PP_OF_DEVICES; p++) {
            snprintf(name, sizeof name, "%s p2p", pp_movers[i].name);
            assert_int_equal(pp_db_add_link(db, id, name, parameters[p], 1000 * (i + 1)), PP_OK);
        }
    assert_int_equal(pp_db_flush(db), PP_OK);
    pp_job_free(job);
    for (int i = 0; i < pp_nmovers; i++) {
        struct pp_cost_origin origin;
        if (pp_movers[i].moves != PP_OF_DEVICES) continue;
        snprintf(options, sizeof options, "--device cuda --gpus 1 --stages 2 --clip 0 --transport %s",
                 pp_movers[i].name);
        job = create_job(options);
        struct pp_cost *cost = cost_of(job, db, &origin);
        assert_string_equal(origin.transport, pp_movers[i].name);
        assert_int_equal(cost->link.latency_ns, 1000 * (i + 1));
        assert_int_equal(cost->link.host_wait, pp_movers[i].host_wait);
        pp_cost_free(cost);
        pp_job_free(job);
    }
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* The same for a schedule in a file, with the longest name that a plan keeps: its share of the GPU is not cut off. */
static void test_share_of_a_long_name(void **state)
{
    (void)state;
#define LONG_NAME "a_name_of_as_many_as_31_byt.csv"
    struct pp_db *db;
    struct pp_cost_origin origin;
    FILE *out = fopen(LONG_NAME, "w");
    assert_non_null(out);
    fputs("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", out);
    assert_int_equal(fclose(out), 0);
    unlink("long.db");
    assert_int_equal(pp_db_open("long.db", PP_DB_WRITE, &db), PP_OK);
    struct pp_job *job = create_job("--device cuda --gpus 1 --stages 2 --chunks 2 --clip 0 --checkpoint except_last "
                                    "--schedule " LONG_NAME);
    add_gpu_profile(db, job, LONG_NAME " except_last share 1/2", 1, 1000 * UNIT, "nccl p2p");
    add_gpu_profile(db, job, LONG_NAME " except_last share 1/2", 2, 1500 * UNIT, "nccl p2p");
    add_gpu_profile(db, job, LONG_NAME " except_last", 1, 600 * UNIT, "nccl p2p"); /* of a whole GPU, and newer */
    struct pp_cost *cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_PROFILE], origin.classes);
    assert_int_equal(cost->classes[0].ns, 1000 * UNIT);
    assert_int_equal(cost->classes[0].loaded_ns, 1500 * UNIT);
    pp_cost_free(cost);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* What was measured of workers that shared a GPU says nothing of the way from one GPU to another: a prediction by the
 * profiles of a machine takes that from the machine file. */
static void test_copies_inside_a_gpu_are_no_link(void **state)
{
    (void)state;
    static const struct {
        const char *options, *context, *transport;
    } cases[] = {{"--gpus 1", "gpipe never share 1/2", "inproc"},
                 {"--gpus 1 --machine h200", "gpipe never share 1/2", "inproc"},
                 {"--machine h200", "gpipe never", ""},
                 {"", "gpipe never", "inproc"}}; /* a database may come from a host with several GPUs */
    struct pp_db *db;
    struct pp_cost_origin origin;
    unlink("inside.db");
    assert_int_equal(pp_db_open("inside.db", PP_DB_WRITE, &db), PP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[128];
        snprintf(options, sizeof options, "--device cuda --stages 2 --clip 0 %s", cases[i].options);
        struct pp_job *job = create_job(options);
        add_gpu_profile(db, job, cases[i].context, 1, UNIT, "inproc p2p");
        add_gpu_profile(db, job, cases[i].context, 2, UNIT, "inproc p2p");
        struct pp_cost *cost = cost_of(job, db, &origin);
        assert_string_equal(origin.transport ? origin.transport : "", cases[i].transport);
        assert_int_equal(origin.link_computed, cases[i].transport[0] == '\0');
        pp_cost_free(cost);
        pp_job_free(job);
    }
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* With a named machine, measured links are those within a host; else they are all that there is. */
static void test_measured_links_and_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *machine;
        int64_t hop_ns, norm_ns, latency_ns; /* with bytes 0; of the sum */
        double rate;                         /* bytes/ns of the sum */
    } cases[] = {{"", 9000, 30000, 30000, 250}, {"--machine h200", 20000, 40000, 30000 + 2 * 20000, 45}};
    struct pp_db *db;
    struct pp_cost_origin origin;
    struct pp_machine m;
    unlink("hosts.db");
    assert_int_equal(pp_db_open("hosts.db", PP_DB_WRITE, &db), PP_OK);
    assert_int_equal(pp_machine_find("h200", &m), PP_OK);
    m.host_devices = 3; /* 0 1 2 | 3 4 5 | 6 7: ranks 2 and 3 of replica 0 are apart, and 1 and 2 of replica 1 */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[128];
        snprintf(options, sizeof options, "--device cuda --stages 4 --layers 4 --replicas 2 --clip 1 %s",
                 cases[i].machine);
        struct pp_job *job = create_job(options);
        struct pp_cost *cost;
        add_gpu_profile(db, job, "gpipe never", 1, UNIT, "nccl p2p");
        assert_int_equal(pp_db_add_link(db, (int64_t)i + 1, "nccl allreduce", "latency_ns", 30000), PP_OK);
        assert_int_equal(pp_db_add_link(db, (int64_t)i + 1, "nccl allreduce", "ns_per_byte", 0.004), PP_OK);
        if (pp_cost_from_profile(job, db, &m, &cost, &origin) != PP_OK) fail_msg("%s", pp_message());
        assert_string_equal(origin.transport, "nccl");
        assert_int_equal(origin.link_computed, i == 1);
        for (int c = 0; c < cost->nclasses; c++) {
            const struct pp_class *cls = &job->train->classes[c];
            const struct pp_class_cost *class = &cost->classes[c];
            const bool far =
                i == 1 && ((cls->kind == PP_XFER_F && cls->stage > 0) || (cls->kind == PP_XFER_B && cls->stage > 1));
            assert_int_equal(class->between_hosts, far);
            if (far) assert_int_equal(pp_cost_latency_ns(cost, c), cases[i].hop_ns);
            if (cls->kind == PP_NORM_ALL) assert_int_equal(class->ns, cases[i].norm_ns);
            if (cls->kind == PP_REDUCE_GRAD)
                expect_near((double)class->ns, (double)cases[i].latency_ns + (double)class->bytes / cases[i].rate, 0.51,
                            "sum");
        }
        pp_cost_free(cost);
        pp_job_free(job);
    }
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* The forward of the tutorial's eight layers with so many rows, by the data sheet. longer: their time is added to a
 * profile, so many times as long; 0: it is not. */
static double forward_ns(struct pp_db *db, int rows, double longer)
{
    char options[160];
    struct pp_machine m;
    struct pp_cost *cost;
    int64_t id;
    snprintf(options, sizeof options, "--preset tutorial --replicas 1 --stages 1 --device cuda --rows %d --chunks 1",
             rows);
    struct pp_job *job = create_job(options);
    const struct pp_run run = {.tool = "ppprof", .device = "cuda", .processes = 1, .cores = 16};
    assert_int_equal(pp_machine_find("h100", &m), PP_OK);
    assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_OK);
    const double ns = (double)cost->classes[0].ns;
    assert_int_equal(job->train->classes[0].kind, PP_F);
    struct pp_sample task = {.name = job->phase[PP_TRAIN].programs[0].signature,
                             .context = "",
                             .load = 1,
                             .count = 3,
                             .median_ns = llround(ns * longer)};
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
    if (longer > 0) assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_TASK, &task), PP_OK);
    assert_int_equal(pp_db_flush(db), PP_OK);
    pp_cost_free(cost);
    pp_job_free(job);
    return ns;
}

/* A GPU computes in tiles: 140 tokens take nearly as long as 175, and not half the way from 105. How far on the way the
 * data sheet says. */
static void test_interpolates_along_the_sheet(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    struct pp_machine m;
    struct pp_cost *cost;
    unlink("sheet.db");
    assert_int_equal(pp_db_open("sheet.db", PP_DB_WRITE, &db), PP_OK);
    const double below = forward_ns(db, 3, 1.2), above = forward_ns(db, 5, 1.6), between = forward_ns(db, 4, 0);
    const double part = (between - below) / (above - below);
    assert_true(part > 0.6 && part <= 1);
    struct pp_job *job = create_job("--preset tutorial --replicas 1 --stages 1 --device cuda --rows 4 --chunks 1");
    assert_int_equal(pp_machine_find("h100", &m), PP_OK);
    if (pp_cost_from_profile(job, db, &m, &cost, &origin) != PP_OK) fail_msg("%s", pp_message());
    assert_int_equal(origin.from[PP_COST_INTERPOLATED], 1);
    const double expected = (1 - part) * 1.2 * below + part * 1.6 * above;
    assert_true(fabs((double)cost->classes[0].ns - expected) < 0.001 * expected);
    pp_cost_free(cost);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpu_profile),
                                       cmocka_unit_test(test_share_of_a_long_name),
                                       cmocka_unit_test(test_host_issues_sums),
                                       cmocka_unit_test(test_links_of_every_carrier),
                                       cmocka_unit_test(test_copies_inside_a_gpu_are_no_link),
                                       cmocka_unit_test(test_measured_links_and_hosts),
                                       cmocka_unit_test(test_interpolates_along_the_sheet)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
