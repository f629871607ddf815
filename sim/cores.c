/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cores.h"

#include <math.h>
#include <stdlib.h>

struct pp_sim_piece {
    struct pp_sim_work work;
    int32_t core;                /* -1: it is a delay */
    int32_t next;                /* the next piece of the same core, or the next unused piece */
    int32_t heap_at;             /* its index in the heap; -1: it is not there yet */
    int64_t ns, loaded_ns;       /* its length if the other cores of the domain are idle, and if all are busy */
    int64_t length_ns;           /* its length at the current rate; -1 = it has no rate yet */
    int64_t since_ns, finish_ns; /* when the current rate was set, and when the piece ends at that rate */
    double left;                 /* the part of the work that was left at since_ns */
    double idle;                 /* the part of the work in which nothing is computed */
};

static int smaller(int a, int b) { return a < b ? a : b; }

/* The most workers of a sharing domain that can be active at once without sharing a core. 0: there is no domain. */
static int capacity_of(const struct pp_cost *cost)
{
    if (cost->cores > 0) return cost->cores;
    return cost->sharers > 1 ? cost->sharers : 0;
}

pp_status pp_cores_init(struct pp_sim_cores *c, const struct pp_cost *cost, int ranks)
{
    *c = (struct pp_sim_cores){.cost = cost, .ranks = ranks, .alike = 1, .unused = -1, .width = ranks};
    const bool shares = cost->cores == 0 && cost->sharers > 1;
    const int together = shares ? cost->sharers : cost->workers, members = cost->members > 1 ? cost->members : 1;
    if (shares) c->width = smaller(together > members ? together / members : 1, ranks);
    if (together > c->width) c->alike = together / c->width;
    c->domains = (ranks + c->width - 1) / c->width;
    PP_TRY(PP_NEW(&c->active, c->domains));
    PP_TRY(PP_NEW(&c->active_rated, c->domains));
    PP_TRY(PP_NEW(&c->on_core, ranks));
    PP_TRY(PP_NEW(&c->load, ranks));
    PP_TRY(PP_NEW(&c->collectives, ranks));
    PP_TRY(PP_NEW(&c->changed, ranks));
    PP_TRY(PP_NEW(&c->is_changed, ranks));
    for (int r = 0; r < ranks; r++) c->on_core[r] = -1;
    return PP_OK;
}

void pp_cores_release(struct pp_sim_cores *c)
{
    free(c->pieces);
    free(c->heap);
    free(c->active);
    free(c->active_rated);
    free(c->on_core);
    free(c->load);
    free(c->collectives);
    free(c->changed);
    free(c->is_changed);
}

static bool before(const struct pp_sim_cores *c, int32_t a, int32_t b)
{
    const struct pp_sim_piece *x = &c->pieces[a], *y = &c->pieces[b];
    if (x->finish_ns != y->finish_ns) return x->finish_ns < y->finish_ns;
    if (x->work.task != y->work.task) return x->work.task < y->work.task;
    return x->work.step < y->work.step;
}

static void place(struct pp_sim_cores *c, int32_t at, int32_t piece)
{
    c->heap[at] = piece;
    c->pieces[piece].heap_at = at;
}

static void sift_up(struct pp_sim_cores *c, int32_t at)
{
    int32_t piece = c->heap[at];
    for (; at > 0 && before(c, piece, c->heap[(at - 1) / 2]); at = (at - 1) / 2) place(c, at, c->heap[(at - 1) / 2]);
    place(c, at, piece);
}

static void sift_down(struct pp_sim_cores *c, int32_t at)
{
    int32_t piece = c->heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child + 1 < c->nheap && before(c, c->heap[child + 1], c->heap[child])) child++;
        if (child >= c->nheap || !before(c, c->heap[child], piece)) break;
        place(c, at, c->heap[child]);
        at = child;
    }
    place(c, at, piece);
}

static void put_in_heap(struct pp_sim_cores *c, int32_t piece)
{
    if (c->pieces[piece].heap_at < 0) place(c, c->nheap++, piece);
    sift_up(c, c->pieces[piece].heap_at);
    sift_down(c, c->pieces[piece].heap_at);
}

static void mark_changed(struct pp_sim_cores *c, int core)
{
    if (c->is_changed[core]) return;
    c->is_changed[core] = true;
    c->changed[c->nchanged++] = core;
}

static pp_status new_piece(struct pp_sim_cores *c, int32_t *out)
{
    if (c->unused >= 0) {
        *out = c->unused;
        c->unused = c->pieces[*out].next;
        return PP_OK;
    }
    if (c->npieces == c->capacity) {
        int64_t room = c->capacity;
        PP_TRY(PP_GROW(&c->pieces, c->npieces + 1, &room));
        PP_TRY(PP_GROW(&c->heap, c->npieces + 1, &c->capacity));
    }
    *out = c->npieces++;
    return PP_OK;
}

