/* SPDX-License-Identifier: Apache-2.0
 *
 * Training on a queue device: losses and weights have the bits of the cpu's own runs, whatever the queues' timing;
 * traces are complete; failures and signals end the run soon.
 */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/database/db_query.h"
#include "exec/signals.h"
#include "kernels/cpu/cpu.h"
#include "queue_device.h"
#include "trained.h"

#ifdef __SANITIZE_THREAD__ /* which sees a race whether it shows or not: in some of the shapes, with one seed */
enum { OPTIONS = 700, STEP = 6, SEEDS = 1 };
#else
enum { OPTIONS = 700, STEP = 2, SEEDS = 3 };
#endif

static const int64_t SOON_NS = 40000000000; /* with a sanitizer, on a busy machine */

/* False: impossible as asked. */
static bool compare(const char *options)
{
    struct outcome here, queued;
    pp_status status = train(&pp_backend_cpu, options, NULL, &here);
    if (status == PP_USAGE) return false;
    if (status != PP_OK) fail_msg("%s: %s", options, pp_message());
    if (train(&pp_backend_queued, options, NULL, &queued) != PP_OK) fail_msg("queued, %s: %s", options, pp_message());
    expect_equal(&here, &queued, options);
    free(here.weights);
    free(queued.weights);
    return true;
}

#define SHORT MODEL "--rows 5 --tokens 7 --generated-tokens 1000 --max-batches 3 --epochs 1 --eval-batches 2 "

static const char *const schedules[] = {"gpipe", "1f1b", "interleaved"};
static const char *const checkpoints[] = {"never", "except_last", "always", "layers"};
static const int stage_counts[] = {1, 2, 4};

/* All shapes, or every second one, ... */
static void compare_shapes(const char *extra, int step)
{
    for (int s = 0; s < 3; s++)
        for (int p = 0; p < 3; p++)
            for (int c = 0; c < 4; c++) {
                char options[OPTIONS];
                if ((s + p + c) % step) continue;
                int chunks = (s + p + c) % 3 ? 4 : 2, virtual_stages = s < 2 || stage_counts[p] == 4 ? 1 : 2;
                snprintf(options, sizeof options,
                         SHORT "--schedule %s --stages %d --virtual %d --chunks %d --checkpoint %s %s", schedules[s],
                         stage_counts[p], virtual_stages, chunks, checkpoints[c], extra);
                compare(options);
            }
}

static void bits_are_those_of_the_cpu(void **state)
{
    (void)state;
    queued_set(NULL);
    compare_shapes("", STEP);
    compare(BASE "--schedule 1f1b --stages 2");
    compare(BASE "--schedule gpipe --stages 4 --recv-buffers 1");
    compare(BASE "--schedule 1f1b --stages 2 --recv-buffers 8 --split 1,3");
    compare(BASE "--schedule 1f1b --stages 4 --batch-w 2 --optimizer adamw");
    compare(BASE "--schedule zb-h2 --stages 4");
    compare(BASE "--schedule zb-h2 --stages 4 --activation gelu --checkpoint activation");
    compare(BASE "--schedule 1f1b --stages 2 --activation swiglu --checkpoint activation");
    compare(BASE "--schedule zbv --stages 2 --virtual 2 --checkpoint except_last");
}

static void replicas_too(void **state)
{
    (void)state;
    queued_set(NULL);
    compare_shapes("--replicas 2 --max-batches 2 --no-eval", 2 * STEP);
    compare(SHORT "--schedule 1f1b --stages 2 --chunks 2 --replicas 3");
    compare(SHORT "--schedule zbv --stages 2 --virtual 2 --chunks 4 --replicas 2");
    compare(SHORT "--schedule interleaved --stages 2 --virtual 2 --chunks 2 --replicas 4 --clip 0");
}

/* Sums in parts beside the last backward, gathering beside the first forward. A part is a layer. */
#define OVERLAP "--replicas 2 --overlap-grad-reduce --bucket-size 1B "
#define GATHER OVERLAP "--zero 1 --overlap-param-gather "

