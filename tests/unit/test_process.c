/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of processes: what a job says of it, what a profile adds, and which profile counts.
 */
#include "core/job/process.h"

#include "kernels/kernels.h"
#include "sim/process.h"
#include "tests/unit/cost_case.h"

enum { LARGE = 2 << 20 };
static const char path[] = "process.db";

static int empty_folder(void **state)
{
    (void)state;
    unlink(path), unlink("process.db-wal"), unlink("process.db-shm");
    return 0;
}

static struct pp_db *open_db(void)
{
    struct pp_db *db;
    assert_int_equal(pp_db_open(path, PP_DB_WRITE, &db), PP_OK);
    return db;
}

static void add(struct pp_db *db, int64_t run, const char *of, const char *name, double value)
{
    assert_int_equal(pp_db_add_link(db, run, of, name, value), PP_OK);
}

/* A profile of what these options say: base_bytes and worker_bytes of both, first_bytes. */
static void add_profile(struct pp_db *db, const char *options, int processes, double base, double worker)
{
    struct pp_job *job = create_job(options);
    struct pp_run run = {"ppprof", "cpu", "a cpu", "mpi", NULL, processes, 2};
    int64_t id;
    assert_int_equal(pp_db_run_begin(db, &run, &config, NULL, &id), PP_OK);
    add(db, id, "inproc process", "base_bytes", base);
    add(db, id, "inproc process", "worker_bytes", worker);
    add(db, id, "mpi process", "base_bytes", 2 * base);
    add(db, id, "mpi process", "worker_bytes", worker);
    add(db, id, "mpi process", "first_bytes", 7);
    pp_job_free(job);
}

static struct pp_process_cost find(struct pp_db *db, const char *options, const char *transport)
{
    struct pp_process_cost cost;
    struct pp_job *job = create_job(options);
    config.device = "cpu";
    if (pp_process_cost_find(db, job, transport, &cost) != PP_OK) fail_msg("%s", pp_message());
    pp_job_free(job);
    return cost;
}

static void test_an_arena_is_made_of_whole_pages(void **state)
{
    (void)state;
    assert_int_equal(pp_arena_whole_bytes(0), 4096);
    assert_int_equal(pp_arena_whole_bytes(1), 4096);
    assert_int_equal(pp_arena_whole_bytes(4097), 8192);
    assert_int_equal(pp_arena_whole_bytes(LARGE - 1), LARGE);
    assert_int_equal(pp_arena_whole_bytes(LARGE), LARGE);
    assert_int_equal(pp_arena_whole_bytes(LARGE + 1), 2 * LARGE);
}

static int64_t worker_bytes(const struct pp_job *job, int worker)
{
    return pp_process_worker_bytes(job, pp_process_joined_bytes(job), worker);
}

/* Arena and traced events; with replicas the pieces of the others. */
static void test_what_a_worker_has(void **state)
{
    (void)state;
    struct pp_job *one = create_job("--preset lab --chunks 2");
    const int64_t *start = one->train->issue_start;
    int64_t events = config.trace_steps * (int64_t)sizeof(struct pp_event) * (start[2] - start[1]);
    assert_true(config.trace_steps > 0 && events > 0);
    int64_t alone = worker_bytes(one, 1);
    assert_int_equal(alone, pp_arena_whole_bytes(one->layout->arena_bytes[1]) + events);
    pp_job_free(one);
    struct pp_job *three = create_job("--preset lab --chunks 2 --replicas 3");
    assert_int_equal(pp_reduce_staging_bytes(3, INT64_C(1) << 40), 2 * 2 << 20);
    const int64_t staging = pp_reduce_staging_bytes(3, three->model->stages[1].param_bytes);
    events = config.trace_steps * (int64_t)sizeof(struct pp_event) *
             (three->train->issue_start[2] - three->train->issue_start[1]);
    for (int worker = 1; worker < 6; worker += 2)
        assert_int_equal(worker_bytes(three, worker),
                         pp_arena_whole_bytes(three->layout->arena_bytes[1]) + pp_arena_whole_bytes(staging) + events);
    pp_job_free(three);
}

