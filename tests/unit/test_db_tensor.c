/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers that share a rank's tensors: the database takes replica, rank and tensor rank of a worker apart. P, T and D
 * are 2.
 */
#include "tests/unit/db_case.h"

static void add_worker_event(struct pp_trace *trace, int worker, int32_t task, int side, int64_t posted)
{
    synthetic_event(trace, worker, task, side, posted, 1000, 2000 + worker);
}

static int32_t task_of(const struct pp_plan *plan, int kind)
{
    int32_t task = 0;
    while (plan->tasks[task].kind != kind) task++;
    return task;
}

static const struct synthetic_case shared_tensors = {"1f1b", 2, 1, 4, 2, PP_CHECKPOINT_NEVER, 0.05, 2};

/* Workers 0, 1 are rank 0 of replica 0, 2, 3 its rank 1; 4 .. 7 those of replica 1. Those with the same part of the
 * tensors send to each other and sum gradients; all of a replica meet in the norm. */
static void test_posts(void **state)
{
    (void)state;
    struct synthetic s;
    struct pp_trace trace = {0};
    synthetic_open(&s, &shared_tensors);
    const struct pp_plan *plan = s.job.train;
    const int32_t transfer = task_of(plan, PP_XFER_F), norm = task_of(plan, PP_NORM_ALL);
    int32_t sum = task_of(plan, PP_REDUCE_GRAD);
    while (plan->tasks[sum].kind != PP_REDUCE_GRAD || plan->tasks[sum].stage != 0) sum++;
    for (int w = 0; w < 8; w++) {
        const bool sends = w / 2 % 2 == 0;
        add_worker_event(&trace, w, transfer, sends ? PP_SIDE_SEND : PP_SIDE_RECV, 1100 + 10 * w);
        add_worker_event(&trace, w, norm, PP_SIDE_RUN, 1300 + 10 * w);
        if (sends) add_worker_event(&trace, w, sum, PP_SIDE_RUN, 1500 + 10 * w);
    }
    struct pp_db *db = open_db(PP_DB_WRITE);
    must(pp_db_add_tasks(db, &s.job, plan));
    must(pp_db_add_events(db, begin_run(db, &s, "ppexec"), plan, &trace));
    /* transfer: the receiver's post, that of worker 2, 3, 6, 7 */
    near(number(db,
                "SELECT count(*) FROM event WHERE side > 0 AND start_ns = 1120 + 10 * (worker / 4 * 4 + worker % 2)"),
         8);
    near(number(db, "SELECT count(*) FROM event JOIN task ON id = task WHERE kind = 'NORM_ALL' AND "
                    "start_ns = CASE WHEN worker < 4 THEN 1330 ELSE 1370 END"),
         8);
    near(number(db, "SELECT count(*) FROM event JOIN task ON id = task WHERE kind = 'REDUCE_GRAD' AND "
                    "start_ns = 1540 + 10 * (worker % 2)"),
         4);
    must(pp_db_close(db));
    pp_trace_clear(&trace);
    synthetic_close(&s);
}

/* Worker w of 8 computes from 100 w to 100 w + 10 (w + 1). */
static void test_views(void **state)
{
    (void)state;
    struct synthetic s;
    struct pp_trace trace = {0};
    int64_t arenas[] = {1000, 2000}, peaks[] = {10, 20}, bytes[2][PP_BYTES_KINDS] = {{0}};
    const struct pp_layout layout = {
        .ranks = 2, .neighbours = 2, .arena_bytes = arenas, .live_peak_bytes = peaks, .bytes = bytes};
    synthetic_open(&s, &shared_tensors);
    struct pp_db *db = open_db(PP_DB_WRITE);
    const int64_t run = begin_run(db, &s, "ppexec");
    const int32_t forward = task_of(s.job.train, PP_F);
    for (int w = 0; w < 8; w++) {
        synthetic_event(&trace, w, forward, PP_SIDE_RUN, 0, 100 * w, 100 * w + 10 * (w + 1));
        must(pp_db_add_worker_memory(db, run, w, &layout, 0));
    }
    must(pp_db_add_tasks(db, &s.job, s.job.train));
    must(pp_db_add_events(db, run, s.job.train, &trace));
    near(number(db, "SELECT tensor FROM run"), 2);
    near(number(db, "SELECT tensor FROM plan"), 2);
    for (int v = 0; v < 2; v++) {
        char text[128];
        snprintf(text, sizeof text, "SELECT count(*) FROM %s WHERE worker = (replica * 2 + rank) * 2 + tensor_rank",
                 v ? "v_memory" : "v_bubble");
        near(number(db, text), 8);
    }
    near(number(db, "SELECT makespan_ms FROM v_bubble WHERE worker = 3"), 340e-6);
    near(number(db, "SELECT bubble FROM v_bubble WHERE worker = 4"), 1 - 50.0 / 380);
    near(number(db, "SELECT count(*) FROM v_memory WHERE arena_bytes = 1000 * (1 + (worker / 2) % 2)"), 8);
    near(number(db, "SELECT per_step FROM v_task_kind"), 2); /* of 4 passes: as rank 0 and as rank 1 */
    struct pp_metrics metrics;
    must(pp_trace_metrics(s.job.train, &trace, 1, trace.events[0].step, 1, &metrics, NULL)); /* of workers 4 and 6 */
    near((double)metrics.busy_ns, 50 + 70);
    near((double)metrics.makespan_ns, 670 - 400);
    must(pp_db_close(db));
    pp_trace_clear(&trace);
    synthetic_close(&s);
}

/* Runs that differ in nothing else are laid beside their own predictions only. */
static void test_compare(void **state)
{
    (void)state;
    struct synthetic_case one = shared_tensors;
    struct pp_db *db = open_db(PP_DB_WRITE);
    one.tensor = 1;
    synthetic_run(db, &shared_tensors, true, NULL);
    synthetic_run(db, &one, false, NULL);
    near(number(db, "SELECT count(*) FROM v_compare"), 0);
    synthetic_run(db, &one, true, NULL);
    synthetic_run(db, &shared_tensors, false, NULL);
    near(number(db, "SELECT predicted_run * 10 + measured_run FROM v_compare WHERE tensor = 1"), 32);
    near(number(db, "SELECT predicted_run * 10 + measured_run FROM v_compare WHERE tensor = 2"), 14);
    near(number(db, "SELECT count(*) FROM v_kind WHERE kind = 'F' AND per_step = 8"), 2);
    near(number(db, "SELECT count(*) FROM v_kind k JOIN run r ON r.id = k.measured_run WHERE k.kind = 'F' AND "
                    "abs(k.predicted_ms - 84) < 0.001 AND abs(k.measured_ms - 80) < 4"),
         2);
    must(pp_db_close(db));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, empty_folder)
    const struct CMUnitTest tests[] = {TEST(test_posts), TEST(test_views), TEST(test_compare)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
