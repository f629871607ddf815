/* SPDX-License-Identifier: Apache-2.0 */
#include "core/plan/plan_checking.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 64 };

static pp_status bad_on(const struct pp_plan *plan, int rank, int32_t task, const char *what)
{
    char text[TEXT], where[24] = "all ranks";
    if (rank >= 0) snprintf(where, sizeof where, "rank %d", rank);
    return pp_fail(PP_INPUT, "the plan is wrong: %s, task %d (%s): %s", where, task,
                   pp_task_text(&plan->tasks[task], text, sizeof text), what);
}

pp_status pp_plan_bad(const struct pp_plan *plan, int32_t task, const char *what)
{
    return bad_on(plan, plan->lanes[plan->tasks[task].lane].src, task, what);
}

/* The walk over issue lists that are not in ascending order of ids. */
struct walk {
    const struct pp_plan *plan;
    uint8_t *ends;      /* [ntasks] entries so far: bit 0: run, send or collective; bit 1: receive */
    int64_t *at;        /* [ranks] position in the issue list */
    bool *waiting;      /* [ranks] on the stack of ranks to look at */
    int32_t *lane_last; /* [nlanes] last task of the lane in the list of a rank */
};

/* Fails if a rank has not come to the end of its list. */
static pp_status blocked(const struct walk *c)
{
    const struct pp_plan *plan = c->plan;
    for (int r = 0; r < plan->ranks; r++)
        if (c->at[r] < plan->issue_start[r + 1])
            return bad_on(plan, r, pp_issue_task(plan->issue[c->at[r]]),
                          "it would wait for ever if nothing were buffered (deadlock)");
    return PP_OK;
}

/* The entry at the head of a rank's list; -1 at the end. */
static int32_t head(const struct walk *c, int rank)
{
    return c->at[rank] < c->plan->issue_start[rank + 1] ? c->plan->issue[c->at[rank]] : -1;
}

/* Moves `rank` on over the entries that can run: computations and collectives of one rank at once; a task of two ranks
 * if it is at the head of the other rank's list, too. Stops after a task of two ranks; *other: the other rank, or -1.
 */
static pp_status advance(struct walk *c, int rank, int *other)
{
    const struct pp_plan *plan = c->plan;
    *other = -1;
    for (int32_t entry; (entry = head(c, rank)) >= 0; c->at[rank]++) {
        int32_t id = pp_issue_task(entry);
        const struct pp_lane *lane = &plan->lanes[plan->tasks[id].lane];
        if (lane->kind == PP_LANE_NORM) return PP_OK;
        if (lane->kind != PP_LANE_CHANNEL && lane->src == lane->dst) {
            if (lane->src != rank) return pp_plan_bad(plan, id, "it stands in the list of another rank");
            c->ends[id] |= 1;
            continue;
        }
        const int place = lane->kind == PP_LANE_TIED ? rank == lane->dst : pp_issue_is_recv(entry);
        const int peer = pp_lane_rank(lane, !place);
        if (rank != pp_lane_rank(lane, place) || entry != pp_issue_entry(lane, id, place))
            return pp_plan_bad(plan, id, "it stands in the list of another rank");
        if (head(c, peer) != pp_issue_entry(lane, id, !place)) return PP_OK;
        c->ends[id] |= lane->kind == PP_LANE_TIED ? 1 : 3;
        c->at[peer]++;
        *other = peer;
        c->at[rank]++;
        return PP_OK;
    }
    return PP_OK;
}

/* If all ranks have come to NORM_ALL, moves them over it. */
static bool pass_collective(struct walk *c)
{
    int32_t first = head(c, 0);
    if (first < 0 || c->plan->lanes[c->plan->tasks[pp_issue_task(first)].lane].kind != PP_LANE_NORM) return false;
    for (int r = 1; r < c->plan->ranks; r++)
        if (head(c, r) != first) return false;
    c->ends[pp_issue_task(first)] |= 1;
    for (int r = 0; r < c->plan->ranks; r++) c->at[r]++;
    return true;
}

/* Moves `rank` on as far as possible; puts other ranks that moved, too, on the stack of ranks to look at. */
static pp_status run_rank(struct walk *c, int rank, int *stack, int *depth)
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
static pp_status check_rendezvous(struct walk *c)
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

