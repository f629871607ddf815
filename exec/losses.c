/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/losses.h"

#include <stdlib.h>

/* The worker whose loss worker 0 receives for a part of the batch; 0 = its own. */
static int source(const struct pp_losses *l, int part)
{
    return pp_token_part_worker(l->plan, part, pp_loss_rank(l->plan));
}

static bool sends(const struct pp_losses *l)
{
    return l->me != 0 && l->me == source(l, pp_worker_token_part(l->plan, l->me));
}

pp_status pp_losses_open(struct pp_losses *l, struct pp_world *world, int me, const struct pp_plan *plan,
                         struct pp_journal *journal)
{
    *l = (struct pp_losses){.world = world, .me = me, .plan = plan, .journal = journal};
    PP_TRY(PP_NEW(&l->received, pp_plan_token_parts(plan)));
    return PP_NEW(&l->receives, pp_plan_token_parts(plan));
}

void pp_losses_close(struct pp_losses *l)
{
    free(l->received);
    free(l->receives);
}

static pp_status send_loss(struct pp_losses *l, double sum)
{
    int64_t place = l->count % PP_LOSSES_OPEN;
    if (l->count >= PP_LOSSES_OPEN) PP_TRY(pp_finish(l->world, l->me, &l->requests[place]));
    l->sent[place] = sum;
    l->count++;
    return pp_send(l->world, l->me, 0, PP_MESSAGE_LOSS, &l->sent[place], sizeof sum, &l->requests[place]);
}

static pp_status post_receives(struct pp_losses *l)
{
    for (int r = 0; r < pp_plan_token_parts(l->plan); r++) {
        l->receives[r].done = true;
        if (source(l, r) == 0) continue;
        PP_TRY(
            pp_recv(l->world, source(l, r), 0, PP_MESSAGE_LOSS, &l->received[r], sizeof *l->received, &l->receives[r]));
    }
    l->receiving = true;
    return PP_OK;
}

/* Parts in order, so that the sum has the same bits in every run. */
static void complete(struct pp_losses *l, int64_t index)
{
    struct pp_record *record = &l->journal->records[index];
    double sum = 0;
    for (int r = 0; r < pp_plan_token_parts(l->plan); r++) sum += source(l, r) == 0 ? record->loss : l->received[r];
    record->loss = sum / (double)record->tokens;
    pp_journal_publish(l->journal, index + 1);
}

static pp_status collect(struct pp_losses *l, bool wait)
{
    for (int64_t index = atomic_load(&l->journal->published); index < l->journal->written; index++) {
        if (!l->receiving) PP_TRY(post_receives(l));
        for (int r = 0; r < pp_plan_token_parts(l->plan); r++) {
            PP_TRY(wait ? pp_finish(l->world, l->me, &l->receives[r]) : pp_test(l->world, &l->receives[r]));
            if (!l->receives[r].done) return PP_OK;
        }
        l->receiving = false;
        complete(l, index);
    }
    return PP_OK;
}

pp_status pp_losses_add(struct pp_losses *l, double sum)
{
    if (sends(l)) PP_TRY(send_loss(l, sum));
    return l->journal ? collect(l, false) : PP_OK;
}

pp_status pp_losses_settle(struct pp_losses *l)
{
    for (int64_t i = l->count > PP_LOSSES_OPEN ? l->count - PP_LOSSES_OPEN : 0; i < l->count; i++)
        PP_TRY(pp_finish(l->world, l->me, &l->requests[i % PP_LOSSES_OPEN]));
    return l->journal ? collect(l, true) : PP_OK;
}
