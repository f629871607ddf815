/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "exec/process_profile.h"
#include "exec/train.h"

/* Transports move less than 2 GiB at once, and a long trace is more: so many events are a message. */
enum { EVENTS_AT_ONCE = 1 << 20 };

static int64_t at_once(int64_t left) { return left < EVENTS_AT_ONCE ? left : EVENTS_AT_ONCE; }

static pp_status send_events(struct pp_world *world, int from, const struct pp_event *events, int64_t n)
{
    for (int64_t i = 0; i < n; i += EVENTS_AT_ONCE)
        PP_TRY(pp_send_now(world, from, 0, PP_MESSAGE_CONTROL, events + i, at_once(n - i) * (int64_t)sizeof *events));
    return PP_OK;
}

static pp_status receive_events(struct pp_world *world, int from, struct pp_event *events, int64_t n)
{
    for (int64_t i = 0; i < n; i += EVENTS_AT_ONCE)
        PP_TRY(pp_recv_now(world, from, 0, PP_MESSAGE_CONTROL, events + i, at_once(n - i) * (int64_t)sizeof *events));
    return PP_OK;
}

static pp_status take(struct pp_session *s, const struct pp_worker *w, const struct pp_worker_summary *all)
{
    int64_t total = 0;
    for (int i = 0; i < s->world->workers; i++) total += all[i].nevents;
    PP_TRY(pp_trace_reserve(&s->trace, total));
    for (int i = 0; i < s->world->workers; i++) {
        struct pp_event *to = s->trace.events + s->trace.nevents;
        if (i != w->me)
            PP_TRY(receive_events(s->world, i, to, all[i].nevents));
        else if (all[i].nevents > 0) /* where nothing is traced there is no memory either */
            memcpy(to, w->trace.events, (size_t)all[i].nevents * sizeof *to);
        s->trace.nevents += all[i].nevents;
        s->summaries[i] = all[i];
    }
    return PP_OK;
}

/* On the clock of the steps: 0 = the first thing that was traced. */
static void start_at_zero(struct pp_trace *trace)
{
    int64_t first = INT64_MAX;
    for (int64_t i = 0; i < trace->nevents; i++)
        if (trace->events[i].posted_ns < first) first = trace->events[i].posted_ns;
    for (int64_t i = 0; i < trace->nevents; i++) {
        trace->events[i].posted_ns -= first;
        trace->events[i].start_ns -= first;
        trace->events[i].end_ns -= first;
    }
}

pp_status pp_collect(struct pp_session *s, struct pp_worker *w)
{
    const struct pp_processes *processes = &s->world->processes;
    struct pp_worker_summary mine = {.nevents = w->trace.nevents,
                                     .device_uncertainty_ns = w->uncertainty_ns,
                                     .traced = pp_core_time_median(w->traced, w->ntraced)},
                             *all;
    if (w->me == s->world->first) {
        mine.resident_bytes = pp_process_resident_bytes();
        mine.clock_offset_ns = processes->clock_offset_ns;
        mine.clock_uncertainty_ns = processes->clock_uncertainty_ns;
    }
    PP_TRY(PP_NEW(&all, s->world->workers));
    pp_status status = pp_allgather(s->world, w->me, &mine, sizeof mine, all);
    if (status == PP_OK && w->me != 0) status = send_events(s->world, w->me, w->trace.events, mine.nevents);
    if (status == PP_OK && w->me == 0) status = take(s, w, all);
    if (w->me == 0) start_at_zero(&s->trace);
    free(all);
    return status;
}
