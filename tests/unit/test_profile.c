/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiling: quantiles by hand; then a session with a device whose durations are known, so that what is measured,
 * how often, with which memory, and what is stored, can be checked.
 */
#include "tests/unit/profile_case.h"

#include "kernels/profile_arena.h"
#include "kernels/profile_team.h"

static void test_quantiles(void **state)
{
    (void)state;
    struct pp_times times = {0};
    assert_int_equal(pp_times_quantiles(&times).count, 0);
    for (int64_t i = 100; i >= 1; i--) assert_int_equal(pp_times_add(&times, i * 10), PP_OK);
    struct pp_quantiles q = pp_times_quantiles(&times);
    assert_int_equal(q.count, 100);
    assert_int_equal(q.median_ns, 505);
    assert_int_equal(q.p5_ns, 50);
    assert_int_equal(q.p95_ns, 950);
    assert_int_equal(q.min_ns, 10);
    assert_int_equal(q.mean_ns, 505);
    struct pp_times one = {0};
    assert_int_equal(pp_times_add(&one, 7), PP_OK);
    q = pp_times_quantiles(&one);
    assert_int_equal(q.median_ns, 7);
    assert_int_equal(q.p5_ns, 7);
    assert_int_equal(q.p95_ns, 7);
    assert_int_equal(q.mean_ns, 7);
    assert_int_equal(pp_times_merge(&one, &times), PP_OK);
    assert_int_equal(one.n, 101);
    pp_times_free(&one);
    pp_times_free(&times);
}

/* Skewed durations: their mean is above their median, and one disturbed sample does not move it. */
static void test_mean(void **state)
{
    (void)state;
    static const int64_t ns[] = {100, 101, 102, 110, 130, 90, 5000};
    struct pp_times times = {0};
    for (size_t i = 0; i < sizeof ns / sizeof *ns; i++) assert_int_equal(pp_times_add(&times, ns[i]), PP_OK);
    struct pp_quantiles q = pp_times_quantiles(&times);
    assert_int_equal(q.median_ns, 102);
    assert_int_equal(q.mean_ns, (100 + 100 + 101 + 102 + 110 + 130 + 130 + 3) / 7);
    pp_times_free(&times);
    for (int n = 19; n <= 20; n++) { /* one at either end, then two */
        for (int i = 0; i < n; i++)
            assert_int_equal(pp_times_add(&times, i == n - 1 ? 1000000 : i == n - 2 ? 1000 : 10), PP_OK);
        assert_int_equal(pp_times_quantiles(&times).mean_ns, n == 19 ? (17 * 10 + 2 * 1000) / 19 : 10);
        pp_times_free(&times);
    }
    for (int64_t i = 1; i <= 2; i++) assert_int_equal(pp_times_add(&times, 10 * i), PP_OK);
    assert_int_equal(pp_times_quantiles(&times).mean_ns, 15);
    pp_times_free(&times);
}

static void test_shapes(void **state)
{
    (void)state;
    struct pp_profile *profile =
        create("--preset lab --layers 8 --rows 7 --schedule gpipe,1f1b,interleaved --stages 1,2,4 --chunks 1,2,3,7", 2);
    assert_true(profile->npoints > 12);
    assert_int_equal(profile->nloads, 2);
    check_all(profile, false);
    for (int i = 0; i < profile->nshapes; i++)
        assert_int_equal(pp_profile_find(profile, profile->shapes[i].signature, profile->shapes[i].context),
                         i); /* each once */
    pp_profile_free(profile);

    profile = create("--preset lab --layers 8 --stages 1,2,4 --replicas 2", 8); /* 2, 4 and 8 workers busy */
    assert_int_equal(profile->nloads, 4);
    check_all(profile, false);
    pp_profile_free(profile);
}

static void test_impossible(void **state)
{
    (void)state;
    struct pp_profile_setup setup = configure("--preset lab --stages 4", 2); /* two layers */
    struct pp_profile *profile;
    assert_int_equal(pp_profile_create(&setup, &profile), PP_USAGE);
    assert_null(profile);
    profile = create("--preset lab --stages 2,4", 2);
    assert_int_equal(profile->npoints, 1);
    pp_profile_free(profile);
}

