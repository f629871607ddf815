/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of a finished run, from records and events that are made by hand.
 */
#include <math.h>

#include "exec/report.h"
#include "tests/unit/cost_case.h"

enum { MS = 1000000, FIRST = 3, WARMUP = 2, PLAIN = 4, MOST = 16 };

/* A run that goes on after step FIRST: steps to warm up, PLAIN others, and some that are traced. */
struct run {
    struct pp_job *job;
    struct pp_agenda agenda;
    struct pp_world world;
    struct pp_worker_summary summary;
    struct pp_record records[MOST];
    struct pp_event events[2 * MOST];
    struct pp_session session;
};

static void begin(struct run *run)
{
    *run = (struct run){.job = create_job("--stages 1 --layers 1 --rows 2 --chunks 1")};
    run->agenda.first = run->agenda.steps = FIRST;
    run->agenda.warmup = WARMUP;
    run->world.workers = 1;
    run->world.processes = (struct pp_processes){.count = 1, .on_host = 1, .hosts = 1};
    run->session = (struct pp_session){.config = &config,
                                       .job = run->job,
                                       .agenda = &run->agenda,
                                       .world = &run->world,
                                       .summaries = &run->summary,
                                       .journal.records = run->records,
                                       .trace.events = run->events};
}

static void add_step(struct run *run, int ms, bool traced)
{
    struct pp_journal *journal = &run->session.journal;
    assert_true(journal->written < MOST);
    run->records[journal->written++] = (struct pp_record){
        .kind = PP_RECORD_STEP, .step = run->agenda.steps++, .ns = (int64_t)ms * MS, .loss = ms, .traced = traced};
}

/* A traced step: half a millisecond of work at its beginning, and half of one at its end. */
static void add_traced(struct run *run, int ms)
{
    struct pp_trace *trace = &run->session.trace;
    int32_t task = 0;
    while (run->job->train->tasks[task].kind != PP_F) task++;
    for (int i = 0; i < 2; i++) {
        const int64_t start = i ? (int64_t)ms * MS - MS / 2 : 0;
        run->events[trace->nevents++] = (struct pp_event){
            .step = run->agenda.steps, .task = task, .posted_ns = start, .start_ns = start, .end_ns = start + MS / 2};
    }
    add_step(run, ms, true);
}

static void finish(struct run *run, struct pp_result *result)
{
    run->agenda.first_traced = run->agenda.steps;
    for (int64_t i = 0; i < run->session.journal.written; i++) run->agenda.first_traced -= run->records[i].traced;
    if (pp_result_make(&run->session, result) != PP_OK) fail_msg("%s", pp_message());
}

static void end(struct run *run, struct pp_result *result)
{
    pp_result_free(result);
    pp_job_free(run->job);
}

/* The first so many of these steps are traced; of an even number the median is the mean of the middle two. */
static void test_medians(void **state)
{
    (void)state;
    static const int plain[PLAIN] = {30, 50, 20, 31}, traced[] = {70, 10, 40, 20};
    static const struct {
        int traced;
        double ms, bubble;
    } cases[] = {{1, 70, 1 - 1 / 70.0},
                 {2, 40, 1 - (1 / 70.0 + 1 / 10.0) / 2},
                 {3, 40, 1 - 1 / 40.0},
                 {4, 30, 1 - (1 / 20.0 + 1 / 40.0) / 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        struct pp_result result;
        begin(&run);
        for (int s = 0; s < WARMUP; s++) add_step(&run, 1000, false);
        for (int s = 0; s < PLAIN; s++) add_step(&run, plain[s], false);
        for (int s = 0; s < cases[i].traced; s++) add_traced(&run, traced[s]);
        finish(&run, &result);
        const struct pp_run_result *figures = &result.stored;
        expect_near(figures->ms_per_batch, 30.5, 1e-9, "the middle two of four steps");
        expect_near(figures->makespan_ms, cases[i].ms, 1e-9, "makespan");
        expect_near(figures->span_ms, cases[i].ms, 1e-9, "span");
        expect_near(figures->bubble, cases[i].bubble, 1e-9, "bubble");
        expect_near(figures->bubble_span, cases[i].bubble, 1e-9, "bubble of the span");
        expect_near(figures->trace_overhead, cases[i].ms / 30.5 - 1, 1e-9, "what tracing takes in addition");
        assert_int_equal(result.nlosses, WARMUP + PLAIN + cases[i].traced);
        end(&run, &result);
    }
}

/* Where all others are for warming up, traced steps say how long one takes, and nobody knows what tracing adds. */
static void test_no_plain_step(void **state)
{
    (void)state;
    struct run run;
    struct pp_result result;
    begin(&run);
    for (int s = 0; s < WARMUP; s++) add_step(&run, 60, false);
    for (int s = 0; s < 3; s++) add_traced(&run, 40 + s);
    finish(&run, &result);
    expect_near(result.stored.ms_per_batch, 41, 1e-9, "traced steps");
    assert_true(isnan(result.stored.trace_overhead));
    end(&run, &result);
}

/* A part of the time of traced tasks in which others had the core. */
static void test_taken(void **state)
{
    (void)state;
    static const struct {
        int64_t all, had;
        double taken;
    } cases[] = {{100, 80, 0.2}, {100, 100, 0}, {100, 101, 0}, {0, 0, NAN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run;
        struct pp_result result;
        begin(&run);
        add_traced(&run, 5);
        run.summary.traced.ns = cases[i].all;
        run.summary.traced.cpu_ns = cases[i].had;
        finish(&run, &result);
        if (isnan(cases[i].taken))
            assert_true(isnan(result.taken));
        else
            expect_near(result.taken, cases[i].taken, 1e-9, "taken");
        end(&run, &result);
    }
}

/* A step that was interrupted among others does not count. */
static void test_taken_once(void **state)
{
    (void)state;
    struct pp_core_time once[] = {{100, 99}, {5000, 90}, {100, 98}, {0, 0}}, empty = pp_core_time_median(once, 0);
    const struct pp_core_time of_three = pp_core_time_median(once, 3), of_four = pp_core_time_median(once, 4);
    assert_int_equal(of_three.cpu_ns, 98);
    assert_int_equal(of_four.cpu_ns, 99);
    assert_int_equal(empty.ns, 0);
}

/* Threads that share cores take them from each other. The cores are those of all processes of the host: a launcher may
 * have bound this one to one of them. */
static void test_taken_from_whom(void **state)
{
    (void)state;
    enum { MANY = 1 << 20 };
    const int cores[] = {0, MANY - 1, MANY};
    for (int i = 0; i < 3; i++) {
        struct run run;
        struct pp_result result;
        begin(&run);
        config.threads = MANY;
        run.world.processes.host_cores = cores[i];
        run.summary.traced.ns = 100;
        run.summary.traced.cpu_ns = 80;
        add_step(&run, 1, false);
        finish(&run, &result);
        if (cores[i] < MANY)
            assert_true(isnan(result.taken));
        else
            expect_near(result.taken, 0.2, 1e-9, "taken");
        end(&run, &result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_medians), cmocka_unit_test(test_no_plain_step),
                                       cmocka_unit_test(test_taken), cmocka_unit_test(test_taken_once),
                                       cmocka_unit_test(test_taken_from_whom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
