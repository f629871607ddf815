/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/step.h"

#include <inttypes.h>
#include <stdlib.h>

#include "analysis/columns.h"

enum {
    MOST = 1 << 24,    /* of any count, and of workers */
    EDGES_PER_TASK = 8 /* on average; a plan has fewer than 4 */
};
#define LONGEST_NS (INT64_MAX / 4)

/* Columns of `shape`. */
enum { RANKS, VIRTUAL_STAGES, REPLICAS, TENSOR, MICROBATCHES, TASKS, STORED_TASKS, EDGES, SHAPE_COLUMNS };

static const char shape[] =
    "SELECT r.stages, r.virtual_stages, r.replicas, r.tensor, r.microbatches, p.tasks, "
    "(SELECT count(*) FROM task t WHERE t.plan = p.id), p.edges FROM run r JOIN plan p ON p.id = r.plan "
    "WHERE r.id = ?1";

#define EVENT(X)                                                                                                       \
    X("t.id", task)                                                                                                    \
    X("t.stage", stage)                                                                                                \
    X("t.microbatch", microbatch)                                                                                      \
    X("t.count", count)                                                                                                \
    X("t.src", src)                                                                                                    \
    X("e.worker", worker)                                                                                              \
    X("e.side", side)                                                                                                  \
    X("e.posted_ns", posted_ns)                                                                                        \
    X("e.start_ns", start_ns)                                                                                          \
    X("e.end_ns", end_ns)
#define EVENT_COLUMNS EVENT(PP_COLUMN_SQL)
static const char events[] = "SELECT " EVENT_COLUMNS "t.kind "
                             "FROM run r JOIN event e ON e.run = r.id JOIN task t ON t.plan = r.plan AND t.id = e.task "
                             "WHERE r.id = ?1 AND e.step = ?2 ORDER BY e.task, e.worker, e.side";

/* All edges of the plan. `data` is 1 where `task` works on what `needs` has made. */
#define EDGE(X)                                                                                                        \
    X("e.task", task)                                                                                                  \
    X("e.needs", needs)                                                                                                \
    X("e.steps_back", steps_back)
#define EDGE_COLUMNS EDGE(PP_COLUMN_SQL)
static const char edges[] = "SELECT " EDGE_COLUMNS "e.why IN ('input', 'parameters') AS data "
                            "FROM run r JOIN v_task_edge e ON e.plan = r.plan WHERE r.id = ?1";

/* Rows of `edges` and of `events`. */
struct edge {
    int64_t task, needs, steps_back;
};
struct row {
    int64_t task, stage, microbatch, count, src, worker, side, posted_ns, start_ns, end_ns;
    int kind;
};

static pp_status damaged(const struct pp_db *db, int64_t run)
{
    return pp_fail(PP_INPUT, "database %s: run %" PRId64 " has events that no ppkit writes: the file is damaged",
                   db->path, run);
}

static pp_status damaged_edges(const struct pp_db *db, int64_t run)
{
    return pp_fail(PP_INPUT,
                   "database %s: the plan of run %" PRId64 " has edges that no ppkit writes: the file is damaged",
                   db->path, run);
}

static pp_status without_edges(const struct pp_db *db, int64_t run)
{
    return pp_fail(
        PP_INPUT,
        "database %s: the plan of run %" PRId64
        " was stored by an older ppkit, without what its tasks wait for: run ppsim with the same options and "
        "--db %s, which adds it; if it does not, run ppexec again, too",
        db->path, run, db->path);
}