/* The pieces of the rank's other worker, of at most a microbatch's activations; its own part of the weights. */
static void test_what_a_worker_has_that_shares_tensors(void **state)
{
    (void)state;
    enum { ACTIVATIONS = 2 * 9 * 12 * sizeof(float) };
    struct pp_job *job = create_job("--preset lab --chunks 2 --tensor 2"), *evaluating;
    const int64_t staging = pp_arena_whole_bytes(pp_reduce_staging_bytes(2, ACTIVATIONS));
    const int64_t *start = job->train->issue_start, event = config.trace_steps * (int64_t)sizeof(struct pp_event);
    int64_t kept = 0, held = 0;
    assert_int_equal(pp_job_most_joined(job, PP_JOIN_TENSOR_RANKS).bytes, ACTIVATIONS);
    assert_int_equal(pp_job_create(&config, &job->point, &pp_schedules, &pp_model_ops, true, NULL, &evaluating), PP_OK);
    for (int worker = 0; worker < 4; worker++) {
        const int rank = worker / 2;
        const int64_t alone = pp_arena_whole_bytes(job->layout->arena_bytes[rank]);
        assert_int_equal(worker_bytes(job, worker), alone + staging + event * (start[rank + 1] - start[rank]));
        kept += worker_bytes(evaluating, worker) - worker_bytes(job, worker);
        kept -= pp_arena_whole_bytes(evaluating->layout->arena_bytes[rank]) - alone;
    }
    for (int i = 0; i < job->model->ntensors; i++) held += 2 * job->model->tensors[i].local_elements;
    assert_true(held < 2 * job->model->parameters);
    assert_int_equal(kept, held * (int64_t)sizeof(float));
    assert_int_equal(pp_process_table_bytes(job, true) - pp_process_table_bytes(job, false), 2 * event * start[2]);
    pp_job_free(evaluating);
    pp_job_free(job);
}

/* What is exchanged needs room elsewhere than what is summed: for the largest shift, in one piece. */
static void test_shifts_are_exchanged(void **state)
{
    (void)state;
    struct pp_job *job = create_job("--preset lab --chunks 2 --tensor 2");
    struct pp_program *program = &job->phase[PP_TRAIN].programs[0];
    assert_int_equal(pp_job_most_joined(job, PP_JOIN_TENSOR_RANKS).exchanged_bytes, 0);
    assert_int_equal(pp_job_most_joined(job, PP_JOIN_TENSOR_RANKS).pieces, 0);
    const int64_t summed = pp_job_most_joined(job, PP_JOIN_TENSOR_RANKS).bytes;
    assert_true(program->ncalls > 1);
    for (int i = 0; i < 2; i++)
        program->calls[i] = (struct pp_call){.kernel = PP_KERNEL_SHIFT, .exchange = {70 + i, 1200}};
    assert_int_equal(pp_job_most_joined(job, PP_JOIN_TENSOR_RANKS).exchanged_bytes, 71 * 1200 * 4);
    assert_int_equal(pp_job_most_joined(job, PP_JOIN_TENSOR_RANKS).pieces, 1);
    assert_int_equal(pp_job_most_joined(job, PP_JOIN_TENSOR_RANKS).bytes, summed);
    pp_job_free(job);
}

/* The pieces of a small sum are small: what many workers have for it all together is in proportion to its bytes. */
static void test_room_for_sums_is_no_more_than_they_need(void **state)
{
    (void)state;
    enum { MOST = 100000 };
    for (int members = 2; members <= 512; members *= 2) {
        assert_true(pp_reduce_piece_bytes(members, MOST) * members >= MOST);
        assert_true(pp_reduce_staging_bytes(members, MOST) <= 2 * (MOST + 2 * PP_REDUCE_LINE * members));
    }
}

