/* SPDX-License-Identifier: Apache-2.0 */
#include "schedules/orders.h"

#include <stdlib.h>
#include <string.h>

#include "schedules/building.h"

enum { SEEN_F = 1, SEEN_B = 2, SEEN_I = 4, SEEN_W = 8 };

/* For each kind: the bit that it sets for its stage and microbatch, and the bits that must, and that must not, have
 * been set before. */
static const struct rule {
    uint8_t adds, needs, excludes;
    const char *needs_text; /* `needs` in words, for messages */
} rules[PP_KINDS] = {
    [PP_F] = {SEEN_F, 0, SEEN_F | SEEN_B | SEEN_I | SEEN_W, ""},
    [PP_B] = {SEEN_B, SEEN_F, SEEN_B | SEEN_I | SEEN_W, "its F"},
    [PP_I] = {SEEN_I, SEEN_F, SEEN_B | SEEN_I | SEEN_W, "its F"},
    [PP_W] = {SEEN_W, SEEN_F | SEEN_I, SEEN_B | SEEN_W, "its I"},
};

static pp_status check_op(const struct pp_plan *plan, int rank, const struct pp_op *op, uint8_t *seen)
{
    if (op->kind >= PP_KINDS || !rules[op->kind].adds)
        return pp_fail(PP_INPUT, "rank %d: only F, B, I and W stand in an order", rank);
    const char *kind = pp_kinds[op->kind].name;
    if (op->stage < 0 || op->stage >= plan->stages || op->microbatch < 0 || op->microbatch >= plan->microbatches)
        return pp_fail(PP_INPUT, "rank %d: %s of stage %d, microbatch %d is outside %d stage%s x %d microbatch%s", rank,
                       kind, op->stage, op->microbatch, plan->stages, pp_plural(plan->stages), plan->microbatches,
                       pp_plural_es(plan->microbatches));
    if (plan->stage_rank[op->stage] != rank)
        return pp_fail(PP_INPUT, "rank %d: %s of stage %d, microbatch %d, but that stage lives on rank %d", rank, kind,
                       op->stage, op->microbatch, plan->stage_rank[op->stage]);
    const struct rule *rule = &rules[op->kind];
    uint8_t *cell = &seen[pp_cell(plan, op->stage, op->microbatch)];
    if (*cell & rule->excludes)
        return pp_fail(PP_INPUT, "rank %d: %s of stage %d, microbatch %d %s", rank, kind, op->stage, op->microbatch,
                       *cell & rule->adds ? "is done twice" : "comes after another backward: it is one B, or I and W");
    if ((*cell & rule->needs) != rule->needs)
        return pp_fail(PP_INPUT, "rank %d: %s of stage %d, microbatch %d needs %s before it", rank, kind, op->stage,
                       op->microbatch, rule->needs_text);
    *cell |= rule->adds;
    return PP_OK;
}

static pp_status check_complete(const struct pp_plan *plan, const uint8_t *seen)
{
    for (int s = 0; s < plan->stages; s++)
        for (int m = 0; m < plan->microbatches; m++) {
            uint8_t have = seen[pp_cell(plan, s, m)];
            bool all =
                have == (SEEN_F | SEEN_B) || have == (SEEN_F | SEEN_I | SEEN_W) || (!plan->training && have == SEEN_F);
            if (!all)
                return pp_fail(PP_INPUT, "rank %d: stage %d, microbatch %d has no %s", plan->stage_rank[s], s, m,
                               !(have & SEEN_F) ? "F"
                               : have & SEEN_I  ? "W"
                                                : "backward");
        }
    return PP_OK;
}

struct reading {
    const struct pp_plan *plan;
    uint8_t *seen; /* [pp_cells()] bits SEEN_... */
    struct pp_op *ops;
    int64_t n, room;
    uint8_t *split;   /* [stages] all backwards of the stage are split into I and W */
    int32_t *waiting; /* [stages][slots of a stage] batched W: Ws of the slot that came so far */
};

static bool batched(const struct pp_plan *plan) { return plan->slot_microbatches > 1; }

/* Does the microbatch have R tasks? (With PP_CHECKPOINT_LAYERS it has none: B runs the layers again.) */
static bool recomputes(const struct pp_plan *plan, int microbatch)
{
    return plan->checkpoint != PP_CHECKPOINT_LAYERS && pp_recomputed(plan, microbatch);
}

static void append(struct reading *e, int kind, const struct pp_op *op)
{
    e->ops[e->n++] = (struct pp_op){op->stage, op->microbatch, (uint8_t)kind, 1};
}

/* Appends a W. With batched W: one W for the whole slot, when the last W of its microbatches comes. */
static void weight_gradient(struct reading *e, const struct pp_op *op)
{
    const int k = e->plan->slot_microbatches, microbatches = e->plan->microbatches;
    const int slot = op->microbatch / k, first = slot * k, count = first + k <= microbatches ? k : microbatches - first;
    if (!batched(e->plan)) return append(e, PP_W, op);
    if (++e->waiting[(int64_t)op->stage * ((microbatches + k - 1) / k) + slot] < count) return;
    e->ops[e->n++] = (struct pp_op){op->stage, first, PP_W, (uint16_t)count};
}

