/* SPDX-License-Identifier: Apache-2.0
 *
 * Times that are those of measured relatives, in proportion to both by the data sheet (sim/cost_scaled.c).
 */
#include <stdlib.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "tests/unit/cost_case.h"

enum { TASK_NS = 1000000 };

static struct pp_db *open_db(void)
{
    struct pp_db *db;
    unlink("scaled.db");
    assert_int_equal(pp_db_open("scaled.db", PP_DB_WRITE, &db), PP_OK);
    return db;
}

/* Every task of the job takes as long, whatever it does: TASK_NS alone, twice as long beside others. context: NULL: no
 * share of a GPU. */
static void add_profile(struct pp_db *db, const struct pp_job *job, const char *context, int loads)
{
    const char *device = job->config->device;
    const struct pp_run run = {.tool = "ppprof", .device = device, .processes = 1, .cores = 2};
    int64_t id;
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
    for (int c = 0; c < job->train->nclasses; c++)
        for (int load = 1; load <= loads && pp_kinds[job->train->classes[c].kind].computes; load *= 2) {
            const int64_t ns = load > 1 ? 2 * TASK_NS : TASK_NS;
            const struct pp_sample task = {.name = job->phase[PP_TRAIN].programs[c].signature,
                                           .context = context ? context : "",
                                           .load = load,
                                           .count = 9,
                                           .median_ns = ns,
                                           .mean_ns = ns};
            assert_int_equal(pp_db_add_sample(db, id, PP_SAMPLE_TASK, &task), PP_OK);
        }
    assert_int_equal(pp_db_flush(db), PP_OK);
}

/* The job's class of this kind on the first stage. */
static int class_of(const struct pp_job *job, int kind, bool adds)
{
    for (int c = 0; c < job->train->nclasses; c++) {
        const struct pp_class *class = &job->train->classes[c];
        if (class->kind == kind && class->stage == 0 && class->adds == adds) return c;
    }
    fail_msg("no such task");
    return -1;
}

static struct pp_machine machine_of(const struct pp_job *job)
{
    struct pp_machine m;
    assert_int_equal(pp_machine_find(strcmp(job->config->device, "cpu") == 0 ? "cpu" : "a100", &m), PP_OK);
    return m;
}

/* NULL: the profile has no time of the job. */
static struct pp_cost *predict(const struct pp_job *job, struct pp_db *db, struct pp_cost_origin *origin)
{
    const struct pp_machine m = machine_of(job);
    struct pp_cost *cost;
    if (pp_cost_from_profile(job, db, &m, &cost, origin) != PP_OK) fail_msg("%s", pp_message());
    return cost;
}

/* By the data sheet alone, without collectives. */
static double sheet_ns(const struct pp_job *job, int class, bool loaded)
{
    const struct pp_machine m = machine_of(job);
    struct pp_cost *cost;
    assert_int_equal(pp_cost_from_machine(job, &m, &cost), PP_OK);
    const double ns = (double)(loaded ? cost->classes[class].loaded_ns : cost->classes[class].ns);
    pp_cost_free(cost);
    return ns;
}

/* What the class takes, if `measured` is the time of a relative: alone, or beside others. */
static void must_be_like(const struct pp_job *job, int class, const struct pp_cost *cost, double measured,
                         const struct pp_job *of, int relative, bool loaded)
{
    const double longer = sheet_ns(job, class, loaded) / sheet_ns(of, relative, loaded);
    const double ns = (double)(loaded ? cost->classes[class].loaded_ns : cost->classes[class].ns);
    expect_near(ns, measured * longer, 1e-4 * ns, "in proportion");
}

