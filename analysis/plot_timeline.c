/* SPDX-License-Identifier: Apache-2.0
 *
 * One step as it was predicted above one step as it was measured, on one time axis: a row for each rank (of replica 0,
 * and of its workers the first), a box for each task.
 */

#include <assert.h>

#include "analysis/plot.h"
#include "analysis/timeline.h"
#include "core/base/log.h"

const struct pp_plot_names pp_plot_timeline_names = {"timeline", {"-predicted.dat", "-measured.dat"}};

/* Must agree with plots/timeline.gp: what a label has room for is decided here. */
enum {
    WIDTH = 1400,
    WIDTH_MAX = 2400,
    BAR_PIXELS = 20,
    NARROW_PIXELS = 4, /* boxes that are narrower have no borders */
    DIGIT_PIXELS = 7,
    MARGIN_PIXELS = 4,
    BARS_MAX = 100000
};
static const double used_width = 0.91;

struct panel {
    const char *name;
    struct pp_timeline timeline;
    int step;
    int64_t origin_ns, length_ns;
};

static pp_status read_panel(struct pp_db *db, const char *name, int64_t run, struct panel *panel)
{
    *panel = (struct panel){.name = name, .step = -1};
    PP_TRY(pp_timeline_typical_step(db, run, &panel->step));
    if (panel->step < 0) return PP_OK;
    PP_TRY(pp_timeline_read(db, run, panel->step, &panel->timeline));
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (int64_t i = 0; i < panel->timeline.nbars; i++) {
        const struct pp_bar *bar = &panel->timeline.bars[i];
        if (pp_timeline_rank(&panel->timeline, bar) < 0) continue;
        if (bar->start_ns < first) first = bar->start_ns;
        if (bar->end_ns > last) last = bar->end_ns;
    }
    if (last < first) return PP_OK; /* there is nothing, or it goes backwards in time */
    panel->origin_ns = first;
    panel->length_ns = last - first;
    return PP_OK;
}

/* Part of a rank's row, from its middle upwards; what does not compute is a thin line below. */
static void row_part(const struct pp_bar *bar, double *low, double *high)
{
    *low = -0.38, *high = 0.38;
    if (pp_kinds[bar->kind].computes) return;
    *high = bar->kind == PP_XFER_F ? -0.40 : -0.45;
    *low = *high - 0.05;
}

static const char *label_of(const struct pp_bar *bar, double pixels, char buf[32])
{
    buf[0] = '\0';
    if (!pp_kinds[bar->kind].computes || bar->microbatch < 0) return buf;
    int length = bar->count > 1 ? snprintf(buf, 32, "%d-%d", bar->microbatch, bar->microbatch + bar->count - 1)
                                : snprintf(buf, 32, "%d", bar->microbatch);
    if (length * DIGIT_PIXELS + MARGIN_PIXELS > pixels) buf[0] = '\0';
    return buf;
}

/* Boxes of a row. */
static int64_t boxes_of(const struct panel *panel)
{
    int64_t computed = 0;
    for (int64_t i = 0; i < panel->timeline.nbars; i++)
        computed += panel->timeline.bars[i].worker == 0 && pp_kinds[panel->timeline.bars[i].kind].computes;
    return computed;
}

/* Wide enough for the numbers in the boxes, if that is possible. */
static int picture_width(const struct panel *panel)
{
    const int64_t width = boxes_of(panel) * BAR_PIXELS;
    return width < WIDTH ? WIDTH : width > WIDTH_MAX ? WIDTH_MAX : (int)width;
}

