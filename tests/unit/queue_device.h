/* SPDX-License-Identifier: Apache-2.0
 *
 * A queue device (core/model/queue.h) without a GPU, for tests: the cpu device's kernels, run by threads. Each queue is
 * a thread that works through a list; marks are as CUDA's events: a wait holds for the record() before it, a mark that
 * is recorded again leaves earlier waits alone. Nothing is ordered that a GPU would not order, so a missing dependency
 * is a data race that ThreadSanitizer sees, and that random delays bring out.
 *
 * It refuses what CUDA refuses or does slowly: a thread that did not choose the device, queues and marks of different
 * devices in one record(), times from untimed marks, copies from and to memory that neither alloc nor host_alloc gave.
 */
#ifndef PP_TESTS_QUEUE_DEVICE_H
#define PP_TESTS_QUEUE_DEVICE_H

#include <stdint.h>

#include "core/model/queue.h"

/* "queued". Its queues can be used beside pp_backend_cpu, but not its memory by the cpu's workers. */
extern const struct pp_backend pp_backend_queued;

/* What the devices opened from now on do. */
struct queued_settings {
    uint64_t seed;
    int most_delay_us; /* before some of the pieces of work; 0 = none */
    /* The run() number fail_run (from 1; 0 = none) of the process's worker fail_worker fails: in the queue, so that a
     * later call tells, or, if `at_once`, in the call. */
    int fail_worker;
    int64_t fail_run;
    bool at_once;
    int launches; /* that it says a call is; 0: one */
};
/* By how many run() a host was ahead of its device at most, since queued_set(). */
int64_t queued_most_ahead(void);
/* How many copies were put into queues, those at strides as one, since queued_set(). */
int64_t queued_copies(void);
/* Of how many workers the device that was opened last was told. */
int queued_workers(void);
void queued_set(const struct queued_settings *settings); /* NULL: none of it */
/* Between two looks of who polls: marks ring no bell, and the queues' threads want the cores. */
void queued_nap(void);

#endif
