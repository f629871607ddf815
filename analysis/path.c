/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/path.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/step.h"

const char *const pp_cause_names[PP_CAUSES] = {
#define X(id, name) name,
    PP_CAUSE_LIST(X)
#undef X
};

static const uint8_t cause_of[PP_KINDS] = {
    [PP_F] = PP_CAUSE_F,
    [PP_B] = PP_CAUSE_B,
    [PP_I] = PP_CAUSE_I,
    [PP_W] = PP_CAUSE_W,
    [PP_R] = PP_CAUSE_R,
    [PP_XFER_F] = PP_CAUSE_MOVING,
    [PP_XFER_B] = PP_CAUSE_MOVING,
    [PP_REDUCE_GRAD] = PP_CAUSE_COMBINING,
    [PP_NORM] = PP_CAUSE_COMBINING,
    [PP_NORM_ALL] = PP_CAUSE_COMBINING,
    [PP_STEP] = PP_CAUSE_STEP,
    [PP_GATHER_PARAM] = PP_CAUSE_COMBINING,
    [PP_REDUCE_TIED] = PP_CAUSE_COMBINING,
    [PP_PUT_PARAM] = PP_CAUSE_COMBINING,
    [PP_ADD_GRAD] = PP_CAUSE_COMBINING,
    [PP_REDUCE_SHARE] = PP_CAUSE_COMBINING,
};

/* Time alone against time with most workers busy, of the tasks of a kind together. */
static const char slowdowns[] =
    "WITH s AS (SELECT substr(t.name, 1, instr(t.name || ' ', ' ') - 1) AS kind, t.load, "
    "avg(" PP_SQL_EXPECTED ") AS ns, t.name FROM task_time t WHERE t.run = " PP_SQL_PROFILE " GROUP BY t.name, t.load) "
    "SELECT a.kind, sum(a.ns) * 1.0 / sum(b.ns) FROM s a JOIN s b ON b.name = a.name "
    "AND b.load = (SELECT max(load) FROM s) WHERE a.load = 1 AND b.ns > 0 GROUP BY a.kind";

