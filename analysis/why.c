/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/why.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analysis/timeline.h"
#include "core/plan/longest.h"

#define MS 1e-6
enum { WORD_BYTES = 64, LONGEST_ROUND = 4, MOST_GAPS = 10 };

/* Both tables begin with the two runs. */
enum { PREDICTED_RUN, MEASURED_RUN, RUN_COLUMNS };

enum {
    CAUSE = RUN_COLUMNS,
    PREDICTED_TASKS,
    MEASURED_TASKS,
    PREDICTED_NS,
    MEASURED_NS,
    DIFFERENCE_NS,
    SHARE_PERCENT,
    CAUSE_COLUMNS
};

static const struct pp_column cause_columns[CAUSE_COLUMNS] = {
    [PREDICTED_RUN] = {"predicted_run", "", NULL, 0, 0},
    [MEASURED_RUN] = {"measured_run", "", NULL, 0, 0},
    [CAUSE] = {"cause", "", "cause", 0, 0},
    [PREDICTED_TASKS] = {"predicted_tasks", "on the path", "pred.", 0, 0},
    [MEASURED_TASKS] = {"measured_tasks", "on the path", "meas.", 0, 0},
    [PREDICTED_NS] = {"predicted_ns", "ms", "predicted", MS, 3},
    [MEASURED_NS] = {"measured_ns", "ms", "measured", MS, 3},
    [DIFFERENCE_NS] = {"difference_ns", "ms", "difference", MS, 3},
    [SHARE_PERCENT] = {"share_percent", "", "% of gap", 1, 1},
};

/* What is said of a path while it stays on one rank: three columns, at the first of which each path begins. */
enum { STAY_RANK, STAY_TASKS, STAY_NS, STAY_COLUMNS };
enum {
    PREDICTED_STAY = RUN_COLUMNS,
    MEASURED_STAY = PREDICTED_STAY + STAY_COLUMNS,
    STAY_DIFFERENCE = MEASURED_STAY + STAY_COLUMNS,
    PATH_COLUMNS
};

static const struct pp_column path_columns[PATH_COLUMNS] = {
    [PREDICTED_RUN] = {"predicted_run", "", NULL, 0, 0},
    [MEASURED_RUN] = {"measured_run", "", NULL, 0, 0},
    [PREDICTED_STAY + STAY_RANK] = {"predicted_rank", "predicted path", "rank", 0, 0},
    [PREDICTED_STAY + STAY_TASKS] = {"predicted_tasks", "predicted path", "tasks", 0, 0},
    [PREDICTED_STAY + STAY_NS] = {"predicted_ns", "predicted path", "ms", MS, 3},
    [MEASURED_STAY + STAY_RANK] = {"measured_rank", "measured path", "rank", 0, 0},
    [MEASURED_STAY + STAY_TASKS] = {"measured_tasks", "measured path", "tasks", 0, 0},
    [MEASURED_STAY + STAY_NS] = {"measured_ns", "measured path", "ms", MS, 3},
    [STAY_DIFFERENCE] = {"difference_ns", "", "difference", MS, 3},
};

/* --- reading --- */

/* ms/batch of a run in ns, and of its traced step what worker 0 took, which is the batch's where it is not stored. What
 * takes more than 11 days, or less than nothing, was not measured: a database may be damaged. */
static pp_status read_step(struct pp_db *db, const struct pp_pair *pair, int step, int64_t batch_ns, int64_t *step_ns,
                           int64_t *steps)
{
    bool found;
    PP_TRY(pp_db_integer(db, "SELECT ns FROM step WHERE run = ?1 AND step = ?2 AND ns BETWEEN 0 AND ?3",
                         PP_VALUES(PP_INT(pair->measured), PP_INT(step), PP_INT(PP_LONGEST_MEASURED_NS)), step_ns,
                         &found));
    if (!found) *step_ns = batch_ns;
    return pp_db_integer(db, "SELECT count(DISTINCT step) FROM busy WHERE run = ?1", PP_VALUES(PP_INT(pair->measured)),
                         steps, &found);
}

