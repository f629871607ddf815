/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a plan by its arrays alone, whoever made it: the builder, or a test that broke it on purpose.
 */
#include <stdlib.h>
#include <string.h>

#include "core/plan/plan_checking.h"

/* The users of a slot so far. Lanes are copied from the tasks, which in a large plan would be far away in memory. */
struct slot_use {
    int32_t user, user_lane;   /* the task that used it last, and its lane; -1: none */
    int32_t first, first_lane; /* the task that wrote it first */
};

/* Tasks of a stage so far that wraps[] may name: its first F, its first and last GATHER_PARAM, its STEP; -1: none. */
struct passed {
    int32_t forward, gather, last_gather, step;
};

struct check {
    const struct pp_plan *plan;
    struct slot_use *slots; /* [nslots] */
    uint8_t *seen;          /* [stages][row] bit 1 << kind: this computation of the microbatch was seen; see row_of() */
    uint8_t *begun;         /* [stages] bit 0: a B or I was seen, bit 1: a W */
    int32_t *open;          /* [ranks] the last computation, if it has PP_TASK_MORE; else -1 */
    struct passed *passed;  /* [stages] */
    struct pp_wrap *wraps;  /* [nwraps] sorted by from and to */
    int32_t before;         /* the part before the current task; -1: the task is a first part, or has no parts */
    struct pp_norm_check norm;
    struct pp_issue_check issue;
};

/* Where the row of a stage begins in `seen`. With rows of a power of two, cells of all stages would use the same few
 * sets of the caches. */
static int64_t row_of(const struct pp_plan *plan, int stage) { return stage * ((int64_t)plan->microbatches + 64); }

static bool computes(const struct pp_task *t) { return pp_kinds[t->kind].computes; }

/* Each stage and microbatch has one F, then one B, or one I and then one W. */
static pp_status check_work(struct check *c, int32_t id)
{
    const struct pp_plan *plan = c->plan;
    const struct pp_task *t = &plan->tasks[id];
    if (t->kind > PP_W || c->before >= 0) return PP_OK;
    uint8_t *cell = &c->seen[row_of(plan, t->stage) + t->microbatch], bit = (uint8_t)(1 << t->kind);
    uint8_t backward = 1 << PP_B | 1 << PP_I;
    if (t->count < 1 || t->microbatch + t->count > plan->microbatches || (t->count > 1 && t->kind != PP_W))
        return pp_plan_bad(plan, id, "it has a wrong number of microbatches");
    for (const uint8_t *end = cell + t->count; cell < end; cell++) {
        if (*cell & bit) return pp_plan_bad(plan, id, "done twice");
        if (t->kind != PP_F && !(*cell & 1 << PP_F)) return pp_plan_bad(plan, id, "before its F");
        if (t->kind == PP_W && !(*cell & 1 << PP_I)) return pp_plan_bad(plan, id, "before its I");
        if ((bit & backward) && (*cell & backward)) return pp_plan_bad(plan, id, "done twice");
        *cell |= bit;
    }
    return PP_OK;
}

static bool same_work(const struct pp_task *a, const struct pp_task *b)
{
    return a->kind == b->kind && a->stage == b->stage && a->microbatch == b->microbatch && a->count == b->count &&
           a->act == b->act && a->ckpt == b->ckpt && !((a->flags ^ b->flags) & PP_TASK_FIRST);
}

/* The parts of a task follow each other on their rank; only PUT_PARAM and ADD_GRAD may come between them. Sets
 * c->before. */
static pp_status check_part(struct check *c, int32_t id)
{
    const struct pp_task *t = &c->plan->tasks[id];
    const bool more = t->flags & PP_TASK_MORE;
    if (more && t->kind != PP_F && t->kind != PP_B && t->kind != PP_W && t->kind != PP_R)
        return pp_plan_bad(c->plan, id, "it has no parts");
    c->before = -1;
    if (!computes(t) || pp_keeps_shards(t->kind)) return PP_OK;
    c->before = c->open[t->lane];
    c->open[t->lane] = more ? id : -1;
    if (c->before < 0) return PP_OK;
    const struct pp_task *before = &c->plan->tasks[c->before];
    if (!same_work(t, before)) return pp_plan_bad(c->plan, id, "it comes between two parts of another task");
    return t->in < 0 && before->out < 0 ? PP_OK
                                        : pp_plan_bad(c->plan, id, "a part in the middle has an input or output");
}

