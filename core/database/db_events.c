/* SPDX-License-Identifier: Apache-2.0
 *
 * Events into the database. The ends of a transfer or of a collective come from several workers, none of which knows
 * when all were ready; here all are at hand, so it is here that `start` becomes the last of their posts: what comes
 * before is waiting, what follows is moving. What each worker computed in each step is summed on the way, so that
 * reading a bubble does not need the events.
 */
#include <stdlib.h>

#include "core/database/db.h"
#include "core/database/db_query.h"

struct busy {
    int64_t first_ns, last_ns, busy_ns, recompute_ns;
};

struct summary {
    const struct pp_plan *plan;
    int first_step, steps;
    int workers;        /* up to the last one that has events: of a simulation often those of one replica */
    int groups;         /* likewise, of those who meet in a task */
    struct busy *busy;  /* [steps][workers] */
    int64_t *posted_ns; /* [steps][groups][ntasks] the last post of a transfer or collective */
};

/* The workers that meet in a task, by number. */
static int group_of(const struct pp_plan *plan, const struct pp_event *e)
{
    const int kind = plan->tasks[e->task].kind;
    const int replica = pp_first_met(plan, kind, pp_worker_replica(plan, e->worker));
    return replica * plan->members + pp_first_member_met(plan, kind, e->worker);
}

static int64_t *posted_of(const struct summary *s, const struct pp_event *e)
{
    const int64_t place = (int64_t)(e->step - s->first_step) * s->groups + group_of(s->plan, e);
    return &s->posted_ns[place * s->plan->ntasks + e->task];
}

static void summarise(struct summary *s, const struct pp_event *e)
{
    int kind = s->plan->tasks[e->task].kind;
    if (!pp_kinds[kind].computes) {
        int64_t *posted = posted_of(s, e);
        if (e->posted_ns > *posted) *posted = e->posted_ns;
    } else {
        struct busy *b = &s->busy[(int64_t)(e->step - s->first_step) * s->workers + e->worker];
        if (e->start_ns < b->first_ns) b->first_ns = e->start_ns;
        if (e->end_ns > b->last_ns) b->last_ns = e->end_ns;
        b->busy_ns += e->end_ns - e->start_ns;
        if (kind == PP_R) b->recompute_ns += e->end_ns - e->start_ns;
    }
}

static pp_status check_events(const struct pp_db *db, const struct pp_plan *plan, const struct pp_trace *trace)
{
    int workers = pp_plan_workers(plan);
    for (int64_t i = 0; i < trace->nevents; i++) {
        const struct pp_event *e = &trace->events[i];
        if (e->task < 0 || e->task >= plan->ntasks || e->worker < 0 || e->worker >= workers)
            return pp_fail(PP_INTERNAL,
                           "database %s: event %lld names task %d and worker %d of %lld task%s and %d worker%s",
                           db->path, (long long)i, e->task, e->worker, (long long)plan->ntasks, pp_plural(plan->ntasks),
                           workers, pp_plural(workers));
    }
    return PP_OK;
}

static pp_status summary_create(struct summary *s, const struct pp_plan *plan, const struct pp_trace *trace)
{
    *s = (struct summary){.plan = plan, .first_step = INT32_MAX};
    int last = 0;
    for (int64_t i = 0; i < trace->nevents; i++) {
        const struct pp_event *e = &trace->events[i];
        const int group = group_of(plan, e);
        if (e->step < s->first_step) s->first_step = e->step;
        if (e->step > last) last = e->step;
        if (e->worker >= s->workers) s->workers = e->worker + 1;
        if (group >= s->groups) s->groups = group + 1;
    }
    s->steps = trace->nevents ? last - s->first_step + 1 : 0;
    PP_TRY(PP_NEW(&s->busy, (int64_t)s->steps * s->workers));
    for (int64_t i = 0; i < (int64_t)s->steps * s->workers; i++)
        s->busy[i] = (struct busy){.first_ns = INT64_MAX, .last_ns = INT64_MIN};
    const int64_t ends = (int64_t)s->steps * s->groups * plan->ntasks;
    PP_TRY(PP_NEW(&s->posted_ns, ends));
    for (int64_t i = 0; i < ends; i++) s->posted_ns[i] = INT64_MIN;
    for (int64_t i = 0; i < trace->nevents; i++) summarise(s, &trace->events[i]);
    return PP_OK;
}

