/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of each part of a step's batch is known to the workers that had the last stage of it, and wanted by worker
 * 0. The first of them sends it without waiting: worker 0 learns of it some time later, and no step waits for it.
 */
#ifndef PP_EXEC_LOSSES_H
#define PP_EXEC_LOSSES_H

#include "core/workers.h"
#include "exec/journal.h"
#include "exec/transport.h"

enum { PP_LOSSES_OPEN = 8 }; /* sent and not yet taken; a worker that is further ahead waits */

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
/* After each step, by every worker. sum: of its part of the batch, where it had the last stage. At worker 0 the
 * journal's newest record is this step, its loss holding what this worker knows of the sum. */
pp_status pp_losses_add(struct pp_losses *losses, double sum) PP_MUST_CHECK;
/* Waits until all losses are where they belong. */
pp_status pp_losses_settle(struct pp_losses *losses) PP_MUST_CHECK;

#endif
