/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Least times of a stage's tasks with one number of rows, by kind: F, B (or I), W, and transfers to the next and to the
 * previous stage. -1 = the plan has no such task. */
struct stage_times {
    int64_t ns[PP_XFER_B + 1]; /* index: enum pp_kind */
};

struct rank_times {
    int64_t work, back, weights; /* bound.h: work_r, back_r, W_r */
    int64_t norm, step;          /* sums of its NORMs, and of its STEPs */
    int64_t shards;              /* sum of its tasks that keep shards, which are not in work_r */
    int64_t least_step;          /* its shortest STEP */
    int64_t head, first, tail;   /* bound.h: head_r, first_r, tail_r */
};

struct bounding {
    const struct pp_plan *plan;
    const struct pp_cost *cost;
    int *rows; /* [nrows] the distinct row counts of microbatches */
    int nrows;
    struct stage_times *stages; /* [nrows * stages] */
    struct rank_times *ranks;
    int64_t *before, *after; /* [stages + 1] chains of one row count, see chain() */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t pp_sim_alone_ns(const struct pp_plan *plan, const struct pp_cost *cost, int cls)
{
    const struct pp_class_cost *c = &cost->classes[cls];
    const struct pp_link_cost *link = &cost->link;
    int kind = plan->classes[cls].kind;
    if (!pp_is_transfer(kind)) return c->ns;
    int64_t wire = llround((double)c->bytes * pp_cost_ns_per_byte(cost, cls));
    return link->send_overhead_ns + pp_cost_latency_ns(cost, cls) + wire + link->recv_overhead_ns;
}

static int64_t at_least(const struct bounding *b, int cls)
{
    const struct pp_class_cost *c = &b->cost->classes[cls];
    int64_t ns = pp_sim_alone_ns(b->plan, b->cost, cls);
    return (b->cost->cores > 0 || b->cost->sharers > 1) && c->loaded_ns > 0 ? least(ns, c->loaded_ns) : ns;
}

static pp_status find_rows(struct bounding *b)
{
    const struct pp_plan *plan = b->plan;
    PP_TRY(PP_NEW(&b->rows, plan->microbatches));
    for (int m = 0; m < plan->microbatches; m++) {
        int i = 0;
        while (i < b->nrows && b->rows[i] != plan->rows[m]) i++;
        if (i == b->nrows) b->rows[b->nrows++] = plan->rows[m];
    }
    return PP_OK;
}

/* Least time of a whole task that is done in parts. first: class of its part 0; the classes of the other parts follow.
 */
static int64_t all_parts(const struct bounding *b, int first)
{
    const struct pp_class *classes = b->plan->classes;
    int64_t ns = 0;
    for (int c = first, left = classes[first].parts; left > 0; c++) {
        if (classes[c].kind != classes[first].kind || classes[c].stage != classes[first].stage) continue;
        if (classes[c].parts != classes[first].parts) continue;
        ns += at_least(b, c);
        left--;
    }
    return ns;
}

/* Takes the class into the least times of its stage. */
static void note(const struct bounding *b, int cls, struct stage_times *times)
{
    const struct pp_class *class = &b->plan->classes[cls];
    if (class->kind > PP_XFER_B || class->part > 0) return;
    const int64_t ns = class->parts > 1 ? all_parts(b, cls) : at_least(b, cls);
    int64_t *least_ns = &times->ns[class->kind == PP_I ? PP_B : class->kind];
    *least_ns = *least_ns < 0 ? ns : least(*least_ns, ns);
}

static void fill_stages(struct bounding *b)
{
    const struct pp_plan *plan = b->plan;
    memset(b->stages, 0xff, (size_t)b->nrows * (size_t)plan->stages * sizeof *b->stages); /* all -1 */
    for (int c = 0; c < plan->nclasses; c++) {
        const struct pp_class *cls = &plan->classes[c];
        for (int i = 0; i < b->nrows; i++) {
            if (cls->stage < 0 || cls->rows != b->rows[i]) continue;
            note(b, c, &b->stages[i * plan->stages + cls->stage]);
        }
    }
}

static void fill_ranks(struct bounding *b)
{
    const struct pp_plan *plan = b->plan;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        if (t->lane >= plan->ranks) continue;
        struct rank_times *r = &b->ranks[t->lane];
        int64_t ns = at_least(b, t->cls);
        if (t->kind == PP_NORM) {
            r->norm += ns;
        } else if (t->kind == PP_STEP) {
            r->least_step = r->step > 0 ? least(r->least_step, ns) : ns;
            r->step += ns;
        } else if (pp_keeps_shards(t->kind)) { /* these may run while the rank waits for gradients */
            r->shards += ns;
        } else {
            r->work += ns;
            if (t->kind == PP_B || t->kind == PP_I || t->kind == PP_W) r->back += ns;
            if (t->kind == PP_W) r->weights += ns;
        }
    }
}

static int64_t known(const struct stage_times *t, int kind) { return most(t->ns[kind], 0); }

/* For one number of rows: before[s] = time of the forwards of stages 0 .. s-1, and of the hops after each; after[s] =
 * time until a backward can start on stage s: all forwards, and backwards of the stages after s with their hops. */
static void chain(struct bounding *b, const struct stage_times *t)
{
    int stages = b->plan->stages;
    b->before[0] = 0;
    for (int s = 0; s < stages; s++) b->before[s + 1] = b->before[s] + known(&t[s], PP_F) + known(&t[s], PP_XFER_F);
    b->after[stages - 1] = b->before[stages];
    for (int s = stages - 2; s >= 0; s--)
        b->after[s] = b->after[s + 1] + known(&t[s + 1], PP_B) + known(&t[s + 1], PP_XFER_B);
}

