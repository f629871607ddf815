/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory in use over one step, for each rank (its first worker in replica 0): what is always there, plus activations
 * and checkpoints from the task that takes a slot to the task that frees it.
 */
#include <stdlib.h>

#include "analysis/plot.h"
#include "analysis/timeline.h"

const struct pp_plot_names pp_plot_memory_names = {"memory", {"-predicted.dat", "-measured.dat"}};

/* A change at a moment. */
struct change {
    int64_t at_ns, bytes;
};

struct series {
    const char *name;
    struct pp_timeline timeline;
    struct change *changes;
    int64_t origin_ns, end_ns;
    int64_t peak_bytes;
    bool any; /* something takes memory: not so with --times */
};

static const char fixed_bytes[] =
    "SELECT coalesce(sum(CASE kind WHEN 'arena' THEN bytes ELSE -bytes END), 0) FROM memory "
    "WHERE run = ?1 AND worker = ?2 AND kind IN ('arena', ?3, ?4)";
static const char arena_bytes[] = "SELECT bytes FROM memory WHERE run = ?1 AND worker = ?2 AND kind = 'arena'";

/* At one moment what is freed goes first: a slot that passes from hand to hand is no second slot. */
static int earlier(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->at_ns != y->at_ns) return x->at_ns < y->at_ns ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static pp_status read_series(struct pp_db *db, const char *name, int64_t run, struct series *series)
{
    int step;
    *series = (struct series){.name = name, .origin_ns = INT64_MAX};
    PP_TRY(pp_timeline_typical_step(db, run, &step));
    if (step < 0) return PP_OK;
    PP_TRY(pp_timeline_read(db, run, step, &series->timeline));
    PP_TRY(PP_NEW(&series->changes, 2 * series->timeline.nbars));
    for (int64_t i = 0; i < series->timeline.nbars; i++) {
        const struct pp_bar *bar = &series->timeline.bars[i];
        if (pp_timeline_rank(&series->timeline, bar) < 0) continue;
        series->any |= bar->taken_bytes > 0;
        if (bar->start_ns < series->origin_ns) series->origin_ns = bar->start_ns;
        if (bar->end_ns > series->end_ns) series->end_ns = bar->end_ns;
    }
    return PP_OK;
}

/* The changes of one rank, in order of time. */
static int64_t rank_changes(struct series *series, int rank)
{
    int64_t n = 0;
    for (int64_t i = 0; i < series->timeline.nbars; i++) {
        const struct pp_bar *bar = &series->timeline.bars[i];
        if (pp_timeline_rank(&series->timeline, bar) != rank) continue;
        if (bar->taken_bytes) series->changes[n++] = (struct change){bar->start_ns, bar->taken_bytes};
        if (bar->freed_bytes) series->changes[n++] = (struct change){bar->end_ns, -bar->freed_bytes};
    }
    qsort(series->changes, (size_t)n, sizeof *series->changes, earlier);
    return n;
}

static pp_status write_rank(struct pp_db *db, struct series *series, int rank, FILE *out)
{
    int64_t bytes, n = rank_changes(series, rank);
    bool found;
    PP_TRY(pp_db_integer(db, fixed_bytes,
                         PP_VALUES(PP_INT(series->timeline.run), PP_INT(pp_timeline_worker(&series->timeline, rank)),
                                   PP_TEXT(pp_memory_names[PP_BYTES_ACT]), PP_TEXT(pp_memory_names[PP_BYTES_CKPT])),
                         &bytes, &found));
    fprintf(out, "# rank %d: ms bytes\n0 %lld\n", rank, (long long)bytes);
    int64_t written = bytes;
    for (int64_t i = 0; i < n; i++) {
        if (__builtin_add_overflow(bytes, series->changes[i].bytes, &bytes))
            return pp_fail(PP_INPUT, "database %s: run %lld has impossible numbers of bytes: the file is damaged",
                           db->path, (long long)series->timeline.run);
        if (bytes > series->peak_bytes) series->peak_bytes = bytes;
        if (bytes == written || (i + 1 < n && series->changes[i + 1].at_ns == series->changes[i].at_ns)) continue;
        written = bytes;
        fprintf(out, "%.6f %lld\n", (double)(series->changes[i].at_ns - series->origin_ns) / 1e6, (long long)bytes);
    }
    fprintf(out, "%.6f %lld\n\n\n", (double)(series->end_ns - series->origin_ns) / 1e6, (long long)bytes);
    return PP_OK;
}

