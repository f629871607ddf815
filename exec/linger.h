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

/* Of one thread. Zeroed at first. */
struct pp_linger {
    int64_t looked_ns;   /* when the thread last looked for others; 0: never */
    int64_t not_till_ns; /* others wanted the core: until then they have it */
    int64_t pause_ns;    /* how long that was to last */
    int64_t switches;    /* involuntary, when it last looked */
};

/* Is it time to look again? Looking is a system call. */
bool pp_linger_is_due(const struct pp_linger *linger, int64_t now_ns);
/* What was seen. Others that wanted the core have it for 5 ms, and twice as long each time they are found again soon
 * after that, up to 1 s. */
void pp_linger_look(struct pp_linger *linger, int64_t now_ns, int64_t switches);

static inline bool pp_linger_allowed(const struct pp_linger *linger, int64_t now_ns)
{
    return now_ns >= linger->not_till_ns;
}

#endif
