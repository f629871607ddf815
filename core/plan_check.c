/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a plan from its arrays alone, whoever made it: the builder, a file, or a test that broke it on purpose.
 */
#include <stdlib.h>
#include <string.h>

#include "core/plan.h"

enum { TEXT = 64 };

struct check {
    const struct pp_plan *plan;
    int32_t *slot_user;  /* [nslots] the task that last used the slot */
    int32_t *slot_first; /* [nslots] the first one that wrote it */
    int32_t *lane_last;  /* [nlanes] */
    uint8_t *seen;       /* [stages * microbatches] */
    uint8_t *begun;      /* [stages] bit 0: a B or I was seen, bit 1: a W */
    uint8_t *ends; /* [ntasks] issue entries found: bit 0 run or send, bit 1 receive; NORM_ALL counts ranks elsewhere */
    int64_t *at;   /* [ranks] position in the issue list */
    bool *waiting; /* [ranks] on the stack of ranks to look at */
};

static pp_status bad(const struct pp_plan *plan, int32_t task, const char *what)
{
    char text[TEXT];
    const struct pp_task *t = &plan->tasks[task];
    const struct pp_lane *lane = &plan->lanes[t->lane];
    return pp_fail(PP_INPUT, "the plan is wrong: rank %d, task %d (%s): %s", lane->src, task,
                   pp_task_text(t, text, sizeof text), what);
}

/* Ranges of all indices, and dependencies on earlier tasks only. */
static pp_status check_fields(const struct pp_plan *plan, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    if (t->lane < 0 || t->lane >= plan->nlanes) return pp_fail(PP_INPUT, "the plan is wrong: task %d has no lane", id);
    if (t->kind >= PP_KINDS) return bad(plan, id, "unknown kind");
    if (t->cls < 0 || t->cls >= plan->nclasses) return bad(plan, id, "no cost class");
    if (t->stage < -1 || t->stage >= plan->stages || t->microbatch < -1 || t->microbatch >= plan->microbatches)
        return bad(plan, id, "stage or microbatch out of range");
    for (int i = 0; i < 3; i++)
        if (t->dep[i] >= id) return bad(plan, id, "it waits for a task that comes later (a cycle)");
    const int32_t slots[] = {t->act, t->ckpt, t->in, t->out};
    for (int i = 0; i < 4; i++)
        if (slots[i] < -1 || slots[i] >= plan->nslots) return bad(plan, id, "slot out of range");
    return PP_OK;
}

static bool computes(const struct pp_task *t) { return pp_kinds[t->kind].computes; }

static pp_status check_lane(const struct pp_plan *plan, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    const struct pp_lane *lane = &plan->lanes[t->lane];
    bool transfer = t->kind == PP_XFER_F || t->kind == PP_XFER_B;
    if (computes(t) != (lane->kind == PP_LANE_COMPUTE) || transfer != (lane->kind == PP_LANE_CHANNEL))
        return bad(plan, id, "it runs on a lane of another kind");
    if (computes(t) && plan->stage_rank[t->stage] != t->lane) return bad(plan, id, "its stage lives on another rank");
    if (!transfer) return PP_OK;
    int next = t->stage + (t->kind == PP_XFER_F ? 1 : -1);
    if (next < 0 || next >= plan->stages || lane->src != plan->stage_rank[t->stage] ||
        lane->dst != plan->stage_rank[next])
        return bad(plan, id, "it is a transfer without a partner: its channel does not join the two stages");
    return PP_OK;
}

