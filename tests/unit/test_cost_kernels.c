/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs of tasks that were never measured: sums of kernels that were.
 */
#include <math.h>

#include "sim/costs.h"
#include "tests/unit/cost_case.h"

enum { GAP = 4000 }; /* ns beside each kernel, alone: more than what rounding all kernels of a task makes */

/* ns of a kernel in the made-up profile: any function of its name and load will do. */
static int64_t kernel_ns(const char *name, int load)
{
    int64_t sum = 0;
    for (const char *c = name; *c; c++) sum = (31 * sum + *c) % 100003;
    return sum * load;
}

/* Every kernel of the job, as measured in the task that it stands in; a tenth of the samples took ten times as long. */
static void add_kernel_profile(struct pp_db *db, const struct pp_job *job, const char *left_out, int64_t gap_ns)
{
    char measured[64];
    const struct pp_run run = {.tool = "ppprof", .device = "cpu", .processes = 1, .cores = 2};
    int64_t id;
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_program *program = &job->phase[PP_TRAIN].programs[c];
        for (int load = 1; load <= 2 && pp_kinds[job->train->classes[c].kind].computes; load++) {
            char name[64];
            struct pp_sample sample = {.context = program->signature, .load = load};
            for (int i = 0; i < program->ncalls; i++) {
                pp_model_ops.call_name(&program->calls[i], name, sizeof name);
                if (left_out && strncmp(name, left_out, strlen(left_out)) == 0) continue;
                sample.name = name;
                sample.median_ns = sample.mean_ns = kernel_ns(name, load);
                sample.count = 9;
                assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_KERNEL, &sample), PP_OK);
                sample.mean_ns *= 10;
                sample.count = 1;
                assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_KERNEL, &sample), PP_OK);
            }
            sample.name = PP_SAMPLE_GAP;
            sample.mean_ns = gap_ns * load;
            sample.count = program->ncalls;
            assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_KERNEL, &sample), PP_OK);
        }
        snprintf(measured, sizeof measured, "F of something else rows%d", job->train->rows[0]);
        const struct pp_sample task = {.name = measured, .context = "", .load = 1, .count = 1};
        assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_TASK, &task), PP_OK);
    }
    assert_int_equal(pp_db_flush(db), PP_OK);
}

/* A task that was never measured takes what its kernels took in other tasks, and the gap beside each of them. */
static void test_kernels(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    unlink("kernels.db");
    assert_int_equal(pp_db_open("kernels.db", PP_DB_WRITE, &db), PP_OK);
    struct pp_job *job = create_job("--stages 2 --layers 8 --rows 20 --chunks 5");
    add_kernel_profile(db, job, NULL, GAP);
    pp_job_free(job);

    job = create_job("--stages 2 --layers 8 --split 3,5 --schedule 1f1b --rows 20 --chunks 5");
    struct pp_cost *cost = cost_of(job, db, &origin);
    assert_non_null(cost);
    assert_int_equal(origin.from[PP_COST_KERNELS], origin.classes);
    assert_int_equal(cost->source, PP_COST_KERNELS);
    for (int c = 0; c < cost->nclasses; c++) {
        const struct pp_program *program = &job->phase[PP_TRAIN].programs[c];
        int64_t alone = 0;
        if (!pp_kinds[job->train->classes[c].kind].computes) continue;
        for (int i = 0; i < program->ncalls; i++) {
            char name[64];
            pp_model_ops.call_name(&program->calls[i], name, sizeof name);
            alone += llround(1.9 * (double)kernel_ns(name, 1)) + GAP;
        }
        expect_near((double)cost->classes[c].ns, (double)alone, program->ncalls, "alone");
        expect_near((double)cost->classes[c].loaded_ns, 2.0 * (double)alone, 2 * program->ncalls, "loaded");
    }
    pp_cost_free(cost);
    add_kernel_profile(db, job, "attention", GAP); /* newer, without a kernel: that one is the older profile's */
    cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_KERNELS], origin.classes);
    pp_cost_free(cost);
    pp_job_free(job);

    const char *const tensor = "--stages 2 --layers 8 --tensor 2 --rows 20 --chunks 5"; /* sums are no kernels */
    job = create_job(tensor);
    add_kernel_profile(db, job, "all_reduce", GAP);
    cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_KERNELS], origin.classes);
    pp_cost_free(cost);
    pp_job_free(job);

    job = create_job("--stages 2 --layers 8 --rows 20 --chunks 4"); /* only the update has kernels that were measured */
    cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_KERNELS], 4);
    assert_int_equal(origin.from[PP_COST_SCALED], 6); /* five rows, from the kernels of four */
    assert_int_equal(cost->source, PP_COST_SCALED);
    pp_cost_free(cost);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* Short kernels and noise: with a gap of less than minus a kernel's time, a task takes as long as its longest one. */
