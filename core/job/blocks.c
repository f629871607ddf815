/* SPDX-License-Identifier: Apache-2.0 */
#include "core/job/blocks.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/decimal.h"
#include "core/base/hash.h"
#include "core/base/lines.h"
#include "core/options/times_file.h"
#include "core/plan/cut.h"
#include "core/shape/split.h"

static const double most = 1e9; /* ms, or MiB, of a block */

/* The columns of a file. Those of a name that is not here are the user's own. */
static const struct column {
    const char *name;
    size_t offset; /* in struct pp_block */
    bool needed;
} columns[] = {
    {"forward_ms", offsetof(struct pp_block, forward_ms), true},
    {"input_ms", offsetof(struct pp_block, input_ms), true},
    {"weight_ms", offsetof(struct pp_block, weight_ms), true},
    {"backward_ms", offsetof(struct pp_block, backward_ms), false},
    {"step_ms", offsetof(struct pp_block, step_ms), false},
    {"state_mib", offsetof(struct pp_block, state_mib), false},
    {"kept_mib", offsetof(struct pp_block, kept_mib), false},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static double *figure(struct pp_block *block, int column) { return (double *)((char *)block + columns[column].offset); }

/* --- reading --- */

struct reading {
    struct pp_blocks *blocks;
    int64_t room;
    int nfields;
    int place[COLUMNS]; /* field of a line; -1: the file does not have the column */
};

/* Cuts the next field off a line. NULL: there is none. */
static char *next_field(char **rest)
{
    char *field = *rest, *end;
    if (!field) return NULL;
    end = field + strcspn(field, "\t");
    *rest = *end ? end + 1 : NULL;
    *end = '\0';
    return field;
}

static int column_of(const char *name)
{
    for (int c = 0; c < COLUMNS; c++)
        if (strcmp(columns[c].name, name) == 0) return c;
    return -1;
}

static bool has(const struct reading *r, int column) { return r->place[column] >= 0; }

static pp_status read_header(struct reading *r, char *line)
{
    for (int c = 0; c < COLUMNS; c++) r->place[c] = -1;
    for (char *name = next_field(&line); name; name = next_field(&line), r->nfields++) {
        const int c = column_of(name);
        if (c >= 0 && has(r, c)) return pp_fail(PP_INPUT, "the column %s is there twice", name);
        if (c >= 0) r->place[c] = r->nfields;
    }
    r->blocks->stepped = has(r, column_of("step_ms"));
    r->blocks->sized = has(r, column_of("state_mib")) && has(r, column_of("kept_mib"));
    for (int c = 0; c < COLUMNS; c++)
        if (columns[c].needed && !has(r, c))
            return pp_fail(
                PP_INPUT,
                "there is no column %s; the first line names the columns, with tabs between them: "
                "forward_ms, input_ms and weight_ms, and if known backward_ms, step_ms, state_mib and kept_mib",
                columns[c].name);
    return PP_OK;
}

static pp_status parse(const char *text, const char *name, double *out)
{
    char *end;
    *out = pp_decimal(text, &end);
    if (end == text || *end) return pp_fail(PP_INPUT, "%s: \"%s\" is no number >= 0", name, text);
    if (!(*out <= most)) return pp_fail(PP_INPUT, "%s: %s is more than %g", name, text, most);
    return PP_OK;
}

static pp_status read_block(struct reading *r, char *line)
{
    struct pp_blocks *blocks = r->blocks;
    struct pp_block block = {0};
    int fields = 0;
    for (char *field = next_field(&line); field; field = next_field(&line), fields++)
        for (int c = 0; c < COLUMNS; c++)
            if (r->place[c] == fields) PP_TRY(parse(field, columns[c].name, figure(&block, c)));
    if (fields != r->nfields)
        return pp_fail(PP_INPUT, "there %s %d field%s, and %d columns", fields == 1 ? "is" : "are", fields,
                       pp_plural(fields), r->nfields);
    if (!has(r, column_of("backward_ms"))) block.backward_ms = block.input_ms + block.weight_ms;
    if (blocks->n == PP_MOST_BLOCKS) return pp_fail(PP_INPUT, "there are more than %d blocks", PP_MOST_BLOCKS);
    PP_TRY(PP_GROW(&blocks->block, blocks->n + 1, &r->room));
    blocks->block[blocks->n++] = block;
    return PP_OK;
}

/* Empty lines and those that begin with # say nothing. */
static pp_status read_line(void *reading, char *line)
{
    struct reading *r = reading;
    if (!*line || *line == '#') return PP_OK;
    return r->nfields ? read_block(r, line) : read_header(r, line);
}

static pp_status read_lines(struct reading *r, FILE *in, const char *path)
{
    int number;
    const pp_status status = pp_lines_each(in, &number, read_line, r);
    return pp_prefix(status, "--times %s, line %d", path, number);
}

/* --- what was read --- */

static pp_status check(const struct pp_blocks *blocks, const char *path)
{
    double sum = 0;
    if (blocks->n == 0) return pp_fail(PP_INPUT, "--times: %s has no block; write a line for each", path);
    for (int i = 0; i < blocks->n; i++) sum += blocks->block[i].forward_ms + blocks->block[i].backward_ms;
    return sum > 0 ? PP_OK : pp_fail(PP_INPUT, "--times: %s says that nothing takes any time", path);
}

static void set_hash(struct pp_blocks *blocks)
{
    for (int i = 0; i < blocks->n; i++)
        for (int c = 0; c < COLUMNS; c++) {
            uint64_t word;
            memcpy(&word, figure(&blocks->block[i], c), sizeof word);
            blocks->hash = pp_hash_word(blocks->hash, word);
        }
}

/* path: of what --times says. */
static pp_status read_file(const char *times, const char *path, struct pp_blocks *out)
{
    struct reading r = {.blocks = out};
    FILE *in = fopen(path, "r");
    if (!in)
        return pp_fail(PP_USAGE,
                       "--times: \"%s\" is neither F,I,W[,C] in ms, of forward, input gradient, weight gradient and a "
                       "hop, nor a file of block times: %s",
                       times, strerror(errno));
    pp_status status = read_lines(&r, in, path);
    (void)fclose(in); /* it was only read */
    PP_TRY(status);
    PP_TRY(check(out, path));
    set_hash(out);
    return PP_OK;
}

pp_status pp_blocks_read(const char *times, struct pp_blocks **out)
{
    struct pp_blocks *blocks = NULL;
    const size_t length = pp_times_file(times);
    char *path = strndup(times, length);
    pp_status status = path ? PP_NEW(&blocks, 1) : pp_fail(PP_NOMEM, "there is no memory for a path");
    if (status == PP_OK && times[length] == ',') status = parse(times + length + 1, "--times", &blocks->hop_ms);
    if (status == PP_OK) status = read_file(times, path, blocks);
    free(path);
    if (status != PP_OK) pp_blocks_free(blocks);
    *out = status == PP_OK ? blocks : NULL;
    return status;
}

void pp_blocks_free(struct pp_blocks *blocks)
{
    if (blocks) free(blocks->block);
    free(blocks);
}

/* --- stages --- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Blocks that differ by little are equal but for how they were measured: each gets the mean of those like it. Else a
 * cut would follow the noise. */
static pp_status level_out(double *cost, int n)
{
    static const double alike = 1.1; /* the largest of those alike, over the least */
    double *sorted;
    PP_TRY(PP_NEW(&sorted, n));
    memcpy(sorted, cost, (size_t)n * sizeof *cost);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    for (int first = 0, end; first < n; first = end) {
        double sum = 0;
        for (end = first; end < n && sorted[end] <= alike * sorted[first]; end++) sum += sorted[end];
        for (int i = 0; i < n; i++)
            if (cost[i] >= sorted[first] && cost[i] <= sorted[end - 1]) cost[i] = sum / (end - first);
    }
    free(sorted);
    return PP_OK;
}

static bool any_has_several(int stages, const int *stage_rank)
{
    for (int s = 1; s < stages; s++)
        for (int before = 0; before < s; before++)
            if (stage_rank[s] == stage_rank[before]) return true;
    return false;
}

/* The first and the last block are the ends of the row. */
static pp_status cut_by_time(const struct pp_blocks *blocks, struct pp_cut_way way, int stages, const int *stage_rank,
                             int *counts)
{
    double *cost;
    PP_TRY(PP_NEW(&cost, blocks->n));
    for (int i = 0; i < blocks->n; i++) cost[i] = blocks->block[i].forward_ms + blocks->block[i].backward_ms;
    const struct pp_cut_row row = {.layers = blocks->n - 2, .cost = cost};
    pp_status status = level_out(cost, blocks->n);
    const struct pp_cut_ranks_call call = {stage_rank, true, way};
    if (status == PP_OK && way.even != PP_EVEN_STAGES && any_has_several(stages, stage_rank))
        status = pp_cut_ranks(&row, &call, stages, counts);
    else if (status == PP_OK)
        status = pp_cut_balanced(&row, way, stages, counts);
    free(cost);
    counts[0]++;
    counts[stages - 1]++;
    return status;
}

pp_status pp_blocks_cut(const struct pp_blocks *blocks, const char *split, struct pp_cut_way way, int stages,
                        const int *stage_rank, int *counts)
{
    const struct pp_cut_list list = {.words = "time, uniform", .item = "block", .items = blocks->n};
    const enum pp_split_by by = pp_split_of(split);
    if (stages > blocks->n)
        return pp_fail(PP_USAGE,
                       "%d stages (--stages times --virtual) need at least as many blocks, and --times has %d", stages,
                       blocks->n);
    if (by != PP_SPLIT_BY_TIME && by != PP_SPLIT_BY_COUNT) return pp_cut_list(&list, split, stages, counts);
    if (by == PP_SPLIT_BY_TIME && stages > 1) return cut_by_time(blocks, way, stages, stage_rank, counts);
    pp_cut_uniform(blocks->n, stages, counts);
    return PP_OK;
}

void pp_blocks_add_up(const struct pp_blocks *blocks, int stages, const int *counts, struct pp_block *out)
{
    struct pp_block *block = blocks->block;
    for (int s = 0; s < stages; s++) {
        out[s] = (struct pp_block){0};
        for (int i = 0; i < counts[s]; i++, block++)
            for (int c = 0; c < COLUMNS; c++) *figure(&out[s], c) += *figure(block, c);
    }
}