/* Eight rows in one statement are half as fast again as eight statements. */
enum { BLOCK = 8, COLUMNS = 9 };
#define ROW "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
static const char insert_one[] = "INSERT INTO event VALUES" ROW;
static const char insert_block[] =
    "INSERT INTO event VALUES" ROW "," ROW "," ROW "," ROW "," ROW "," ROW "," ROW "," ROW;

/* Numbers that have a place each in ROW: nothing can fail. */
static void bind_event(sqlite3_stmt *statement, int row, int64_t run_id, int64_t seq, const struct pp_event *e,
                       int64_t start_ns)
{
    const int64_t values[COLUMNS] = {run_id,  seq,          e->step,  e->worker, e->task,
                                     e->side, e->posted_ns, start_ns, e->end_ns};
    for (int k = 0; k < COLUMNS; k++) (void)sqlite3_bind_int64(statement, row * COLUMNS + k + 1, values[k]);
}

/* Of a reduction that waited for an earlier one of its worker, its own start. Clocks of two workers agree only to
 * within their uncertainty, but nothing starts after its end. */
static int64_t start_of(const struct summary *s, const struct pp_event *e)
{
    if (pp_kinds[s->plan->tasks[e->task].kind].computes) return e->start_ns;
    int64_t posted = *posted_of(s, e) < e->end_ns ? *posted_of(s, e) : e->end_ns;
    return e->side == PP_SIDE_RUN && e->start_ns > posted ? e->start_ns : posted;
}

static pp_status insert_events(struct pp_db *db, int64_t run_id, const struct summary *s, const struct pp_trace *trace)
{
    int64_t seq;
    bool found;
    PP_TRY(pp_db_integer(db, "SELECT coalesce(max(seq) + 1, 0) FROM event WHERE run = ?1", PP_VALUES(PP_INT(run_id)),
                         &seq, &found));
    for (int64_t i = 0; i < trace->nevents;) {
        int rows = trace->nevents - i >= BLOCK ? BLOCK : 1;
        sqlite3_stmt *statement;
        PP_TRY(pp_db_query(db, rows == BLOCK ? insert_block : insert_one, NULL, 0, &statement));
        for (int row = 0; row < rows; row++, i++) {
            const struct pp_event *e = &trace->events[i];
            bind_event(statement, row, run_id, seq + i, e, start_of(s, e));
        }
        PP_TRY(pp_db_row(db, statement, &found));
    }
    return PP_OK;
}

static pp_status insert_busy(struct pp_db *db, int64_t run_id, const struct summary *s)
{
    for (int64_t i = 0; i < (int64_t)s->steps * s->workers; i++) {
        const struct busy *b = &s->busy[i];
        if (b->last_ns < b->first_ns) continue; /* this worker computed nothing in this step */
        PP_TRY(pp_db_execute(db, "INSERT INTO busy VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                             PP_VALUES(PP_INT(run_id), PP_INT(s->first_step + i / s->workers), PP_INT(i % s->workers),
                                       PP_INT(b->first_ns), PP_INT(b->last_ns), PP_INT(b->busy_ns),
                                       PP_INT(b->recompute_ns))));
    }
    return PP_OK;
}

pp_status pp_db_add_events(struct pp_db *db, int64_t run_id, const struct pp_plan *plan, const struct pp_trace *trace)
{
    struct summary s = {0};
    pp_status status;
    PP_TRY(check_events(db, plan, trace));
    PP_TRY_DONE(summary_create(&s, plan, trace));
    PP_TRY_DONE(pp_db_transaction(db));
    status = insert_events(db, run_id, &s, trace);
    if (status == PP_OK) status = insert_busy(db, run_id, &s);
    status = pp_db_finish(db, status);
done:
    free(s.busy);
    free(s.posted_ns);
    return status;
}