static void test_gap_below_zero(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    unlink("gap.db");
    assert_int_equal(pp_db_open("gap.db", PP_DB_WRITE, &db), PP_OK);
    struct pp_job *job = create_job("--stages 2 --layers 8 --rows 20 --chunks 5");
    add_kernel_profile(db, job, NULL, -1000000);
    struct pp_cost *cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_KERNELS], origin.classes);
    for (int c = 0; c < cost->nclasses; c++) {
        const struct pp_program *program = &job->phase[PP_TRAIN].programs[c];
        double longest = 0;
        if (!pp_kinds[job->train->classes[c].kind].computes) continue;
        for (int i = 0; i < program->ncalls; i++) {
            char name[64];
            pp_model_ops.call_name(&program->calls[i], name, sizeof name);
            longest = fmax(longest, 1.9 * (double)kernel_ns(name, 1));
        }
        expect_near((double)cost->classes[c].ns, longest, 1, "the longest kernel");
    }
    pp_cost_free(cost);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* The sum of the made-up times of a program of `like`'s kind and stage, alone. */
static double sum_of(const struct pp_job *job, const struct pp_class *like)
{
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_class *class = &job->train->classes[c];
        const struct pp_program *program = &job->phase[PP_TRAIN].programs[c];
        double sum = 0;
        if (class->kind != like->kind || class->stage != like->stage || class->adds != like->adds) continue;
        for (int i = 0; i < program->ncalls; i++) {
            char name[64];
            pp_model_ops.call_name(&program->calls[i], name, sizeof name);
            sum += 1.9 * (double)kernel_ns(name, 1) + GAP;
        }
        return sum;
    }
    fail_msg("no such task");
    return 0;
}

/* A task whose kernels were measured with fewer rows and with more lies between the two sums, as its rows do. */
static void test_rows_between(void **state)
{
    (void)state;
    enum { FEW = 2, SOME = 4, MANY = 10 };
    struct pp_db *db;
    struct pp_cost_origin origin;
    unlink("rows.db");
    assert_int_equal(pp_db_open("rows.db", PP_DB_WRITE, &db), PP_OK);
    struct pp_job *few = create_job("--stages 2 --layers 8 --schedule zb-h1 --rows 20 --chunks 10"),
                  *many = create_job("--stages 2 --layers 8 --schedule zb-h1 --rows 20 --chunks 2");
    add_kernel_profile(db, few, NULL, GAP);
    struct pp_job *job = create_job("--stages 2 --layers 8 --schedule zb-h1 --rows 20 --chunks 5");
    struct pp_cost *cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_INTERPOLATED], 0); /* of one side nothing is known */
    pp_cost_free(cost);
    add_kernel_profile(db, many, NULL, GAP);
    cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_MACHINE], 0);
    assert_int_equal(origin.from[PP_COST_INTERPOLATED], 10); /* F, and two kinds each of I and W, of two stages */
    for (int c = 0; c < cost->nclasses; c++) {
        const struct pp_class *class = &job->train->classes[c];
        if (class->rows == 0 || !pp_kinds[class->kind].computes) continue;
        const double low = sum_of(few, class), high = sum_of(many, class);
        expect_near((double)cost->classes[c].ns, low + (high - low) * (SOME - FEW) / (MANY - FEW), 100, "between");
    }
    pp_cost_free(cost);
    pp_job_free(job);
    pp_job_free(few);
    pp_job_free(many);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* With one microbatch all kernels write gradients. Of two, in stages that were not measured, they add, too, which takes
 * longer in proportion to a data sheet. Few tokens: memory takes longest. */
