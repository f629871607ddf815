/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules/csv_read.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "core/base/lines.h"

enum { MOST_RANKS = 32768, MOST_STAGES = 65536, MOST_MICROBATCHES = 1 << 24 };

enum { NOT_IN_ORDER = -1 };

/* The names of actions, and the kinds that they stand for. */
static const struct action {
    const char *name;
    int kind;
    bool microbatch;
} actions[] = {
    {"F", PP_F, true},
    {"B", PP_B, true},
    {"I", PP_I, true},
    {"W", PP_W, true},
    {"SEND_F", NOT_IN_ORDER, true},
    {"RECV_F", NOT_IN_ORDER, true},
    {"SEND_B", NOT_IN_ORDER, true},
    {"RECV_B", NOT_IN_ORDER, true},
    {"WAIT_SEND_F", NOT_IN_ORDER, true},
    {"WAIT_SEND_B", NOT_IN_ORDER, true},
    {"REDUCE_GRAD", NOT_IN_ORDER, false},
    {"WAIT_REDUCE_GRAD", NOT_IN_ORDER, false},
    {"UNSHARD", NOT_IN_ORDER, false},
    {"RESHARD", NOT_IN_ORDER, false},
};

enum { ACTIONS = sizeof actions / sizeof *actions };

struct reading {
    const char *name;
    struct pp_csv_schedule *out; /* its stage_rank has [MOST_STAGES] elements, -1: the stage was not seen yet */
    int64_t capacity;            /* elements that out->orders has room for */
    uint8_t *zero;               /* [MOST_STAGES] bits: microbatch 0 has 1: a forward, 2: a backward */
    int row, cell;               /* position of the reader, counted from 1 */
};

static pp_status refuse(const struct reading *r, const char *cell, const char *why)
{
    char shown[41];
    int n = 0;
    for (; cell[n] && n < 40; n++) shown[n] = isprint((unsigned char)cell[n]) ? cell[n] : '?';
    shown[n] = '\0';
    return pp_fail(PP_INPUT, "cell %d (\"%s\"): %s", r->cell, shown, why);
}

/* Reads a number, at most `most`, and moves *text behind it; -1 if there is none. */
static int number(char **text, int most)
{
    if (!isdigit((unsigned char)**text)) return -1;
    errno = 0;
    long value = strtol(*text, text, 10);
    return errno == 0 && value <= most ? (int)value : -1;
}

static const struct action *find_action(const char *name, size_t length)
{
    for (int i = 0; i < ACTIONS; i++)
        if (strlen(actions[i].name) == length && strncmp(actions[i].name, name, length) == 0) return &actions[i];
    return NULL;
}

/* Notes an action of the order: stage, rank and number of microbatches. */
static pp_status take(struct reading *r, const char *cell, int kind, int stage, int microbatch)
{
    struct pp_csv_schedule *out = r->out;
    if (out->stage_rank[stage] < 0) out->stage_rank[stage] = r->row - 1;
    if (out->stage_rank[stage] != r->row - 1) return refuse(r, cell, "that stage is in an earlier row, too");
    if (stage >= out->stages) out->stages = stage + 1;
    if (microbatch == 0) r->zero[stage] |= (uint8_t)(kind == PP_F ? 1 : 2);
    if (microbatch >= out->microbatches) out->microbatches = microbatch + 1;
    return pp_order_add(&out->orders[r->row - 1], (enum pp_kind)kind, stage, microbatch);
}

static pp_status read_action(struct reading *r, char *text)
{
    const char *cell = text;
    const int stage = number(&text, MOST_STAGES - 1);
    if (stage < 0) return refuse(r, cell, "an action begins with the number of a stage (to 65535), such as in 3F7");
    const size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    const struct action *action = find_action(text, length);
    if (length == 2 && strncmp(text, "BW", 2) == 0)
        return refuse(r, cell, "of before 2025, when PyTorch wrote BW for B and B for I: write it anew");
    if (!action) return refuse(r, cell, "there is no such action; F, B, I and W are computations");
    text += length;
    const int microbatch = action->microbatch ? number(&text, MOST_MICROBATCHES - 1) : 0;
    if (microbatch < 0)
        return refuse(r, cell, "an action ends with the number of a microbatch (to 16777215), such as in 3F7");
    if (*text) return refuse(r, cell, "something stands behind the action");
    return action->kind == NOT_IN_ORDER ? PP_OK : take(r, cell, action->kind, stage, microbatch);
}

