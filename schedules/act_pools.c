/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation pools: which stages of a rank take parts of their slots (enum pp_act_part) from the same pool.
 *
 * Microbatches come and go in an order that leaves no room to be moved, so slots of different sizes leave gaps between
 * each other. Parts are what most slots have alike: of the layers that all stages of a rank have, as many slots are
 * enough as the rank holds at once, and the decoder adds as many as the last stage holds.
 *
 * All slots of a pool are as large as its largest part needs. Where parts need more and less, a pool for each size has
 * slots that are never in use together, for stages seldom hold their most microbatches at once; one pool for all has
 * slots that are too large for some. Orders are known, so slots are counted for every choice, and the one that takes
 * the fewest bytes is made. So other layers of one stage may share a pool with what the decoder of another keeps.
 */
#include <stdlib.h>
#include <string.h>

#include "schedules/building.h"

/* So many sizes are told apart, the largest ones; what is smaller counts as the last of them. */
enum { MOST_SIZES = 16 };

/* The sizes of some parts of a rank's slots, the largest first; and slots that sizes i to j together hold: now, and at
 * most. */
struct sizes {
    int n;
    int64_t bytes[MOST_SIZES];
    int32_t held[MOST_SIZES][MOST_SIZES], most[MOST_SIZES][MOST_SIZES];
};

/* A part of a stage's slots, with its bytes and the stage's rank, for sorting. */
struct sized {
    int64_t bytes;
    int32_t rank, stage, part;
};

static int by_rank_and_size(const void *a, const void *b)
{
    const struct sized *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
    return x->part - y->part;
}

static bool splits_backwards(const struct pp_builder *b)
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

/* Takes and frees slots of the parts from number `first` to `last` as emit.c will. Sizes stand in plan->act_pool. */
static void count_slots(struct pp_builder *b, const struct pp_builder_rank *rank, int first, int last, struct sizes *s)
{
    for (int64_t i = 0; i < rank->nops; i++) {
        const struct pp_op *op = &rank->ops[i];
        const int *size = b->plan->act_pool[op->stage];
        const bool passes = pp_passes(b->plan, op), frees = pp_frees_activations(b->plan, op);
        int32_t *act = pp_act_of(b, op);
        for (int part = first; part <= last && (passes || *act < 0); part++)
            if (size[part] >= 0) hold(s, size[part], 1);
        for (int part = first; part <= last && frees; part++)
            if (size[part] >= 0) hold(s, size[part], -1);
        if (!passes) *act = frees ? -1 : 0;
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

/* parts[n]: the parts from number `first` to `last` of the slots of a rank, sorted. Adds their pools to the rank's. */
static void make_pools(struct pp_builder *b, const struct sized *parts, int n, int first, int last)
{
    struct pp_builder_rank *rank = &b->ranks[parts->rank];
    int(*act_pool)[PP_ACT_PARTS] = b->plan->act_pool;
    struct sizes sizes = {0};
    int pool[MOST_SIZES] = {0}, pools = 1;
    for (int i = 0; i < n; i++) {
        const bool smaller = i == 0 || parts[i].bytes < parts[i - 1].bytes;
        if (smaller && sizes.n < MOST_SIZES) sizes.bytes[sizes.n++] = parts[i].bytes;
        act_pool[parts[i].stage][parts[i].part] = sizes.n - 1;
    }
    if (sizes.n > 1) {
        count_slots(b, rank, first, last, &sizes);
        pools = choose(&sizes, pool);
    }
    for (int i = 0; i < n; i++) {
        int *at = &act_pool[parts[i].stage][parts[i].part];
        *at = rank->nact + pool[*at];
    }
    for (int i = 0; i < pools; i++, rank->nact++)
        rank->act[rank->nact] = (struct pp_slots){.pool = {PP_POOL_ACT, parts->rank, rank->nact}};
}

/* The pools of all ranks for the parts from number `first` to `last`. bytes: as in pp_plan_spec, of the plan's kind.
 * room: for PP_ACT_PARTS of each stage. */
static void make_parts(struct pp_builder *b, const int64_t (*bytes)[PP_ACT_PARTS], int first, int last,
                       struct sized *room)
{
    int n = 0;
    for (int s = 0; s < b->plan->stages; s++)
        for (int part = first; part <= last; part++)
            if (part == PP_ACT_LAYERS || (bytes && bytes[s][part] > 0))
                room[n++] = (struct sized){bytes ? bytes[s][part] : 0, b->plan->stage_rank[s], s, part};
    qsort(room, (size_t)n, sizeof *room, by_rank_and_size);
    for (int begin = 0, end; begin < n; begin = end) {
        for (end = begin; end < n && room[end].rank == room[begin].rank;) end++;
        make_pools(b, &room[begin], end - begin, first, last);
    }
}

pp_status pp_builder_act_pools(struct pp_builder *b, const int64_t (*const act_bytes[2])[PP_ACT_PARTS])
{
    const struct pp_plan *plan = b->plan;
    const int64_t(*bytes)[PP_ACT_PARTS] = act_bytes[1] && splits_backwards(b) ? act_bytes[1] : act_bytes[0];
    struct sized *room;
    PP_TRY(PP_NEW(&b->act, plan->stages * PP_ACT_PARTS));
    PP_TRY(PP_NEW(&room, plan->stages * PP_ACT_PARTS));
    memset(plan->act_pool, 0xff, (size_t)plan->stages * sizeof *plan->act_pool);
    struct pp_slots *next = b->act;
    for (int r = 0; r < plan->ranks; r++) {
        b->ranks[r].act = next;
        next += b->ranks[r].nstages * PP_ACT_PARTS;
    }
    make_parts(b, bytes, PP_ACT_LAYERS, PP_ACT_LAYERS, room);
    make_parts(b, bytes, PP_ACT_MORE, PP_ACT_ENDS, room);
    free(room);
    return PP_OK;
}