static void test_kernels_that_add(void **state)
{
    (void)state;
    struct pp_db *db;
    struct pp_cost_origin origin;
    int64_t ns[2] = {0};
    unlink("adds.db");
    assert_int_equal(pp_db_open("adds.db", PP_DB_WRITE, &db), PP_OK);
    struct pp_job *job = create_job("--stages 2 --layers 8 --tokens 4 --rows 1 --chunks 1");
    add_kernel_profile(db, job, NULL, 0);
    pp_job_free(job);
    job = create_job("--stages 2 --layers 8 --tokens 4 --rows 2 --chunks 2 --split 3,5 --schedule 1f1b");
    struct pp_cost *cost = cost_of(job, db, &origin);
    assert_int_equal(origin.from[PP_COST_KERNELS], origin.classes);
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_class *class = &job->train->classes[c];
        if (class->kind == PP_B && class->stage == 1) ns[class->adds] = cost->classes[c].ns;
    }
    assert_true(ns[false] > 0 && ns[true] > ns[false]);
    pp_cost_free(cost);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* Of two loads one was measured, and the other is a sum of kernels: the task is as certain as that, whichever it is. */
static void test_the_less_certain_load_is_the_source(void **state)
{
    (void)state;
    enum { TASK_NS = 12345 };
    for (int load = 1; load <= 2; load++) {
        struct pp_db *db;
        struct pp_cost_origin origin;
        const struct pp_run run = {.tool = "ppprof", .device = "cpu", .processes = 1, .cores = 2};
        int64_t id;
        unlink("load.db");
        assert_int_equal(pp_db_open("load.db", PP_DB_WRITE, &db), PP_OK);
        struct pp_job *job = create_job("--stages 2 --layers 8 --rows 20 --chunks 5");
        add_kernel_profile(db, job, NULL, GAP);
        assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
        for (int c = 0; c < job->train->nclasses; c++) {
            const struct pp_sample task = {.name = job->phase[PP_TRAIN].programs[c].signature,
                                           .context = "",
                                           .load = load,
                                           .count = 1,
                                           .median_ns = TASK_NS,
                                           .mean_ns = TASK_NS};
            if (!pp_kinds[job->train->classes[c].kind].computes) continue;
            assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_TASK, &task), PP_OK);
        }
        assert_int_equal(pp_db_flush(db), PP_OK);
        struct pp_cost *cost = cost_of(job, db, &origin);
        assert_int_equal(origin.from[PP_COST_KERNELS], origin.classes);
        assert_int_equal(cost->source, PP_COST_KERNELS);
        for (int c = 0; c < cost->nclasses; c++) {
            const struct pp_class_cost *of = &cost->classes[c];
            if (!pp_kinds[job->train->classes[c].kind].computes) continue;
            assert_int_equal(of->source, PP_COST_KERNELS);
            assert_int_equal(load == 1 ? of->ns : of->loaded_ns, TASK_NS);
        }
        pp_cost_free(cost);
        pp_job_free(job);
        assert_int_equal(pp_db_close(db), PP_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels), cmocka_unit_test(test_gap_below_zero),
                                       cmocka_unit_test(test_rows_between), cmocka_unit_test(test_kernels_that_add),
                                       cmocka_unit_test(test_the_less_certain_load_is_the_source)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