/* The first replica keeps the best weights, each worker those of its rank. */
static void test_who_evaluates_keeps_weights(void **state)
{
    (void)state;
    struct pp_job *job = create_job("--preset lab --chunks 2 --replicas 2"), *evaluating;
    assert_int_equal(pp_job_create(&config, &job->point, &pp_schedules, &pp_model_ops, true, NULL, &evaluating), PP_OK);
    int64_t kept = 0;
    for (int worker = 0; worker < 4; worker++) {
        int64_t more = worker_bytes(evaluating, worker) - worker_bytes(job, worker);
        int rank = worker % 2;
        more -= pp_arena_whole_bytes(evaluating->layout->arena_bytes[rank]) -
                pp_arena_whole_bytes(job->layout->arena_bytes[rank]);
        if (worker >= 2) assert_int_equal(more, 0);
        kept += more;
    }
    assert_int_equal(kept, 4 * job->model->parameters);
    assert_true(pp_process_table_bytes(evaluating, false) > pp_process_table_bytes(job, false));
    pp_job_free(evaluating);
    pp_job_free(job);
}

static void test_threads_share_one_process(void **state)
{
    (void)state;
    struct pp_job *job = create_job("--preset lab --chunks 2 --replicas 2");
    const struct pp_process_cost cost = {.known = true, .base = 1e7, .worker = 1e5};
    int64_t expected = 10400000 + 1234 + pp_process_table_bytes(job, true);
    for (int i = 0; i < 4; i++) expected += worker_bytes(job, i);
    assert_int_equal(pp_process_bytes(job, &cost, 1234, 0), expected);
    for (int i = 1; i < 4; i++) assert_int_equal(pp_process_bytes(job, &cost, 1234, i), 0);
    assert_int_equal(pp_process_most_bytes(job, &cost, 1234), expected);
    pp_job_free(job);
}

static void test_under_mpi_each_worker_has_its_own(void **state)
{
    (void)state;
    struct pp_job *job = create_job("--preset small --chunks 2");
    const struct pp_process_cost cost = {.known = true, .alone = true, .base = 2e7, .worker = 1e5, .first = 3e5};
    int64_t first = 20400000 + 1234 + pp_process_table_bytes(job, true) + worker_bytes(job, 0);
    int64_t second = 20100000 + 1234 + pp_process_table_bytes(job, false) + worker_bytes(job, 1);
    assert_int_equal(pp_process_bytes(job, &cost, 1234, 0), first);
    assert_int_equal(pp_process_bytes(job, &cost, 1234, 1), second);
    assert_int_equal(pp_process_most_bytes(job, &cost, 1234), second > first ? second : first);
    assert_true(pp_process_table_bytes(job, true) > pp_process_table_bytes(job, false)); /* it collects the events */
    pp_job_free(job);
}

