/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules/zb_walk.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Memory that a microbatch takes from F on; after I it keeps held_weight. */
static int64_t room(const struct pp_zb_walk *w, int j) { return most(w->p->held[j], w->p->held_weight[j]); }

static bool fits(const struct pp_zb_walk *w, int j) { return w->ranks[j].memory <= w->p->cap[j] - room(w, j); }

/* The time at which the input of rank j's next F or I is there. */
static int64_t arrival(const struct pp_zb_walk *w, int j, int kind)
{
    if (kind == PP_F) {
        const int64_t before = (int64_t)(j - 1) * w->p->microbatches + w->ranks[j].forwards;
        return j == 0 ? 0 : w->forward_end[before] + w->costs.hop;
    }
    return j + 1 == w->p->ranks
               ? 0
               : w->input_end[(j + 1) * (int64_t)w->p->microbatches + w->ranks[j].inputs] + w->costs.hop;
}

/* Is the order so far worse than the best one? */
static bool hopeless(const struct pp_zb_walk *w) { return w->worst > w->limit; }

/* Appends a task to the order of rank j. */
static void put(struct pp_zb_walk *w, int j, int kind)
{
    struct pp_zb_rank *r = &w->ranks[j];
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
        r->memory -= room(w, j) - w->p->held_weight[j];
        w->input_end[(int64_t)j * w->p->microbatches + r->inputs++] = r->end;
    } else {
        r->end = start + w->costs.weight[j];
        r->memory -= w->p->held_weight[j];
        r->weights++;
    }
}

/* Appends Ws to rank j until the input of its next F or I is there. */
static void fill(struct pp_zb_walk *w, int j, int kind)
{
    const struct pp_zb_rank *r = &w->ranks[j];
    const int64_t until = arrival(w, j, kind);
    while (r->weights < r->inputs && r->end <= until - w->costs.weight[j]) put(w, j, PP_W);
    if (r->weights == r->inputs || r->end >= until) return;
    const bool costs = until - r->end > w->worst - r->cost;
    if (!costs) w->decisive |= PP_ZB_FILL_ALL;
    if (costs || (w->knobs & PP_ZB_FILL_ALL)) put(w, j, PP_W);
}

/* The most F that rank j may have without their I. */
static int64_t most_ahead(const struct pp_zb_walk *w, int j)
{
    return w->lead ? 1 + (int64_t)w->lead * (w->p->ranks - 1 - j) / 4 : w->p->microbatches;
}

/* Does the warm-up take one more forward, which would start at `end`, if the first gradient comes at `there`? */
static bool one_more(struct pp_zb_walk *w, int64_t end, int64_t forward, int64_t there)
{
    const bool in_time = end + forward <= there, begins = end < there;
    if (in_time != begins) w->decisive |= PP_ZB_EARLY_BACKWARD;
    return (w->knobs & PP_ZB_EARLY_BACKWARD) ? in_time : begins;
}

/* Sets `extra` of all ranks, from the last one on: forwards between the first F and the first I, as many as can run
 * until the first gradient comes. */
static void plan_warm_up(struct pp_zb_walk *w)
{
    const int m = w->p->microbatches;
    int64_t backward_end = 0;
    for (int j = w->p->ranks - 1; j >= 0; j--) {
        struct pp_zb_rank *r = &w->ranks[j];
        const bool last = j + 1 == w->p->ranks;
        const int64_t there = last ? r->end : backward_end + w->costs.hop, f = w->costs.forward[j];
        int64_t end = r->end, memory = r->memory;
        if (!last)
            while (1 + r->extra < least(m, most_ahead(w, j)) && memory <= w->p->cap[j] - room(w, j) &&
                   one_more(w, end, f, there)) {
                end += f;
                memory += room(w, j);
                r->extra++;
            }
        backward_end = most(end, there) + w->costs.input[j];
    }
    for (int j = 1; j < w->p->ranks; j++) {
        int *extra = &w->ranks[j].extra, before = w->ranks[j - 1].extra;
        const bool fewer = !w->lead && *extra + 1 < m && before > 0;
        *extra = (int)least(*extra, before - fewer);
    }
}

static void warm_up(struct pp_zb_walk *w)
{
    for (int j = 0; j < w->p->ranks; j++) put(w, j, PP_F);
    plan_warm_up(w);
    for (int j = 0; j < w->p->ranks; j++)
        for (int k = 0; k < w->ranks[j].extra; k++) put(w, j, PP_F);
    for (int j = w->p->ranks - 1; j >= 0; j--) put(w, j, PP_I);
}

/* Should the next forward of rank j wait? That is so if the forward, with the Ws that must make room for it, would
 * delay the next I, and if leaving it out would not make the order worse. */
static bool better_later(const struct pp_zb_walk *w, int j)
{
    if (j + 1 == w->p->ranks) return false;
    const struct pp_zb_rank *r = &w->ranks[j], *next = &w->ranks[j + 1];
    if (r->forwards < next->forwards + 2) return false;
    const int64_t gradient = next->end + w->costs.forward[j + 1] + w->costs.input[j + 1] + w->costs.hop;
    int64_t memory = r->memory, end = r->end + w->costs.forward[j];
    for (int n = r->weights; n < r->inputs && memory > w->p->cap[j] - room(w, j); n++) {
        memory -= w->p->held_weight[j];
        end += w->costs.weight[j];
    }
    return end > gradient && gradient - r->end <= w->worst - r->cost;
}