/* "(3F7;0B2)OVERLAP_F_B" */
static pp_status read_pair(struct reading *r, char *text)
{
    char *end = strchr(text, ')'), *between = strchr(text, ';');
    if (!end || strcmp(end, ")OVERLAP_F_B") != 0 || !between || strchr(between + 1, ';'))
        return refuse(r, text, "a pair is written (3F7;0B2)OVERLAP_F_B");
    *between = *end = '\0';
    PP_TRY(read_action(r, text + 1));
    return read_action(r, between + 1);
}

/* Without blanks around it, and without the quotes that some programs put around cells. */
static char *trimmed(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1])) text[--length] = '\0';
    text += strspn(text, " \t");
    length = strlen(text);
    if (length < 2 || text[0] != '"' || text[length - 1] != '"') return text;
    text[length - 1] = '\0';
    return text + 1;
}

static pp_status add_rank(struct reading *r)
{
    struct pp_csv_schedule *out = r->out;
    if (out->ranks == MOST_RANKS) return pp_fail(PP_INPUT, "there are more than %d rows", MOST_RANKS);
    PP_TRY(PP_GROW(&out->orders, out->ranks + 1, &r->capacity));
    out->orders[out->ranks++] = (struct pp_order){0};
    return PP_OK;
}

static pp_status read_row(void *reading, char *line)
{
    struct reading *r = reading;
    char *cell;
    PP_TRY(add_rank(r));
    for (r->cell = 1; (cell = strsep(&line, ",")); r->cell++) {
        cell = trimmed(cell);
        if (*cell) PP_TRY(*cell == '(' ? read_pair(r, cell) : read_action(r, cell));
    }
    return PP_OK;
}

static pp_status check_ranks(const struct reading *r)
{
    struct pp_csv_schedule *out = r->out;
    int *held;
    while (out->ranks > 0 && out->orders[out->ranks - 1].n == 0) out->ranks--; /* idle rows at the end */
    if (out->ranks == 0) return pp_fail(PP_INPUT, "%s holds no computation", r->name);
    out->virtual_stages = out->stages / out->ranks;
    for (int rank = 0; rank < out->ranks; rank++)
        if (out->orders[rank].n == 0) return pp_fail(PP_INPUT, "%s, row %d: no computation", r->name, rank + 1);
    PP_TRY(PP_NEW(&held, out->ranks));
    pp_status status = PP_OK;
    for (int s = 0; s < out->stages && status == PP_OK; s++)
        if (out->stage_rank[s] < 0)
            status = pp_fail(PP_INPUT, "%s: stage %d is missing: the last one is %d", r->name, s, out->stages - 1);
        else if (r->zero[s] == 2) /* PyTorch's visualizer numbers like this on the last rank of 1F1B */
            status = pp_fail(PP_INPUT, "%s, row %d: stage %d has backwards from microbatch 0 on, but no forward of it",
                             r->name, out->stage_rank[s] + 1, s);
        else
            held[out->stage_rank[s]]++;
    for (int rank = 0; rank < out->ranks && status == PP_OK; rank++)
        if (held[rank] * out->ranks != out->stages)
            status = pp_fail(PP_INPUT, "%s, row %d: rank %d has %d of %d stages; each of %d ranks must have as many",
                             r->name, rank + 1, rank, held[rank], out->stages, out->ranks);
    free(held);
    return status;
}

pp_status pp_csv_parse(FILE *in, const char *name, struct pp_csv_schedule *out)
{
    struct reading r = {.name = name, .out = out};
    *out = (struct pp_csv_schedule){0};
    PP_TRY(PP_NEW(&out->stage_rank, MOST_STAGES));
    PP_TRY(PP_NEW(&r.zero, MOST_STAGES));
    for (int s = 0; s < MOST_STAGES; s++) out->stage_rank[s] = -1;
    pp_status status = pp_lines_each(in, &r.row, read_row, &r);
    status = pp_prefix(status, "%s, row %d", name, r.row);
    if (status == PP_OK) status = check_ranks(&r);
    free(r.zero);
    return status;
}

pp_status pp_csv_read(const char *path, struct pp_csv_schedule *out)
{
    *out = (struct pp_csv_schedule){0};
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* other processes read it, too, and --resume does later */
        return pp_fail(PP_INPUT, "the schedule %s is not a file that can be read again", path);
    FILE *in = fopen(path, "r");
    if (!in) return pp_fail(PP_INPUT, "cannot open the schedule %s: %s", path, strerror(errno));
    pp_status status = pp_csv_parse(in, path, out);
    fclose(in);
    return status;
}

void pp_csv_free(struct pp_csv_schedule *schedule)
{
    for (int r = 0; r < schedule->ranks; r++) free(schedule->orders[r].ops);
    free(schedule->orders);
    free(schedule->stage_rank);
    *schedule = (struct pp_csv_schedule){0};
}