static void expand(struct reading *e, const struct pp_op *op)
{
    if (pp_is_backward(op->kind) && recomputes(e->plan, op->microbatch)) append(e, PP_R, op);
    if (op->kind == PP_W) {
        weight_gradient(e, op);
    } else if (op->kind == PP_B && e->split[op->stage]) {
        append(e, PP_I, op);
        weight_gradient(e, op);
    } else {
        append(e, op->kind, op);
    }
}

/* Finds the stages that have I and W, and returns how many of their Bs must be split, too.
 *
 * Why a stage cannot have both: its first contribution to a gradient overwrites it (PP_TASK_FIRST). I makes the
 * gradients of norms, W those of matrices, and B both. If a stage had a B beside I and W, the first contribution to its
 * norms and the first one to its matrices could be different tasks. */
static int64_t find_split(struct reading *e, const struct pp_order *order)
{
    const int stages = e->plan->stages; /* check_op() refuses stages out of range later */
    int64_t more = 0;
    for (int64_t i = 0; i < order->n; i++) {
        const struct pp_op *op = &order->ops[i];
        if ((op->kind == PP_I || op->kind == PP_W) && op->stage >= 0 && op->stage < stages) e->split[op->stage] = 1;
    }
    for (int64_t i = 0; i < order->n; i++) {
        const struct pp_op *op = &order->ops[i];
        if (op->kind == PP_B && op->stage >= 0 && op->stage < stages) more += e->split[op->stage];
    }
    return more;
}

/* Modes that run one layer again at a time are impossible with W: the layer's activations would be overwritten by those
 * of the next layer. */
static pp_status check_checkpoint(const struct reading *e)
{
    const struct pp_plan *plan = e->plan;
    char mode[PP_CHECKPOINT_TEXT];
    if (plan->checkpoint < PP_CHECKPOINT_LAYERS || plan->checkpoint == PP_CHECKPOINT_ACTIVATION || !plan->training)
        return PP_OK;
    for (int s = 0; s < plan->stages; s++)
        if (e->split[s])
            return pp_fail(PP_USAGE,
                           "--checkpoint %s: %s cuts backwards into I and W, which needs all layers' activations "
                           "at once; use --checkpoint always, or %s",
                           pp_checkpoint_text(plan->checkpoint, mode), batched(plan) ? "--batch-w" : plan->schedule,
                           batched(plan) ? "leave --batch-w out" : "a schedule that does not, such as 1f1b");
    return PP_OK;
}

static pp_status read_order(struct reading *e, int rank, const struct pp_order *order)
{
    const int64_t more = find_split(e, order);
    PP_TRY(check_checkpoint(e));
    PP_TRY(PP_GROW(&e->ops, e->n + order->n * (1 + recomputes(e->plan, 0)) + more, &e->room));
    for (int64_t i = 0; i < order->n; i++) {
        PP_TRY(check_op(e->plan, rank, &order->ops[i], e->seen));
        if (order->ops[i].kind == PP_F || e->plan->training) expand(e, &order->ops[i]);
    }
    return PP_OK;
}

static void free_orders(struct pp_order *orders, int n)
{
    for (int r = 0; orders && r < n; r++) free(orders[r].ops);
    free(orders);
}

static pp_status read_orders(struct reading *e, const struct pp_order_source *source, int64_t *first)
{
    const struct pp_schedule *schedule = source->given ? NULL : source->schedule;
    const bool together = schedule && schedule->orders;
    const int n = together ? e->plan->ranks : 1;
    struct pp_order *made = NULL;
    pp_status status;
    PP_TRY_DONE(PP_NEW(&made, n));
    if (together) PP_TRY_DONE(schedule->orders(&source->shape, made));
    for (int r = 0; r < e->plan->ranks; r++) {
        const struct pp_order *order = source->given ? &source->given[r] : &made[together ? r : 0];
        first[r] = e->n;
        if (schedule && !together) {
            made->n = 0;
            PP_TRY_DONE(schedule->order(&source->shape, r, made));
        }
        PP_TRY_DONE(read_order(e, r, order));
    }
    first[e->plan->ranks] = e->n;
    status = check_complete(e->plan, e->seen);
done:
    free_orders(made, n);
    return status;
}

pp_status pp_orders_read(const struct pp_plan *plan, const struct pp_order_source *source, struct pp_op **ops,
                         int64_t *first)
{
    struct reading e = {.plan = plan};
    const int64_t cells = pp_cells(plan);
    pp_status status;
    PP_TRY_DONE(PP_NEW(&e.seen, cells));
    PP_TRY_DONE(PP_NEW(&e.split, plan->stages));
    memset(e.split, batched(plan), (size_t)plan->stages);
    if (batched(plan)) PP_TRY_DONE(PP_NEW(&e.waiting, cells));
    PP_TRY_DONE(PP_GROW(&e.ops, cells * (1 + plan->training + recomputes(plan, 0)), &e.room));
    status = read_orders(&e, source, first);
done:
    free(e.seen);
    free(e.split);
    free(e.waiting);
    *ops = e.ops;
    return status;
}