static void measure(const char *options, int cores)
{
    struct pp_profile *profile = create(options, cores);
    if (pp_profile_run(profile) != PP_OK) fail_msg("%s: %s", options, pp_message());
    assert_int_equal(bad_frames, 0);
    assert_int_equal(open_devices, 0);
    assert_int_equal(open_blocks, 0);
    check_all(profile, true);
    for (int i = 0; i < profile->nshapes; i++)
        for (int load = 0; load < profile->nloads; load++) {
            const struct pp_profile_shape *shape = &profile->shapes[i];
            const struct pp_profile_cell *cell = &shape->cell[load];
            int64_t expected = (int64_t)CALL_NS * shape->ncalls;
            if (cell->load == 0) continue;
            assert_in_range(cell->ns.min_ns, expected, 2 * expected);
            int calls = 0;
            for (int k = 0; k < cell->nkernels; k++) calls += cell->kernels[k].calls;
            if (cell->nkernels == 0) continue;
            assert_int_equal(calls, shape->ncalls);
            assert_int_equal(cell->kernels_ns, expected);
        }
    assert_true(fabs(pp_profile_drift(profile)) < 1e-9);
    pp_profile_free(profile);
}

static void test_measuring(void **state)
{
    (void)state;
    measure("--preset lab --seconds 0.005 --chunks 2", 1);
    measure("--preset lab --seconds 0.005 --chunks 1,4 --checkpoint always", 2);
    measure("--preset lab --seconds 0.005 --stages 1 --replicas 2 --clip 0.5", 2);
    measure("--preset lab --layers 4 --seconds 0.005 --schedule interleaved,1f1b --chunks 4", 2);
    measure("--preset lab --layers 3 --seconds 0.005 --stages 3", 2); /* the second pair of ranks is 2 and 0 */
}

/* Where a task reads tokens and targets, of workers that share rows: of each microbatch those of a worker alone. */
static void test_tokens_in_memory(void **state)
{
    (void)state;
    const struct pp_profile_setup setup = configure("--preset lab --tokens 8 --chunks 4 --context-parallel 4", 2);
    const struct pp_device_spec spec = {.workers = 1, .threads = 1};
    const struct pp_point point = {.schedule = "gpipe", .ranks = 1, .virtual_stages = 1, .chunks = 4};
    struct pp_job *job;
    struct pp_device *device;
    struct pp_profile_arena arena;
    assert_int_equal(pp_job_create(&config, &point, setup.schedules, setup.ops, false, NULL, &job), PP_OK);
    assert_int_equal(setup.backend->open(&spec, &device), PP_OK);
    assert_int_equal(pp_profile_arena_open(job, setup.backend, device, 0, &arena), PP_OK);
    const int64_t words = 4 * 8 / 4, row = 8 / 4; /* of all four rows, and of each */
    assert_int_equal(job->layout->data_elements, words);
    for (int i = 0; i < job->train->ntasks; i++) {
        const struct pp_task *task = &job->train->tasks[i];
        struct pp_frame frame;
        if (!pp_kinds[task->kind].computes || task->microbatch < 0) continue;
        pp_profile_arena_frame(&arena, task, &frame);
        const int32_t *first = (const int32_t *)(void *)(arena.base + job->layout->data_offset[0]);
        assert_ptr_equal(frame.base[PP_MEM_TOKENS], first + task->microbatch * row);
        assert_ptr_equal(frame.base[PP_MEM_TARGETS], first + words + task->microbatch * row);
        assert_int_equal(frame.context, 4);
        assert_int_equal(frame.context_rank, 3); /* with a window the busiest */
    }
    pp_profile_arena_close(&arena);
    setup.backend->close(device);
    pp_job_free(job);
}

static void test_rounds(void **state)
{
    (void)state;
    int teams[2];
    for (int i = 0; i < 2; i++) {
        struct pp_profile *profile =
            create(i == 0 ? "--preset lab --seconds 0.005 --rounds 1" : "--preset lab --seconds 0.005 --rounds 4", 2);
        if (pp_profile_run(profile) != PP_OK) fail_msg("%s", pp_message());
        check_all(profile, true);
        teams[i] = (int)profile->reference[PP_PROFILE_DURING].n;
        pp_profile_free(profile);
    }
    assert_true(teams[0] > 0);
    assert_int_equal(teams[1], 4 * teams[0]);
}

/* Two samples of a whole task, and one kernel by kernel. */
static void check_tally(struct pp_tally *tally, int ncalls)
{
    if (tally->wanted) {
        assert_true(tally->tasks > 0);
        assert_true(tally->task.n >= 2);
        assert_true(tally->call || tally->seen >= 48);
    }
    pp_times_free(&tally->task);
    for (int k = 0; tally->call && k < ncalls; k++) pp_times_free(&tally->call[k]);
    free(tally->call);
}

