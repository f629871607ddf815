/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine.h"

#include <stdlib.h>
#include <string.h>

#include "core/plan/longest.h"
#include "sim/bound.h"
#include "sim/simulating.h"

/* Are all rates constant: does no task slow down another one? */
static bool is_constant(const struct pp_sim *s)
{
    const struct pp_cost *cost = s->cost;
    const struct pp_link_cost *link = &cost->link;
    for (int lane = 0; lane < s->plan->nlanes; lane++)
        if (pp_sim_takes(s, lane)) return false;
    return cost->cores == 0 && cost->sharers <= 1 && !link->receiver_copies && link->send_overhead_ns == 0 &&
           link->recv_overhead_ns == 0;
}

static void set_durations(struct pp_sim *s)
{
    const struct pp_link_cost *link = &s->cost->link;
    for (int c = 0; c < s->plan->nclasses; c++) {
        int kind = s->plan->classes[c].kind;
        s->duration[c] = s->hold[c] = pp_sim_alone_ns(s->plan, s->cost, c);
        if (pp_is_transfer(kind)) s->hold[c] -= pp_cost_latency_ns(s->cost, c) + link->recv_overhead_ns;
        if (pp_kinds[kind].computes) s->hold[c] += s->cost->launch_ns;
    }
}

static int by_target(const void *a, const void *b)
{
    const struct pp_wrap *x = a, *y = b;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* PP_INPUT for a negative duration: it overflowed, or never was a time. */
static pp_status check_duration(const struct pp_sim *s, int cls)
{
    const struct pp_class *class = &s->plan->classes[cls];
    const int64_t least = s->duration[cls] < s->hold[cls] ? s->duration[cls] : s->hold[cls];
    if (least >= 0) return PP_OK;
    return pp_fail(PP_INPUT, "%s of stage %d takes %lld ns: a time can not be negative", pp_kinds[class->kind].name,
                   class->stage, (long long)least);
}

/* Sets last_task, and refuses times that could overflow 64 bits. */
static pp_status look_over_tasks(struct pp_sim *s)
{
    const struct pp_plan *plan = s->plan;
    double total = (double)s->cost->step_overhead_ns;
    for (int c = 0; c < plan->nclasses; c++) PP_TRY(check_duration(s, c));
    for (int lane = 0; lane < plan->nlanes; lane++) s->last_task[lane] = -1;
    for (int32_t id = 0; id < plan->ntasks; id++) {
        int cls = plan->tasks[id].cls;
        s->last_task[plan->tasks[id].lane] = id;
        total += (double)pp_sim_later(s->duration[cls], s->cost->classes[cls].loaded_ns) + (double)s->cost->launch_ns;
        if (s->cost->host_issues) total += (double)s->cost->classes[cls].host_ns + (double)s->cost->issue_latency_ns;
    }
    if (s->cost->cores > 0 && s->cost->workers > s->cost->cores) total *= (double)s->cost->workers / s->cost->cores;
    if (total < PP_LONGEST_STEP_NS) return PP_OK;
    return pp_fail(PP_USAGE,
                   "the tasks of one step take %.3g s in all; the simulator counts nanoseconds up to %.3g s: give "
                   "shorter times, a smaller model, or a faster --machine",
                   total / 1e9, PP_LONGEST_STEP_NS / 1e9);
}

static pp_status prepare(struct pp_sim *s, const struct pp_plan *plan, const struct pp_cost *cost)
{
    *s = (struct pp_sim){.plan = plan, .cost = cost};
    s->constant = is_constant(s);
    PP_TRY(PP_NEW(&s->duration, plan->nclasses));
    PP_TRY(PP_NEW(&s->hold, plan->nclasses));
    PP_TRY(PP_NEW(&s->wraps, plan->nwraps));
    PP_TRY(PP_NEW(&s->last_task, plan->nlanes));
    s->nmarks = plan->nlanes + plan->nwraps + (cost->host_issues ? plan->ranks : 0);
    PP_TRY(PP_NEW(&s->mark, s->nmarks));
    PP_TRY(PP_NEW(&s->last_mark, s->nmarks));
    if (plan->nwraps) memcpy(s->wraps, plan->wraps, (size_t)plan->nwraps * sizeof *s->wraps);
    qsort(s->wraps, (size_t)plan->nwraps, sizeof *s->wraps, by_target);
    set_durations(s);
    return look_over_tasks(s);
}

static void release(struct pp_sim *s)
{
    free(s->duration);
    free(s->hold);
    free(s->wraps);
    free(s->last_task);
    free(s->mark);
    free(s->last_mark);
    pp_sim_free_times(&s->at);
}

pp_status pp_sim_make_times(struct pp_sim_times *at, const struct pp_sim *s)
{
    if (at->start) return PP_OK;
    PP_TRY(PP_NEW(&at->start, s->plan->ntasks));
    PP_TRY(PP_NEW(&at->end, s->plan->ntasks));
    PP_TRY(PP_NEW(&at->sent, s->plan->ntasks));
    PP_TRY(PP_NEW(&at->lane_ready, s->plan->nlanes));
    if (!s->cost->host_issues) return PP_OK;
    PP_TRY(PP_NEW(&at->begun, s->plan->ntasks));
    PP_TRY(PP_NEW(&at->issued, s->plan->ntasks));
    PP_TRY(PP_NEW(&at->host_ready, s->plan->ranks));
    return PP_NEW(&at->host_done, s->plan->ranks);
}

void pp_sim_free_times(struct pp_sim_times *at)
{
    int64_t *all[] = {at->start,  at->end,        at->sent,       at->begun,
                      at->issued, at->lane_ready, at->host_ready, at->host_done};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    *at = (struct pp_sim_times){0};
}

static void set_marks(struct pp_sim *s)
{
    const struct pp_plan *plan = s->plan;
    int64_t finish = INT64_MIN;
    for (int r = 0; r < plan->ranks; r++) {
        int32_t last = s->last_task[r];
        if (last >= 0 && s->at.end[last] > finish) finish = s->at.end[last];
    }
    s->step_end[s->steps] = finish;
    for (int lane = 0; lane < plan->nlanes; lane++) {
        s->mark[lane] = s->last_task[lane] >= 0 ? s->at.end[s->last_task[lane]] : finish;
    }
    for (int i = 0; i < plan->nwraps; i++) s->mark[plan->nlanes + i] = pp_sim_sent(s, s->wraps[i].from);
    for (int r = 0; s->at.host_done && r < plan->ranks; r++)
        s->mark[plan->nlanes + plan->nwraps + r] = s->at.host_done[r];
}

void pp_sim_step_finished(struct pp_sim *s)
{
    int64_t *previous = s->mark;
    s->mark = s->last_mark;
    s->last_mark = previous;
    set_marks(s);
    if (s->steps++ == 0) return;
    int64_t distance = s->mark[0] - s->last_mark[0];
    int64_t slack = s->constant ? 0 : distance >> 20; /* changing rates cause rounding errors */
    s->steady = s->cost->jitter == 0;                 /* with jitter no step is like another */
    for (int i = 1; i < s->nmarks && s->steady; i++) {
        s->steady = llabs(s->mark[i] - s->last_mark[i] - distance) <= slack;
    }
}

static int64_t step_distance(const struct pp_sim *s)
{
    int last = s->steps - 1, from = s->steady ? last - 1 : last / 2;
    return (s->step_end[last] - s->step_end[from]) / (last - from);
}

static pp_status measure(const struct pp_sim *s, struct pp_sim_result *out)
{
    struct pp_metrics_sums sums;
    PP_TRY(PP_NEW(&out->rank_bubble, s->plan->ranks));
    PP_TRY(pp_metrics_begin(&sums, s->plan->ranks));
    for (int32_t id = 0; id < s->plan->ntasks; id++) {
        const struct pp_task *t = &s->plan->tasks[id];
        if (t->lane < s->plan->ranks) pp_metrics_add(&sums, t->lane, pp_sim_start(s, id), s->at.end[id]);
    }
    pp_metrics_finish(&sums, &out->metrics, out->rank_bubble);
    out->batch_ns = step_distance(s);
    out->steps = s->steps;
    out->steady = s->steady;
    return PP_OK;
}

static pp_status simulate(struct pp_sim *s, bool events)
{
    bool noisy = s->cost->jitter > 0, sweep = !events && s->constant && !(noisy && s->cost->host_issues);
    if (!sweep && noisy && s->plan->replicas > 1)
        return pp_fail(PP_INTERNAL, "replicas with jitter are simulated only where rates are constant");
    if (!sweep) return pp_sim_events(s);
    if (noisy) return pp_sim_sweep_replicas(s);
    return s->cost->host_issues ? pp_sim_sweep_host(s) : pp_sim_sweep(s);
}

static pp_status run(struct pp_sim *s, const struct pp_sim_options *options, struct pp_sim_result *out)
{
    PP_TRY(simulate(s, options->events));
    pp_progress_tasks("", s->plan->ntasks, s->plan->ntasks);
    PP_TRY(measure(s, out));
    PP_TRY(pp_sim_lower_bound(s->plan, s->cost, &out->lower_bound_ns));
    out->lower_bound_ns = (int64_t)((double)out->lower_bound_ns * (1 - s->cost->jitter)); /* all tasks shortened */
    PP_TRY(pp_sim_find_path(s, out->metrics.makespan_ns, &out->path));
    return options->trace ? pp_sim_record(s, &out->trace) : PP_OK;
}

pp_status pp_sim_run(const struct pp_plan *plan, const struct pp_cost *cost, const struct pp_sim_options *options,
                     struct pp_sim_result *out)
{
    struct pp_sim s;
    *out = (struct pp_sim_result){0};
    pp_status status = prepare(&s, plan, cost);
    if (status == PP_OK) status = run(&s, options, out);
    release(&s);
    if (status != PP_OK) pp_sim_result_free(out);
    return status;
}

pp_status pp_sim_least(const struct pp_plan *plan, const struct pp_cost *cost, int64_t *batch_ns)
{
    struct pp_sim s;
    pp_status status = prepare(&s, plan, cost);
    if (status == PP_OK) status = pp_sim_least_batch(plan, cost, batch_ns);
    release(&s);
    return status;
}

void pp_sim_result_free(struct pp_sim_result *result)
{
    free(result->rank_bubble);
    free(result->path.tasks);
    pp_trace_clear(&result->trace);
    *result = (struct pp_sim_result){0};
}
