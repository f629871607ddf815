/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiling: quantiles by hand; then a session with a device whose durations are known, so that what is measured,
 * how often, with which memory, and what is stored, can be checked.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/stats.h"
#include "kernels/kernels.h"
#include "kernels/model.h"
#include "kernels/profile.h"
#include "schedules/schedule.h"

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
    struct pp_times one = {0};
    assert_int_equal(pp_times_add(&one, 7), PP_OK);
    q = pp_times_quantiles(&one);
    assert_int_equal(q.median_ns, 7);
    assert_int_equal(q.p5_ns, 7);
    assert_int_equal(q.p95_ns, 7);
    assert_int_equal(pp_times_merge(&one, &times), PP_OK);
    assert_int_equal(one.n, 101);
    pp_times_free(&one);
    pp_times_free(&times);
}

/* A device on which every call takes 10 us, and which complains about frames that lack memory. */
enum { CALL_NS = 10000 };

struct pp_device {
    int worker;
};

static atomic_int open_devices, open_blocks, bad_frames, runs, interrupt_after;

static pp_status fake_open(const struct pp_device_spec *spec, struct pp_device **out)
{
    assert_int_equal(spec->threads, 1);
    PP_TRY(PP_NEW(out, 1));
    (*out)->worker = spec->worker;
    open_devices++;
    return PP_OK;
}

static void fake_close(struct pp_device *device)
{
    open_devices--;
    free(device);
}

static pp_status fake_alloc(struct pp_device *device, int64_t bytes, void **out)
{
    (void)device;
    open_blocks++;
    return pp_alloc_bytes(out, (size_t)bytes, 1);
}

static void fake_release(struct pp_device *device, void *memory, int64_t bytes)
{
    (void)device;
    (void)bytes;
    open_blocks--;
    free(memory);
}

static pp_status fake_copy(struct pp_device *device, void *to, const void *from, int64_t bytes)
{
    (void)device;
    memcpy(to, from, (size_t)bytes);
    return PP_OK;
}

/* Every region that a call names is there, apart from copies that are skipped and the output of a recomputed stage. */
static bool has_memory(const struct pp_program *program, const struct pp_frame *frame)
{
    for (int i = 0; i < program->ncalls; i++)
        for (int r = 0; r < PP_CALL_REFS && program->calls[i].kernel != PP_KERNEL_COPY; r++) {
            int region = program->calls[i].ref[r].region;
            bool unsent = region == PP_MEM_OUT && program->signature[0] == 'R';
            if (region != PP_MEM_NONE && !frame->base[region] && !unsent) return false;
        }
    return frame->training && frame->loss && frame->sums && frame->loss_scale > 0;
}

static pp_status fake_run(struct pp_device *device, const struct pp_program *program, const struct pp_frame *frame,
                          const struct pp_progress *progress, int64_t *kernel_ns)
{
    (void)device;
    (void)progress;
    runs++;
    if (!has_memory(program, frame)) bad_frames++;
    int64_t end = pp_now_ns() + (int64_t)CALL_NS * program->ncalls;
    while (pp_now_ns() < end) continue;
    for (int i = 0; kernel_ns && i < program->ncalls; i++) kernel_ns[i] = CALL_NS;
    return PP_OK;
}

static const char *fake_describe(struct pp_device *device)
{
    (void)device;
    return "a device for tests";
}

static int64_t fake_reference(struct pp_device *device)
{
    (void)device;
    return 1000;
}

static const char *fake_call_name(const struct pp_call *call, char *buf, size_t size)
{
    snprintf(buf, size, "kernel %d", call->kernel);
    return buf;
}

static const struct pp_backend fake = {
    .name = "fake",
    .summary = "fixed durations",
    .open = fake_open,
    .close = fake_close,
    .alloc = fake_alloc,
    .release = fake_release,
    .upload = fake_copy,
    .download = fake_copy,
    .run = fake_run,
    .describe = fake_describe,
    .reference_ns = fake_reference,
    .call_name = fake_call_name,
};

static bool interrupted(void) { return interrupt_after > 0 && runs > interrupt_after; }

static struct pp_config config;

/* Options as one string, separated by blanks. */
static struct pp_profile_setup configure(const char *options, int cores)
{
    static char text[512];
    static char *argv[64];
    int argc = 0, operands;
    argv[argc++] = (char *)"ppprof";
    strncpy(text, options, sizeof text - 1);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    if (pp_config_parse(PP_PPPROF, argc, argv, &config, NULL, 0, &operands) != PP_OK) fail_msg("%s", pp_message());
    runs = bad_frames = interrupt_after = 0;
    return (struct pp_profile_setup){.config = &config,
                                     .schedules = &pp_schedules,
                                     .ops = &pp_model_ops,
                                     .backend = &fake,
                                     .cores = cores,
                                     .interrupted = interrupted};
}

static struct pp_profile *create(const char *options, int cores)
{
    struct pp_profile_setup setup = configure(options, cores);
    struct pp_profile *profile;
    if (pp_profile_create(&setup, &profile) != PP_OK) fail_msg("%s: %s", options, pp_message());
    return profile;
}

/* Every class of every plan has its shape, with a sample alone and under the plan's load. */
static void check_plan(const struct pp_profile *profile, const struct pp_job *job, bool measured)
{
    const struct pp_plan *plan = job->train;
    int workers = plan->ranks * plan->replicas, cores = profile->setup.cores;
    int load = pp_profile_load(profile, plan);
    char context[48];
    assert_int_equal(profile->loads[load], workers < cores ? workers : cores);
    for (int c = 0; c < plan->nclasses; c++) {
        if (!pp_kinds[plan->classes[c].kind].computes) continue;
        const char *signature = job->phase[PP_TRAIN].programs[c].signature;
        int shape = pp_profile_find(profile, signature, pp_job_context(job, context, sizeof context));
        if (shape < 0) fail_msg("%s is missing", signature);
        const struct pp_profile_cell *alone = &profile->shapes[shape].cell[0],
                                     *loaded = &profile->shapes[shape].cell[load];
        assert_int_equal(alone->load, 1);
        assert_int_equal(loaded->load, profile->loads[load]);
        if (measured && (alone->ns.count == 0 || loaded->ns.count == 0)) fail_msg("%s was not measured", signature);
    }
}

static void check_all(const struct pp_profile *profile, bool measured)
{
    for (int i = 0; i < profile->npoints; i++) {
        struct pp_job *job;
        if (pp_job_create(&config, &profile->points[i], &pp_schedules, &pp_model_ops, false, 0, 0, &job) != PP_OK)
            fail_msg("%s", pp_message());
        check_plan(profile, job, measured);
        pp_job_free(job);
    }
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

static int64_t stored(struct pp_db *db, const struct pp_profile_shape *shape)
{
    int64_t ns;
    bool found;
    assert_int_equal(pp_db_find_task(db, "fake", 1, shape->signature, shape->context, 2, &ns, &found), PP_OK);
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
        assert_int_equal(stored(db, &profile->shapes[i]), cell->ns.median_ns);
    }
    assert_int_equal(pp_db_close(db), PP_OK);
    pp_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_impossible),
        cmocka_unit_test(test_measuring),
        cmocka_unit_test(test_interrupted_and_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