/* The parts of a task come in their order, and all of them. */
static pp_status check_place(const struct check *c, int32_t id)
{
    const struct pp_task *t = &c->plan->tasks[id];
    const struct pp_class *cls = &c->plan->classes[t->cls];
    const struct pp_class *before = c->before < 0 ? NULL : &c->plan->classes[c->plan->tasks[c->before].cls];
    if (t->kind > PP_W) return PP_OK;
    const bool more = t->flags & PP_TASK_MORE, last = cls->part + 1 == (cls->parts > 1 ? cls->parts : 1);
    const bool next = before ? cls->part == before->part + 1 && cls->parts == before->parts : cls->part == 0;
    return next && more != last ? PP_OK : pp_plan_bad(c->plan, id, "it is another part than the one that is due");
}

/* Does the task wait for the GATHER_PARAM of its stage, or of its part of the stage? */
static bool waits_for_parameters(const struct pp_plan *plan, const struct pp_task *t)
{
    const struct pp_task *gather = t->dep[2] < 0 ? NULL : &plan->tasks[t->dep[2]];
    if (!gather || gather->kind != PP_GATHER_PARAM || gather->stage != t->stage) return false;
    const struct pp_class *cls = &plan->classes[t->cls], *gathered = &plan->classes[gather->cls];
    return gathered->part == cls->part && gathered->parts == cls->parts;
}

/* If the step begins with gathering, the first forward of each stage (each of its parts) waits for its parameters. Also
 * sets c->passed. */
static pp_status check_parameters(struct check *c, int32_t id)
{
    const struct pp_plan *plan = c->plan;
    const struct pp_task *t = &plan->tasks[id];
    if (t->stage < 0) return PP_OK;
    struct passed *passed = &c->passed[t->stage];
    if (t->kind == PP_GATHER_PARAM && passed->gather < 0) passed->gather = id;
    if (t->kind == PP_GATHER_PARAM) passed->last_gather = id;
    if (t->kind == PP_STEP) passed->step = id;
    if (t->kind != PP_F || (passed->forward >= 0 && c->before < 0)) return PP_OK;
    if (passed->forward < 0) passed->forward = id;
    if (!plan->gathers_first || waits_for_parameters(plan, t)) return PP_OK;
    return pp_plan_bad(plan, id, "it does not wait for its parameters");
}

/* With rounds_weights the first forward of each stage (each of its parts) rounds weights, and no other task does. Call
 * it before check_parameters(), which notes that forward. */
static pp_status check_rounding(const struct check *c, int32_t id)
{
    const struct pp_plan *plan = c->plan;
    const struct pp_task *t = &plan->tasks[id];
    const bool rounds = plan->classes[t->cls].rounds;
    const bool begins = t->kind == PP_F && c->passed[t->stage].forward < 0,
               goes_on = c->before >= 0 && plan->classes[plan->tasks[c->before].cls].rounds;
    if (rounds == (plan->rounds_weights && (begins || goes_on))) return PP_OK;
    return pp_plan_bad(plan, id, rounds ? "it rounds weights once more" : "it does not round its stage's weights");
}

/* The first contribution to a stage's gradients, and no other, has PP_TASK_FIRST. */
static pp_status check_first(struct check *c, int32_t id)
{
    const struct pp_task *t = &c->plan->tasks[id];
    bool marked = t->flags & PP_TASK_FIRST;
    if (t->kind == PP_ADD_GRAD) return PP_OK; /* plan_shards.c checks it */
    if (t->kind != PP_B && t->kind != PP_I && t->kind != PP_W)
        return marked ? pp_plan_bad(c->plan, id, "it is marked as a first gradient, which it does not make") : PP_OK;
    if (c->before >= 0) return PP_OK;
    uint8_t bit = t->kind == PP_W ? 2 : 1;
    bool first = !(c->begun[t->stage] & bit);
    c->begun[t->stage] |= bit;
    if (marked == first) return PP_OK;
    return pp_plan_bad(c->plan, id,
                       first ? "it adds to gradients that nothing has written" : "it overwrites earlier gradients");
}

static int rows_of(const struct pp_plan *plan, const struct pp_task *t)
{
    int rows = 0;
    for (int i = 0; i < t->count; i++) rows += plan->rows[t->microbatch + i];
    return rows;
}

/* A cost class says of its tasks what they say themselves. Runs after all flags were found right. */
static pp_status check_classes(const struct pp_plan *plan)
{
    for (int32_t id = 0; id < plan->ntasks; id++) {
        const struct pp_task *t = &plan->tasks[id];
        if (plan->classes[t->cls].adds != pp_task_adds(plan, t))
            return pp_plan_bad(plan, id, "its cost class uses gradients in another way");
        if (plan->classes[t->cls].rows != rows_of(plan, t)) return pp_plan_bad(plan, id, "a cost class of other rows");
    }
    return PP_OK;
}