static bool wants_forward(struct pp_zb_walk *w, int j)
{
    const struct pp_zb_rank *r = &w->ranks[j];
    const int64_t freed = (int64_t)(r->inputs - r->weights) * w->p->held_weight[j];
    if (r->forwards == w->p->microbatches) return false;
    if (r->forwards == r->inputs) return true; /* the I of this round belongs to this forward */
    if (r->forwards - r->inputs >= most_ahead(w, j)) return false;
    if (r->memory - freed > w->p->cap[j] - room(w, j)) return false;
    if (!better_later(w, j)) return true;
    w->decisive |= PP_ZB_BACKWARDS_FIRST;
    return !(w->knobs & PP_ZB_BACKWARDS_FIRST);
}

static void forwards(struct pp_zb_walk *w)
{
    for (int j = 0; j < w->p->ranks; j++) {
        if (!wants_forward(w, j) || (j > 0 && w->ranks[j].forwards >= w->ranks[j - 1].forwards)) continue;
        while (!fits(w, j)) put(w, j, PP_W);
        fill(w, j, PP_F);
        put(w, j, PP_F);
    }
}

static void backwards(struct pp_zb_walk *w)
{
    for (int j = w->p->ranks - 1; j >= 0; j--) {
        fill(w, j, PP_I);
        put(w, j, PP_I);
    }
}

static void begin(struct pp_zb_walk *w)
{
    const struct pp_stage_costs *c = &w->costs;
    int64_t head = 0;
    w->worst = 0;
    w->decisive = 0;
    for (int j = 0; j < w->p->ranks; j++) {
        const int64_t work = w->p->microbatches * (c->forward[j] + c->input[j] + c->weight[j]);
        w->ranks[j] = (struct pp_zb_rank){.cost = work + (w->p->span ? 0 : head)};
        w->worst = most(w->worst, w->ranks[j].cost);
        head += c->forward[j] + c->hop;
    }
}

/* Appends up to n forwards to rank j; false if memory is short. */
static bool put_forwards(struct pp_zb_walk *w, int j, int64_t n)
{
    for (; n > 0 && w->ranks[j].forwards < w->p->microbatches; n--) {
        if (!fits(w, j)) return false;
        put(w, j, PP_F);
    }
    return true;
}

bool pp_zb_by_hand(struct pp_zb_walk *w, int lead)
{
    const int n = w->p->ranks;
    begin(w);
    for (int j = 0; j < n; j++)
        if (!put_forwards(w, j, (int64_t)lead * (n - 1 - j))) return false;
    for (int i = 0; i < w->p->microbatches && !hopeless(w); i++) {
        for (int j = 0; j < n; j++)
            if (!put_forwards(w, j, 1)) return false;
        for (int j = n - 1; j >= 0; j--) {
            put(w, j, PP_I);
            if (i >= (int64_t)lead * j) put(w, j, PP_W);
        }
    }
    return true;
}

void pp_zb_by_time(struct pp_zb_walk *w, int knobs, int lead)
{
    w->knobs = knobs;
    w->lead = lead;
    begin(w);
    warm_up(w);
    for (int i = 1; i < w->p->microbatches && !hopeless(w); i++) {
        forwards(w);
        backwards(w);
    }
}

static bool can_start(const struct pp_zb_walk *w, int j, int kind)
{
    const struct pp_zb_rank *r = &w->ranks[j];
    if (kind == PP_W) return r->weights < r->inputs;
    if (kind == PP_I) return r->inputs < r->forwards && (j + 1 == w->p->ranks || r->inputs < w->ranks[j + 1].inputs);
    return r->forwards < w->p->microbatches && fits(w, j) && (j == 0 || r->forwards < w->ranks[j - 1].forwards);
}

static void choose(struct pp_zb_walk *w, int j, const uint8_t *kinds)
{
    struct pp_zb_choice *next = &w->next[j];
    *next = (struct pp_zb_choice){INT64_MAX, 3};
    for (int k = 0; k < 3; k++) {
        if (!can_start(w, j, kinds[k])) continue;
        const int64_t start = kinds[k] == PP_W ? w->ranks[j].end : most(w->ranks[j].end, arrival(w, j, kinds[k]));
        if (start < next->start) *next = (struct pp_zb_choice){start, k};
    }
}

void pp_zb_by_preference(struct pp_zb_walk *w, const uint8_t kinds[3])
{
    const int n = w->p->ranks;
    begin(w);
    for (int j = 0; j < n; j++) choose(w, j, kinds);
    for (int64_t left = 3 * (int64_t)n * w->p->microbatches; left > 0 && !hopeless(w); left--) {
        int first = n - 1;
        for (int j = n - 2; j >= 0; j--) {
            const struct pp_zb_choice *a = &w->next[j], *b = &w->next[first];
            if (a->start < b->start || (a->start == b->start && a->place < b->place)) first = j;
        }
        put(w, first, kinds[w->next[first].place]);
        for (int j = first > 0 ? first - 1 : 0; j <= first + 1 && j < n; j++) choose(w, j, kinds);
    }
}

bool pp_zb_end(struct pp_zb_walk *w, struct pp_zb_figure *out)
{
    if (hopeless(w)) return false;
    for (int j = 0; j < w->p->ranks; j++)
        while (w->ranks[j].weights < w->p->microbatches) put(w, j, PP_W);
    int64_t span = 0, makespan = 0;
    for (int j = 0; j < w->p->ranks; j++) {
        const struct pp_zb_rank *r = &w->ranks[j];
        span = most(span, r->end - r->start);
        makespan = most(makespan, r->end); /* the first rank starts at 0 */
    }
    *out = w->p->span ? (struct pp_zb_figure){span, makespan} : (struct pp_zb_figure){makespan, span};
    return true;
}