static pp_status write_series(struct pp_plots *plots, struct series *series)
{
    char name[64];
    snprintf(name, sizeof name, "memory-%s.dat", series->name);
    FILE *data = pp_plot_open(plots, name);
    if (!data) return PP_IO;
    pp_status status = PP_OK;
    for (int rank = 0; rank < series->timeline.ranks && status == PP_OK; rank++)
        status = write_rank(plots->db, series, rank, data);
    if (status == PP_OK) return pp_plot_close(plots, name, data);
    pp_plot_discard(plots, name, data);
    return status;
}

/* The arena of each rank; 0 where it is not known. */
static pp_status write_arenas(struct pp_plots *plots, const struct series *series, int64_t *most, FILE *script)
{
    fprintf(script, "array arena_bytes[%d] = [", series->timeline.ranks);
    for (int rank = 0; rank < series->timeline.ranks; rank++) {
        int64_t bytes = 0;
        bool found;
        PP_TRY(
            pp_db_integer(plots->db, arena_bytes,
                          PP_VALUES(PP_INT(series->timeline.run), PP_INT(pp_timeline_worker(&series->timeline, rank))),
                          &bytes, &found));
        if (bytes > *most) *most = bytes;
        fprintf(script, "%s%.0f.0", rank ? ", " : "", (double)bytes);
    }
    fputs("]\n", script);
    return PP_OK;
}

static pp_status write_script(struct pp_plots *plots, int64_t row, const struct series *const *series, int n)
{
    char title[PP_TITLE_TEXT];
    int64_t most = 0, length = 0;
    FILE *script = pp_plot_begin(plots, "memory", pp_compare_title_runs(plots->table, row, title), row);
    if (!script) return PP_IO;
    pp_status status = write_arenas(plots, series[n - 1], &most, script);
    for (int i = 0; i < n; i++) {
        if (series[i]->peak_bytes > most) most = series[i]->peak_bytes;
        if (series[i]->end_ns - series[i]->origin_ns > length) length = series[i]->end_ns - series[i]->origin_ns;
    }
    fprintf(script, "ranks = %d\nlength_ms = %.6f\nmost_bytes = %.0f.0\nseries = '", series[0]->timeline.ranks,
            (double)length / 1e6, (double)most);
    for (int i = 0; i < n; i++) fprintf(script, "%s%s", i ? " " : "", series[i]->name);
    fputs("'\n", script);
    if (status == PP_OK) return pp_plot_finish(plots, "memory", pp_plot_memory_gp, script);
    pp_plot_abandon(plots, "memory", script);
    return status;
}

pp_status pp_plot_memory(struct pp_plots *plots, int64_t row)
{
    struct pp_pair pair = pp_compare_pair(plots->table, row);
    const struct {
        const char *name;
        int64_t run;
    } sides[] = {{"predicted", pair.predicted}, {"measured", pair.measured}};
    struct series series[2] = {{0}};
    const struct series *drawn[2];
    pp_status status = PP_OK;
    int n = 0;
    for (int i = 0; i < 2 && status == PP_OK; i++) {
        status = read_series(plots->db, sides[i].name, sides[i].run, &series[i]);
        if (status != PP_OK || !series[i].any) continue;
        status = write_series(plots, &series[i]);
        drawn[n++] = &series[i];
    }
    if (status == PP_OK && n) status = write_script(plots, row, drawn, n);
    for (int i = 0; i < 2; i++) {
        pp_timeline_free(&series[i].timeline);
        free(series[i].changes);
    }
    return status;
}