static pp_status write_data(const struct pp_plots *plots, const struct panel *panel, double pixels_per_ns)
{
    char name[64], label[32];
    snprintf(name, sizeof name, "timeline-%s.dat", panel->name);
    FILE *data = pp_plot_open(plots, name);
    if (!data) return PP_IO;
    fprintf(data,
            "# run %lld, step %d\n# start_ms end_ms low high kind virtual_stage label kind stage microbatch rank\n",
            (long long)panel->timeline.run, panel->step);
    for (int64_t i = 0; i < panel->timeline.nbars; i++) {
        const struct pp_bar *bar = &panel->timeline.bars[i];
        const int rank = pp_timeline_rank(&panel->timeline, bar);
        double low, high, ms = (double)(bar->end_ns - bar->start_ns) / 1e6;
        if (rank < 0) continue;
        row_part(bar, &low, &high);
        int layer = bar->stage >= 0 ? bar->stage / panel->timeline.ranks : 0;
        double start = (double)(bar->start_ns - panel->origin_ns) / 1e6;
        fprintf(data, "%.6f %.6f %.3f %.3f %d %d \"%s\" %s %d %d %d\n", start, start + ms, low - rank, high - rank,
                bar->kind + 1, layer, label_of(bar, ms * 1e6 * pixels_per_ns, label), pp_kinds[bar->kind].name,
                bar->stage, bar->microbatch, rank);
    }
    return pp_plot_close(plots, name, data);
}

static_assert(PP_KINDS == 16, "plots/timeline.gp has a colour for each kind: add one there");

/* Kinds that are drawn, in the order of the table of kinds. */
static void write_kinds(const struct panel *panels, int n, FILE *script)
{
    bool seen[PP_KINDS] = {false};
    for (int p = 0; p < n; p++)
        for (int64_t i = 0; i < panels[p].timeline.nbars; i++) {
            const struct pp_bar *bar = &panels[p].timeline.bars[i];
            if (pp_timeline_rank(&panels[p].timeline, bar) >= 0) seen[bar->kind] = true;
        }
    fputs("kinds = '", script);
    for (int kind = 0; kind < PP_KINDS; kind++)
        if (seen[kind]) fprintf(script, " %d", kind + 1);
    fputs("'\nkind_names = '", script);
    for (int kind = 0; kind < PP_KINDS; kind++) fprintf(script, "%s%s", kind ? " " : "", pp_kinds[kind].name);
    fputs("'\n", script);
}

static pp_status draw(struct pp_plots *plots, int64_t row, const struct panel *panels, int n)
{
    char title[PP_TITLE_TEXT];
    int64_t length = 0;
    for (int p = 0; p < n; p++)
        if (panels[p].length_ns > length) length = panels[p].length_ns;
    int width = picture_width(&panels[0]);
    for (int p = 0; p < n; p++) PP_TRY(write_data(plots, &panels[p], width * used_width / (double)length));
    FILE *script = pp_plot_begin(plots, "timeline", pp_compare_title_runs(plots->table, row, title), row);
    if (!script) return PP_IO;
    fprintf(script, "ranks = %d\nvirtual_stages = %d\nlength_ms = %.6f\npixels = %d\nnarrow = %d\npanels = '",
            panels[0].timeline.ranks, panels[0].timeline.virtual_stages, (double)length / 1e6, width,
            boxes_of(&panels[0]) * NARROW_PIXELS > width);
    for (int p = 0; p < n; p++) fprintf(script, "%s%s", p ? " " : "", panels[p].name);
    fputs("'\n", script);
    write_kinds(panels, n, script);
    return pp_plot_finish(plots, "timeline", pp_plot_timeline_gp, script);
}

pp_status pp_plot_timeline(struct pp_plots *plots, int64_t row)
{
    struct pp_pair pair = pp_compare_pair(plots->table, row);
    struct panel panels[2];
    int64_t most = 0;
    int n = 0;
    pp_status status = read_panel(plots->db, "predicted", pair.predicted, &panels[n]);
    n += panels[n].timeline.nbars > 0;
    if (status == PP_OK) status = read_panel(plots->db, "measured", pair.measured, &panels[n]);
    n += status == PP_OK && panels[n].timeline.nbars > 0;
    for (int p = 0; p < n; p++)
        if (panels[p].timeline.nbars > most) most = panels[p].timeline.nbars;
    if (status == PP_OK && most > BARS_MAX)
        pp_info("The timeline has %lld tasks, too many to draw: open it with --chrome FILE.", (long long)most);
    else if (status == PP_OK && n)
        status = draw(plots, row, panels, n);
    while (n > 0) pp_timeline_free(&panels[--n].timeline);
    return status;
}