static bool between(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

/* *nedges: how many edges the plan has. */
static pp_status read_shape(struct pp_db *db, struct pp_step *s, int64_t *nedges)
{
    sqlite3_stmt *statement;
    bool found, known = false;
    int64_t value[SHAPE_COLUMNS] = {0};
    PP_TRY(pp_db_query(db, shape, PP_VALUES(PP_INT(s->run)), &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    for (int i = 0; found && i < SHAPE_COLUMNS; i++) value[i] = sqlite3_column_int64(statement, i);
    if (found) known = sqlite3_column_type(statement, EDGES) != SQLITE_NULL;
    sqlite3_reset(statement);
    for (int i = 0; i < TASKS; i++)
        if (!between(value[i], 1, MOST)) return damaged(db, s->run);
    if ((double)value[RANKS] * (double)value[REPLICAS] * (double)value[TENSOR] > MOST) return damaged(db, s->run);
    if ((double)value[RANKS] * (double)value[VIRTUAL_STAGES] > MOST) return damaged(db, s->run);
    if (!known) return without_edges(db, s->run);
    if (!between(value[TASKS], 1, INT32_MAX - 1) || value[TASKS] != value[STORED_TASKS]) return damaged(db, s->run);
    if (!between(value[EDGES], 0, EDGES_PER_TASK * value[TASKS])) return damaged_edges(db, s->run);
    s->ranks = (int)value[RANKS];
    s->stages = (int)(value[RANKS] * value[VIRTUAL_STAGES]);
    s->replicas = (int)value[REPLICAS];
    s->neighbours = (int)value[TENSOR];
    s->microbatches = (int)value[MICROBATCHES];
    s->nnodes = value[TASKS];
    *nedges = value[EDGES];
    return PP_OK;
}

static pp_status make_tables(struct pp_step *s)
{
    PP_TRY(PP_NEW(&s->nodes, s->nnodes));
    PP_TRY(PP_NEW(&s->norm, s->ranks));
    return PP_NEW(&s->tied, s->ranks);
}

static bool possible(const struct pp_step *s, const struct row *row)
{
    return between(row->task, 0, s->nnodes - 1) && between(row->stage, -1, s->stages - 1) &&
           between(row->microbatch, -1, s->microbatches - 1) && between(row->count, 0, UINT16_MAX) &&
           between(row->src, -1, s->ranks - 1) &&
           between(row->worker, 0, (int64_t)s->ranks * s->replicas * s->neighbours - 1) && between(row->side, 0, 2) &&
           between(row->posted_ns, -LONGEST_NS, LONGEST_NS) && between(row->start_ns, -LONGEST_NS, LONGEST_NS) &&
           between(row->end_ns, row->start_ns, LONGEST_NS);
}

static pp_status read_row(struct pp_db *db, sqlite3_stmt *statement, const struct pp_step *s, struct row *row)
{
    int column = 0;
    const char *name;
    EVENT(PP_COLUMN_READ)
    PP_TRY(pp_db_text(db, statement, column, &name));
    row->kind = pp_kind_named(name);
    if (row->kind == PP_KINDS || !possible(s, row)) return damaged(db, s->run);
    const bool works = row->kind != PP_NORM_ALL, split = row->kind <= PP_XFER_B;
    if ((works && (row->stage < 0 || row->src < 0)) || (split && row->microbatch < 0)) return damaged(db, s->run);
    return PP_OK;
}

/* NULL: each rank does such tasks alone, or it is a transfer; or the rank is that of NORM_ALL, -1. */
static struct pp_joining *joining_of(const struct pp_step *s, int kind, int rank)
{
    if (rank < 0) return NULL;
    return kind == PP_NORM_ALL ? &s->norm[rank] : kind == PP_REDUCE_TIED ? &s->tied[rank] : NULL;
}

int64_t pp_step_posted_ns(const struct pp_step *s, int32_t task, int rank)
{
    const struct pp_joining *joining = joining_of(s, s->nodes[task].kind, rank);
    return joining ? joining->posted_ns : s->nodes[task].posted_ns;
}

int64_t pp_step_end_ns(const struct pp_step *s, int32_t task, int rank)
{
    const struct pp_joining *joining = joining_of(s, s->nodes[task].kind, rank);
    return joining ? joining->end_ns : s->nodes[task].end_ns;
}

static void keep_event(struct pp_step *s, const struct row *row)
{
    struct pp_node *node = &s->nodes[row->task];
    if (!node->seen)
        *node = (struct pp_node){.kind = row->kind,
                                 .stage = (int32_t)row->stage,
                                 .microbatch = (int32_t)row->microbatch,
                                 .count = (int32_t)row->count,
                                 .src = (int32_t)row->src,
                                 .seen = true,
                                 .before = -1,
                                 .needs = -1,
                                 .posted_ns = row->posted_ns,
                                 .start_ns = row->start_ns,
                                 .end_ns = row->end_ns};
    if (row->side == PP_SIDE_SEND) node->posted_ns = row->posted_ns;
    if (row->side == PP_SIDE_RECV) node->start_ns = row->start_ns, node->end_ns = row->end_ns;
    struct pp_joining *joining = joining_of(s, row->kind, (int)row->worker / s->neighbours);
    if (joining) *joining = (struct pp_joining){row->posted_ns, row->end_ns};
}

static pp_status add_changes(struct pp_step *s, int64_t *capacity, const struct row *row)
{
    PP_TRY(PP_GROW(&s->changes, s->nchanges + 2, capacity));
    s->changes[s->nchanges++] = (struct pp_busy_change){row->start_ns, 1};
    s->changes[s->nchanges++] = (struct pp_busy_change){row->end_ns, -1};
    return PP_OK;
}

static int by_time(const void *a, const void *b)
{
    const struct pp_busy_change *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static pp_status read_events(struct pp_db *db, int step, struct pp_step *s)
{
    sqlite3_stmt *statement;
    struct row row;
    int64_t capacity = 0;
    bool found;
    PP_TRY(pp_db_query(db, events, PP_VALUES(PP_INT(s->run), PP_INT(step)), &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    while (found) {
        PP_TRY(read_row(db, statement, s, &row));
        if (pp_kinds[row.kind].computes) PP_TRY(add_changes(s, &capacity, &row));
        const int replica = (int)(row.worker / ((int64_t)s->ranks * s->neighbours)),
                  neighbour = (int)row.worker % s->neighbours;
        if (replica == 0 && neighbour == 0) keep_event(s, &row);
        if (replica >= s->traced_replicas) s->traced_replicas = replica + 1;
        if (neighbour >= s->traced_neighbours) s->traced_neighbours = neighbour + 1;
        PP_TRY(pp_db_row(db, statement, &found));
    }
    if (s->changes) qsort(s->changes, (size_t)s->nchanges, sizeof *s->changes, by_time);
    return PP_OK;
}

/* `task` works on what `needs` has made: keeps the one that ended last. A step that was recorded in part may lack
 * events of both. */
static void keep_needs(struct pp_step *s, int64_t task, int64_t needs)
{
    struct pp_node *node = &s->nodes[task];
    const struct pp_node *maker = &s->nodes[needs];
    if (!node->seen || !maker->seen) return;
    if (node->needs < 0 || maker->end_ns > s->nodes[node->needs].end_ns) node->needs = (int32_t)needs;
}

/* After all events. Tasks wait for smaller ids in their own step, and for any id in the step before. */
static pp_status read_edges(struct pp_db *db, struct pp_step *s, int64_t nedges)
{
    sqlite3_stmt *statement;
    bool found, sound = true;
    PP_TRY(pp_db_query(db, edges, PP_VALUES(PP_INT(s->run)), &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    while (found) {
        struct edge edge, *row = &edge;
        int column = 0;
        EDGE(PP_COLUMN_READ)
        const bool same_step = row->steps_back == 0, data = sqlite3_column_int(statement, column);
        const bool named = sqlite3_column_type(statement, column) != SQLITE_NULL;
        sound = named && --nedges >= 0 && between(row->task, 0, s->nnodes - 1) &&
                between(row->needs, 0, same_step ? row->task - 1 : s->nnodes - 1);
        if (!sound) break;
        if (same_step && data) keep_needs(s, row->task, row->needs);
        PP_TRY(pp_db_row(db, statement, &found));
    }
    sqlite3_reset(statement);
    return sound && nedges == 0 ? PP_OK : damaged_edges(db, s->run);
}

static pp_status chain_ranks(struct pp_step *s)
{
    int32_t *last;
    PP_TRY(PP_NEW(&last, s->ranks));
    for (int r = 0; r < s->ranks; r++) last[r] = -1;
    for (int32_t i = 0; i < s->nnodes; i++) {
        struct pp_node *node = &s->nodes[i];
        if (!node->seen || !pp_kinds[node->kind].computes) continue;
        node->before = last[node->src];
        last[node->src] = i;
    }
    free(last);
    return PP_OK;
}

pp_status pp_step_read(struct pp_db *db, int64_t run, int step, struct pp_step *out)
{
    *out = (struct pp_step){.run = run};
    int64_t nedges = 0;
    pp_status status = read_shape(db, out, &nedges);
    if (status == PP_OK) status = make_tables(out);
    if (status == PP_OK) status = read_events(db, step, out);
    if (status == PP_OK) status = read_edges(db, out, nedges);
    if (status == PP_OK) status = chain_ranks(out);
    if (status != PP_OK) pp_step_free(out);
    return status;
}

void pp_step_free(struct pp_step *s)
{
    free(s->nodes);
    free(s->norm);
    free(s->tied);
    free(s->changes);
    *s = (struct pp_step){0};
}
