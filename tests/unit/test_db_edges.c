/* SPDX-License-Identifier: Apache-2.0
 *
 * The edges of plans in the database: what is stored is what the plan has, under the right names, for every schedule
 * and all that gives a plan other edges; rows of an older ppkit get theirs.
 */
#include "schedules/schedule.h"
#include "tests/unit/db_case.h"

enum { MOST_STAGES = 16 };

struct edge {
    int32_t task, needs, steps_back;
    const char *why;
};

struct edges {
    int64_t n, capacity;
    struct edge *all;
};

/* How often a name was seen with edges of the same step and into the next one. */
static const char *const names[] = {"input", "parameters", "send slot", "receive slot", "receive order"};
static int64_t seen[sizeof names / sizeof *names][2];

static void add_edge(struct edges *edges, int32_t task, int32_t needs, int32_t steps_back, const char *why)
{
    must(PP_GROW(&edges->all, edges->n + 1, &edges->capacity));
    edges->all[edges->n++] = (struct edge){task, needs, steps_back, why};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) seen[i][steps_back] += strcmp(names[i], why) == 0;
}

/* Why a task waits for dep[i], shown by the slots and lanes of both. */
static const char *reason(const struct pp_plan *plan, const struct pp_task *t, int i)
{
    const struct pp_task *other = &plan->tasks[t->dep[i]];
    if (i == 0) return "input";
    if (t->kind == PP_REDUCE_TIED && i == 1) return "input";
    if (i == 2 && pp_kinds[t->kind].computes) {
        assert_int_equal(other->kind, PP_GATHER_PARAM);
        assert_int_equal(other->stage, t->stage);
        return "parameters";
    }
    assert_true(pp_is_transfer(t->kind) || pp_is_transfer(other->kind));
    if (i == 2) {
        assert_int_equal(other->lane, plan->lanes[t->lane].dst);
        return "receive order";
    }
    assert_true(t->out >= 0);
    assert_int_equal(other->in, t->out);
    return pp_is_transfer(t->kind) ? "receive slot" : "send slot";
}

static const char *reason_of_wrap(const struct pp_plan *plan, const struct pp_wrap *wrap)
{
    const struct pp_task *from = &plan->tasks[wrap->from], *to = &plan->tasks[wrap->to];
    if (to->kind == PP_GATHER_PARAM) {
        assert_int_equal(from->kind, PP_STEP);
        assert_int_equal(from->stage, to->stage);
        return "input";
    }
    if (from->kind == PP_GATHER_PARAM) {
        assert_int_equal(plan->stage_rank[from->stage], to->lane);
        return "parameters";
    }
    assert_true(to->out >= 0);
    assert_int_equal(from->in, to->out);
    assert_true(pp_is_transfer(to->kind) != pp_is_transfer(from->kind));
    return pp_is_transfer(to->kind) ? "receive slot" : "send slot";
}

static int by_row(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->task != y->task) return x->task < y->task ? -1 : 1;
    if (x->steps_back != y->steps_back) return x->steps_back < y->steps_back ? -1 : 1;
    if (x->needs != y->needs) return x->needs < y->needs ? -1 : 1;
    return strcmp(x->why, y->why);
}

static struct edges edges_of(const struct pp_plan *plan)
{
    struct edges edges = {0};
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        const bool range = t->flags & PP_TASK_DEP_RANGE;
        for (int32_t d = t->dep[0]; range && d <= t->dep[1]; d++) add_edge(&edges, id, d, 0, "input");
        for (int i = 0; i < 3 && !range; i++)
            if (t->dep[i] >= 0) add_edge(&edges, id, t->dep[i], 0, reason(plan, t, i));
    }
    for (int i = 0; i < plan->nwraps; i++)
        add_edge(&edges, plan->wraps[i].to, plan->wraps[i].from, 1, reason_of_wrap(plan, &plan->wraps[i]));
    if (edges.all) qsort(edges.all, (size_t)edges.n, sizeof *edges.all, by_row);
    return edges;
}

