/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules/zb_search.h"

#include <stdlib.h>
#include <string.h>

enum { KNOBS = 8, MOST_LEAD = 4, MOST_LOOKS = 1 << 28 };

/* What a rank that has a choice does first. */
static const uint8_t preferences[][3] = {{PP_I, PP_F, PP_W}, {PP_I, PP_W, PP_F}, {PP_F, PP_W, PP_I}};

/* Forwards that a rank may be ahead of the next; 0: any number. In quarters: few where memory is short. */
static const int leads[] = {0, 1, 2, 3, 4, 6, 8, 12, 16};

/* One way to go about it. */
struct way {
    bool early_backward;  /* warm-up: no forward that would end after the first gradient is there */
    bool backwards_first; /* leave a forward out that would keep the next I waiting, if that costs nothing */
    bool fill_all;        /* W also goes into gaps that are too short for it and cost nothing */
    int lead;             /* of leads[] */
};

struct rank {
    int forwards, inputs, weights; /* done */
    int64_t memory, end;           /* in use; of the last task */
    int64_t start;                 /* of the first task */
    int64_t cost;                  /* what the goal counts of this rank, if it waits no more */
    int extra;                     /* forwards of the warm-up after the first */
};

/* What a rank would do next. */
struct choice {
    int64_t start;
    int place; /* among its preferences; 3: nothing can be done yet */
};

/* Lower is better, first before second. */
struct figure {
    int64_t first, second;
};