static pp_status check_complete(const struct check *c)
{
    const struct pp_plan *plan = c->plan;
    uint8_t fused = 1 << PP_F | 1 << PP_B, split = 1 << PP_F | 1 << PP_I | 1 << PP_W;
    for (int r = 0; r < plan->ranks; r++)
        if (c->open[r] >= 0) return pp_plan_bad(plan, c->open[r], "its next part is missing");
    for (int s = 0; s < plan->stages; s++)
        for (int m = 0; m < plan->microbatches; m++) {
            uint8_t have = c->seen[row_of(plan, s) + m];
            if (plan->training ? have != fused && have != split : have != 1 << PP_F)
                return pp_fail(PP_INPUT, "the plan is wrong: rank %d: work of stage %d, microbatch %d is missing",
                               plan->stage_rank[s], s, m);
        }
    return PP_OK;
}

/* The direction in which the data of a kind flows: +1 to the next stage, -1 to the previous one, 0 none. */
static const int flow[PP_KINDS] = {[PP_F] = 1, [PP_XFER_F] = 1, [PP_B] = -1, [PP_I] = -1, [PP_XFER_B] = -1};

/* The stage whose result a task reads: its own for a transfer, else that of a neighbour; -1 = none. */
static int source_stage(const struct pp_plan *plan, const struct pp_task *t)
{
    int stage = computes(t) ? t->stage - flow[t->kind] : t->stage;
    return flow[t->kind] != 0 && stage >= 0 && stage < plan->stages ? stage : -1;
}

/* The input comes from the right stage, of the same microbatch and in the same direction. */
static pp_status check_input(const struct check *c, int32_t id)
{
    const struct pp_plan *plan = c->plan;
    const struct pp_task *t = &plan->tasks[id];
    int stage = source_stage(plan, t);
    if (stage < 0 || c->before >= 0) return PP_OK;
    if (t->dep[0] < 0) return pp_plan_bad(plan, id, "nothing delivers its input");
    const struct pp_task *from = &plan->tasks[t->dep[0]];
    if (from->stage != stage || from->microbatch != t->microbatch || flow[from->kind] != flow[t->kind])
        return pp_plan_bad(plan, id, "its input comes from another stage or microbatch");
    return PP_OK;
}

/* A task that writes a slot runs after the last user of the slot: it waits for that task (`awaited`), or is on the same
 * lane. */
static pp_status check_slot(struct check *c, int32_t id, int32_t slot, int32_t awaited)
{
    const struct pp_plan *plan = c->plan;
    if (slot < 0) return PP_OK;
    struct slot_use *use = &c->slots[slot];
    int32_t lane = plan->tasks[id].lane;
    if (use->first < 0) use->first = id, use->first_lane = lane;
    bool safe = use->user < 0 || use->user == awaited || use->user_lane == lane;
    if (!safe) return pp_plan_bad(plan, id, "it writes a slot that may still be in use");
    use->user = id;
    use->user_lane = lane;
    return PP_OK;
}

static pp_status check_slots(struct check *c, int32_t id)
{
    const struct pp_task *t = &c->plan->tasks[id];
    PP_TRY(check_slot(c, id, t->out, t->kind == PP_GATHER_PARAM ? t->dep[0] : t->dep[1]));
    for (int part = 0; part < PP_ACT_PARTS && t->act >= 0; part++)
        PP_TRY(check_slot(c, id, c->plan->acts[t->act][part], -1));
    PP_TRY(check_slot(c, id, t->ckpt, -1));
    if (t->in >= 0) c->slots[t->in].user = id, c->slots[t->in].user_lane = t->lane;
    if (!computes(t) || pp_keeps_shards(t->kind)) return PP_OK;
    PP_TRY(check_slot(c, id, pp_task_param(c->plan, t), t->dep[2]));
    return check_slot(c, id, pp_task_grad(c->plan, t), -1);
}