static int64_t plan_of(struct pp_db *db, const struct pp_plan *plan)
{
    int64_t id = 0;
    char hash[17];
    bool found;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)plan->hash);
    must(pp_db_integer(db, "SELECT id FROM plan WHERE hash = ?1", PP_VALUES(PP_TEXT(hash)), &id, &found));
    assert_true(found);
    return id;
}

/* The columns of `task` are dep[] as it is. */
static void check_columns(struct pp_db *db, const struct pp_plan *plan)
{
    sqlite3_stmt *statement;
    bool found;
    must(pp_db_query(db, "SELECT dep0, dep1, dep2, dep_range FROM task WHERE plan = ?1 ORDER BY id",
                     PP_VALUES(PP_INT(plan_of(db, plan))), &statement));
    for (int64_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        must(pp_db_row(db, statement, &found));
        assert_true(found);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(sqlite3_column_type(statement, i), t->dep[i] < 0 ? SQLITE_NULL : SQLITE_INTEGER);
            if (t->dep[i] >= 0) assert_int_equal(sqlite3_column_int(statement, i), t->dep[i]);
        }
        assert_int_equal(sqlite3_column_int(statement, 3), (t->flags & PP_TASK_DEP_RANGE) != 0);
    }
    must(pp_db_row(db, statement, &found));
    assert_false(found);
}

/* The view has one row for each edge, and no other. */
static void check_view(struct pp_db *db, const struct pp_plan *plan)
{
    struct edges edges = edges_of(plan);
    const int64_t id = plan_of(db, plan);
    int64_t stored = -1;
    sqlite3_stmt *statement;
    bool found;
    must(pp_db_integer(db, "SELECT edges FROM plan WHERE id = ?1", PP_VALUES(PP_INT(id)), &stored, &found));
    assert_int_equal(stored, edges.n);
    must(pp_db_query(db,
                     "SELECT task, needs, steps_back, why FROM v_task_edge WHERE plan = ?1 "
                     "ORDER BY task, steps_back, needs, why",
                     PP_VALUES(PP_INT(id)), &statement));
    for (int64_t i = 0; i < edges.n; i++) {
        must(pp_db_row(db, statement, &found));
        assert_true(found);
        assert_int_equal(sqlite3_column_int(statement, 0), edges.all[i].task);
        assert_int_equal(sqlite3_column_int(statement, 1), edges.all[i].needs);
        assert_int_equal(sqlite3_column_int(statement, 2), edges.all[i].steps_back);
        assert_string_equal((const char *)sqlite3_column_text(statement, 3), edges.all[i].why);
    }
    must(pp_db_row(db, statement, &found));
    assert_false(found);
    free(edges.all);
}

/* Everything that gives plans of a schedule other edges. */
static const struct pp_plan_spec variants[] = {
    {.recv_buffers = 0},
    {.recv_buffers = 1, .clip = true},
    {.recv_buffers = 2, .tied = true, .checkpoint = PP_CHECKPOINT_ALWAYS},
    {.recv_buffers = 2, .tied = true, .clip = true, .replicas = 2, .checkpoint = PP_CHECKPOINT_EXCEPT_LAST},
    {.recv_buffers = 2, .batch_w = 2, .replicas = 2},
    {.recv_buffers = 3, .zero = PP_ZERO_OPTIMIZER, .replicas = 2, .clip = true},
    {.recv_buffers = 2, .zero = PP_ZERO_OPTIMIZER, .replicas = 2, .gather_first = true},
    {.recv_buffers = 2, .zero = PP_ZERO_OPTIMIZER, .replicas = 4, .shard_group = 2, .tied = true},
    {.recv_buffers = 2, .zero = PP_ZERO_GRADIENTS, .replicas = 2, .clip = true},
    {.recv_buffers = 2, .zero = PP_ZERO_GRADIENTS, .replicas = 2, .tied = true, .gather_first = true},
    {.recv_buffers = 2, .zero = PP_ZERO_PARAMETERS, .replicas = 2, .tied = true},
    {.recv_buffers = 2,
     .zero = PP_ZERO_PARAMETERS,
     .replicas = 4,
     .shard_group = 2,
     .clip = true,
     .checkpoint = PP_CHECKPOINT_ALWAYS},
};

