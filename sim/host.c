/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simulating.h"

/* Takes `other`, which a computation depends on, into *cause and *until_ns if it is a transfer or collective that keeps
 * the host waiting longer than the cause so far. slot: only its send slot must be empty. */
static void consider(const struct pp_sim *s, const struct pp_sim_times *times, int32_t other, bool slot, int32_t *cause,
                     int64_t *until_ns)
{
    if (other < 0 || s->plan->tasks[other].lane < s->plan->ranks) return;
    int64_t until = times->issued[other];
    if (s->cost->link.host_wait == PP_HOST_FOLLOWS)
        until = (slot ? times->sent[other] : times->end[other]) + s->cost->issue_latency_ns;
    if (*cause >= 0 && until <= *until_ns) return;
    *cause = other;
    *until_ns = until;
}

int32_t pp_sim_host_cause(const struct pp_sim *s, const struct pp_sim_times *times, int32_t task, int64_t *until_ns)
{
    const struct pp_task *t = &s->plan->tasks[task];
    int32_t cause = -1;
    if (s->cost->link.host_wait == PP_HOST_AHEAD) return -1;
    if (t->flags & PP_TASK_DEP_RANGE) {
        for (int32_t d = t->dep[0]; d <= t->dep[1]; d++) consider(s, times, d, false, &cause, until_ns);
        return cause;
    }
    for (int i = 0; i < 3; i++) {
        if (!pp_sim_dep_holds(s, t, i)) continue;
        consider(s, times, t->dep[i], i == 1 && pp_sim_waits_for_slot(s->plan, t, t->dep[i]), &cause, until_ns);
    }
    return cause;
}