/* Takes one number of rows into head, first and tail of each rank, which are minima over its stages. */
static void fill_chains(struct bounding *b, const struct stage_times *t)
{
    const struct pp_plan *plan = b->plan;
    chain(b, t);
    int64_t tail = 0;
    for (int s = 0; s < plan->stages; s++) {
        struct rank_times *r = &b->ranks[plan->stage_rank[s]];
        r->head = least(r->head, b->before[s]);
        if (plan->training) {
            if (s > 0) tail += known(&t[s], PP_XFER_B);
            r->first = least(r->first, b->after[s]);
            r->tail = least(r->tail, tail);
            tail += known(&t[s], PP_B);
        } else {
            r->first = 0;
            r->tail = least(r->tail, b->before[plan->stages] - b->before[s + 1] + known(&t[s], PP_XFER_F));
        }
    }
}

static int64_t least_first_weights(const struct bounding *b)
{
    int64_t ns = INT64_MAX;
    for (int i = 0; i < b->nrows; i++) ns = least(ns, known(&b->stages[i * b->plan->stages], PP_W));
    return ns;
}

static bool clips(const struct bounding *b) { return b->plan->clip && b->plan->optimizer; }

/* The bound that the ranks give, with NORM, NORM_ALL and STEP. *norm_known: with clipping, the time from which on the
 * ranks know the norm of all gradients, else 0. */
static int64_t combine(const struct bounding *b, int64_t *norm_known)
{
    const struct pp_plan *plan = b->plan;
    int end_rank = plan->stage_rank[plan->training ? 0 : plan->stages - 1]; /* the rank on which tails end */
    int64_t bound = 0, norms = 0, steps = 0, last_weights = least_first_weights(b);
    for (int i = 0; i < plan->ranks; i++) {
        const struct rank_times *r = &b->ranks[i], *end = &b->ranks[end_rank];
        int64_t done = most(r->head + r->work, r->first + r->back);
        int64_t passed = done - r->weights + r->tail + last_weights;
        bound = most(bound, most(done + r->step, passed + end->least_step));
        norms = most(norms, most(done + r->norm, passed));
        steps = most(steps, r->step);
    }
    int64_t all = 0;
    for (int c = 0; c < plan->nclasses; c++)
        if (plan->classes[c].kind == PP_NORM_ALL) all = at_least(b, c);
    *norm_known = clips(b) ? norms + all : 0;
    return clips(b) ? norms + all + steps : bound;
}

/* The bound that shared cores give: the work of all workers, divided by the number of cores. */
static int64_t shared(const struct bounding *b)
{
    double total = 0;
    if (b->cost->cores == 0 || b->cost->cores >= b->cost->workers) return 0;
    for (int r = 0; r < b->plan->ranks; r++) total += (double)(b->ranks[r].work + b->ranks[r].norm + b->ranks[r].step);
    return (int64_t)(total * b->cost->workers / b->plan->ranks / b->cost->cores);
}

/* The bound that hosts give: the time in which the host of the rank with the first stage issues everything up to the
 * rank's last computation. A step begins with a forward of that stage, which starts as soon as its issue has begun.
 * With ZeRO this is no bound: the forward waits for parameters, while the host issues more. */
static int64_t issuing(const struct bounding *b)
{
    const struct pp_plan *plan = b->plan;
    int rank = plan->stage_rank[0];
    int64_t all = 0, until_last = 0;
    for (int32_t id = 0; b->cost->host_issues && !plan->zero && !plan->shards && id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        const struct pp_lane *lane = &plan->lanes[t->lane];
        if (lane->src != rank && lane->dst != rank && lane->kind != PP_LANE_NORM) continue;
        all += b->cost->classes[t->cls].host_ns;
        if (t->lane == rank) until_last = all;
    }
    return until_last;
}

static void release(struct bounding *b)
{
    free(b->rows);
    free(b->stages);
    free(b->ranks);
    free(b->before);
    free(b->after);
}

/* Call release() also after a failure. */
static pp_status prepare(struct bounding *b)
{
    const struct pp_plan *plan = b->plan;
    PP_TRY(find_rows(b));
    PP_TRY(PP_NEW(&b->stages, (int64_t)b->nrows * plan->stages));
    PP_TRY(PP_NEW(&b->ranks, plan->ranks));
    PP_TRY(PP_NEW(&b->before, plan->stages + 1));
    PP_TRY(PP_NEW(&b->after, plan->stages + 1));
    fill_stages(b);
    fill_ranks(b);
    for (int r = 0; r < plan->ranks; r++) b->ranks[r].head = b->ranks[r].first = b->ranks[r].tail = INT64_MAX;
    for (int i = 0; i < b->nrows; i++) fill_chains(b, &b->stages[i * plan->stages]);
    return PP_OK;
}

pp_status pp_sim_lower_bound(const struct pp_plan *plan, const struct pp_cost *cost, int64_t *out_ns)
{
    struct bounding b = {.plan = plan, .cost = cost};
    int64_t norm_known;
    const pp_status status = prepare(&b);
    if (status == PP_OK) *out_ns = most(most(combine(&b, &norm_known), shared(&b)), issuing(&b));
    release(&b);
    return status;
}

pp_status pp_sim_least_batch(const struct pp_plan *plan, const struct pp_cost *cost, int64_t *out_ns)
{
    struct bounding b = {.plan = plan, .cost = cost};
    const pp_status status = prepare(&b);
    if (status == PP_OK) {
        int64_t norm_known;
        (void)combine(&b, &norm_known);
        *out_ns = most(norm_known, shared(&b));
        for (int i = 0; i < plan->ranks; i++) {
            const struct rank_times *r = &b.ranks[i];
            *out_ns = most(*out_ns, r->work + r->norm + r->step + r->shards);
        }
    }
    release(&b);
    return status;
}