static void parts_beside_computations(void **state)
{
    (void)state;
    queued_set(NULL);
    compare_shapes(GATHER "--max-batches 2", 5 * STEP);
    assert_true(compare(SHORT OVERLAP "--schedule 1f1b --stages 2 --chunks 2"));
    assert_true(compare(SHORT OVERLAP "--schedule zbv --stages 2 --virtual 2 --chunks 4 --layers 8 --zero 1"));
    assert_true(compare(SHORT GATHER "--schedule interleaved --stages 2 --virtual 2 --chunks 2 --layers 8 --clip 0"));
    assert_true(compare(SHORT GATHER "--schedule gpipe --stages 1 --chunks 1 --replicas 3 --optimizer adamw"));
    assert_true(compare(SHORT GATHER "--tensor 2 --d-ff 24 --schedule zb-h1 --stages 2 --chunks 2 --norm pre"));
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        queued_set(&(struct queued_settings){.seed = seed, .most_delay_us = 300});
        assert_true(compare(SHORT GATHER "--schedule 1f1b --stages 2 --chunks 2 --norm pre --checkpoint layers"));
        assert_true(compare(SHORT GATHER "--schedule interleaved --stages 2 --virtual 2 --chunks 2 --layers 8"));
        assert_true(compare(SHORT OVERLAP "--schedule gpipe --stages 2 --chunks 2 --clip 0 --recv-buffers 1"));
    }
    queued_set(NULL);
}

#define PARTS SHORT "--tensor 2 --d-ff 24 "

/* Sums over the workers of a rank, inside tasks. */
static void workers_of_a_rank_too(void **state)
{
    (void)state;
    queued_set(NULL);
    compare_shapes("--tensor 2 --d-ff 24 --max-batches 2", 2 * STEP);
    assert_true(compare(PARTS "--schedule 1f1b --stages 2 --chunks 2 --replicas 2"));
    assert_true(compare(PARTS "--schedule gpipe --stages 1 --chunks 2 --replicas 2 --zero 1 --optimizer adamw"));
    assert_true(compare(PARTS "--schedule zbv --stages 2 --virtual 2 --chunks 4 --clip 0 --no-eval"));
}

/* Sums over them beside products. */
static void sums_beside_products_too(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        queued_set(&(struct queued_settings){.seed = seed, .most_delay_us = 300});
        assert_true(compare(PARTS "--overlap-tensor-sums 2 --schedule 1f1b --stages 2 --chunks 2"));
        assert_true(compare(PARTS "--overlap-tensor-sums 5 --sequence-parallel --schedule zb-h1 --stages 2 --chunks 1 "
                                  "--norm pre"));
        assert_true(compare(PARTS "--overlap-tensor-sums 3 --sequence-parallel --schedule gpipe --stages 1 --chunks 2 "
                                  "--checkpoint layers"));
    }
    queued_set(NULL);
}

#define EXPERTS SHORT "--bias no --experts 8 --capacity-factor 1 --replicas 2 --expert-parallel 2 --no-eval "

/* Exchanges of experts beside products, and the bits of those for which products wait. */
static void exchanges_beside_products_too(void **state)
{
    struct outcome waiting, beside;
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        queued_set(&(struct queued_settings){.seed = seed, .most_delay_us = 300});
        assert_true(
            compare(EXPERTS "--overlap-expert-exchange 2 --schedule 1f1b --stages 2 --chunks 2 --shared-ff 20"));
        assert_true(compare(EXPERTS "--overlap-expert-exchange 4 --schedule zb-h1 --stages 2 --chunks 2 --norm pre"));
        assert_true(compare(EXPERTS "--overlap-expert-exchange 1 --tensor 2 --sequence-parallel --schedule gpipe "
                                    "--stages 1 --chunks 2 --checkpoint layers --overlap-tensor-sums 5"));
    }
    if (train(&pp_backend_queued, EXPERTS "--stages 1 --shared-ff 20 --shared-gate yes", NULL, &waiting) != PP_OK ||
        train(&pp_backend_queued, EXPERTS "--stages 1 --shared-ff 20 --shared-gate yes --overlap-expert-exchange 4",
              NULL, &beside) != PP_OK)
        fail_msg("%s", pp_message());
    expect_equal(&waiting, &beside, "--overlap-expert-exchange 4");
    free(waiting.weights);
    free(beside.weights);
    queued_set(NULL);
}

#define TIED SHORT "--tie-embeddings yes --dropout 0.2 "

