/* SPDX-License-Identifier: Apache-2.0
 *
 * May a worker that waits keep its core busy? It is back sooner than one that slept (waking up takes 50 us and more,
 * and a core that was idle is slow at first), but takes the core from whoever else wants it. The system tells: it
 * takes the core away, which counts as an involuntary context switch of the thread.
 */
#ifndef PP_EXEC_LINGER_H
#define PP_EXEC_LINGER_H

#include <stdbool.h>
#include <stdint.h>

/* The state of one thread; zeros at first. */
struct pp_linger {
    int64_t looked_ns;   /* when the thread last looked for others; 0: never */
    int64_t not_till_ns; /* others wanted the core: the thread leaves it to them until then */
    int64_t pause_ns;    /* length of the latest such pause */
    int64_t switches;    /* involuntary context switches of the thread, when it last looked */
};

/* Is it time to look again? Looking is a system call. */
bool pp_linger_is_due(const struct pp_linger *linger, int64_t now_ns);
/* Tells what a look has seen: the thread's involuntary context switches. Where there are new ones, others wanted the
 * core: they get it for 5 ms, and each time they are found again soon after a pause, for twice as long, up to 1 s. */
void pp_linger_look(struct pp_linger *linger, int64_t now_ns, int64_t switches);

/* May the thread keep its core busy now? */
static inline bool pp_linger_allowed(const struct pp_linger *linger, int64_t now_ns)
{
    return now_ns >= linger->not_till_ns;
}

#endif