static pp_status read_path(struct pp_db *db, int64_t run, const struct pp_path_sharing *sharing, int64_t batch_ns,
                           struct pp_path *path)
{
    int step;
    PP_TRY(pp_timeline_typical_step(db, run, &step));
    PP_TRY(pp_path_read(db, run, step, sharing, path));
    path->cause_ns[PP_CAUSE_OUTSIDE] = batch_ns - path->length_ns;
    return PP_OK;
}

static int64_t batch_ns(const struct pp_table *table, int64_t row, int column)
{
    const double ms = pp_table_real(table, row, column);
    return ms >= 0 && ms < 1e12 ? llround(ms * 1e6) : 0;
}

pp_status pp_why_read(struct pp_db *db, const struct pp_table *table, int64_t row, struct pp_why *out)
{
    struct pp_path_sharing sharing;
    int64_t step_ns = 0;
    *out = (struct pp_why){.pair = pp_compare_pair(table, row),
                           .predicted_ns = batch_ns(table, row, PP_CONF_PREDICTED_MS),
                           .measured_ns = batch_ns(table, row, PP_CONF_MEASURED_MS)};
    if (out->pair.predicted < 0 || out->pair.measured < 0)
        return pp_fail(PP_INPUT, "database %s: --why needs both runs: run %s with the same options and --db %s",
                       db->path, out->pair.predicted < 0 ? "ppsim" : "ppexec", db->path);
    PP_TRY(pp_path_sharing_read(db, out->pair.predicted, &sharing));
    pp_status status = read_path(db, out->pair.predicted, &sharing, out->predicted_ns, &out->predicted);
    if (status == PP_OK) status = read_path(db, out->pair.measured, &sharing, out->measured_ns, &out->measured);
    if (status == PP_OK)
        status = read_step(db, &out->pair, out->measured.step, out->measured_ns, &step_ns, &out->measured_steps);
    if (status == PP_OK) {
        out->measured.cause_ns[PP_CAUSE_OUTSIDE] = step_ns - out->measured.length_ns;
        out->measured.cause_ns[PP_CAUSE_UNTRACED] = out->measured_ns - step_ns;
        return PP_OK;
    }
    pp_why_free(out);
    return status;
}

void pp_why_free(struct pp_why *why)
{
    pp_path_free(&why->predicted);
    pp_path_free(&why->measured);
}

/* --- tables --- */

static void set_integer(struct pp_cell *cell, int64_t value)
{
    *cell = (struct pp_cell){.type = SQLITE_INTEGER, .integer = value, .real = (double)value};
}

static pp_status set_text(struct pp_cell *cell, const char *text)
{
    *cell = (struct pp_cell){.type = SQLITE_TEXT, .text = strdup(text)};
    return cell->text ? PP_OK : pp_fail(PP_NOMEM, "there is not enough memory for a table");
}

/* The next row, all NULL but the two runs. */
static struct pp_cell *next_row(struct pp_table *table, const struct pp_why *why)
{
    struct pp_cell *row = &table->cells[table->nrows++ * table->ncolumns];
    for (int i = 0; i < table->ncolumns; i++) row[i] = (struct pp_cell){.type = SQLITE_NULL};
    set_integer(&row[PREDICTED_RUN], why->pair.predicted);
    set_integer(&row[MEASURED_RUN], why->pair.measured);
    return row;
}

/* The gap that causes have shares of; 0 where they cancel out and leave nearly nothing. */
static double shared_gap(const struct pp_why *why)
{
    const double gap = (double)(why->predicted_ns - why->measured_ns);
    for (int c = 0; c < PP_CAUSES; c++)
        if (fabs((double)why->predicted.cause_ns[c] - (double)why->measured.cause_ns[c]) > MOST_GAPS * fabs(gap))
            return 0;
    return gap;
}

static void set_times(const struct pp_why *why, struct pp_cell *row, int64_t predicted_ns, int64_t measured_ns)
{
    const int64_t difference = predicted_ns - measured_ns;
    const double gap = shared_gap(why);
    set_integer(&row[PREDICTED_NS], predicted_ns);
    set_integer(&row[MEASURED_NS], measured_ns);
    set_integer(&row[DIFFERENCE_NS], difference);
    if (gap == 0 || difference == 0) return;
    const double share = 100.0 * (double)difference / gap;
    row[SHARE_PERCENT] = (struct pp_cell){.type = SQLITE_FLOAT, .real = share};
}

