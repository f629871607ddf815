/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/step.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 24 }; /* of any count, and of workers */
#define LONGEST_NS (INT64_MAX / 4)

static const char shape[] =
    "SELECT r.stages, r.virtual_stages, r.replicas, r.tensor, r.microbatches, p.tasks FROM run r "
    "JOIN plan p ON p.id = r.plan WHERE r.id = ?1";

static const char events[] =
    "SELECT t.id, t.kind, t.stage, t.microbatch, t.count, t.src, t.dst, e.worker, e.side, e.posted_ns, e.start_ns, "
    "e.end_ns FROM run r JOIN event e ON e.run = r.id JOIN task t ON t.plan = r.plan AND t.id = e.task "
    "WHERE r.id = ?1 AND e.step = ?2 ORDER BY e.task, e.worker, e.side";

/* A row of the query above. */
struct row {
    int64_t task, stage, microbatch, count, src, dst, worker, side, posted_ns, start_ns, end_ns;
    int kind;
};

static pp_status damaged(const struct pp_db *db, int64_t run)
{
    return pp_fail(PP_INPUT, "database %s: run %" PRId64 " has events that no ppkit writes: the file is damaged",
                   db->path, run);
}

static bool between(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

static pp_status read_shape(struct pp_db *db, struct pp_step *s)
{
    sqlite3_stmt *statement;
    bool found;
    int64_t value[6] = {0};
    PP_TRY(pp_db_query(db, shape, PP_VALUES(PP_INT(s->run)), &statement));
    PP_TRY(pp_db_row(db, statement, &found));
    for (int i = 0; found && i < 6; i++) value[i] = sqlite3_column_int64(statement, i);
    sqlite3_reset(statement);
    for (int i = 0; i < 6; i++)
        if (!between(value[i], 1, i < 5 ? MOST : INT32_MAX - 1)) return damaged(db, s->run);
    if ((double)value[0] * (double)value[2] * (double)value[3] > MOST) return damaged(db, s->run);
    /* Each stage has a forward and a backward of each microbatch, each worker some task. */
    if ((double)value[0] * (double)value[1] * (double)value[4] > (double)value[5]) return damaged(db, s->run);
    s->ranks = (int)value[0];
    s->stages = (int)(value[0] * value[1]);
    s->replicas = (int)value[2];
    s->tensor = (int)value[3];
    s->microbatches = (int)value[4];
    s->nnodes = value[5];
    return PP_OK;
}

static pp_status make_tables(struct pp_step *s)
{
    const int64_t places = 2 * (int64_t)s->stages * s->microbatches;
    PP_TRY(PP_NEW(&s->nodes, s->nnodes));
    PP_TRY(PP_NEW(&s->made, places));
    PP_TRY(PP_NEW(&s->moved, places));
    PP_TRY(PP_NEW(&s->norm, s->ranks));
    PP_TRY(PP_NEW(&s->tied, s->ranks));
    for (int64_t i = 0; i < places; i++) s->made[i] = s->moved[i] = -1;
    return PP_OK;
}

static int32_t *place(const struct pp_step *s, int32_t *table, int64_t stage, int64_t microbatch, bool gradient)
{
    return &table[(stage * s->microbatches + microbatch) * 2 + gradient];
}

static bool possible(const struct pp_step *s, const struct row *row)
{
    return between(row->task, 0, s->nnodes - 1) && between(row->stage, -1, s->stages - 1) &&
           between(row->microbatch, -1, s->microbatches - 1) && between(row->count, 0, UINT16_MAX) &&
           between(row->src, -1, s->ranks - 1) && between(row->dst, -1, s->ranks - 1) &&
           between(row->worker, 0, (int64_t)s->ranks * s->replicas * s->tensor - 1) && between(row->side, 0, 2) &&
           between(row->posted_ns, -LONGEST_NS, LONGEST_NS) && between(row->start_ns, -LONGEST_NS, LONGEST_NS) &&
           between(row->end_ns, row->start_ns, LONGEST_NS);
}

static pp_status read_row(struct pp_db *db, sqlite3_stmt *statement, const struct pp_step *s, struct row *row)
{
    int64_t *const numbers[] = {&row->task, NULL,         &row->stage, &row->microbatch, &row->count,    &row->src,
                                &row->dst,  &row->worker, &row->side,  &row->posted_ns,  &row->start_ns, &row->end_ns};
    for (int i = 0; i < (int)(sizeof numbers / sizeof *numbers); i++)
        if (numbers[i]) *numbers[i] = sqlite3_column_int64(statement, i);
    const char *name = (const char *)sqlite3_column_text(statement, 1);
    for (row->kind = 0; name && row->kind < PP_KINDS; row->kind++)
        if (strcmp(pp_kinds[row->kind].name, name) == 0) break;
    if (!name || row->kind == PP_KINDS || !possible(s, row)) return damaged(db, s->run);
    const bool works = row->kind != PP_NORM_ALL, split = row->kind <= PP_XFER_B;
    if ((works && (row->stage < 0 || row->src < 0 || row->dst < 0)) || (split && row->microbatch < 0))
        return damaged(db, s->run);
    return PP_OK;
}

static void index_node(struct pp_step *s, int32_t task, const struct pp_node *node)
{
    const bool gradient = node->kind != PP_F && node->kind != PP_XFER_F;
    if (node->kind == PP_F || node->kind == PP_B || node->kind == PP_I)
        *place(s, s->made, node->stage, node->microbatch, gradient) = task;
    if (pp_is_transfer(node->kind)) *place(s, s->moved, node->stage, node->microbatch, gradient) = task;
}

/* NULL: each rank does such tasks alone, or it is a transfer. */
static struct pp_joining *joining_of(const struct pp_step *s, int kind, int rank)
{
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
    if (!node->seen) {
        *node = (struct pp_node){.kind = row->kind,
                                 .stage = (int32_t)row->stage,
                                 .microbatch = (int32_t)row->microbatch,
                                 .count = (int32_t)row->count,
                                 .src = (int32_t)row->src,
                                 .dst = (int32_t)row->dst,
                                 .seen = true,
                                 .before = -1,
                                 .posted_ns = row->posted_ns,
                                 .start_ns = row->start_ns,
                                 .end_ns = row->end_ns};
        index_node(s, (int32_t)row->task, node);
    }
    if (row->side == PP_SIDE_SEND) node->posted_ns = row->posted_ns;
    if (row->side == PP_SIDE_RECV) node->start_ns = row->start_ns, node->end_ns = row->end_ns;
    struct pp_joining *joining = joining_of(s, row->kind, (int)row->worker / s->tensor);
    if (joining) *joining = (struct pp_joining){row->posted_ns, row->end_ns};
}

static pp_status add_edges(struct pp_step *s, int64_t *capacity, const struct row *row)
{
    PP_TRY(PP_GROW(&s->edges, s->nedges + 2, capacity));
    s->edges[s->nedges++] = (struct pp_busy_edge){row->start_ns, 1};
    s->edges[s->nedges++] = (struct pp_busy_edge){row->end_ns, -1};
    return PP_OK;
}

static int by_time(const void *a, const void *b)
{
    const struct pp_busy_edge *x = a, *y = b;
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
        if (pp_kinds[row.kind].computes) PP_TRY(add_edges(s, &capacity, &row));
        const int replica = (int)(row.worker / ((int64_t)s->ranks * s->tensor)),
                  tensor_rank = (int)row.worker % s->tensor;
        if (replica == 0 && tensor_rank == 0) keep_event(s, &row);
        if (replica >= s->traced_replicas) s->traced_replicas = replica + 1;
        if (tensor_rank >= s->traced_tensor) s->traced_tensor = tensor_rank + 1;
        PP_TRY(pp_db_row(db, statement, &found));
    }
    if (s->edges) qsort(s->edges, (size_t)s->nedges, sizeof *s->edges, by_time);
    return PP_OK;
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
    pp_status status = read_shape(db, out);
    if (status == PP_OK) status = make_tables(out);
    if (status == PP_OK) status = read_events(db, step, out);
    if (status == PP_OK) status = chain_ranks(out);
    if (status != PP_OK) pp_step_free(out);
    return status;
}

