/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/chrome.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/timeline.h"
#include "core/base/new_file.h"

/* Threads of one worker: its computations, what arrives forwards and backwards, and collectives. */
enum { THREADS = 4 };
static const char *const thread_names[THREADS] = {"compute", "activations in", "gradients in", "collectives"};

/* What a thread shows is disjoint: viewers drop slices that overlap. Several transfers can be under way to a worker at
 * once, so that threads have lanes, each of which is a thread to viewers. */
struct lane {
    int64_t end_ns; /* of its last bar so far */
    int32_t next;   /* the further lane of the same thread; 0 = none */
    bool used;
};

struct chrome {
    FILE *out;
    bool comma;
    int process;
    int64_t flows; /* arrows so far: their ids */
    const struct pp_timeline *timeline;
    int threads;
    int64_t nlanes;
    struct lane *lanes; /* [nlanes] the first of each thread, then further ones */
    int32_t *lane_of;   /* [bars of the timeline] */
    /* [steps][replicas][neighbours][stages][microbatches][2] bar that makes an activation, a gradient: the last part of
     * a task; -1 = none */
    int32_t *made;
    int32_t *used; /* ... that uses what arrives at the stage: the first part */
    int first_step, replicas, neighbours, stages, microbatches; /* as far as there are bars: a prediction has one worker
                                                                 * of each rank */
};

static void begin(struct chrome *c, const char *phase, int thread)
{
    fprintf(c->out, "%s\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", c->comma ? "," : "", phase, c->process, thread);
    c->comma = true;
}

static int lane_of(const struct chrome *c, const struct pp_bar *bar) { return c->lane_of[bar - c->timeline->bars]; }

static int thread_of(const struct pp_bar *bar)
{
    int place = 3;
    if (pp_kinds[bar->kind].computes) place = 0;
    if (bar->kind == PP_XFER_F) place = 1;
    if (bar->kind == PP_XFER_B) place = 2;
    return bar->worker * THREADS + place;
}

/* Of a thread's lanes the first one that is free at that time; a new one if none is. */
static pp_status find_lane(struct chrome *c, int thread, int64_t start_ns, int64_t *room, int32_t *lane)
{
    *lane = thread;
    while (c->lanes[*lane].used && c->lanes[*lane].end_ns > start_ns) {
        if (!c->lanes[*lane].next) {
            PP_TRY(PP_GROW(&c->lanes, c->nlanes + 1, room));
            c->lanes[c->nlanes] = (struct lane){0};
            c->lanes[*lane].next = (int32_t)c->nlanes++;
        }
        *lane = c->lanes[*lane].next;
    }
    return PP_OK;
}

/* As few lanes as there are, because bars are in order of their start. */
static pp_status find_lanes(struct chrome *c)
{
    const struct pp_timeline *t = c->timeline;
    int64_t room = c->nlanes = c->threads = t->ranks * t->replicas * t->neighbours * THREADS;
    PP_TRY(PP_NEW(&c->lanes, room));
    PP_TRY(PP_NEW(&c->lane_of, t->nbars));
    for (int64_t i = 0; i < t->nbars; i++) {
        const struct pp_bar *bar = &t->bars[i];
        PP_TRY(find_lane(c, thread_of(bar), bar->start_ns, &room, &c->lane_of[i]));
        struct lane *lane = &c->lanes[c->lane_of[i]];
        lane->used = true;
        lane->end_ns = bar->end_ns;
    }
    return PP_OK;
}

static void metadata(struct chrome *c, int thread, const char *what, const char *value)
{
    begin(c, "M", thread);
    fprintf(c->out, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    pp_json_text(value, c->out);
    fputs("}}", c->out);
}

/* "replica 0 rank 1 context 1 tensor 0: compute": without what there is only one of. Those that share experts are
 * replicas. */
static const char *thread_text(const struct pp_timeline *t, int thread, char *buf, size_t size)
{
    const int worker = thread / THREADS, tensor_ranks = t->neighbours / t->expert_parallel / t->context;
    const int member = worker % t->neighbours, group = worker / (t->ranks * t->neighbours);
    char replica[24] = "", context[24] = "", tensor[24] = "";
    if (t->replicas * t->expert_parallel > 1)
        snprintf(replica, sizeof replica, "replica %d ",
                 group * t->expert_parallel + member / tensor_ranks % t->expert_parallel);
    if (t->context > 1) snprintf(context, sizeof context, " context %d", member / (tensor_ranks * t->expert_parallel));
    if (tensor_ranks > 1) snprintf(tensor, sizeof tensor, " tensor %d", member % tensor_ranks);
    snprintf(buf, size, "%srank %d%s%s: %s", replica, worker / t->neighbours % t->ranks, context, tensor,
             thread_names[thread % THREADS]);
    return buf;
}

/* Further lanes are numbered from 2. */
static void name_lane(struct chrome *c, int thread, int32_t lane, int number, int position)
{
    char text[112], name[96];
    thread_text(c->timeline, thread, name, sizeof name);
    if (number == 1)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "%s %d", name, number);
    metadata(c, lane, "thread_name", text);
    begin(c, "M", lane);
    fprintf(c->out, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}", position);
}