pp_status pp_why_causes(const struct pp_why *why, struct pp_table *out)
{
    const struct pp_path *p = &why->predicted, *m = &why->measured;
    *out = (struct pp_table){.columns = cause_columns, .ncolumns = CAUSE_COLUMNS};
    PP_TRY(PP_NEW(&out->cells, (PP_CAUSES + 1) * out->ncolumns));
    for (int c = 0; c < PP_CAUSES; c++) {
        if (!p->cause_ns[c] && !m->cause_ns[c] && c != PP_CAUSE_RESIDUAL) continue;
        struct pp_cell *row = next_row(out, why);
        PP_TRY(set_text(&row[CAUSE], pp_cause_names[c]));
        if (p->cause_count[c] || m->cause_count[c]) {
            set_integer(&row[PREDICTED_TASKS], p->cause_count[c]);
            set_integer(&row[MEASURED_TASKS], m->cause_count[c]);
        }
        set_times(why, row, p->cause_ns[c], m->cause_ns[c]);
    }
    struct pp_cell *row = next_row(out, why);
    PP_TRY(set_text(&row[CAUSE], "total"));
    set_times(why, row, why->predicted_ns, why->measured_ns);
    return PP_OK;
}

/* Successive tasks of a path on one rank: tasks[first..end-1]. */
struct stay {
    int64_t first, end;
};

static bool next_stay(const struct pp_path *path, struct stay *stay)
{
    stay->first = stay->end;
    if (stay->first >= path->n) return false;
    while (stay->end < path->n && path->tasks[stay->end].rank == path->tasks[stay->first].rank) stay->end++;
    return true;
}

static int64_t stay_ns(const struct pp_path *path, const struct stay *stay)
{
    const int64_t from = stay->first ? path->tasks[stay->first - 1].until_ns : 0;
    return path->tasks[stay->end - 1].until_ns - from;
}

/* Does b go on with what a does, one microbatch later? */
static bool follows(const struct pp_path_task *a, const struct pp_path_task *b)
{
    return a->kind == b->kind && a->stage == b->stage && a->microbatch >= 0 && a->count == 1 && b->count == 1 &&
           b->microbatch == a->microbatch + 1;
}

/* One word for tasks[i..]: "F m0-3", of several stages on the rank "F s2 m0-3". Returns where the next begins. */
static int64_t word_of(const struct pp_path *path, int64_t i, int64_t end, char *buf, size_t size)
{
    const struct pp_path_task *task = &path->tasks[i];
    const int last = task->microbatch + (task->count > 1 ? task->count - 1 : 0);
    char stage[24] = "", range[32] = "";
    int64_t stop = i + 1;
    while (stop < end && follows(&path->tasks[stop - 1], &path->tasks[stop])) stop++;
    const int64_t reached = stop > i + 1 ? path->tasks[stop - 1].microbatch : last;
    if (task->stage != task->rank && task->stage >= 0) snprintf(stage, sizeof stage, " s%d", task->stage);
    if (task->microbatch >= 0) snprintf(range, sizeof range, " m%d", task->microbatch);
    if (task->microbatch >= 0 && reached > task->microbatch)
        snprintf(range, sizeof range, " m%d-%" PRId64, task->microbatch, reached);
    snprintf(buf, size, "%s%s%s", pp_kinds[task->kind].name, stage, range);
    return stop;
}

/* How often tasks[i..i+length) come again, each kind for the next microbatch: F m1 B m0 F m2 B m1. */
static int64_t rounds_of(const struct pp_path *path, int64_t i, int64_t end, int64_t length)
{
    int64_t rounds = 1, at = i + length;
    for (; at + length <= end; at += length, rounds++)
        for (int64_t k = 0; k < length; k++)
            if (!follows(&path->tasks[at + k - length], &path->tasks[at + k])) return rounds;
    return rounds;
}

/* How many tasks from i on come again as a round, 1 for none; *rounds: how often they come. Tasks in sequence
 * are a range, not rounds. */