void pp_step_free(struct pp_step *s)
{
    free(s->nodes);
    free(s->made);
    free(s->moved);
    free(s->norm);
    free(s->tied);
    free(s->edges);
    *s = (struct pp_step){0};
}

/* The one that ends last among tasks with smaller ids, of these kinds, of the stage (-1: of any). */
static int32_t last_of(const struct pp_step *s, int32_t task, unsigned kinds, int stage)
{
    int32_t last = -1;
    for (int32_t i = 0; i < task; i++) {
        const struct pp_node *node = &s->nodes[i];
        if (!node->seen || !(kinds >> node->kind & 1) || (stage >= 0 && node->stage != stage)) continue;
        if (last < 0 || node->end_ns > s->nodes[last].end_ns) last = i;
    }
    return last;
}

/* What a computation of this kind reads comes from stage `from`: by a transfer, or from a task of the same rank. */
static int32_t from_stage(const struct pp_step *s, const struct pp_node *node, int from, bool gradient)
{
    if (from < 0 || from >= s->stages) return -1;
    int32_t moved = *place(s, s->moved, from, node->microbatch, gradient);
    return moved >= 0 ? moved : *place(s, s->made, from, node->microbatch, gradient);
}

/* The gathering that a forward waits for, where that begins the step: of its part, if it is the first of its stage in
 * as many parts; else one that is over. */
static int32_t gathered_first(const struct pp_step *s, int32_t task)
{
    const struct pp_node *node = &s->nodes[task];
    int part = 0;
    for (int32_t i = 0; i < task && s->nodes->kind == PP_GATHER_PARAM; i++) {
        const struct pp_node *other = &s->nodes[i];
        part += other->kind == PP_F && other->stage == node->stage && other->microbatch == node->microbatch;
    }
    for (int32_t i = 0; i < task && s->nodes[i].kind == PP_GATHER_PARAM; i++)
        if (s->nodes[i].stage == node->stage && part-- == 0) return i;
    return -1;
}