/* An order that grows. */
struct walk {
    const struct pp_zb_problem *p;
    struct pp_stage_costs costs; /* with times that add up to what an integer holds */
    struct way way;
    struct rank *ranks;
    int64_t *forward_end; /* [ranks][microbatches] */
    int64_t *input_end;   /* [ranks][microbatches] of I */
    struct choice *next;  /* [ranks] */
    uint8_t *kinds;       /* [ranks][3 * microbatches] */
    int64_t worst;        /* cost of all ranks so far */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Memory of a microbatch that its F takes, and of which I leaves held_weight. */
static int64_t room(const struct walk *w, int j) { return most(w->costs.held[j], w->costs.held_weight[j]); }

static bool fits(const struct walk *w, int j) { return w->ranks[j].memory <= w->costs.cap[j] - room(w, j); }

/* When the input of the next forward or I is there. */
static int64_t arrival(const struct walk *w, int j, int kind)
{
    if (kind == PP_F) {
        const int64_t before = (int64_t)(j - 1) * w->p->microbatches + w->ranks[j].forwards;
        return j == 0 ? 0 : w->forward_end[before] + w->costs.hop;
    }
    return j + 1 == w->p->ranks
               ? 0
               : w->input_end[(j + 1) * (int64_t)w->p->microbatches + w->ranks[j].inputs] + w->costs.hop;
}

static void put(struct walk *w, int j, int kind)
{
    struct rank *r = &w->ranks[j];
    const int64_t n = r->forwards + r->inputs + r->weights;
    const int64_t start = kind == PP_W ? r->end : most(r->end, arrival(w, j, kind));
    w->kinds[3 * (int64_t)j * w->p->microbatches + n] = (uint8_t)kind;
    if (n == 0) r->start = start;
    if (n > 0) r->cost += start - r->end;
    w->worst = most(w->worst, r->cost);
    if (kind == PP_F) {
        r->end = start + w->costs.forward[j];
        w->forward_end[(int64_t)j * w->p->microbatches + r->forwards++] = r->end;
        r->memory += room(w, j);
    } else if (kind == PP_I) {
        r->end = start + w->costs.input[j];
        r->memory -= room(w, j) - w->costs.held_weight[j];
        w->input_end[(int64_t)j * w->p->microbatches + r->inputs++] = r->end;
    } else {
        r->end = start + w->costs.weight[j];
        r->memory -= w->costs.held_weight[j];
        r->weights++;
    }
}

/* W until the input of the next forward or I is there. */
static void fill(struct walk *w, int j, int kind)
{
    const struct rank *r = &w->ranks[j];
    const int64_t until = arrival(w, j, kind);
    while (r->weights < r->inputs && r->end <= until - w->costs.weight[j]) put(w, j, PP_W);
    if (r->weights < r->inputs && r->end < until && (w->way.fill_all || until - r->end > w->worst - r->cost))
        put(w, j, PP_W);
}

/* Most forwards that rank j may be ahead of its I. */
static int64_t most_ahead(const struct walk *w, int j)
{
    return w->way.lead ? 1 + (int64_t)w->way.lead * (w->p->ranks - 1 - j) / 4 : w->p->microbatches;
}

/* Forwards between the first one and the first I: from the last rank on, what can run until the gradient comes. */
static void plan_warm_up(struct walk *w)
{
    const int m = w->p->microbatches;
    int64_t backward_end = 0;
    for (int j = w->p->ranks - 1; j >= 0; j--) {
        struct rank *r = &w->ranks[j];
        const bool last = j + 1 == w->p->ranks;
        const int64_t there = last ? r->end : backward_end + w->costs.hop, f = w->costs.forward[j];
        int64_t end = r->end, memory = r->memory;
        if (!last)
            while (1 + r->extra < least(m, most_ahead(w, j)) && memory <= w->costs.cap[j] - room(w, j) &&
                   (w->way.early_backward ? end + f <= there : end < there)) {
                end += f;
                memory += room(w, j);
                r->extra++;
            }
        backward_end = most(end, there) + w->costs.input[j];
    }
    for (int j = 1; j < w->p->ranks; j++) {
        int *extra = &w->ranks[j].extra, before = w->ranks[j - 1].extra;
        const bool fewer = !w->way.lead && *extra + 1 < m && before > 0;
        *extra = (int)least(*extra, before - fewer);
    }
}

static void warm_up(struct walk *w)
{
    for (int j = 0; j < w->p->ranks; j++) put(w, j, PP_F);
    plan_warm_up(w);
    for (int j = 0; j < w->p->ranks; j++)
        for (int k = 0; k < w->ranks[j].extra; k++) put(w, j, PP_F);
    for (int j = w->p->ranks - 1; j >= 0; j--) put(w, j, PP_I);
}

/* A forward now, with the W that must make room for it, would keep the next I waiting; leaving it out would not make
 * the order worse. */
static bool better_later(const struct walk *w, int j)
{
    if (j + 1 == w->p->ranks) return false;
    const struct rank *r = &w->ranks[j], *next = &w->ranks[j + 1];
    if (r->forwards < next->forwards + 2) return false;
    const int64_t gradient = next->end + w->costs.forward[j + 1] + w->costs.input[j + 1] + w->costs.hop;
    int64_t memory = r->memory, end = r->end + w->costs.forward[j];
    for (int n = r->weights; n < r->inputs && memory > w->costs.cap[j] - room(w, j); n++) {
        memory -= w->costs.held_weight[j];
        end += w->costs.weight[j];
    }
    return end > gradient && gradient - r->end <= w->worst - r->cost;
}

static bool wants_forward(const struct walk *w, int j)
{
    const struct rank *r = &w->ranks[j];
    const int64_t freed = (int64_t)(r->inputs - r->weights) * w->costs.held_weight[j];
    if (r->forwards == w->p->microbatches) return false;
    if (r->forwards == r->inputs) return true; /* this round's I is of this microbatch */
    if (r->forwards - r->inputs >= most_ahead(w, j)) return false;
    if (r->memory - freed > w->costs.cap[j] - room(w, j)) return false;
    return !w->way.backwards_first || !better_later(w, j);
}

static void forwards(struct walk *w)
{
    for (int j = 0; j < w->p->ranks; j++) {
        if (!wants_forward(w, j) || (j > 0 && w->ranks[j].forwards >= w->ranks[j - 1].forwards)) continue;
        while (!fits(w, j)) put(w, j, PP_W);
        fill(w, j, PP_F);
        put(w, j, PP_F);
    }
}

static void backwards(struct walk *w)
{
    for (int j = w->p->ranks - 1; j >= 0; j--) {
        fill(w, j, PP_I);
        put(w, j, PP_I);
    }
}

/* False where memory is short. */
static bool put_forwards(struct walk *w, int j, int64_t n)
{
    for (; n > 0 && w->ranks[j].forwards < w->p->microbatches; n--) {
        if (!fits(w, j)) return false;
        put(w, j, PP_F);
    }
    return true;
}

static bool by_hand(struct walk *w, int lead)
{
    const int n = w->p->ranks;
    for (int j = 0; j < n; j++)
        if (!put_forwards(w, j, (int64_t)lead * (n - 1 - j))) return false;
    for (int i = 0; i < w->p->microbatches; i++) {
        for (int j = 0; j < n; j++)
            if (!put_forwards(w, j, 1)) return false;
        for (int j = n - 1; j >= 0; j--) {
            put(w, j, PP_I);
            if (i >= (int64_t)lead * j) put(w, j, PP_W);
        }
    }
    return true;
}

static struct figure figure_of(const struct walk *w)
{
    int64_t span = 0, makespan = 0;
    for (int j = 0; j < w->p->ranks; j++) {
        const struct rank *r = &w->ranks[j];
        span = most(span, r->end - r->start);
        makespan = most(makespan, r->end); /* the first rank starts at 0 */
    }
    return w->p->span ? (struct figure){span, makespan} : (struct figure){makespan, span};
}

static void begin(struct walk *w)
{
    const struct pp_stage_costs *c = &w->costs;
    int64_t head = 0;
    w->worst = 0;
    for (int j = 0; j < w->p->ranks; j++) {
        const int64_t work = w->p->microbatches * (c->forward[j] + c->input[j] + c->weight[j]);
        w->ranks[j] = (struct rank){.cost = work + (w->p->span ? 0 : head)};
        w->worst = most(w->worst, w->ranks[j].cost);
        head += c->forward[j] + c->hop;
    }
}

static void by_time(struct walk *w)
{
    warm_up(w);
    for (int i = 1; i < w->p->microbatches; i++) {
        forwards(w);
        backwards(w);
    }
}

static bool can_start(const struct walk *w, int j, int kind)
{
    const struct rank *r = &w->ranks[j];
    if (kind == PP_W) return r->weights < r->inputs;
    if (kind == PP_I) return r->inputs < r->forwards && (j + 1 == w->p->ranks || r->inputs < w->ranks[j + 1].inputs);
    return r->forwards < w->p->microbatches && fits(w, j) && (j == 0 || r->forwards < w->ranks[j - 1].forwards);
}

static void choose(struct walk *w, int j, const uint8_t *kinds)
{
    struct choice *next = &w->next[j];
    *next = (struct choice){INT64_MAX, 3};
    for (int k = 0; k < 3; k++) {
        if (!can_start(w, j, kinds[k])) continue;
        const int64_t start = kinds[k] == PP_W ? w->ranks[j].end : most(w->ranks[j].end, arrival(w, j, kinds[k]));
        if (start < next->start) *next = (struct choice){start, k};
    }
}

/* No rank waits while it can do something; what starts first, is next. With memory for less than P microbatches that
 * is better than rounds, in which all ranks have as many forwards. */
static void by_preference(struct walk *w, const uint8_t *kinds)
{
    const int n = w->p->ranks;
    for (int j = 0; j < n; j++) choose(w, j, kinds);
    for (int64_t left = 3 * (int64_t)n * w->p->microbatches; left > 0; left--) {
        int first = n - 1;
        for (int j = n - 2; j >= 0; j--) {
            const struct choice *a = &w->next[j], *b = &w->next[first];
            if (a->start < b->start || (a->start == b->start && a->place < b->place)) first = j;
        }
        put(w, first, kinds[w->next[first].place]);
        for (int j = first > 0 ? first - 1 : 0; j <= first + 1 && j < n; j++) choose(w, j, kinds);
    }
}

static bool better(struct figure a, struct figure b)
{
    return a.first != b.first ? a.first < b.first : a.second < b.second;
}

/* Keeps the order if it is the best so far. */
static void finish(struct walk *w, struct figure *best, uint8_t *kinds)
{
    for (int j = 0; j < w->p->ranks; j++)
        while (w->ranks[j].weights < w->p->microbatches) put(w, j, PP_W);
    const struct figure figure = figure_of(w);
    if (!better(figure, *best)) return;
    *best = figure;
    memcpy(kinds, w->kinds, 3 * (size_t)w->p->ranks * (size_t)w->p->microbatches);
}

static void try_all(struct walk *w, uint8_t *kinds)
{
    struct figure best = {INT64_MAX, INT64_MAX};
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++)
        for (int k = 0; k < KNOBS; k++) {
            w->way = (struct way){k & 1, k & 2, k & 4, leads[i]};
            begin(w);
            by_time(w);
            finish(w, &best, kinds);
        }
    for (size_t i = 0; i < sizeof preferences / sizeof *preferences; i++) {
        if (3 * (double)w->p->microbatches * w->p->ranks * w->p->ranks > MOST_LOOKS) break;
        begin(w);
        by_preference(w, preferences[i]);
        finish(w, &best, kinds);
    }
    for (int lead = 1; lead <= MOST_LEAD; lead++) {
        begin(w);
        if (by_hand(w, lead)) finish(w, &best, kinds);
    }
}

