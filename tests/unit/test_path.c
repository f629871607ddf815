/* SPDX-License-Identifier: Apache-2.0
 *
 * The critical path goes through the first worker of each rank: what the others did beside it makes no difference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "analysis/why.h"
#include "tests/unit/synthetic_db.h"

/* The path through a step of these events, out of a database. Closes both. */
static struct pp_path read_back(struct synthetic *s, int step, struct pp_trace *trace)
{
    const struct pp_path_sharing sharing = {.alone = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
    const struct pp_run info = {"ppexec", "cpu", "synthetic", "inproc", NULL, 1, 2};
    struct pp_path path;
    struct pp_db *db;
    int64_t run;
    unlink("path.db");
    must(pp_db_open("path.db", PP_DB_WRITE, &db));
    must(pp_db_run_begin(db, &info, &s->config, &s->job, &run));
    must(pp_db_add_tasks(db, &s->job, s->job.train));
    must(pp_db_add_events(db, run, s->job.train, trace));
    must(pp_path_read(db, run, step, &sharing, &path));
    must(pp_db_close(db));
    pp_trace_clear(trace);
    synthetic_close(s);
    return path;
}

/* Other workers take half the time, so they are never waited for. */
static struct pp_path path_of(const char *schedule, int virtual_stages, int step, int tensor)
{
    const struct synthetic_case c = {schedule, 2, virtual_stages, 4, 2, PP_CHECKPOINT_ALWAYS, 0, tensor};
    struct synthetic s;
    struct pp_trace trace = {0};
    synthetic_open(&s, &c);
    for (int w = 0; w < 2 * tensor; w++)
        synthetic_step(s.job.train, step, w / tensor, w % tensor, w == 0 ? 1 : 0.5, w == 0 ? 0.1 : 0, 0, &trace);
    return read_back(&s, step, &trace);
}

static void test_first_workers(void **state)
{
    (void)state;
    static const char *const schedules[] = {"1f1b", "interleaved"};
    for (int step = 0; step < 8; step++) { /* each has other times: the path ends on either rank */
        const int i = step % 2;
        struct pp_path whole = path_of(schedules[i], 1 + i, step, 1), shared = path_of(schedules[i], 1 + i, step, 2);
        assert_int_equal(shared.length_ns, whole.length_ns);
        for (int c = 0; c < PP_CAUSES; c++) assert_int_equal(shared.cause_ns[c], whole.cause_ns[c]);
        assert_int_equal(shared.n, whole.n);
        for (int64_t k = 0; k < whole.n; k++) {
            assert_int_equal(shared.tasks[k].task, whole.tasks[k].task);
            assert_int_equal(shared.tasks[k].rank, whole.tasks[k].rank);
            assert_int_equal(shared.tasks[k].until_ns, whole.tasks[k].until_ns);
        }
        pp_path_free(&whole);
        pp_path_free(&shared);
    }
}

/* The sum of tied gradients is over on rank 1 so much later than on rank 0, and all that waits for it there. */
static struct pp_path late_on_rank_1(int64_t late_ns)
{
    const struct synthetic_case c = {"1f1b", 2, 1, 4, 1, PP_CHECKPOINT_NEVER, 0, 1, true};
    struct synthetic s;
    struct pp_trace trace = {0};
    synthetic_open(&s, &c);
    synthetic_step(s.job.train, 0, 0, 0, 1, 0, 0, &trace);
    for (int64_t i = 0; i < trace.nevents; i++) {
        struct pp_event *e = &trace.events[i];
        const int kind = s.job.train->tasks[e->task].kind;
        const bool after = kind == PP_NORM_ALL || kind == PP_STEP || (kind == PP_NORM && e->worker == 1);
        if (after) e->posted_ns += late_ns, e->start_ns += late_ns;
        if (after || (kind == PP_REDUCE_TIED && e->worker == 1)) e->end_ns += late_ns;
    }
    return read_back(&s, 0, &trace);
}

/* What ranks do together is over at its own time on each. */
static void test_ends_on_ranks(void **state)
{
    (void)state;
    struct pp_path even = late_on_rank_1(0), late = late_on_rank_1(500);
    assert_int_equal(late.length_ns, even.length_ns + 500);
    for (int c = 0; c < PP_CAUSES; c++)
        assert_int_equal(late.cause_ns[c], even.cause_ns[c] + (c == PP_CAUSE_COMBINING ? 500 : 0));
    assert_int_equal(late.cause_count[PP_CAUSE_COMBINING], 3); /* the sum, NORM, NORM_ALL */
    pp_path_free(&even);
    pp_path_free(&late);
}

static int column_of(const struct pp_table *table, const char *key)
{
    int column = 0;
    while (strcmp(table->columns[column].key, key) != 0) column++;
    return column;
}

/* Causes have shares of the gap, unless they cancel out and leave less than a tenth of one. */
static void test_shares(void **state)
{
    (void)state;
    for (int gap = 8; gap <= 12; gap++) {
        const struct pp_why why = {.predicted_ns = 1000 + gap,
                                   .measured_ns = 1000,
                                   .predicted.cause_ns = {[PP_CAUSE_F] = 600, [PP_CAUSE_B] = 400 + gap},
                                   .measured.cause_ns = {[PP_CAUSE_F] = 500, [PP_CAUSE_B] = 500}};
        struct pp_table table;
        double sum = 0;
        must(pp_why_causes(&why, &table));
        for (int64_t row = 0; row < table.nrows; row++) {
            const struct pp_cell *share = &table.cells[row * table.ncolumns + column_of(&table, "share_percent")];
            const bool differs = pp_table_integer(&table, row, column_of(&table, "difference_ns")) != 0;
            assert_int_equal(share->type, gap >= 10 && differs ? SQLITE_FLOAT : SQLITE_NULL);
            sum += differs ? share->real : 0;
        }
        assert_int_equal(llround(sum), gap >= 10 ? 200 : 0); /* the causes, and their total */
        pp_table_free(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_workers), cmocka_unit_test(test_ends_on_ranks),
                                       cmocka_unit_test(test_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