static void name_lanes(struct chrome *c, const char *process_name)
{
    int position = 0;
    metadata(c, 0, "process_name", process_name);
    for (int thread = 0; thread < c->threads; thread++) {
        int number = 0;
        int32_t lane = thread;
        if (!c->lanes[lane].used) continue;
        do name_lane(c, thread, lane, ++number, position++);
        while ((lane = c->lanes[lane].next));
    }
}

static void write_slice(struct chrome *c, const struct pp_bar *bar)
{
    char name[64];
    struct pp_task task = {
        .kind = (uint8_t)bar->kind, .count = (uint16_t)bar->count, .stage = bar->stage, .microbatch = bar->microbatch};
    begin(c, "X", lane_of(c, bar));
    fprintf(c->out, ",\"name\":\"%s\",\"cat\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%d,\"task\":%d}}",
            pp_task_text(&task, name, sizeof name), pp_kinds[bar->kind].name, (double)bar->start_ns / 1e3,
            (double)(bar->end_ns - bar->start_ns) / 1e3, bar->step, bar->task);
}

/* An arrow is drawn from slice to slice by points in time that lie inside them. */
static void write_point(struct chrome *c, const char *phase, const struct pp_bar *bar, int64_t at_ns)
{
    begin(c, phase, lane_of(c, bar));
    fprintf(c->out, ",\"name\":\"transfer\",\"cat\":\"flow\",\"id\":%lld,\"ts\":%.3f%s}", (long long)c->flows,
            (double)at_ns / 1e3, phase[0] == 'f' ? ",\"bp\":\"e\"" : "");
}

static int replica_of(const struct chrome *c, const struct pp_bar *bar)
{
    return bar->worker / (c->timeline->ranks * c->timeline->neighbours);
}

static int neighbour_of(const struct chrome *c, const struct pp_bar *bar)
{
    return bar->worker % c->timeline->neighbours;
}

static int64_t slot(const struct chrome *c, const struct pp_bar *bar, int stage, bool gradient)
{
    const int64_t step = bar->step - c->first_step;
    const int64_t pass = (step * c->replicas + replica_of(c, bar)) * c->neighbours + neighbour_of(c, bar);
    const int64_t place = pass * c->stages + stage;
    return (place * c->microbatches + bar->microbatch) * 2 + gradient;
}

/* Does the bar make an activation or a gradient? */
static bool makes_data(const struct pp_bar *bar)
{
    return (bar->kind == PP_F || bar->kind == PP_B || bar->kind == PP_I) && bar->stage >= 0 && bar->microbatch >= 0;
}

static pp_status index_bars(struct chrome *c)
{
    const struct pp_timeline *t = c->timeline;
    int last = 0;
    c->first_step = t->bars[0].step;
    c->stages = t->ranks * t->virtual_stages;
    for (int64_t i = 0; i < t->nbars; i++) {
        const struct pp_bar *bar = &t->bars[i];
        if (bar->step < c->first_step) c->first_step = bar->step;
        if (bar->step > last) last = bar->step;
        const int end = bar->microbatch + (bar->count > 1 ? bar->count : 1);
        if (end > c->microbatches) c->microbatches = end;
        if (replica_of(c, bar) >= c->replicas) c->replicas = replica_of(c, bar) + 1;
        if (neighbour_of(c, bar) >= c->neighbours) c->neighbours = neighbour_of(c, bar) + 1;
    }
    /* Each has a bar of one worker at least. */
    double places = ((double)last - c->first_step + 1) * c->stages * c->microbatches * 2;
    if (places > 4.0 * (double)t->nbars)
        return pp_fail(PP_INPUT, "--chrome: run %lld has only a part of its events: the database is damaged",
                       (long long)t->run);
    int64_t n = (int64_t)places * c->replicas * c->neighbours;
    PP_TRY(PP_NEW(&c->made, n));
    PP_TRY(PP_NEW(&c->used, n));
    for (int64_t i = 0; i < n; i++) c->made[i] = c->used[i] = -1;
    for (int64_t i = 0; i < t->nbars; i++) {
        const struct pp_bar *bar = &t->bars[i];
        bool backward = bar->kind != PP_F;
        if (!makes_data(bar)) continue;
        const int64_t place = slot(c, bar, bar->stage, backward);
        c->made[place] = (int32_t)i;
        if (c->used[place] < 0) c->used[place] = (int32_t)i;
    }
    return PP_OK;
}

