/* SPDX-License-Identifier: Apache-2.0
 *
 * A step's batch has parts (of replicas, and of tokens), and the loss of each part is known to the workers that have
 * the last stage for it. The first of these workers sends it to worker 0 without waiting. Worker 0 learns of it some
 * time later, and no step waits for it.
 */
#ifndef PP_EXEC_LOSSES_H
#define PP_EXEC_LOSSES_H

#include "core/plan/workers.h"
#include "exec/journal.h"
#include "exec/transport.h"

/* Losses that a worker may have sent before worker 0 has taken the oldest; a worker that is further ahead waits. */
enum { PP_LOSSES_OPEN = 8 };

struct pp_losses {
    struct pp_world *world;
    int me;
    const struct pp_plan *plan;
    /* at a rank with the last stage */
    double sent[PP_LOSSES_OPEN];
    struct pp_request requests[PP_LOSSES_OPEN];
    int64_t count;
    /* at worker 0 */
    struct pp_journal *journal;
    double *received; /* [parts of the batch] of the oldest step that lacks its loss */
    struct pp_request *receives;
    bool receiving;
};

/* journal: NULL but at worker 0. The plan is borrowed. */
pp_status pp_losses_open(struct pp_losses *losses, struct pp_world *world, int me, const struct pp_plan *plan,
                         struct pp_journal *journal) PP_MUST_CHECK;
void pp_losses_close(struct pp_losses *losses);
/* Called by every worker after each step. sum: the loss of the worker's part of the batch, summed over tokens, where it
 * has the last stage. At worker 0 the newest record of the journal is this step, and its loss is worker 0's own sum. */
pp_status pp_losses_add(struct pp_losses *losses, double sum) PP_MUST_CHECK;
/* Waits until all losses have been sent, and at worker 0 until all have arrived and are published in the journal. */
pp_status pp_losses_settle(struct pp_losses *losses) PP_MUST_CHECK;

#endif