static pp_status check_memory(const struct pp_zb_problem *p)
{
    for (int j = 0; j < p->ranks; j++)
        if (p->costs->cap[j] < p->costs->held[j] || p->costs->cap[j] < p->costs->held_weight[j])
            return pp_fail(PP_USAGE, "rank %d has no memory for a single microbatch", j);
    return PP_OK;
}

/* Halves all times until no sum of them overflows: everything one after the other, and as many hops. */
static void scale_times(const struct pp_zb_problem *p, int64_t *times, struct pp_stage_costs *out)
{
    const int n = p->ranks;
    double all = (double)p->costs->hop * 2 * n;
    for (int j = 0; j < n; j++)
        all += (double)p->costs->forward[j] + (double)p->costs->input[j] + (double)p->costs->weight[j];
    int shift = 0;
    for (all *= p->microbatches; all > 0x1p61; all /= 2) shift++;
    *out = *p->costs;
    for (int j = 0; j < n; j++) {
        times[j] = p->costs->forward[j] >> shift;
        times[n + j] = p->costs->input[j] >> shift;
        times[2 * n + j] = p->costs->weight[j] >> shift;
    }
    out->hop >>= shift;
    out->forward = times;
    out->input = times + n;
    out->weight = times + 2 * n;
}

pp_status pp_zb_search(const struct pp_zb_problem *problem, uint8_t *kinds)
{
    const int64_t cells = (int64_t)problem->ranks * problem->microbatches;
    struct walk w = {.p = problem};
    int64_t *times = NULL;
    pp_status status;
    PP_TRY_DONE(check_memory(problem));
    PP_TRY_DONE(PP_NEW(&times, 3 * problem->ranks));
    PP_TRY_DONE(PP_NEW(&w.ranks, problem->ranks));
    PP_TRY_DONE(PP_NEW(&w.next, problem->ranks));
    PP_TRY_DONE(PP_NEW(&w.forward_end, cells));
    PP_TRY_DONE(PP_NEW(&w.input_end, cells));
    PP_TRY_DONE(PP_NEW(&w.kinds, 3 * cells));
    scale_times(problem, times, &w.costs);
    try_all(&w, kinds);
done:
    free(times);
    free(w.ranks);
    free(w.next);
    free(w.forward_end);
    free(w.input_end);
    free(w.kinds);
    return status;
}