/* Every task is in the lists of all its ranks, and on each lane in the order of ids, so that a channel sends and
 * receives in the same order. */
static pp_status check_issue(const struct walk *c)
{
    const struct pp_plan *plan = c->plan;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        bool channel = plan->lanes[plan->tasks[id].lane].kind == PP_LANE_CHANNEL;
        if (c->ends[id] != (channel ? 3 : 1)) return pp_plan_bad(plan, id, "it is missing in an issue list");
    }
    for (int r = 0; r < plan->ranks; r++) {
        for (int i = 0; i < plan->nlanes; i++) c->lane_last[i] = -1;
        for (int64_t i = plan->issue_start[r]; i < plan->issue_start[r + 1]; i++) {
            int32_t id = pp_issue_task(plan->issue[i]), *last = &c->lane_last[plan->tasks[id].lane];
            if (id <= *last) return pp_plan_bad(plan, id, "send order and receive order of its lane differ");
            *last = id;
        }
    }
    return PP_OK;
}

static pp_status check_entries(const struct pp_plan *plan)
{
    for (int64_t i = plan->issue_start[0]; i < plan->issue_start[plan->ranks]; i++) {
        const int32_t id = pp_issue_task(plan->issue[i]);
        if (id < 0 || id >= plan->ntasks)
            return pp_fail(PP_INPUT, "the plan is wrong: an issue list has task %d, and there are %lld", id,
                           (long long)plan->ntasks);
    }
    return PP_OK;
}

static pp_status walk(const struct pp_plan *plan)
{
    struct walk w = {.plan = plan};
    pp_status status;
    PP_TRY(check_entries(plan));
    PP_TRY_DONE(PP_NEW(&w.ends, plan->ntasks));
    PP_TRY_DONE(PP_NEW(&w.at, plan->ranks));
    PP_TRY_DONE(PP_NEW(&w.waiting, plan->ranks));
    PP_TRY_DONE(PP_NEW(&w.lane_last, plan->nlanes));
    memcpy(w.at, plan->issue_start, (size_t)plan->ranks * sizeof *w.at);
    PP_TRY_DONE(check_rendezvous(&w));
    status = check_issue(&w);
done:
    free(w.ends);
    free(w.at);
    free(w.waiting);
    free(w.lane_last);
    return status;
}

pp_status pp_issue_check_begin(struct pp_issue_check *c, const struct pp_plan *plan, int64_t entries)
{
    *c = (struct pp_issue_check){.plan = plan, .entries = entries, .ascending = true};
    PP_TRY(PP_NEW(&c->heads, plan->ranks));
    for (int r = 0; r < plan->ranks; r++) c->heads[r].next = plan->issue_start[r];
    return PP_OK;
}

void pp_issue_check_release(struct pp_issue_check *c) { free(c->heads); }

bool pp_issue_read(struct pp_issue_check *c, int rank)
{
    const struct pp_plan *plan = c->plan;
    struct pp_issue_head *head = &c->heads[rank];
    const int most = sizeof head->entries / sizeof *head->entries;
    const int64_t end = plan->issue_start[rank + 1], left = (end < c->entries ? end : c->entries) - head->next;
    if (left <= 0) return false;
    head->n = left < most ? (int32_t)left : most;
    head->at = 0;
    memcpy(head->entries, plan->issue + head->next, (size_t)head->n * sizeof *head->entries);
    head->next += head->n;
    return true;
}

pp_status pp_issue_check_end(const struct pp_issue_check *c)
{
    const int64_t have = c->plan->issue_start[c->plan->ranks];
    bool complete = c->ascending;
    if (have > c->entries)
        return pp_fail(PP_INPUT, "the plan is wrong: its issue lists have %lld entries, and its tasks need %lld",
                       (long long)have, (long long)c->entries);
    for (int r = 0; r < c->plan->ranks && complete; r++) {
        const struct pp_issue_head *head = &c->heads[r];
        complete = head->at == head->n && head->next == c->plan->issue_start[r + 1];
    }
    return complete ? PP_OK : walk(c->plan);
}
