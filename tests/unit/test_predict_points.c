/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep shared out over threads: the same results in the same order as one thread gives, refusals in their places,
 * and a taker that gives up ends it. Also: replicas of a pipeline cost the simulator nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/model.h"
#include "schedules/schedule.h"
#include "sim/predict_points.h"
#include "sim/profiles.h"

#ifdef __SANITIZE_THREAD__ /* which sees in some configurations what it would in more */
enum { NEXT_CHUNKS = 3 };
#else
enum { NEXT_CHUNKS = 1 };
#endif
enum { MOST_POINTS = 256 };

/* Times of tasks: by a data sheet, by --times, by a profile in which all threads look them up. */
enum times { COMPUTED, GIVEN, MEASURED };

struct fixture {
    struct pp_config config;
    struct pp_predictor predictor;
    pthread_mutex_t lock;
    struct pp_way way;
    struct pp_point points[MOST_POINTS];
    struct pp_listed_point listed[MOST_POINTS];
    int npoints;
};

static void setup(struct fixture *f, enum times times, int replicas)
{
    static char replicas_text[16];
    snprintf(replicas_text, sizeof replicas_text, "%d", replicas);
    char *options[] = {"ppsim", "--layers", "16", "--rows", "32", "--replicas", replicas_text, NULL, NULL};
    if (times == GIVEN) options[7] = "--times", options[8] = "1,2,3,0.1";
    if (times == MEASURED) options[7] = "--machine", options[8] = "epyc-zen4";
    memset(f, 0, sizeof *f);
    if (pp_config_parse(PP_PPSIM, options[7] ? 9 : 7, options, &f->config, NULL) != PP_OK) fail_msg("%s", pp_message());
    pthread_mutex_init(&f->lock, NULL);
    f->predictor = (struct pp_predictor){
        .config = &f->config, .schedules = &pp_schedules, .ops = &pp_model_ops, .db_lock = &f->lock};
    f->way = (struct pp_way){.replicas = replicas, .rows = f->config.rows, .context = 1, .experts = 1};
    const char *machine = times == MEASURED ? "epyc-zen4" : NULL;
    if (pp_machine_find(machine, &f->predictor.machine) != PP_OK) fail_msg("%s", pp_message());
    if (times == MEASURED) {
        if (pp_profiles_of_machine(machine, &f->predictor.db) != PP_OK) fail_msg("%s", pp_message());
        pp_db_share(f->predictor.db, &f->lock);
    }
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved"};
    for (int s = 0; s < 3; s++)
        for (int p = 1; p <= 8; p++)
            for (int chunks = 1; chunks <= 10; chunks += NEXT_CHUNKS)
                f->points[f->npoints++] = (struct pp_point){schedules[s], p, 1 + s / 2, 3 * chunks};
    for (int i = 0; i < f->npoints; i++)
        f->listed[i] = (struct pp_listed_point){&f->predictor, &f->way, &f->points[i], i % 50 == 7 ? "no wheels" : ""};
}

struct taken {
    char text[MOST_POINTS][96];
    int n, stop_at;
};

/* Notes the hash of the plan, its time, or why there is none. */
static pp_status take(void *context, int64_t point, struct pp_outcome *outcome)
{
    struct taken *t = context;
    assert_int_equal(point, t->n);
    char *text = t->text[t->n++];
    if (outcome->status == PP_OK)
        snprintf(text, sizeof t->text[0], "%s %.9g", json_string_value(json_object_get(outcome->row.json, "plan")),
                 outcome->row.ms_per_batch);
    else
        snprintf(text, sizeof t->text[0], "%.90s", outcome->message);
    return point == t->stop_at ? pp_fail(PP_IO, "full at %d", (int)point) : PP_OK;
}

static pp_status sweep(const struct fixture *f, int threads, bool keep, int stop_at, struct taken *out)
{
    memset(out, 0, sizeof *out);
    out->stop_at = stop_at;
    const struct pp_points_call call = {
        .points = f->listed, .npoints = f->npoints, .keep = keep, .take = take, .context = out};
    return pp_predict_points(&call, threads);
}

static void test_same_as_one_thread(void **state)
{
    (void)state;
    static struct fixture f;
    static struct taken one, many;
    for (enum times times = 0; times <= MEASURED; times++) {
        setup(&f, times, 1);
        if (times == MEASURED) f.npoints = 60;
        assert_int_equal(sweep(&f, 1, false, -1, &one), PP_OK);
        assert_int_equal(one.n, f.npoints);
        for (int threads = 0; threads <= 7; threads += threads ? 5 : 2) {
            assert_int_equal(sweep(&f, threads, threads == 7, -1, &many), PP_OK);
            assert_memory_equal(&one, &many, sizeof one);
            assert_string_equal(many.text[57], "no wheels");
        }
        assert_int_equal(pp_db_close(f.predictor.db), PP_OK);
    }
}

static void test_taker_gives_up(void **state)
{
    (void)state;
    static struct fixture f;
    static struct taken t;
    setup(&f, GIVEN, 1);
    for (int threads = 1; threads <= 4; threads++)
        for (int stop_at = 0; stop_at < f.npoints; stop_at += 60) {
            assert_int_equal(sweep(&f, threads, true, stop_at, &t), PP_IO);
            assert_int_equal(t.n, stop_at + 1);
            assert_non_null(strstr(pp_message(), "full at"));
        }
}

/* One replica is simulated, however many there are: each rank has a reduction more, and that is all. */
static void test_replicas_are_free(void **state)
{
    (void)state;
    static struct fixture f;
    static const int replicas[] = {1, 2, 64, 65536};
    const struct pp_point point = {"1f1b", 8, 1, 16};
    int64_t tasks = 0;
    for (int i = 0; i < 4; i++) {
        struct pp_prediction prediction;
        setup(&f, COMPUTED, replicas[i]);
        if (pp_predict(&f.predictor, &point, true, &prediction) != PP_OK) fail_msg("%s", pp_message());
        const struct pp_plan *plan = prediction.job->train;
        if (i == 0) tasks = plan->ntasks;
        assert_int_equal(plan->ntasks, i == 0 ? tasks : tasks + plan->stages);
        assert_true(prediction.result.trace.nevents <= 2 * plan->ntasks + plan->ranks);
        pp_prediction_free(&prediction);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_one_thread), cmocka_unit_test(test_taker_gives_up),
                                       cmocka_unit_test(test_replicas_are_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