pp_status pp_cores_start(struct pp_sim_cores *c, struct pp_sim_work work, int core, int64_t ns, int64_t loaded_ns,
                         double idle)
{
    int32_t id = -1;
    PP_TRY(new_piece(c, &id));
    struct pp_sim_piece *p = &c->pieces[id];
    *p = (struct pp_sim_piece){.work = work,
                               .core = core,
                               .next = -1,
                               .heap_at = -1,
                               .ns = ns,
                               .loaded_ns = loaded_ns,
                               .length_ns = -1,
                               .since_ns = c->now_ns,
                               .finish_ns = c->now_ns + ns,
                               .left = 1.0,
                               .idle = idle};
    if (core < 0) {
        put_in_heap(c, id);
        return PP_OK;
    }
    p->next = c->on_core[core];
    c->on_core[core] = id;
    if (c->load[core]++ == 0) c->active[core / c->width]++;
    mark_changed(c, core);
    return PP_OK;
}

void pp_cores_collect(struct pp_sim_cores *c, int core, int more)
{
    c->collectives[core] += more;
    mark_changed(c, core);
}

/* Length of a piece if `active` workers of the domain have work. */
static double length_in_domain(const struct pp_cost *cost, const struct pp_sim_piece *p, int active)
{
    int capacity = capacity_of(cost), full = smaller(cost->workers, capacity);
    if (capacity == 0 || active <= 1 || p->ns == 0 || p->loaded_ns == 0) return (double)p->ns;
    if (active > capacity) return (double)p->loaded_ns * active / capacity;
    if (active >= full) return (double)p->loaded_ns;
    const double part = (double)(active - 1) / (full - 1);
    if (cost->cores == 0) return (double)p->ns + (double)(p->loaded_ns - p->ns) * part;
    double alone = 1.0 / (double)p->ns, loaded = 1.0 / (double)p->loaded_ns;
    return 1.0 / (alone + (loaded - alone) * part);
}

/* Active workers of the core's domain. One that the last ranks do not fill is shared with ranks of another replica,
 * which are taken to do as these do. */
static int active_of(const struct pp_sim_cores *c, int core)
{
    const int domain = core / c->width, here = smaller(c->width, c->ranks - domain * c->width);
    return (c->active[domain] * c->alike * c->width + here - 1) / here;
}

static void set_rate(struct pp_sim_cores *c, int32_t id)
{
    struct pp_sim_piece *p = &c->pieces[id];
    const double taken = c->collectives[p->core] > 0 ? c->cost->taken : 0,
                 longer = p->idle + (1 - p->idle) / (1 - taken);
    const double length_alone = length_in_domain(c->cost, p, active_of(c, p->core));
    const int64_t length = llround(length_alone * c->load[p->core] * longer);
    if (length == p->length_ns) return;
    if (p->length_ns > 0) p->left = fmax(0.0, p->left - (double)(c->now_ns - p->since_ns) / (double)p->length_ns);
    p->since_ns = c->now_ns;
    p->length_ns = length;
    p->finish_ns = c->now_ns + llround(p->left * (double)length);
    put_in_heap(c, id);
}

static void set_rates_of(struct pp_sim_cores *c, int core)
{
    for (int32_t id = c->on_core[core]; id >= 0; id = c->pieces[id].next) set_rate(c, id);
}

static void set_rates(struct pp_sim_cores *c)
{
    bool shares = capacity_of(c->cost) > 0;
    for (int d = 0; d < c->domains && shares; d++) {
        if (c->active[d] == c->active_rated[d]) continue;
        int end = smaller((d + 1) * c->width, c->ranks);
        for (int r = d * c->width; r < end; r++) set_rates_of(c, r);
        c->active_rated[d] = c->active[d];
    }
    for (int32_t i = 0; i < c->nchanged; i++) {
        set_rates_of(c, c->changed[i]);
        c->is_changed[c->changed[i]] = false;
    }
    c->nchanged = 0;
}

static void leave_core(struct pp_sim_cores *c, int32_t id)
{
    int core = c->pieces[id].core;
    int32_t *link = &c->on_core[core];
    while (*link != id) link = &c->pieces[*link].next;
    *link = c->pieces[id].next;
    if (--c->load[core] == 0) c->active[core / c->width]--;
    mark_changed(c, core);
}

bool pp_cores_next(struct pp_sim_cores *c, struct pp_sim_work *out)
{
    /* Rates are set only before time advances: a piece that ends while another one starts at the same moment changes
     * nothing. */
    if (c->nheap == 0 || c->pieces[c->heap[0]].finish_ns > c->now_ns) set_rates(c);
    if (c->nheap == 0) return false;
    int32_t id = c->heap[0];
    struct pp_sim_piece *p = &c->pieces[id];
    c->heap[0] = c->heap[--c->nheap];
    if (c->nheap > 0) sift_down(c, 0);
    if (p->core >= 0) leave_core(c, id);
    c->now_ns = p->finish_ns;
    *out = p->work;
    p->next = c->unused;
    c->unused = id;
    return true;
}
