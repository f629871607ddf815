/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation pools: which stages of a rank take their slots from the same pool.
 *
 * All slots of a pool are as large as its largest stage needs, and stages that need as much as each other share one.
 * Where stages of a rank need more and less, a pool for each size has slots that are never in use together, for stages
 * seldom hold their most microbatches at once; one pool for all has slots that are too large for some. Orders are
 * known, so slots are counted for every choice, and the one that takes the fewest bytes is made.
 */
#include <stdlib.h>

#include "schedules/building.h"

/* Of a rank so many sizes are told apart, the largest ones; what is smaller counts as the last of them. */
enum { MOST_SIZES = 16 };

/* The sizes of a rank, the largest first; and slots that sizes i to j together hold: now, and at most. */
struct sizes {
    int n;
    int64_t bytes[MOST_SIZES];
    int32_t held[MOST_SIZES][MOST_SIZES], most[MOST_SIZES][MOST_SIZES];
};

/* A stage with its rank and the bytes of its slots, for sorting. */
struct sized {
    int64_t bytes;
    int32_t rank, stage;
};

static int by_rank_and_size(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->stage < y->stage ? -1 : 1;
}

static bool splits_backwards(const struct builder *b)
{
    for (int r = 0; r < b->plan->ranks; r++)
        for (int64_t i = 0; i < b->ranks[r].nops; i++)
            if (b->ranks[r].ops[i].kind == PP_W) return true;
    return false;
}

static void hold(struct sizes *s, int size, int more)
{
    for (int i = 0; i <= size; i++)
        for (int j = size; j < s->n; j++) {
            s->held[i][j] += more;
            if (s->held[i][j] > s->most[i][j]) s->most[i][j] = s->held[i][j];
        }
}

/* Takes and frees slots as emit.c will. A stage's size stands in plan->act_pool. */
static void count_slots(struct builder *b, const struct rank_state *rank, struct sizes *s)
{
    const struct pp_plan *plan = b->plan;
    for (int64_t i = 0; i < rank->nops; i++) {
        const struct pp_op *op = &rank->ops[i];
        const bool passes = pp_passes(plan, op);
        int32_t *slot = &b->act_slot[pp_cell(plan, op->stage, pp_slot_first(plan, op->microbatch))];
        const int size = plan->act_pool[op->stage];
        if (passes || *slot < 0) hold(s, size, 1);
        if (pp_frees_activations(plan, op)) hold(s, size, -1);
        if (!passes) *slot = pp_frees_activations(plan, op) ? -1 : 0;
    }
}

/* The pool of each size, counted from 0; a pool has sizes that follow one another. Returns the number of pools. */
static int choose(const struct sizes *s, int pool[MOST_SIZES])
{
    double least[MOST_SIZES + 1] = {0}; /* bytes of the first sizes */
    int begin[MOST_SIZES + 1];          /* the first size in the last pool of these */
    bool begins[MOST_SIZES] = {0};
    int pools = 0;
    for (int end = 1; end <= s->n; end++)
        for (int i = 0; i < end; i++) {
            const double bytes = least[i] + (double)s->bytes[i] * s->most[i][end - 1];
            if (i > 0 && bytes >= least[end]) continue;
            least[end] = bytes;
            begin[end] = i;
        }
    for (int end = s->n; end > 0; end = begin[end]) begins[begin[end]] = true;
    for (int i = 0; i < s->n; i++) pool[i] = (pools += begins[i]) - 1;
    return pools;
}

/* stages[n]: those of the rank, sorted. Makes its pools from `next` on. */
static void make_pools(struct builder *b, const struct sized *stages, int n, struct slots *next)
{
    struct rank_state *rank = &b->ranks[stages->rank];
    int32_t *act_pool = b->plan->act_pool;
    struct sizes sizes = {0};
    int pool[MOST_SIZES] = {0};
    for (int i = 0; i < n; i++) {
        const bool smaller = i == 0 || stages[i].bytes < stages[i - 1].bytes;
        if (smaller && sizes.n < MOST_SIZES) sizes.bytes[sizes.n++] = stages[i].bytes;
        act_pool[stages[i].stage] = sizes.n - 1;
    }
    rank->act = next;
    rank->nact = 1;
    if (sizes.n > 1) {
        count_slots(b, rank, &sizes);
        rank->nact = choose(&sizes, pool);
    }
    for (int i = 0; i < n; i++) act_pool[stages[i].stage] = pool[act_pool[stages[i].stage]];
    for (int i = 0; i < rank->nact; i++) next[i] = (struct slots){.pool = {PP_POOL_ACT, stages->rank, i}};
}

pp_status pp_builder_act_pools(struct builder *b, const int64_t *const act_bytes[2])
{
    const struct pp_plan *plan = b->plan;
    const int64_t *bytes = act_bytes[1] && splits_backwards(b) ? act_bytes[1] : act_bytes[0];
    struct sized *stages;
    struct slots *next;
    PP_TRY(PP_NEW(&b->act, plan->stages));
    PP_TRY(PP_NEW(&stages, plan->stages));
    for (int s = 0; s < plan->stages; s++) stages[s] = (struct sized){bytes ? bytes[s] : 0, plan->stage_rank[s], s};
    qsort(stages, (size_t)plan->stages, sizeof *stages, by_rank_and_size);
    next = b->act;
    for (int first = 0, end; first < plan->stages; first = end) {
        for (end = first; end < plan->stages && stages[end].rank == stages[first].rank;) end++;
        make_pools(b, &stages[first], end - first, next);
        next += end - first;
    }
    free(stages);
    return PP_OK;
}