static void test_nothing_is_known_without_a_profile(void **state)
{
    (void)state;
    struct pp_db *db = open_db();
    struct pp_job *job = create_job("--preset lab");
    const struct pp_process_cost none = find(db, "--preset lab", "inproc");
    assert_false(none.known);
    assert_int_equal(pp_process_most_bytes(job, &none, 1234), 0);
    pp_job_free(job);
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* The profile of this model and data shape, else the newest. */
static void test_figures_of_the_same_model_come_first(void **state)
{
    (void)state;
    struct pp_db *db = open_db();
    add_profile(db, "--preset lab", 2, 100, 10);
    add_profile(db, "--preset lab --rows 3", 2, 200, 20);
    add_profile(db, "--preset small", 2, 300, 30);
    expect_near(find(db, "--preset lab", "inproc").base, 100, 0, "lab");
    expect_near(find(db, "--preset lab", "mpi").base, 200, 0, "lab, MPI");
    expect_near(find(db, "--preset lab", "mpi").first, 7, 0, "the first process");
    expect_near(find(db, "--preset lab --rows 3", "inproc").worker, 20, 0, "lab of other rows");
    expect_near(find(db, "--preset small", "inproc").base, 300, 0, "small");
    expect_near(find(db, "--preset small --layers 4", "inproc").base, 300, 0, "what was not measured");
    add_profile(db, "--preset lab", 2, 400, 40);
    expect_near(find(db, "--preset lab", "inproc").base, 400, 0, "the newest of lab");
    assert_int_equal(pp_db_close(db), PP_OK);
}

static void test_links_of_the_same_model_come_first(void **state)
{
    (void)state;
    struct pp_db *db = open_db();
    double value;
    bool found;
    static const char *const options[] = {"--preset lab", "--preset small"};
    for (int i = 0; i < 2; i++) {
        add_profile(db, options[i], 2, 1, 1);
        add(db, i + 1, "inproc p2p", "latency_ns", 10 * i + 5);
    }
    for (int i = 0; i < 2; i++) {
        pp_job_free(create_job(options[i]));
        config.device = "cpu";
        assert_int_equal(pp_db_find_link(db, &config, 0, "inproc p2p", "latency_ns", &value, &found), PP_OK);
        assert_true(found);
        expect_near(value, 10 * i + 5, 0, options[i]);
    }
    assert_int_equal(pp_db_close(db), PP_OK);
}

/* Each process knows of all others: a profile with as many is better than a newer one. */
static void test_as_many_processes_are_best(void **state)
{
    (void)state;
    struct pp_db *db = open_db();
    add_profile(db, "--preset lab --layers 4", 4, 100, 10);
    add_profile(db, "--preset lab --layers 4", 2, 300, 30);
    expect_near(find(db, "--preset lab --layers 4 --stages 2", "mpi").base, 600, 0, "two");
    expect_near(find(db, "--preset lab --layers 4 --stages 4", "mpi").base, 200, 0, "four");
    expect_near(find(db, "--preset lab --layers 4 --stages 2 --replicas 2", "mpi").base, 200, 0, "two of two");
    assert_int_equal(pp_db_close(db), PP_OK);
}

static void test_absurd_figures_are_refused(void **state)
{
    (void)state;
    static const double absurd[] = {-1, 1.1e15, INFINITY, -INFINITY};
    struct pp_job *job = create_job("--preset lab");
    config.device = "cpu";
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        struct pp_process_cost cost;
        empty_folder(NULL);
        struct pp_db *db = open_db();
        add_profile(db, "--preset lab", 2, 100, absurd[i]);
        config.device = "cpu";
        assert_int_equal(pp_process_cost_find(db, job, "inproc", &cost), PP_INPUT);
        assert_non_null(strstr(pp_message(), "the profile says that worker_bytes of \"inproc process\" is"));
        assert_non_null(strstr(pp_message(), "measure again"));
        assert_int_equal(pp_db_close(db), PP_OK);
    }
    assert_int_equal(pp_check_figure(NAN, 0, 1, "%s is", "it"), PP_INPUT);
    assert_non_null(strstr(pp_message(), "nan"));
    assert_int_equal(pp_check_figure(0, 0, 1, "%s is", "it"), PP_OK);
    assert_int_equal(pp_check_figure(1, 0, 1, "%s is", "it"), PP_OK);
    pp_job_free(job);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, empty_folder)
    const struct CMUnitTest tests[] = {
        TEST(test_an_arena_is_made_of_whole_pages),
        TEST(test_what_a_worker_has),
        TEST(test_what_a_worker_has_that_shares_tensors),
        TEST(test_shifts_are_exchanged),
        TEST(test_who_evaluates_keeps_weights),
        TEST(test_threads_share_one_process),
        TEST(test_under_mpi_each_worker_has_its_own),
        TEST(test_nothing_is_known_without_a_profile),
        TEST(test_figures_of_the_same_model_come_first),
        TEST(test_links_of_the_same_model_come_first),
        TEST(test_as_many_processes_are_best),
        TEST(test_absurd_figures_are_refused),
        TEST(test_room_for_sums_is_no_more_than_they_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