/* Each (stage, microbatch) one F, then one B or one I and one W. Bits as in the order of enum pp_kind. */
static pp_status check_work(struct check *c, int32_t id)
{
    const struct pp_plan *plan = c->plan;
    const struct pp_task *t = &plan->tasks[id];
    if (t->kind > PP_W) return PP_OK;
    uint8_t *cell = &c->seen[(int64_t)t->stage * plan->microbatches + t->microbatch], bit = (uint8_t)(1 << t->kind);
    uint8_t backward = 1 << PP_B | 1 << PP_I;
    if (t->count < 1 || t->microbatch + t->count > plan->microbatches || (t->count > 1 && t->kind != PP_W))
        return bad(plan, id, "it has a wrong number of microbatches");
    for (const uint8_t *end = cell + t->count; cell < end; cell++) {
        if (*cell & bit) return bad(plan, id, "done twice");
        if (t->kind != PP_F && !(*cell & 1 << PP_F)) return bad(plan, id, "before its F");
        if (t->kind == PP_W && !(*cell & 1 << PP_I)) return bad(plan, id, "before its I");
        if ((bit & backward) && (*cell & backward)) return bad(plan, id, "done twice");
        *cell |= bit;
    }
    return PP_OK;
}

/* The first contribution to a stage's gradients, and it alone, is marked so: it overwrites what is there. */
static pp_status check_first(struct check *c, int32_t id)
{
    const struct pp_task *t = &c->plan->tasks[id];
    bool marked = t->flags & PP_TASK_FIRST;
    if (t->kind != PP_B && t->kind != PP_I && t->kind != PP_W)
        return marked ? bad(c->plan, id, "it is marked as a first gradient, which it does not make") : PP_OK;
    uint8_t bit = t->kind == PP_W ? 2 : 1;
    bool first = !(c->begun[t->stage] & bit);
    c->begun[t->stage] |= bit;
    if (marked == first) return PP_OK;
    return bad(c->plan, id,
               first ? "it adds to gradients that nothing has written" : "it overwrites earlier gradients");
}

static pp_status check_complete(const struct check *c)
{
    const struct pp_plan *plan = c->plan;
    uint8_t fused = 1 << PP_F | 1 << PP_B, split = 1 << PP_F | 1 << PP_I | 1 << PP_W;
    for (int s = 0; s < plan->stages; s++)
        for (int m = 0; m < plan->microbatches; m++) {
            uint8_t have = c->seen[(int64_t)s * plan->microbatches + m];
            if (plan->training ? have != fused && have != split : have != 1 << PP_F)
                return pp_fail(PP_INPUT, "the plan is wrong: rank %d: work of stage %d, microbatch %d is missing",
                               plan->stage_rank[s], s, m);
        }
    return PP_OK;
}

/* Which way a kind's data flows: +1 to the next stage, -1 to the one before, 0 neither. */
static const int flow[PP_KINDS] = {[PP_F] = 1, [PP_XFER_F] = 1, [PP_B] = -1, [PP_I] = -1, [PP_XFER_B] = -1};

/* The stage whose result a task needs: a transfer's own, else the neighbour's. -1 = none. */
static int source_stage(const struct pp_plan *plan, const struct pp_task *t)
{
    int stage = computes(t) ? t->stage - flow[t->kind] : t->stage;
    return flow[t->kind] != 0 && stage >= 0 && stage < plan->stages ? stage : -1;
}

/* The input comes from a task of the same microbatch that flows the same way. */
static pp_status check_input(const struct pp_plan *plan, int32_t id)
{
    const struct pp_task *t = &plan->tasks[id];
    int stage = source_stage(plan, t);
    if (stage < 0) return PP_OK;
    if (t->dep[0] < 0) return bad(plan, id, "nothing delivers its input");
    const struct pp_task *from = &plan->tasks[t->dep[0]];
    if (from->stage != stage || from->microbatch != t->microbatch || flow[from->kind] != flow[t->kind])
        return bad(plan, id, "its input comes from another stage or microbatch");
    return PP_OK;
}

/* A slot is written again only by a task that waits for its last user: by an edge, or on the same lane. */
static pp_status check_slot(struct check *c, int32_t id, int32_t slot, int32_t awaited)
{
    const struct pp_plan *plan = c->plan;
    if (slot < 0) return PP_OK;
    int32_t user = c->slot_user[slot];
    if (c->slot_first[slot] < 0) c->slot_first[slot] = id;
    bool safe = user < 0 || user == awaited || plan->tasks[user].lane == plan->tasks[id].lane;
    if (!safe) return bad(plan, id, "it writes a slot that may still be in use");
    c->slot_user[slot] = id;
    return PP_OK;
}

