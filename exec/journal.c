/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/journal.h"

#include <stdlib.h>

pp_status pp_journal_open(struct pp_journal *journal, int64_t capacity)
{
    PP_TRY(PP_NEW(&journal->records, capacity));
    journal->written = 0;
    atomic_store(&journal->published, 0);
    pp_journal_evaluates(journal, 0, 0);
    return PP_OK;
}

void pp_journal_close(struct pp_journal *journal)
{
    free(journal->records);
    journal->records = NULL;
}

struct pp_record *pp_journal_begin(struct pp_journal *journal) { return &journal->records[journal->written++]; }

void pp_journal_publish(struct pp_journal *journal, int64_t count)
{
    atomic_store_explicit(&journal->published, count, memory_order_release);
}

void pp_journal_evaluates(struct pp_journal *journal, int begun, int batches)
{
    atomic_store_explicit(&journal->evaluation, (int64_t)begun << 32 | batches, memory_order_relaxed);
}

void pp_totals_add(struct pp_totals *totals, const struct pp_record *record, int interval)
{
    if (record->kind != PP_RECORD_STEP) return;
    if (record->batch == 0) totals->epoch_loss = 0;
    if (record->batch % interval == 0) {
        totals->interval_loss = 0;
        totals->interval_steps = 0;
    }
    totals->epoch_loss += record->loss;
    totals->interval_loss += record->loss;
    totals->interval_steps++;
}