/* A team of both ranks of a pipeline, which want all that they compute. */
static void run_team(bool in_turns, int64_t budget_ns)
{
    struct pp_profile_setup setup = configure("--preset lab --chunks 2", 2);
    struct pp_point point = {.schedule = "1f1b", .ranks = 2, .virtual_stages = 1, .chunks = 2};
    struct pp_job *job;
    int64_t reference_ns;
    assert_int_equal(pp_job_create(&config, &point, &pp_schedules, &pp_model_ops, false, NULL, &job), PP_OK);
    int n = job->train->nclasses;
    struct pp_tally *tally = calloc((size_t)(2 * n), sizeof *tally);
    struct pp_team_member members[] = {{0, budget_ns, tally}, {1, budget_ns, tally + n}};
    for (int i = 0; i < 2 * n; i++) {
        const struct pp_class *cls = &job->train->classes[i % n];
        tally[i].wanted = pp_kinds[cls->kind].computes && job->train->stage_rank[cls->stage] == i / n;
    }
    if (pp_team_run(&setup, job, members, 2, in_turns, &reference_ns) != PP_OK) fail_msg("%s", pp_message());
    assert_int_equal(reference_ns, 1000);
    for (int i = 0; i < 2 * n; i++) {
        assert_int_equal(tally[i].cpu.n, tally[i].task.n);
        pp_times_free(&tally[i].cpu);
        check_tally(&tally[i], job->phase[PP_TRAIN].programs[i % n].ncalls);
    }
    free(tally);
    pp_job_free(job);
}

/* What others took of the tasks' time, and what is said of it. */
static void test_taken(void **state)
{
    (void)state;
    static const struct {
        int64_t mean_ns, cpu_ns;
        double taken;
        const char *remark;
    } cases[] = {
        {1000, 1000, 0, ""},
        {1000, 1001, 0, ""}, /* clocks differ by a little */
        {1000, 960, 0.04, ""},
        {1000, 800, 0.2, "cores for 20 % of the time of the measured tasks, whose times are therefore 25 % too long"},
        {100000, 1, 0.99999, "cores for 99 %"},
    };
    char remark[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* the first shape has half of all time under each load, the second is of a load that was not measured */
        struct pp_profile_shape shapes[2] = {0};
        for (int load = 0; load < 2; load++) {
            shapes[0].cell[load].ns.mean_ns = cases[i].mean_ns;
            shapes[0].cell[load].cpu_ns = cases[i].cpu_ns;
        }
        const struct pp_profile profile = {.nloads = 2, .nshapes = 2, .shapes = shapes};
        const double taken = pp_profile_taken(&profile);
        assert_true(fabs(taken - cases[i].taken) < 1e-12);
        assert_int_equal(pp_taken_remark(taken, "ppprof", remark, sizeof remark), *cases[i].remark != '\0');
        assert_non_null(strstr(remark, cases[i].remark));
        assert_true(*cases[i].remark || !*remark);
    }
    const struct pp_profile nothing = {0};
    assert_true(isnan(pp_profile_taken(&nothing)));
    assert_false(pp_taken_remark(NAN, "ppprof", remark, sizeof remark));
    assert_string_equal(remark, "");
}

static void test_turns(void **state)
{
    (void)state;
    run_team(true, 20000000);
    assert_int_equal(together, 1);
    assert_int_equal(again, 0);
    await_another = true;
    run_team(false, 20000000);
    await_another = false;
    assert_int_equal(together, 2);
}

/* With no time for more than the fewest samples. */
static void test_fewest(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) run_team(false, 1);
}

static int64_t stored(struct pp_db *db, const struct pp_profile_shape *shape)
{
    int64_t ns;
    bool found;
    assert_int_equal(
        pp_db_find_task(db, &(struct pp_db_setting){"fake", 1, shape->context}, shape->signature, 2, &ns, &found),
        PP_OK);
    return found ? ns : 0;
}

static void test_interrupted_and_stored(void **state)
{
    (void)state;
    struct pp_profile *profile = create("--preset lab --seconds 0.3 --chunks 2", 2);
    interrupt_after = 500;
    assert_int_equal(pp_profile_run(profile), PP_INTERRUPTED);
    assert_int_equal(open_devices, 0);

    remove("profile.db");
    struct pp_db *db;
    int64_t run_id;
    struct pp_run run = {.tool = "ppprof", .device = "fake", .processes = 1, .cores = 2};
    assert_int_equal(pp_db_open("profile.db", PP_DB_WRITE, &db), PP_OK);
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &run_id), PP_OK);
    if (pp_profile_store(profile, db, run_id) != PP_OK) fail_msg("%s", pp_message());
    for (int i = 0; i < profile->nshapes; i++) {
        const struct pp_profile_cell *cell = &profile->shapes[i].cell[1];
        assert_int_equal(stored(db, &profile->shapes[i]), cell->ns.mean_ns);
    }
    assert_int_equal(pp_db_close(db), PP_OK);
    pp_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_mean),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_measuring),
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_fewest),
        cmocka_unit_test(test_tokens_in_memory),
        cmocka_unit_test(test_interrupted_and_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