static pp_status check_slots(struct check *c, int32_t id)
{
    const struct pp_task *t = &c->plan->tasks[id];
    PP_TRY(check_slot(c, id, t->out, t->dep[1]));
    PP_TRY(check_slot(c, id, t->act, -1));
    PP_TRY(check_slot(c, id, t->ckpt, -1));
    if (t->in >= 0) c->slot_user[t->in] = id;
    return PP_OK;
}

/* Slots that cross lanes carry an edge into the next step. */
static pp_status check_wraps(struct check *c)
{
    const struct pp_plan *plan = c->plan;
    int64_t needed = 0;
    for (int32_t s = 0; s < plan->nslots; s++)
        needed += c->slot_first[s] >= 0 && plan->tasks[c->slot_first[s]].lane != plan->tasks[c->slot_user[s]].lane;
    for (int i = 0; i < plan->nwraps; i++) {
        const struct pp_wrap *w = &plan->wraps[i];
        if (w->from < 0 || w->from >= plan->ntasks || w->to < 0 || w->to >= plan->ntasks)
            return pp_fail(PP_INPUT, "the plan is wrong: wrap edge %d is out of range", i);
    }
    if (plan->nwraps < needed) return pp_fail(PP_INPUT, "the plan is wrong: edges into the next step are missing");
    return PP_OK;
}

static pp_status blocked(const struct check *c)
{
    const struct pp_plan *plan = c->plan;
    for (int r = 0; r < plan->ranks; r++)
        if (c->at[r] < plan->issue_start[r + 1])
            return bad(plan, pp_issue_task(plan->issue[c->at[r]]),
                       "it would wait for ever if nothing were buffered (deadlock)");
    return PP_OK;
}

/* The entry at the head of a rank's list; -1 at the end. */
static int32_t head(const struct check *c, int rank)
{
    return c->at[rank] < c->plan->issue_start[rank + 1] ? c->plan->issue[c->at[rank]] : -1;
}

/* Steps over entries of `rank` while they can go: compute alone, a transfer when its other end is at the head too.
 * *other: the rank that moved along, or -1. */
static pp_status advance(struct check *c, int rank, int *other)
{
    const struct pp_plan *plan = c->plan;
    *other = -1;
    for (int32_t entry; (entry = head(c, rank)) >= 0; c->at[rank]++) {
        int32_t id = pp_issue_task(entry);
        const struct pp_lane *lane = &plan->lanes[plan->tasks[id].lane];
        if (lane->kind == PP_LANE_NORM) return PP_OK;
        if (lane->kind != PP_LANE_CHANNEL) {
            if (lane->src != rank) return bad(plan, id, "it stands in the list of another rank");
            c->ends[id] |= 1;
            continue;
        }
        int peer = pp_issue_is_recv(entry) ? lane->src : lane->dst;
        if (rank != (pp_issue_is_recv(entry) ? lane->dst : lane->src))
            return bad(plan, id, "it stands in the list of another rank");
        if (head(c, peer) != (entry ^ 1)) return PP_OK;
        c->ends[id] |= 3;
        c->at[peer]++;
        *other = peer;
        c->at[rank]++;
        return PP_OK;
    }
    return PP_OK;
}

/* All ranks stand before the same collective: step over it. */
static bool pass_collective(struct check *c)
{
    int32_t first = head(c, 0);
    if (first < 0 || c->plan->lanes[c->plan->tasks[pp_issue_task(first)].lane].kind != PP_LANE_NORM) return false;
    for (int r = 1; r < c->plan->ranks; r++)
        if (head(c, r) != first) return false;
    c->ends[pp_issue_task(first)] |= 1;
    for (int r = 0; r < c->plan->ranks; r++) c->at[r]++;
    return true;
}