static bool has_shards(const struct pp_step *s) { return s->nnodes > 0 && s->nodes->kind == PP_PUT_PARAM; }

/* Of a plan with shards: parameters are gathered before the rank's last computation but this one, those of the first
 * one before it. (If they were there already it is another gathering, which is over.) */
static int32_t gathered_ahead(const struct pp_step *s, int32_t task)
{
    const unsigned computing = 1u << PP_F | 1u << PP_R | 1u << PP_B;
    const int rank = s->nodes[task].src;
    int32_t before = task - 1, first = -1;
    while (before >= 0 && (s->nodes[before].src != rank || !(computing >> s->nodes[before].kind & 1))) before--;
    for (int32_t i = before >= 0 ? before : task - 1; i >= 0; i--) {
        if (s->nodes[i].kind != PP_GATHER_PARAM || s->nodes[i].src != rank) continue;
        first = i;
        if (before >= 0) return i;
    }
    return first;
}

/* What brings the parameters that a computation reads; -1: nothing, or it is over. */
static int32_t gathered_for(const struct pp_step *s, int32_t task)
{
    if (has_shards(s)) return gathered_ahead(s, task);
    return s->nodes[task].kind == PP_F ? gathered_first(s, task) : -1;
}

static int32_t later_of(const struct pp_step *s, int32_t a, int32_t b)
{
    if (a < 0 || b < 0) return a < 0 ? b : a;
    return s->nodes[a].end_ns > s->nodes[b].end_ns ? a : b;
}

/* The sum after which a stage's gradients are final; -1: its last backward made them so. Embedding and decoder, if they
 * are tied, are in the first and in the last stage. */
static int32_t summed_for(const struct pp_step *s, int32_t task)
{
    const int stage = s->nodes[task].stage;
    const int32_t tied = stage == 0 || stage == s->stages - 1 ? last_of(s, task, 1u << PP_REDUCE_TIED, 0) : -1;
    const int32_t share = last_of(s, task, 1u << PP_REDUCE_SHARE, stage);
    if (tied >= 0 || share >= 0) return tied >= 0 ? tied : share;
    return last_of(s, task, 1u << PP_REDUCE_GRAD, stage);
}

/* What made, or summed over replicas, a stage's last gradients before the task. */
static int32_t made_for(const struct pp_step *s, int32_t task, int stage)
{
    const int32_t sum = last_of(s, task, 1u << PP_REDUCE_GRAD | 1u << PP_REDUCE_SHARE, stage);
    return sum >= 0 ? sum : last_of(s, task, 1u << PP_B | 1u << PP_W, stage);
}

/* What brings the input of an F, B or I, or the parameters of an R. */
static int32_t delivered_to(const struct pp_step *s, int32_t task)
{
    const struct pp_node *node = &s->nodes[task];
    const bool gradient = node->kind != PP_F;
    const int from = node->stage + (gradient ? 1 : -1);
    return later_of(s, node->kind == PP_R ? -1 : from_stage(s, node, from, gradient), gathered_for(s, task));
}

/* Kinds of tasks of the same stage, of which the last one makes what a collective, or ADD_GRAD, works on; 0: none. */
static unsigned makers_for(const struct pp_step *s, int kind)
{
    switch (kind) {
    case PP_GATHER_PARAM:
        return 1u << (has_shards(s) ? PP_PUT_PARAM : PP_STEP);
    case PP_REDUCE_GRAD:
        return 1u << PP_B | 1u << PP_W;
    case PP_ADD_GRAD:
        return 1u << PP_REDUCE_GRAD;
    case PP_REDUCE_SHARE:
        return 1u << PP_ADD_GRAD | 1u << PP_REDUCE_GRAD; /* with shards the former stands before it */
    default:
        return 0;
    }
}

int32_t pp_step_needs(const struct pp_step *s, int32_t task)
{
    const struct pp_node *node = &s->nodes[task];
    int32_t found = -1;
    switch (node->kind) {
    case PP_F:
    case PP_R:
    case PP_B:
    case PP_I:
        found = delivered_to(s, task);
        break;
    case PP_XFER_F:
    case PP_XFER_B:
        found = *place(s, s->made, node->stage, node->microbatch, node->kind == PP_XFER_B);
        break;
    case PP_NORM:
        found = summed_for(s, task);
        break;
    case PP_NORM_ALL:
        found = last_of(s, task, 1u << PP_NORM, -1);
        break;
    case PP_STEP:
        found = later_of(s, last_of(s, task, 1u << PP_NORM_ALL, -1), summed_for(s, task));
        break;
    case PP_REDUCE_TIED:
        found = later_of(s, made_for(s, task, 0), made_for(s, task, s->stages - 1));
        break;
    default:
        found = last_of(s, task, makers_for(s, node->kind), node->stage);
        break;
    }
    return found < task ? found : -1; /* edges point to smaller ids; a damaged file may not */
}
