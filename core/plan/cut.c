/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/cut.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

void pp_cut_uniform(int layers, int stages, int *out)
{
    int64_t begin = 0;
    for (int64_t i = 1; i <= stages; i++) {
        int64_t end = (2 * i * layers + stages) / (2 * stages);
        out[i - 1] = (int)(end - begin);
        begin = end;
    }
}

/* The ends and the layers are items in a row, of which each stage has one or more. Best cut of the first j of them into
 * i stages: least maximum, then least sum of squares (so that what is left is even, too), then the longest last stage.
 */
struct cut {
    double max, squares;
};

/* The search. With i stages there are width counts of items j: i, i + 1, ...; so many are left for the others. What is
 * to be least is the largest cost of a stage and of `before_counts` of what is before it. */
struct cutting {
    const double *prefix; /* [items + 1] cost of the first j */
    double before_counts; /* 1/M of cut.h's formula, or 0 */
    int width;
    int most_first;           /* items of the first stage */
    struct cut *before, *now; /* [width] with i - 1 stages and with i, from j = i - 1 and from j = i on */
    int *last;                /* [stages][width] items of the last of i stages */
};

/* What counts of a stage that begins and ends at these prefixes. */
static double value(const struct cutting *c, double begin, double end)
{
    return end - begin + c->before_counts * begin;
}

/* Over k, the items of the first i - 1 stages, their maximum never falls and the last stage's value never rises. So the
 * least of the larger one lies where they cross, which moves to the right with j, and beside it as long as neither is
 * larger. Those who share it are compared by squares. */
static void cut_row(const struct cutting *c, int i, int *last)
{
    const double *from = c->prefix + i - 1; /* k = i - 1 + x */
    for (int o = 0, cross = 0; o < c->width; o++) {
        const double end = c->prefix[i + o];
        while (cross <= o && c->before[cross].max < value(c, from[cross], end)) cross++;
        double least = cross <= o ? c->before[cross].max : DBL_MAX;
        if (cross > 0 && value(c, from[cross - 1], end) < least) least = value(c, from[cross - 1], end);
        int x = cross;
        while (x > 0 && value(c, from[x - 1], end) <= least) x--;
        c->now[o] = (struct cut){least, DBL_MAX};
        for (; x <= o && c->before[x].max <= least; x++) {
            const double cost = end - from[x], squares = c->before[x].squares + cost * cost;
            if (squares >= c->now[o].squares) continue;
            c->now[o].squares = squares;
            last[o] = o + 1 - x;
        }
    }
}

static void cut_rows(struct cutting *c, int stages)
{
    for (int x = 1; x < c->width; x++) c->before[x] = (struct cut){DBL_MAX, DBL_MAX};
    for (int i = 1; i <= stages; i++) {
        struct cut *made = c->now;
        cut_row(c, i, c->last + (int64_t)(i - 1) * c->width);
        for (int o = c->most_first; i == 1 && o < c->width; o++) made[o].max = DBL_MAX;
        c->now = c->before;
        c->before = made;
    }
}

/* out: items of each stage. */
static pp_status cut_items(struct cutting *c, int items, int stages, int *out)
{
    pp_status status;
    c->before = c->now = NULL;
    c->last = NULL;
    c->width = items - stages + 1;
    PP_TRY_DONE(PP_NEW(&c->before, c->width));
    PP_TRY_DONE(PP_NEW(&c->now, c->width));
    PP_TRY_DONE(PP_NEW(&c->last, (size_t)stages * (size_t)c->width));
    cut_rows(c, stages);
    for (int i = stages, j = items; i > 0; j -= out[--i]) out[i - 1] = c->last[(int64_t)(i - 1) * c->width + j - i];
done:
    free(c->before);
    free(c->now);
    free(c->last);
    return status;
}

pp_status pp_cut_balanced(const struct pp_cut_row *row, struct pp_cut_way way, int stages, int *out)
{
    const int items = row->layers + 2;
    const bool early = way.even == PP_EVEN_EARLY || way.even == PP_EVEN_LEAN;
    struct cutting c = {.most_first = items};
    double *prefix;
    PP_TRY(PP_NEW(&prefix, items + 1));
    for (int j = 0; j < items; j++) prefix[j + 1] = prefix[j] + row->cost[j];
    c.prefix = prefix;
    pp_status status = PP_OK;
    if (way.even == PP_EVEN_LEAN) status = cut_items(&c, items, stages, out);
    if (way.even == PP_EVEN_LEAN && status == PP_OK) c.most_first = out[0];
    if (early && way.microbatches > 1) c.before_counts = 1.0 / way.microbatches;
    if (status == PP_OK) status = cut_items(&c, items, stages, out);
    free(prefix);
    if (status != PP_OK) return status;
    out[0]--; /* the ends are no layers */
    out[stages - 1]--;
    return PP_OK;
}

/* May the stage have so few items? */
static bool has_work(const struct pp_cut_list *list, int stage, int stages, long items)
{
    return items > 0 || (items == 0 && list->ends && (stage == 0 || stage == stages - 1));
}

pp_status pp_cut_list(const struct pp_cut_list *list, const char *split, int stages, int *out)
{
    const char *at = split;
    char *end = NULL;
    int n = 0;
    int64_t sum = 0;
    while (n < stages) {
        errno = 0;
        long value = strtol(at, &end, 10);
        if (end == at || errno || !has_work(list, n, stages, value) || value > INT_MAX || (*end && *end != ','))
            return pp_fail(PP_USAGE,
                           "--split %s: expected %s, or the %ss of each of the %d stages as numbers with commas "
                           "between them, positive%s",
                           split, list->words, list->item, stages, list->ends ? " but for the first and the last" : "");
        out[n++] = (int)value;
        sum += value;
        at = end + (*end == ',');
        if (!*end) break;
    }
    if (n != stages || *end)
        return pp_fail(PP_USAGE, "--split %s: there %s %d stage%s, the list must have as many numbers", split,
                       stages == 1 ? "is" : "are", stages, pp_plural(stages));
    if (sum != list->items)
        return pp_fail(PP_USAGE, "--split %s: the numbers add up to %lld, the model has %d %s%s", split, (long long)sum,
                       list->items, list->item, pp_plural(list->items));
    return PP_OK;
}