/* Lets `rank` go as far as it can; partners that moved along are put on the stack to be looked at. */
static pp_status run_rank(struct check *c, int rank, int *stack, int *depth)
{
    int other;
    do {
        PP_TRY(advance(c, rank, &other));
        if (other < 0 || c->waiting[other]) continue;
        c->waiting[other] = true;
        stack[(*depth)++] = other;
    } while (other >= 0);
    return PP_OK;
}

/* Runs the issue lists as one in-order queue per rank with unbuffered rendezvous. */
static pp_status check_rendezvous(struct check *c)
{
    const struct pp_plan *plan = c->plan;
    int *stack, depth = 0;
    pp_status status = PP_OK;
    PP_TRY(PP_NEW(&stack, plan->ranks));
    do {
        for (int r = plan->ranks - 1; r >= 0; r--) stack[depth++] = r, c->waiting[r] = true;
        while (depth > 0) {
            int rank = stack[--depth];
            c->waiting[rank] = false;
            PP_TRY_DONE(run_rank(c, rank, stack, &depth));
        }
    } while (pass_collective(c));
    status = blocked(c);
done:
    free(stack);
    return status;
}

/* Every task was issued at all its ends, and on each lane in the order of ids: a channel sends and receives in one
 * order. */
static pp_status check_issue(const struct check *c)
{
    const struct pp_plan *plan = c->plan;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        bool channel = plan->lanes[plan->tasks[id].lane].kind == PP_LANE_CHANNEL;
        if (c->ends[id] != (channel ? 3 : 1)) return bad(plan, id, "it is missing in an issue list");
    }
    for (int r = 0; r < plan->ranks; r++) {
        for (int i = 0; i < plan->nlanes; i++) c->lane_last[i] = -1;
        for (int64_t i = plan->issue_start[r]; i < plan->issue_start[r + 1]; i++) {
            int32_t id = pp_issue_task(plan->issue[i]), *last = &c->lane_last[plan->tasks[id].lane];
            if (id <= *last) return bad(plan, id, "send order and receive order of its lane differ");
            *last = id;
        }
    }
    return PP_OK;
}

static pp_status run_checks(struct check *c)
{
    const struct pp_plan *plan = c->plan;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        PP_TRY(check_fields(plan, id));
        PP_TRY(check_lane(plan, id));
        PP_TRY(check_work(c, id));
        PP_TRY(check_first(c, id));
        PP_TRY(check_input(plan, id));
        PP_TRY(check_slots(c, id));
    }
    PP_TRY(check_complete(c));
    PP_TRY(check_wraps(c));
    PP_TRY(check_rendezvous(c));
    return check_issue(c);
}

pp_status pp_plan_check(const struct pp_plan *plan)
{
    struct check c = {.plan = plan};
    pp_status status;
    PP_TRY_DONE(PP_NEW(&c.slot_user, plan->nslots));
    PP_TRY_DONE(PP_NEW(&c.slot_first, plan->nslots));
    PP_TRY_DONE(PP_NEW(&c.lane_last, plan->nlanes));
    PP_TRY_DONE(PP_NEW(&c.seen, (int64_t)plan->stages * plan->microbatches));
    PP_TRY_DONE(PP_NEW(&c.begun, plan->stages));
    PP_TRY_DONE(PP_NEW(&c.ends, plan->ntasks));
    PP_TRY_DONE(PP_NEW(&c.at, plan->ranks));
    PP_TRY_DONE(PP_NEW(&c.waiting, plan->ranks));
    memset(c.slot_user, 0xff, (size_t)plan->nslots * sizeof *c.slot_user);
    memset(c.slot_first, 0xff, (size_t)plan->nslots * sizeof *c.slot_first);
    memcpy(c.at, plan->issue_start, (size_t)plan->ranks * sizeof *c.at);
    status = run_checks(&c);
done:
    free(c.slot_user);
    free(c.slot_first);
    free(c.lane_last);
    free(c.seen);
    free(c.begun);
    free(c.ends);
    free(c.at);
    free(c.waiting);
    return status;
}
