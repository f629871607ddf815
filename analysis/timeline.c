/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/columns.h"

/* Far above anything that is run, and small enough that sums and products of them can be counted. */
enum { STAGES_MAX = 65536, WORKERS_MAX = 1 << 24, MICROBATCHES_MAX = 1 << 24 };
#define LONGEST_NS (INT64_MAX / 4)

static const char typical_step[] =
    "WITH whole AS (SELECT b.step, max(b.last_ns) - min(b.first_ns) AS ns FROM busy b JOIN run r ON r.id = b.run "
    "WHERE b.run = ?1 AND b.worker < r.stages * r.tensor GROUP BY b.step) "
    "SELECT step FROM whole ORDER BY ns, step LIMIT 1 OFFSET (SELECT (count(*) - 1) / 2 FROM whole)";

#define SHAPE(X)                                                                                                       \
    X("stages", ranks)                                                                                                 \
    X("virtual_stages", virtual_stages)                                                                                \
    X("replicas", replicas)                                                                                            \
    X("tensor", neighbours)                                                                                            \
    X("expert_parallel", expert_parallel)                                                                              \
    X("context_parallel", context)
#define SHAPE_COLUMNS SHAPE(PP_COLUMN_SQL)
static const char shape[] = "SELECT " SHAPE_COLUMNS "NULL FROM run WHERE id = ?1";

/* The sending end is left out: its start is that of the receiving end, and what matters is when the data was there. */
#define BAR(X)                                                                                                         \
    X("e.step", step)                                                                                                  \
    X("e.worker", worker)                                                                                              \
    X("e.task", task)                                                                                                  \
    X("t.stage", stage)                                                                                                \
    X("t.microbatch", microbatch)                                                                                      \
    X("t.count", count)                                                                                                \
    X("e.start_ns", start_ns)                                                                                          \
    X("e.end_ns", end_ns)                                                                                              \
    X("t.taken_bytes", taken_bytes)                                                                                    \
    X("t.freed_bytes", freed_bytes)
#define BAR_COLUMNS BAR(PP_COLUMN_SQL)
static const char bars[] =
    "SELECT " BAR_COLUMNS "t.kind "
    "FROM run r JOIN event e ON e.run = r.id JOIN task t ON t.plan = r.plan AND t.id = e.task "
    "WHERE r.id = ?1 AND e.side <> 1 AND (?2 < 0 OR e.step = ?2) ORDER BY e.start_ns, e.task, e.worker";

static pp_status damaged(struct pp_db *db, int64_t run, const char *what)
{
    return pp_fail(PP_INPUT, "database %s: run %" PRId64 " has %s that no ppkit writes: the file is damaged", db->path,
                   run, what);
}

pp_status pp_timeline_typical_step(struct pp_db *db, int64_t run, int *step)
{
    int64_t value = -1;
    bool found;
    PP_TRY(pp_db_integer(db, typical_step, PP_VALUES(PP_INT(run)), &value, &found));
    if (found && value != (int)value) return damaged(db, run, "a number of a step");
    *step = found ? (int)value : -1;
    return PP_OK;
}

static bool between(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

/* Whoever draws a bar may count on these ranges. */
static bool possible(const struct pp_timeline *t, const struct pp_bar *bar)
{
    return bar->step >= 0 && between(bar->worker, 0, (int64_t)t->ranks * t->replicas * t->neighbours - 1) &&
           between(bar->stage, -1, (int64_t)t->ranks * t->virtual_stages - 1) &&
           between(bar->microbatch, -1, MICROBATCHES_MAX) && between(bar->count, 0, UINT16_MAX) &&
           between(bar->start_ns, -LONGEST_NS, LONGEST_NS) && between(bar->end_ns, -LONGEST_NS, LONGEST_NS) &&
           bar->taken_bytes >= 0 && bar->freed_bytes >= 0;
}

static pp_status read_bar(struct pp_db *db, sqlite3_stmt *statement, const struct pp_timeline *timeline,
                          struct pp_bar *row)
{
    int column = 0;
    bool fits = true;
    const char *name;
    BAR(PP_COLUMN_FIT)
    PP_TRY(pp_db_text(db, statement, column, &name));
    row->kind = pp_kind_named(name);
    if (row->kind == PP_KINDS)
        return pp_fail(PP_INPUT, "database %s: a task is of kind \"%s\", which this ppkit does not know", db->path,
                       name ? name : "(none)");
    return fits && possible(timeline, row) ? PP_OK : damaged(db, timeline->run, "an event");
}

static pp_status read_shape(struct pp_db *db, struct pp_timeline *row)
{
    int column = 0;
    sqlite3_stmt *statement;
    bool found, fits = true;
    PP_TRY(pp_db_query(db, shape, PP_VALUES(PP_INT(row->run)), &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    if (!found) return pp_fail(PP_INPUT, "database %s: there is no run %" PRId64, db->path, row->run);
    SHAPE(PP_COLUMN_FIT)
    sqlite3_reset(statement);
    if (fits && between(row->ranks, 1, STAGES_MAX) && between(row->virtual_stages, 1, STAGES_MAX) &&
        between(row->replicas, 1, WORKERS_MAX / row->ranks) &&
        between(row->neighbours, 1, WORKERS_MAX / row->ranks / row->replicas) &&
        between(row->expert_parallel, 1, row->neighbours) &&
        between(row->context, 1, row->neighbours / row->expert_parallel) &&
        row->neighbours % (row->expert_parallel * row->context) == 0)
        return PP_OK;
    return damaged(db, row->run, "numbers of stages or workers");
}

static pp_status read_bars(struct pp_db *db, int step, struct pp_timeline *timeline)
{
    int64_t capacity = 0;
    sqlite3_stmt *statement;
    bool found;
    PP_TRY(pp_db_query(db, bars, PP_VALUES(PP_INT(timeline->run), PP_INT(step)), &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    while (found) {
        PP_TRY(PP_GROW(&timeline->bars, timeline->nbars + 1, &capacity));
        PP_TRY(read_bar(db, statement, timeline, &timeline->bars[timeline->nbars++]));
        PP_TRY(pp_db_row(db, statement, &found));
    }
    if (timeline->nbars > 0 && timeline->nbars < timeline->ranks) return damaged(db, timeline->run, "so few events");
    return PP_OK;
}

pp_status pp_timeline_read(struct pp_db *db, int64_t run, int step, struct pp_timeline *out)
{
    *out = (struct pp_timeline){.run = run};
    PP_TRY(read_shape(db, out));
    pp_status status = read_bars(db, step, out);
    if (status != PP_OK) pp_timeline_free(out);
    return status;
}

void pp_timeline_free(struct pp_timeline *timeline)
{
    free(timeline->bars);
    *timeline = (struct pp_timeline){0};
}