/* The gradients of embedding and decoder are summed over two ranks, or on one that has both. */
static void tied_embeddings_too(void **state)
{
    (void)state;
    queued_set(NULL);
    compare_shapes("--tie-embeddings yes --max-batches 2", 5 * STEP);
    assert_true(compare(TIED "--schedule zbv --stages 2 --virtual 2 --chunks 4 --optimizer adamw"));
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        queued_set(&(struct queued_settings){.seed = seed, .most_delay_us = 300});
        assert_true(compare(TIED "--schedule 1f1b --stages 2 --chunks 2 --replicas 2"));
        assert_true(compare(TIED "--schedule zbv --stages 2 --virtual 2 --chunks 4 --replicas 2 --clip 0"));
        assert_true(compare(TIED GATHER "--schedule interleaved --stages 2 --virtual 2 --chunks 2 --clip 0"));
        assert_true(compare(TIED "--schedule gpipe --stages 1 --chunks 2 --replicas 2 --zero 1 --optimizer adamw"));
        assert_true(compare(TIED "--tensor 2 --d-ff 24 --schedule 1f1b --stages 2 --chunks 2"));
    }
    queued_set(NULL);
}

/* Whatever a dependency was forgotten for, a delay brings out. */
static void delays_change_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        queued_set(&(struct queued_settings){.seed = seed, .most_delay_us = 300});
        compare(SHORT "--schedule 1f1b --stages 2 --chunks 4 --recv-buffers 1");
        compare(SHORT "--schedule gpipe --stages 4 --chunks 4 --checkpoint always");
        compare(SHORT "--schedule 1f1b --stages 2 --chunks 2 --replicas 2");
        compare(SHORT "--schedule interleaved --stages 2 --virtual 2 --chunks 2 --replicas 2 --clip 0");
        compare(BASE "--schedule gpipe --stages 4");
        assert_true(compare(PARTS "--schedule 1f1b --stages 2 --chunks 4 --recv-buffers 1"));
    }
    queued_set(NULL);
}

/* Calls of so many launches that two fill a GPU's queue: the host waits before each until all but two have run. */
static void a_host_is_ahead_by_launches(void **state)
{
    (void)state;
    queued_set(&(struct queued_settings){.seed = 3, .most_delay_us = 3000, .launches = 500});
    compare(SHORT "--schedule gpipe --stages 1 --rows 8 --chunks 8");
    assert_in_range(queued_most_ahead(), 1, 3);
    queued_set(NULL);
}

/* --- traces --- */

static int64_t count(struct pp_db *db, const char *text)
{
    int64_t n = -1;
    bool found;
    if (pp_db_integer(db, text, NULL, 0, &n, &found) != PP_OK || !found) fail_msg("%s: %s", text, pp_message());
    return n;
}

#define EVENTS "FROM event e JOIN run r ON r.id = e.run JOIN task t ON t.plan = r.plan AND t.id = e.task "
#define OF_WORKER "e.step = f.step AND e.worker = f.worker AND e.run = f.run "

static void check_events(struct pp_db *db, int64_t tasks_and_ends)
{
    assert_int_equal(count(db, "SELECT count(*) " EVENTS), tasks_and_ends);
    assert_int_equal(count(db, "SELECT count(*) FROM (SELECT DISTINCT step, worker, task, side FROM event)"),
                     tasks_and_ends);
    assert_int_equal(count(db, "SELECT count(*) " EVENTS "WHERE NOT posted_ns <= start_ns OR NOT start_ns <= end_ns"),
                     0);
    /* one computation after the other */
    assert_int_equal(count(db, "SELECT count(*) " EVENTS "JOIN event f ON " OF_WORKER
                               "JOIN task u ON u.plan = t.plan AND u.id = f.task "
                               "WHERE t.computes AND u.computes AND e.task < f.task AND e.end_ns > f.start_ns"),
                     0);
    /* and its input before it: on one worker times are exact */
    assert_int_equal(count(db, "SELECT count(*) " EVENTS "JOIN event f ON " OF_WORKER
                               "JOIN task u ON u.plan = t.plan AND u.id = f.task "
                               "WHERE e.side = 2 AND u.kind = 'F' AND u.microbatch = t.microbatch "
                               "AND t.kind = 'XFER_F' AND u.stage = t.stage + 1 AND e.end_ns > f.start_ns"),
                     0);
    /* and the sum of tied gradients, over both ranks, before what needs it */
    assert_int_equal(count(db, "SELECT count(*) " EVENTS "JOIN event f ON " OF_WORKER
                               "JOIN task u ON u.plan = t.plan AND u.id = f.task "
                               "WHERE t.kind = 'REDUCE_TIED' AND u.kind IN ('NORM', 'STEP') AND e.end_ns > f.start_ns"),
                     0);
    assert_true(count(db, "SELECT count(*) " EVENTS "WHERE t.kind = 'F' AND e.end_ns > e.start_ns") > 0);
}

