/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens in a run, as worker 0 sees it, handed to the thread that prints and stores it: so neither a slow
 * terminal nor the database holds up a step. One writer, one reader, room for everything from the start.
 */
#ifndef PP_EXEC_JOURNAL_H
#define PP_EXEC_JOURNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"

enum pp_record_kind { PP_RECORD_STEP, PP_RECORD_EPOCH, PP_RECORD_TEST };

struct pp_record {
    int kind;       /* enum pp_record_kind */
    int epoch;      /* from 0 */
    int batch;      /* STEP: of the epoch, from 0 */
    int step;       /* STEP: of the run, from 0 */
    int64_t ns;     /* STEP: wall time. EPOCH: wall time of its steps and its evaluation. TEST: of the evaluation */
    double loss;    /* mean over tokens. EPOCH: validation, NAN where there was none */
    int64_t tokens; /* STEP: over all replicas */
    double learning_rate;
    bool traced;
};

/* Sums of losses for the log lines: of the epoch so far, and since the last line. */
struct pp_totals {
    double epoch_loss, interval_loss;
    int interval_steps;
};

struct pp_journal {
    struct pp_record *records;
    int64_t written;           /* records begun, for the writer only: from `published` on they may lack their loss */
    _Atomic int64_t published; /* records that are complete, for the reader */
    _Atomic int64_t evaluation; /* that goes on: batches that were begun, times 2^32, and all of them; 0: none does */
};

pp_status pp_journal_open(struct pp_journal *journal, int64_t capacity) PP_MUST_CHECK;
void pp_journal_close(struct pp_journal *journal);
/* The next record, for the writer to fill in. The reader sees it when it is published. */
struct pp_record *pp_journal_begin(struct pp_journal *journal);
/* Lets the reader see the first `count` records. */
void pp_journal_publish(struct pp_journal *journal, int64_t count);

/* An evaluation of so many batches has begun one more; 0, 0: it has ended. */
void pp_journal_evaluates(struct pp_journal *journal, int begun, int batches);

/* Adds the next record to the sums, which begin anew with an epoch, and those of a log line after every `interval`
 * batches. */
void pp_totals_add(struct pp_totals *totals, const struct pp_record *record, int interval);

#endif