/* With one microbatch no backward adds to gradients. Few tokens: memory takes longest. */
static void test_other_backward(void **state)
{
    (void)state;
    struct pp_db *db = open_db();
    struct pp_cost_origin origin;
    struct pp_job *one = create_job("--stages 2 --tokens 4 --rows 1 --chunks 1"),
                  *job = create_job("--stages 2 --tokens 4 --rows 2 --chunks 2");
    add_profile(db, one, NULL, 2);
    struct pp_cost *cost = predict(job, db, &origin);
    const int adds = class_of(job, PP_B, true), writes = class_of(job, PP_B, false);
    assert_int_equal(origin.from[PP_COST_KERNELS], 2);
    assert_int_equal(origin.from[PP_COST_PROFILE], origin.classes - 2);
    assert_int_equal(cost->classes[writes].ns, TASK_NS);
    assert_true(cost->classes[adds].ns != TASK_NS);
    for (int loaded = 0; loaded < 2; loaded++)
        must_be_like(job, adds, cost, (1 + loaded) * TASK_NS, job, writes, loaded);
    pp_cost_free(cost);
    pp_job_free(job);
    pp_job_free(one);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* Of two numbers of rows on the same side the nearest counts. */
static void test_other_rows(void **state)
{
    (void)state;
    struct pp_db *db = open_db();
    struct pp_cost_origin origin;
    struct pp_job *few = create_job("--stages 2 --rows 4 --chunks 2"),
                  *some = create_job("--stages 2 --rows 10 --chunks 2"),
                  *many = create_job("--stages 2 --rows 20 --chunks 2");
    add_profile(db, few, NULL, 2);
    add_profile(db, some, NULL, 2);
    struct pp_cost *cost = predict(many, db, &origin);
    assert_int_equal(origin.from[PP_COST_SCALED], 6);
    assert_int_equal(origin.from[PP_COST_MACHINE], 0);
    for (int loaded = 0; loaded < 2; loaded++) {
        must_be_like(many, class_of(many, PP_F, false), cost, (1 + loaded) * TASK_NS, some, class_of(some, PP_F, false),
                     loaded);
        must_be_like(many, class_of(many, PP_B, true), cost, (1 + loaded) * TASK_NS, some, class_of(some, PP_B, true),
                     loaded);
    }
    pp_cost_free(cost);
    pp_job_free(few);
    pp_job_free(some);
    pp_job_free(many);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* A time alone is known, and none beside other workers. */
static void test_alone(void **state)
{
    (void)state;
    struct pp_db *db = open_db();
    struct pp_cost_origin origin;
    struct pp_job *job = create_job("--stages 2 --rows 4 --chunks 2");
    add_profile(db, job, NULL, 1);
    struct pp_cost *cost = predict(job, db, &origin);
    const int f = class_of(job, PP_F, false);
    const double longer = sheet_ns(job, f, true) / sheet_ns(job, f, false);
    assert_int_equal(origin.from[PP_COST_SCALED], origin.classes);
    assert_int_equal(cost->classes[f].ns, TASK_NS);
    expect_near((double)cost->classes[f].loaded_ns, TASK_NS * longer, 100, "beside others");
    pp_cost_free(cost);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* Of a quarter of a GPU nothing was measured: it is like a half, which others share, too, not like the whole. */
static void test_other_share(void **state)
{
    (void)state;
    struct pp_db *db = open_db();
    struct pp_cost_origin origin;
    struct pp_job *half = create_job("--device cuda --gpus 1 --stages 2 --clip 0");
    add_profile(db, half, "gpipe never share 1/2", 2);
    add_profile(db, half, "gpipe never", 1);
    struct pp_job *quarter = create_job("--device cuda --gpus 1 --stages 2 --replicas 2 --clip 0");
    struct pp_cost *cost = predict(quarter, db, &origin);
    assert_non_null(cost);
    assert_int_equal(origin.from[PP_COST_SCALED], origin.classes);
    for (int loaded = 0; loaded < 2; loaded++)
        for (int backward = 0; backward < 2; backward++) {
            const int kind = backward ? PP_B : PP_F, class = class_of(quarter, kind, backward);
            must_be_like(quarter, class, cost, (1 + loaded) * TASK_NS, half, class_of(half, kind, backward), loaded);
            assert_true(cost->classes[class].ns > TASK_NS);
        }
    pp_cost_free(cost);
    pp_job_free(half);
    pp_job_free(quarter);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* Nothing is a relative of another model's layers. */
static void test_no_relative(void **state)
{
    (void)state;
    struct pp_db *db = open_db();
    struct pp_cost_origin origin;
    struct pp_job *job = create_job("--stages 2 --rows 4 --chunks 2"),
                  *other = create_job("--stages 2 --rows 4 --chunks 2 --d-model 100");
    add_profile(db, job, NULL, 2);
    assert_null(predict(other, db, &origin));
    pp_job_free(job);
    pp_job_free(other);
    assert_int_equal(pp_db_close(db), PP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_other_backward), cmocka_unit_test(test_other_rows),
                                       cmocka_unit_test(test_alone), cmocka_unit_test(test_other_share),
                                       cmocka_unit_test(test_no_relative)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