/* Plans of one shape in all variants; returns how many there are. Shares of gradients are not for split backwards. */
static int check_shape(struct pp_db *db, const char *schedule, int p, int v, int m)
{
    static const int parts[MOST_STAGES] = {3, 1, 2, 4, 2, 3, 1, 2, 3, 1, 2, 4, 2, 3, 1, 2};
    int n = 0;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        struct pp_plan_spec spec = variants[i];
        struct pp_plan *plan;
        spec.schedule = schedule;
        spec.ranks = p, spec.virtual_stages = v, spec.microbatches = m;
        if (!spec.replicas) spec.replicas = 1;
        if (spec.replicas > 1) spec.parts = parts;
        spec.training = spec.optimizer = true;
        const pp_status status = pp_plan_build(&spec, &plan);
        if (status == PP_USAGE && spec.zero >= PP_ZERO_GRADIENTS) continue;
        must(status);
        must(pp_plan_check(plan));
        must(pp_db_add_tasks(db, NULL, plan));
        check_columns(db, plan);
        check_view(db, plan);
        pp_plan_free(plan);
        n++;
    }
    return n;
}

static void test_all_schedules(void **state)
{
    static const int shapes[][3] = {{1, 1, 1}, {1, 2, 3}, {2, 1, 4}, {2, 2, 4}, {3, 1, 6}, {3, 2, 6}, {4, 2, 8}};
    (void)state;
    int plans = 0, schedules = 0;
    struct pp_db *db = open_db(PP_DB_WRITE);
    for (; pp_schedule_at(schedules); schedules++) {
        const char *name = pp_schedule_at(schedules)->name;
        int of_schedule = 0;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const int *shape = shapes[i];
            if (pp_schedule_check(name, shape[0], shape[1], shape[2]) != PP_OK) continue;
            of_schedule += check_shape(db, name, shape[0], shape[1], shape[2]);
        }
        if (of_schedule == 0) fail_msg("%s has none of these shapes", name);
        plans += of_schedule;
    }
    assert_true(plans > 10 * schedules);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int back = 0; back < 2; back++) {
            const bool never = back == 1 && strcmp(names[i], "receive order") == 0;
            if ((seen[i][back] == 0) != never) fail_msg("no edge is called %s, %d steps back", names[i], back);
        }
    must(pp_db_close(db));
}

/* Rows without edges, as they are in a file that an older ppkit wrote, get them when the plan is stored again. */
static void test_older_rows(void **state)
{
    struct synthetic s;
    (void)state;
    synthetic_open(&s, &two_stages);
    struct pp_db *db = open_db(PP_DB_WRITE);
    begin_run(db, &s, "ppexec");
    near(number(db, "SELECT edges IS NULL FROM plan"), 1);
    must(pp_db_add_tasks(db, &s.job, s.job.train));
    const double edges = number(db, "SELECT edges FROM plan"), bytes = number(db, "SELECT sum(taken_bytes) FROM task");
    must(pp_db_close(db));
    script("UPDATE plan SET edges = NULL; DELETE FROM wrap;"
           "UPDATE task SET dep0 = NULL, dep1 = NULL, dep2 = NULL, dep_range = 0");
    db = open_db(PP_DB_WRITE);
    near(number(db, "SELECT count(*) FROM v_task_edge"), 0);
    must(pp_db_add_tasks(db, &s.job, s.job.train));
    near(number(db, "SELECT edges FROM plan"), edges);
    near(number(db, "SELECT count(*) FROM v_task_edge"), edges);
    near(number(db, "SELECT count(*) FROM task"), (double)s.job.train->ntasks);
    near(number(db, "SELECT sum(taken_bytes) FROM task"), bytes);
    must(pp_db_close(db));
    synthetic_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_all_schedules, empty_folder),
        cmocka_unit_test_setup(test_older_rows, empty_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