pp_status pp_path_sharing_read(struct pp_db *db, int64_t predicted_run, struct pp_path_sharing *out)
{
    sqlite3_stmt *statement;
    int64_t cores = 0;
    bool found;
    PP_TRY(pp_db_integer(db, "SELECT cores FROM run WHERE id = ?1", PP_VALUES(PP_INT(predicted_run)), &cores, &found));
    *out = (struct pp_path_sharing){.cores = cores > 0 && cores < INT32_MAX ? (int)cores : 0};
    for (int k = 0; k < PP_KINDS; k++) out->alone[k] = 1;
    PP_TRY(pp_db_query(db, slowdowns, PP_VALUES(PP_INT(predicted_run)), &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    while (found) {
        const char *name;
        PP_TRY(pp_db_text(db, statement, 0, &name));
        const int kind = pp_kind_named(name);
        const double alone = sqlite3_column_double(statement, 1);
        if (kind < PP_KINDS && alone > 0 && alone < 1) out->alone[kind] = alone;
        PP_TRY(pp_db_row(db, statement, &found));
    }
    return PP_OK;
}

struct walk {
    const struct pp_step *step;
    const struct pp_path_sharing *sharing;
    struct pp_path *path;
    int64_t origin_ns, at_ns; /* the walk has come back to at_ns */
    int64_t change;           /* the step's changes from this one on are later than at_ns */
    int active, alike;        /* workers that compute at at_ns; how many each of them stands for */
    int64_t capacity;
};

/* Back to from_ns; what lies between is put down to the cause. */
static int64_t back_to(struct walk *w, int64_t from_ns, enum pp_cause cause)
{
    int64_t from = from_ns > w->origin_ns ? from_ns : w->origin_ns, length = w->at_ns - from;
    if (length <= 0) return 0;
    w->at_ns = from;
    w->path->cause_ns[cause] += length;
    return length;
}

/* Part of the time that goes lost to others, with so many active: core/plan/cost.h. */
static double lost(const struct walk *w, int kind, int active)
{
    const int cores = w->sharing->cores, workers = w->step->ranks * w->step->replicas * w->step->neighbours;
    const int full = workers < cores ? workers : cores;
    const double alone = w->sharing->alone[kind];
    if (active < 2) return 0;
    if (active > cores) return 1 - alone * cores / active;
    return active >= full ? 1 - alone : (1 - alone) * (active - 1) / (full - 1);
}

/* The walk only goes back, so each change is passed once. */
static double lost_since(struct walk *w, int kind, int64_t from_ns, int64_t until_ns)
{
    double sum = 0;
    const struct pp_busy_change *changes = w->step->changes;
    if (w->sharing->cores == 0) return 0;
    while (until_ns > from_ns) {
        for (; w->change > 0 && changes[w->change - 1].at_ns >= until_ns; w->change--)
            w->active -= changes[w->change - 1].change;
        const bool changes_between = w->change > 0 && changes[w->change - 1].at_ns > from_ns;
        const int64_t stop_ns = changes_between ? changes[w->change - 1].at_ns : from_ns;
        sum += (double)(until_ns - stop_ns) * lost(w, kind, w->active * w->alike);
        until_ns = stop_ns;
    }
    return sum;
}

static pp_status add_task(struct walk *w, int32_t task)
{
    struct pp_path *path = w->path;
    const struct pp_node *node = &w->step->nodes[task];
    PP_TRY(PP_GROW(&path->tasks, path->n + 1, &w->capacity));
    path->tasks[path->n++] = (struct pp_path_task){.task = task,
                                                   .kind = node->kind,
                                                   .stage = node->stage,
                                                   .microbatch = node->microbatch,
                                                   .count = node->count,
                                                   .rank = node->src,
                                                   .until_ns = w->at_ns - w->origin_ns};
    return PP_OK;
}

/* A computation, from where the walk stands back to its start. */
static pp_status pass_computation(struct walk *w, int32_t task)
{
    const struct pp_node *node = &w->step->nodes[task];
    const int cause = cause_of[node->kind];
    const int64_t until = w->at_ns;
    PP_TRY(add_task(w, task));
    const int64_t length = back_to(w, node->start_ns, cause);
    int64_t shared = llround(lost_since(w, node->kind, w->at_ns, until));
    if (shared > length) shared = length;
    w->path->cause_ns[cause] -= shared;
    w->path->cause_ns[PP_CAUSE_SHARING] += shared;
    w->path->cause_count[cause]++;
    w->path->cause_count[PP_CAUSE_SHARING] += shared > 0;
    return PP_OK;
}

/* A transfer or collective that rank `rank` had waited for, back to the end of what comes before it. */
static int32_t pass_one(struct walk *w, int32_t task, int rank)
{
    const struct pp_node *node = &w->step->nodes[task];
    const int32_t from = node->needs;
    back_to(w, pp_step_end_ns(w->step, task, rank), PP_CAUSE_POLLING);
    w->path->cause_count[cause_of[node->kind]]++;
    back_to(w, node->start_ns, cause_of[node->kind]);
    if (from < 0) return -1;
    const int64_t posted = pp_step_posted_ns(w->step, task, w->step->nodes[from].src);
    back_to(w, posted > w->step->nodes[from].end_ns ? posted : w->step->nodes[from].end_ns, PP_CAUSE_WAITING);
    back_to(w, w->step->nodes[from].end_ns, PP_CAUSE_POLLING);
    return from;
}

/* Back to the computation before it: the sum of tied gradients comes behind the sum over replicas. */
static int32_t pass_exchange(struct walk *w, int32_t task, int rank)
{
    const struct pp_node *nodes = w->step->nodes;
    int32_t from = pass_one(w, task, rank);
    while (from >= 0 && !pp_kinds[nodes[from].kind].computes) from = pass_one(w, from, nodes[from].src);
    return from;
}

/* From the start of a computation back to the computation that let it start; -1: none did in this step. */
static int32_t pass_gap(struct walk *w, int32_t task)
{
    const struct pp_node *nodes = w->step->nodes, *node = &nodes[task];
    const int32_t before = node->before, needs = node->needs;
    int64_t given = INT64_MIN, turn = before >= 0 ? nodes[before].end_ns : INT64_MIN;
    if (needs >= 0) given = pp_step_end_ns(w->step, needs, node->src);
    if (needs >= 0 && given > turn) {
        if (!pp_kinds[nodes[needs].kind].computes) return pass_exchange(w, needs, node->src);
        back_to(w, given, PP_CAUSE_POLLING);
        return needs;
    }
    if (before < 0) return -1;
    /* It had its turn and its data: what it still waited for is a slot. */
    back_to(w, node->posted_ns > turn ? node->posted_ns : turn, PP_CAUSE_WAITING);
    back_to(w, turn, PP_CAUSE_POLLING);
    return before;
}

static void reverse(struct pp_path *path)
{
    for (int64_t i = 0; i < path->n / 2; i++) {
        struct pp_path_task keep = path->tasks[i];
        path->tasks[i] = path->tasks[path->n - 1 - i];
        path->tasks[path->n - 1 - i] = keep;
    }
}

static pp_status walk_back(struct walk *w)
{
    const struct pp_step *s = w->step;
    int32_t task = -1;
    w->origin_ns = INT64_MAX;
    for (int32_t i = 0; i < s->nnodes; i++) {
        const struct pp_node *node = &s->nodes[i];
        if (!node->seen || !pp_kinds[node->kind].computes) continue;
        if (node->start_ns < w->origin_ns) w->origin_ns = node->start_ns;
        if (task < 0 || node->end_ns > s->nodes[task].end_ns) task = i;
    }
    if (task < 0)
        return pp_fail(
            PP_INPUT, "run %" PRId64 " recorded no events: run it again with --db and --trace-steps 1 or more", s->run);
    w->at_ns = s->nodes[task].end_ns;
    w->path->length_ns = w->at_ns - w->origin_ns;
    while (task >= 0) {
        PP_TRY(pass_computation(w, task));
        task = pass_gap(w, task);
    }
    back_to(w, w->origin_ns, PP_CAUSE_RESIDUAL);
    reverse(w->path);
    return PP_OK;
}

pp_status pp_path_read(struct pp_db *db, int64_t run, int step, const struct pp_path_sharing *sharing,
                       struct pp_path *out)
{
    struct pp_step s;
    *out = (struct pp_path){.run = run, .step = step};
    PP_TRY(pp_step_read(db, run, step, &s));
    struct walk w = {.step = &s, .sharing = sharing, .path = out, .change = s.nchanges, .alike = 1};
    if (s.traced_replicas > 0) w.alike = s.replicas / s.traced_replicas * (s.neighbours / s.traced_neighbours);
    pp_status status = walk_back(&w);
    pp_step_free(&s);
    if (status != PP_OK) pp_path_free(out);
    return status;
}

void pp_path_free(struct pp_path *path)
{
    free(path->tasks);
    *path = (struct pp_path){0};
}
