/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/draw.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/terminal.h"

enum { DEFAULT_WIDTH = 100, LEAST_WIDTH = 40, MOST_WIDTH = 1000, LABEL_WIDTH = 9, MOST_RANKS = 16 };

/* How a kind is drawn. Letters count the microbatches. Colours differ in lightness, too, for people who cannot
 * distinguish all hues. */
struct look {
    const char *symbols; /* microbatch m has symbol m modulo their number */
    const char *colour;  /* terminal escape */
    const char *legend;
};

static const struct look looks[PP_KINDS] = {
    [PP_F] = {"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "\033[97;44m", "A B C .. forward of microbatch 0 1 2 .."},
    [PP_B] = {"abcdefghijklmnopqrstuvwxyz", "\033[30;43m", "a b c .. backward"},
    [PP_I] = {"abcdefghijklmnopqrstuvwxyz", "\033[30;43m", "a b c .. gradient of the input"},
    [PP_W] = {"0123456789", "\033[30;46m", "0 1 2 .. gradient of the weights"},
    [PP_R] = {"^", "\033[97;45m", "^ forward again"},
    [PP_NORM] = {"~", "\033[30;47m", "~ norm"},
    [PP_STEP] = {"*", "\033[30;47m", "* optimizer step"},
    [PP_PUT_PARAM] = {"=", "\033[30;47m", "= share of parameters put in its place"},
    [PP_ADD_GRAD] = {"+", "\033[30;47m", "+ share of gradients added"},
};

/* One character cell. It shows the task that takes most of its slice of time. */
struct cell {
    char symbol;
    int kind;                    /* of that task; -1: there is none */
    int64_t covered_ns, busy_ns; /* time of that task, and of all tasks */
};

struct drawing {
    const struct pp_plan *plan;
    int ranks, columns;
    int64_t begin, end;
    struct cell *cells; /* [ranks * columns] */
    bool used[PP_KINDS];
};

int pp_draw_width(bool *colour)
{
    const int columns = pp_terminal_columns(stdout);
    const char *terminal = getenv("TERM");
    *colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR") && !(terminal && strcmp(terminal, "dumb") == 0);
    if (columns == 0) return DEFAULT_WIDTH;
    return columns < LEAST_WIDTH ? LEAST_WIDTH : columns > MOST_WIDTH ? MOST_WIDTH : columns;
}

/* The time at which a column begins; column d->columns begins at the end. */
static int64_t column_start(const struct drawing *d, int column)
{
    return d->begin + (int64_t)((double)(d->end - d->begin) * column / d->columns);
}

static int column_at(const struct drawing *d, int64_t ns)
{
    int column = (int)((double)(ns - d->begin) * d->columns / (double)(d->end - d->begin));
    return column < d->columns ? column : d->columns - 1;
}

static void fill(struct drawing *d, const struct pp_event *e)
{
    const struct pp_task *t = &d->plan->tasks[e->task];
    const char *symbols = looks[t->kind].symbols;
    char symbol = symbols[t->microbatch < 0 ? 0 : (size_t)t->microbatch % strlen(symbols)];
    for (int c = column_at(d, e->start_ns); c < d->columns && column_start(d, c) < e->end_ns; c++) {
        struct cell *cell = &d->cells[t->lane * d->columns + c];
        int64_t from = column_start(d, c), to = column_start(d, c + 1);
        int64_t covered = (e->end_ns < to ? e->end_ns : to) - (e->start_ns > from ? e->start_ns : from);
        cell->busy_ns += covered;
        if (covered > cell->covered_ns) *cell = (struct cell){symbol, t->kind, covered, cell->busy_ns};
    }
}

static bool drawn(const struct drawing *d, const struct pp_event *e)
{
    const struct pp_task *t = &d->plan->tasks[e->task];
    return t->lane < d->plan->ranks && t->lane < d->ranks && e->end_ns > e->start_ns;
}

/* Draws the line of a rank. Cells that are mostly idle are drawn as idle. */
static void draw_line(struct drawing *d, int rank, bool colour, FILE *out)
{
    int last = -1;
    fprintf(out, "rank %-2d |", rank);
    for (int c = 0; c < d->columns; c++) {
        const struct cell *cell = &d->cells[rank * d->columns + c];
        bool idle = cell->kind < 0 || 2 * cell->busy_ns < column_start(d, c + 1) - column_start(d, c);
        int kind = idle ? -1 : cell->kind;
        if (colour && kind != last) fputs(idle ? "\033[0m" : looks[kind].colour, out);
        fputc(idle ? '.' : cell->symbol, out);
        if (!idle) d->used[kind] = true;
        last = kind;
    }
    fputs(colour ? "\033[0m|\n" : "|\n", out);
}

static void draw_axis(const struct drawing *d, FILE *out)
{
    char end[32];
    snprintf(end, sizeof end, "%.3f ms", (double)(d->end - d->begin) / 1e6);
    fprintf(out, "%*s0%*s\n", LABEL_WIDTH - 1, "", d->columns, end);
}

static void draw_legend(const struct drawing *d, FILE *out)
{
    const char *separator = "         ";
    for (int kind = 0; kind < PP_KINDS; kind++) {
        if (!d->used[kind] || !looks[kind].legend) continue;
        fprintf(out, "%s%s", separator, looks[kind].legend);
        separator = "; ";
    }
    fprintf(out, "%s. idle\n", separator);
    if (d->plan->ranks > d->ranks)
        fprintf(out, "         only ranks 0 to %d of %d are drawn\n", d->ranks - 1, d->plan->ranks);
}

void pp_draw_title(const struct pp_prediction *prediction, const char *machine, FILE *out)
{
    const struct pp_plan *plan = prediction->job->train;
    const struct pp_point *point = &prediction->job->point;
    const bool many = prediction->job->config->checkpoint.n > 1;
    char tensor[32] = "", beside[PP_BESIDE_TEXT] = "", experts[32] = "", context[32] = "", shares[32],
         mode[PP_CHECKPOINT_TEXT];
    if (pp_plan_tensor(plan) > 1) snprintf(tensor, sizeof tensor, ", tensor %d", pp_plan_tensor(plan));
    if (prediction->job->model) pp_beside_text(&prediction->job->model->shape, beside);
    if (plan->expert_parallel > 1) snprintf(experts, sizeof experts, ", expert parallel %d", plan->expert_parallel);
    if (plan->context > 1) snprintf(context, sizeof context, ", context parallel %d", plan->context);
    pp_sharing_text(point->zero, point->shard_degree, shares, sizeof shares);
    fprintf(out, "\n%s, %d rank%s x %d stage%s%s%s%s%s%s, %d microbatch%s%s%s%s%s\n", plan->schedule, plan->ranks,
            pp_plural(plan->ranks), plan->virtual_stages, pp_plural(plan->virtual_stages), tensor, experts, context,
            beside, shares, plan->microbatches, pp_plural_es(plan->microbatches), many ? ", checkpoint " : "",
            many ? pp_checkpoint_text(plan->checkpoint, mode) : "", machine ? ", machine " : "",
            machine ? machine : "");
}

pp_status pp_draw(const struct pp_plan *plan, const struct pp_trace *trace, int width, bool colour, FILE *out)
{
    struct drawing d = {.plan = plan,
                        .ranks = plan->ranks < MOST_RANKS ? plan->ranks : MOST_RANKS,
                        .columns = width - LABEL_WIDTH - 1,
                        .begin = INT64_MAX,
                        .end = INT64_MIN};
    PP_TRY(PP_NEW(&d.cells, d.ranks * d.columns));
    for (int i = 0; i < d.ranks * d.columns; i++) d.cells[i].kind = -1;
    for (int64_t i = 0; i < trace->nevents; i++) {
        const struct pp_event *e = &trace->events[i];
        if (!drawn(&d, e)) continue;
        if (e->start_ns < d.begin) d.begin = e->start_ns;
        if (e->end_ns > d.end) d.end = e->end_ns;
    }
    for (int64_t i = 0; i < trace->nevents; i++)
        if (drawn(&d, &trace->events[i])) fill(&d, &trace->events[i]);
    if (d.end > d.begin) {
        for (int rank = 0; rank < d.ranks; rank++) draw_line(&d, rank, colour, out);
        draw_axis(&d, out);
        draw_legend(&d, out);
    }
    free(d.cells);
    return PP_OK;
}