static void check_trace(bool tied)
{
    char options[OPTIONS];
    struct pp_db *db;
    struct outcome out;
    queued_set(&(struct queued_settings){.seed = 7, .most_delay_us = 100});
    unlink("trace.db");
    assert_int_equal(pp_db_open("trace.db", PP_DB_WRITE, &db), PP_OK);
    snprintf(options, sizeof options,
             SHORT "--schedule 1f1b --stages 2 --chunks 4 --replicas 2 --max-batches 6 --trace-steps 2 %s",
             tied ? "--tie-embeddings yes" : "");
    if (train(&pp_backend_queued, options, db, &out) != PP_OK) fail_msg("%s", pp_message());
    /* A step of a replica: 3 microbatches through 2 stages, F and B; 3 transfers each way with two ends; of each stage
     * its reduction, norm and step; the global norm on both ranks, and the sum of tied gradients. */
    check_events(db, 2 * 2 * (3 * 2 * 2 + 3 * 2 * 2 + 2 * 3 + 2 + 2 * tied));
    assert_int_equal(pp_db_close(db), PP_OK);
    free(out.weights);
    queued_set(NULL);
}

static void traces_have_every_task_once(void **state)
{
    (void)state;
    check_trace(false);
    check_trace(true);
}

/* --- failures --- */

static void expect_failure(const char *options, pp_status expected, const char *text)
{
    struct outcome out;
    int64_t start = pp_now_ns();
    pp_status status = train(&pp_backend_queued, options, NULL, &out);
    if (status != expected || !strstr(pp_message(), text)) fail_msg("%s: %d, %s", options, status, pp_message());
    assert_true(pp_now_ns() - start < SOON_NS);
}

static void a_failure_ends_all_workers(void **state)
{
    (void)state;
    static const char *const options[] = {SHORT "--schedule 1f1b --stages 4 --chunks 4",
                                          SHORT "--schedule gpipe --stages 2 --chunks 2 --replicas 2",
                                          SHORT "--schedule gpipe --stages 2 --chunks 2 --tensor 2 --d-ff 24"};
    for (int i = 0; i < 3; i++)
        for (int worker = 0; worker < 4; worker++) {
            queued_set(&(struct queued_settings){
                .seed = 3, .most_delay_us = 200, .fail_worker = worker, .fail_run = 9, .at_once = worker % 2});
            expect_failure(options[i], PP_IO, "the test's failure");
        }
    queued_set(NULL);
}

/* In the middle of training. While the plan is made, a signal ends the process at once. */
static void *interrupt(void *arg)
{
    for (int naps = 0; queued_copies() == 0 && naps < 3000; naps++) usleep(10000);
    usleep(100000);
    kill(getpid(), SIGTERM);
    return arg;
}

/* The last test: the signal is remembered. */
static void a_signal_ends_all_workers(void **state)
{
    (void)state;
    pthread_t thread;
    queued_set(&(struct queued_settings){.seed = 5, .most_delay_us = 900});
    assert_int_equal(pp_signals_catch(), PP_OK);
    pthread_create(&thread, NULL, interrupt, NULL);
    expect_failure(MODEL "--rows 5 --tokens 7 --generated-tokens 400000 --max-batches 0 --no-eval --epochs 50 "
                         "--schedule 1f1b --stages 4 --chunks 4",
                   PP_INTERRUPTED, "signal");
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_cpu),   cmocka_unit_test(replicas_too),
        cmocka_unit_test(parts_beside_computations),   cmocka_unit_test(workers_of_a_rank_too),
        cmocka_unit_test(sums_beside_products_too),    cmocka_unit_test(exchanges_beside_products_too),
        cmocka_unit_test(tied_embeddings_too),         cmocka_unit_test(delays_change_nothing),
        cmocka_unit_test(a_host_is_ahead_by_launches), cmocka_unit_test(traces_have_every_task_once),
        cmocka_unit_test(a_failure_ends_all_workers),  cmocka_unit_test(a_signal_ends_all_workers),
    };
    pp_log_init("test_worker_queue", true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