static void write_flow(struct chrome *c, const struct pp_bar *transfer)
{
    bool gradient = transfer->kind == PP_XFER_B;
    int to = transfer->stage + (gradient ? -1 : 1);
    if (to < 0 || to >= c->stages || transfer->stage < 0 || transfer->microbatch < 0) return;
    int32_t made = c->made[slot(c, transfer, transfer->stage, gradient)],
            used = c->used[slot(c, transfer, to, gradient)];
    if (made < 0 || used < 0) return;
    const struct pp_bar *maker = &c->timeline->bars[made], *user = &c->timeline->bars[used];
    write_point(c, "s", maker, maker->end_ns - 1);
    write_point(c, "t", transfer, transfer->start_ns);
    write_point(c, "f", user, user->start_ns);
    c->flows++;
}

static pp_status write_run(struct chrome *c, struct pp_db *db, int64_t run, const char *name)
{
    struct pp_timeline timeline;
    c->process++;
    PP_TRY(pp_timeline_read(db, run, -1, &timeline));
    c->timeline = &timeline;
    pp_status status = timeline.nbars ? index_bars(c) : PP_OK;
    if (status == PP_OK && timeline.nbars) status = find_lanes(c);
    if (status == PP_OK && timeline.nbars) {
        name_lanes(c, name);
        for (int64_t i = 0; i < timeline.nbars; i++) {
            const struct pp_bar *bar = &timeline.bars[i];
            write_slice(c, bar);
            if (pp_is_transfer(bar->kind)) write_flow(c, bar);
        }
    }
    free(c->made);
    free(c->used);
    free(c->lanes);
    free(c->lane_of);
    c->made = c->used = c->lane_of = NULL;
    c->lanes = NULL;
    c->replicas = c->neighbours = c->microbatches = 0;
    pp_timeline_free(&timeline);
    return status;
}

static pp_status write_trace(struct chrome *c, struct pp_db *db, const struct pp_table *table, int64_t row)
{
    char title[PP_TITLE_TEXT];
    const struct pp_pair pair = pp_compare_pair(table, row);
    fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"configuration\":", c->out);
    pp_json_text(pp_compare_title_runs(table, row, title), c->out);
    fputs(",\"workload\":", c->out);
    pp_json_text(pp_table_text(table, row, PP_CONF_WORKLOAD), c->out);
    fputs("},\"traceEvents\":[", c->out);
    if (pair.predicted >= 0) PP_TRY(write_run(c, db, pair.predicted, "prediction"));
    if (pair.measured >= 0) PP_TRY(write_run(c, db, pair.measured, "measurement"));
    fputs("\n]}\n", c->out);
    return PP_OK;
}

static pp_status failed(const char *path, const char *advice)
{
    return pp_fail(PP_IO, "--chrome %s: %s: %s", path, pp_write_error(), advice);
}

pp_status pp_chrome_write(struct pp_db *db, const struct pp_table *table, int64_t row, const char *path)
{
    struct pp_new_file file;
    PP_TRY(pp_new_file_choose("--chrome", path, false, &file));
    struct chrome c = {.out = pp_new_file_stream(&file)};
    if (!c.out) return failed(path, "name another file");
    pp_status status = write_trace(&c, db, table, row);
    errno = 0;
    const bool wrong = ferror(c.out) || fflush(c.out) != 0 || (*file.temporary && fsync(fileno(c.out)) != 0);
    if ((fclose(c.out) != 0 || wrong) && status == PP_OK) status = failed(path, "free space or name another file");
    if (status == PP_OK && pp_new_file_put(&file) != 0) status = failed(path, "name another file");
    if (status != PP_OK && *file.temporary) unlink(file.temporary);
    return status;
}