static int by_ends(const void *a, const void *b)
{
    const struct pp_wrap *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

static pp_status check_wrap(const struct check *c, int32_t from, int32_t to)
{
    const struct pp_wrap wanted = {from, to};
    const struct pp_plan *plan = c->plan;
    if (plan->nwraps && bsearch(&wanted, c->wraps, (size_t)plan->nwraps, sizeof wanted, by_ends)) return PP_OK;
    return pp_plan_bad(plan, to, "an edge to it from the step before is missing");
}

/* ZeRO 1 and 2: the edges into the next step for parameters (add_gathers() in schedules/finish.c). */
static pp_status check_gather_wraps(const struct check *c)
{
    const struct pp_plan *plan = c->plan;
    for (int s = 0; s < plan->stages && plan->gathers_first; s++)
        PP_TRY(check_wrap(c, c->passed[s].step, c->passed[s].gather));
    for (int r = 0; r < plan->ranks && plan->zero && !plan->gathers_first && !plan->shard_params; r++) {
        int32_t first = INT32_MAX, last = -1;
        for (int s = 0; s < plan->stages; s++) {
            if (plan->stage_rank[s] != r) continue;
            if (c->passed[s].forward < first) first = c->passed[s].forward;
            if (c->passed[s].last_gather > last) last = c->passed[s].last_gather;
        }
        PP_TRY(check_wrap(c, last, first));
    }
    return PP_OK;
}

/* The edges into the next step are there: for slots that several lanes use, and for parameters. */
static pp_status check_wraps(struct check *c)
{
    const struct pp_plan *plan = c->plan;
    for (int i = 0; i < plan->nwraps; i++) {
        const struct pp_wrap *w = &plan->wraps[i];
        if (w->from < 0 || w->from >= plan->ntasks || w->to < 0 || w->to >= plan->ntasks)
            return pp_fail(PP_INPUT, "the plan is wrong: wrap edge %d is out of range", i);
    }
    PP_TRY(PP_NEW(&c->wraps, plan->nwraps));
    if (plan->nwraps) memcpy(c->wraps, plan->wraps, (size_t)plan->nwraps * sizeof *c->wraps);
    qsort(c->wraps, (size_t)plan->nwraps, sizeof *c->wraps, by_ends);
    for (int32_t s = 0; s < plan->nslots; s++)
        if (c->slots[s].first >= 0 && c->slots[s].first_lane != c->slots[s].user_lane)
            PP_TRY(check_wrap(c, c->slots[s].user, c->slots[s].first));
    return check_gather_wraps(c);
}

/* Prefetches what check_slots() will need of a later task: in a large plan it is far away in memory. */
static void foresee(const struct check *c, int32_t id)
{
    const int32_t act = id < c->plan->ntasks ? c->plan->tasks[id].act : -1;
    if (act >= 0 && act < c->plan->nacts) __builtin_prefetch(&c->slots[c->plan->acts[act][PP_ACT_LAYERS]], 1);
}

static pp_status run_checks(struct check *c)
{
    const struct pp_plan *plan = c->plan;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        pp_progress_tasks("checking the plan", id, plan->ntasks);
        foresee(c, id + 16);
        PP_TRY(check_part(c, id));
        PP_TRY(check_work(c, id));
        PP_TRY(check_first(c, id));
        PP_TRY(check_place(c, id));
        PP_TRY(check_rounding(c, id));
        PP_TRY(check_parameters(c, id));
        PP_TRY(check_input(c, id));
        PP_TRY(check_slots(c, id));
        if (plan->tasks[id].kind >= PP_NORM) PP_TRY(pp_norm_check_task(&c->norm, plan, id));
        pp_issue_check_task(&c->issue, id);
    }
    pp_progress_tasks("", plan->ntasks, plan->ntasks);
    PP_TRY(check_complete(c));
    PP_TRY(check_wraps(c));
    if (plan->shards || plan->shard_params) PP_TRY(pp_shards_check(plan));
    if (pp_plan_holds_again(plan) && !plan->shards) PP_TRY(pp_sums_check(plan));
    if (plan->tied) PP_TRY(pp_tied_check(plan));
    PP_TRY(check_classes(plan));
    return pp_issue_check_end(&c->issue);
}

pp_status pp_plan_check(const struct pp_plan *plan)
{
    struct check c = {.plan = plan, .norm = {-1, -1, -1}};
    int64_t entries;
    pp_status status;
    PP_TRY(pp_ranks_check(plan));
    PP_TRY(pp_pools_check(plan));
    PP_TRY(pp_acts_check(plan));
    PP_TRY(pp_tasks_check(plan, &entries));
    PP_TRY_DONE(PP_NEW(&c.slots, plan->nslots));
    PP_TRY_DONE(PP_NEW(&c.seen, row_of(plan, plan->stages)));
    PP_TRY_DONE(PP_NEW(&c.begun, plan->stages));
    PP_TRY_DONE(PP_NEW(&c.open, plan->ranks));
    PP_TRY_DONE(PP_NEW(&c.passed, plan->stages));
    memset(c.passed, 0xff, (size_t)plan->stages * sizeof *c.passed);
    memset(c.open, 0xff, (size_t)plan->ranks * sizeof *c.open);
    PP_TRY_DONE(pp_issue_check_begin(&c.issue, plan, entries));
    memset(c.slots, 0xff, (size_t)plan->nslots * sizeof *c.slots);
    status = run_checks(&c);
done:
    free(c.slots);
    free(c.seen);
    free(c.begun);
    free(c.open);
    free(c.passed);
    free(c.wraps);
    pp_issue_check_release(&c.issue);
    return status;
}