static int64_t round_length(const struct pp_path *path, int64_t i, int64_t end, int64_t *rounds)
{
    *rounds = 1;
    if (i + 1 >= end || follows(&path->tasks[i], &path->tasks[i + 1])) return 1;
    for (int64_t length = 2; length <= LONGEST_ROUND && i + 2 * length <= end; length++) {
        *rounds = rounds_of(path, i, end, length);
        if (*rounds > 1) return length;
    }
    return 1;
}

/* "F m0-3", "(F m0, B m0) x 3, B m3": what the path does while it stays on the rank. */
static void stay_text(const struct pp_path *path, const struct stay *stay, FILE *out)
{
    char word[WORD_BYTES];
    int64_t rounds;
    for (int64_t i = stay->first; i < stay->end;) {
        const int64_t length = round_length(path, i, stay->end, &rounds);
        if (i > stay->first) fputs(", ", out);
        if (rounds > 1) fputs("(", out);
        int64_t at = word_of(path, i, rounds > 1 ? i + length : stay->end, word, sizeof word);
        fputs(word, out);
        while (rounds > 1 && at < i + length) {
            fputs(", ", out);
            at = word_of(path, at, i + length, word, sizeof word);
            fputs(word, out);
        }
        snprintf(word, sizeof word, ") x %" PRId64, rounds);
        if (rounds > 1) fputs(word, out);
        i = rounds > 1 ? i + length * rounds : at;
    }
}

static pp_status set_stay(const struct pp_path *path, const struct stay *stay, struct pp_cell *cells)
{
    struct pp_cell *tasks = &cells[STAY_TASKS];
    size_t size;
    FILE *out = open_memstream(&tasks->text, &size);
    if (out) stay_text(path, stay, out);
    if (!out || fclose(out) != 0) return pp_fail(PP_NOMEM, "there is not enough memory for the tasks of a path");
    tasks->type = SQLITE_TEXT;
    set_integer(&cells[STAY_RANK], path->tasks[stay->first].rank);
    set_integer(&cells[STAY_NS], stay_ns(path, stay));
    return PP_OK;
}

/* Ids rise along a path; a stay that ends before the other one begins stands in a row of its own. */
static bool comes_first(const struct pp_path *a, const struct stay *x, const struct pp_path *b, const struct stay *y)
{
    return a->tasks[x->end - 1].task < b->tasks[y->first].task;
}

pp_status pp_why_paths(const struct pp_why *why, struct pp_table *out)
{
    const struct pp_path *p = &why->predicted, *m = &why->measured;
    struct stay left = {0}, right = {0};
    *out = (struct pp_table){.columns = path_columns, .ncolumns = PATH_COLUMNS};
    PP_TRY(PP_NEW(&out->cells, (p->n + m->n + 1) * out->ncolumns));
    bool predicted = next_stay(p, &left), measured = next_stay(m, &right);
    while (predicted || measured) {
        const bool use_left = predicted && !(measured && comes_first(m, &right, p, &left));
        const bool use_right = measured && !(predicted && comes_first(p, &left, m, &right));
        struct pp_cell *row = next_row(out, why);
        if (use_left) PP_TRY(set_stay(p, &left, &row[PREDICTED_STAY]));
        if (use_right) PP_TRY(set_stay(m, &right, &row[MEASURED_STAY]));
        if (use_left && use_right) set_integer(&row[STAY_DIFFERENCE], stay_ns(p, &left) - stay_ns(m, &right));
        if (use_left) predicted = next_stay(p, &left);
        if (use_right) measured = next_stay(m, &right);
    }
    struct pp_cell *row = next_row(out, why);
    PP_TRY(set_text(&row[PREDICTED_STAY + STAY_TASKS], "makespan"));
    PP_TRY(set_text(&row[MEASURED_STAY + STAY_TASKS], "makespan"));
    set_integer(&row[PREDICTED_STAY + STAY_NS], p->length_ns);
    set_integer(&row[MEASURED_STAY + STAY_NS], m->length_ns);
    set_integer(&row[STAY_DIFFERENCE], p->length_ns - m->length_ns);
    return PP_OK;
}
