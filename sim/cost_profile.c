/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs from a profile of ppprof. What was not measured is computed by the machine, class by class, and counted.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/options/devices.h"
#include "core/plan/longest.h"
#include "core/plan/movers.h"
#include "sim/cost_search.h"
#include "sim/machine_calls.h"
#include "sim/placement.h"

const char *const pp_cost_source_words[PP_COST_SOURCES] = {
    [PP_COST_KERNELS] = "were not measured as a whole, and are made of other tasks' times",
    [PP_COST_INTERPOLATED] = "are interpolated between measured row counts",
    [PP_COST_SCALED] = "are computed by a data sheet, in proportion to measured ones",
    [PP_COST_MACHINE] = "were never measured",
};

int pp_cost_worst_source(const struct pp_cost_origin *origin)
{
    int worst = PP_COST_PROFILE;
    for (int source = worst; source < PP_COST_SOURCES; source++)
        if (origin->from[source] > 0) worst = source;
    return worst;
}

pp_status pp_check_figure(double value, double least, double most, const char *fmt, ...)
{
    char what[192];
    va_list args;
    if (value >= least && value <= most) return PP_OK;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return pp_fail(PP_INPUT, "the profile says that %s %.17g; measure again with ppprof", what, value);
}

/* Finds a parameter of a link; if *found = false, *value is unchanged. */
static pp_status parameter(const struct pp_search *s, const char *link, const char *name, double *value, bool *found)
{
    double measured = 0, most = strcmp(name, "ns_per_byte") == 0     ? 1e6
                                : strcmp(name, PP_WORKER_TAKEN) == 0 ? 1
                                                                     : PP_LONGEST_MEASURED_NS;
    PP_TRY(pp_db_find_link(s->db, s->job->config, 0, link, name, &measured, found));
    if (!*found) return PP_OK;
    *value = measured;
    return pp_check_figure(measured, 0, most, "%s of link \"%s\" is", name, link);
}

/* GPUs: copies run beside computations, so the overheads of a link cost time of the host, not of the device. */
static void use_host(const struct pp_job *job, double send_ns, double receive_ns, struct pp_cost *cost)
{
    cost->link.send_overhead_ns = cost->link.recv_overhead_ns = 0;
    for (int c = 0; c < cost->nclasses; c++) {
        const int kind = job->train->classes[c].kind;
        struct pp_class_cost *class = &cost->classes[c];
        if (!pp_kinds[kind].computes)
            class->host_ns = llround(pp_is_transfer(kind) ? (send_ns + receive_ns) / 2 : send_ns + receive_ns);
        else if (class->source != PP_COST_MACHINE)
            class->host_ns += llround(pp_cost_count_sums(job, c) * (send_ns + receive_ns)); /* not in profiles */
    }
}

static pp_status set_transfers(const struct pp_search *s, const struct pp_mover *mover, struct pp_cost *cost,
                               bool *found)
{
    double latency, send, receive, per_byte, copies = !s->gpu, in_order = 0;
    bool known;
    const struct {
        const char *parameter;
        double *value;
    } wanted[] = {{"latency_ns", &latency},
                  {"send_overhead_ns", &send},
                  {"recv_overhead_ns", &receive},
                  {"ns_per_byte", &per_byte}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        PP_TRY(parameter(s, mover->p2p, wanted[i].parameter, wanted[i].value, found));
        if (!*found) return PP_OK;
    }
    PP_TRY(parameter(s, mover->p2p, "receiver_copies", &copies, &known));
    PP_TRY(parameter(s, mover->p2p, "posts_in_order", &in_order, &known));
    cost->link = (struct pp_link_cost){.latency_ns = llround(latency),
                                       .send_overhead_ns = llround(send),
                                       .recv_overhead_ns = llround(receive),
                                       .ns_per_byte = per_byte,
                                       .receiver_copies = copies > 0,
                                       .posts_in_order = in_order > 0,
                                       .host_wait = mover->host_wait};
    if (s->gpu) use_host(s->job, send, receive, cost);
    return PP_OK;
}

/* Time of NORM_ALL. all_ns: a measured collective of all workers that take part; -1: it was not measured. Without it,
 * and at least if workers are on several hosts, it takes the hops of an exchange. */
static int64_t norm_ns(const struct pp_placement *p, const struct pp_link_cost *link, int64_t all_ns)
{
    const int64_t hop_ns = pp_placement_hop_ns(p, link->latency_ns);
    const int64_t hops_ns = pp_norm_hops(p->plan) * (hop_ns + link->send_overhead_ns + link->recv_overhead_ns);
    if (all_ns < 0 || pp_norm_workers(p->plan) == 1) return hops_ns; /* with one worker: no hops */
    return hop_ns > link->latency_ns && hops_ns > all_ns ? hops_ns : all_ns;
}

/* The measured link of a mover's sums. */
static pp_status find_sums(const struct pp_search *s, const struct pp_mover *mover, struct pp_sum_link *out,
                           bool *found)
{
    *out = (struct pp_sum_link){0};
    PP_TRY(parameter(s, mover->allreduce, "latency_ns", &out->latency_ns, found));
    return *found ? parameter(s, mover->allreduce, "ns_per_byte", &out->ns_per_byte, found) : PP_OK;
}

/* Sets the times of collectives on gradients and parameters, and of the global norm. sums: NULL: not measured. */
static void set_collectives(const struct pp_placement *placement, const struct pp_search *s,
                            const struct pp_sum_link *sums, const struct pp_machine *machine, struct pp_cost *cost)
{
    const struct pp_plan *plan = placement->plan;
    for (int c = 0; c < cost->nclasses; c++) {
        struct pp_class_cost *class = &cost->classes[c];
        int kind = plan->classes[c].kind;
        const bool here = kind == PP_REDUCE_TIED && !pp_ties_ranks(plan, plan->stage_rank[0]); /* by the machine */
        if (pp_combines(kind) && sums && !here)
            class->ns = pp_placement_combine_ns(placement, s->job, &plan->classes[c], *sums) +
                        pp_cost_rounding_ns(s->job, &plan->classes[c], machine);
        if (kind == PP_NORM_ALL)
            class->ns = norm_ns(placement, &cost->link, s->gpu && sums ? llround(sums->latency_ns) : -1);
        if (pp_combines(kind) || kind == PP_NORM_ALL) class->loaded_ns = class->ns;
    }
}

/* Sets the times of collectives inside computations. They run beside kernels if the device has queues and no host
 * carries the data. The machine says in which proportions a task's time is made up of its kernels. */
static pp_status set_joins(const struct pp_placement *placement, const struct pp_search *s,
                           const struct pp_mover *mover, const struct pp_sum_link *sums,
                           const struct pp_machine *machine, struct pp_cost *cost)
{
    struct pp_machine_calls calls;
    const struct pp_call_times times = {pp_machine_call_ns, &calls};
    const struct pp_call_times *beside = s->gpu && mover->host_wait != PP_HOST_FOLLOWS ? &times : NULL;
    pp_machine_calls_begin(&calls, machine, s->job->model_ops, s->sharers);
    for (int c = 0; c < cost->nclasses && sums; c++)
        if (pp_kinds[placement->plan->classes[c].kind].computes)
            PP_TRY(pp_placement_set_sums(placement, s->job, c, *sums, beside, &cost->classes[c]));
    return PP_OK;
}

/* Does the measured link of a mover apply? The profiles of named machines were measured with workers that share one
 * GPU, so their link "inproc" is a copy inside that GPU. If several GPUs are predicted for, the link between them is
 * that of the machine file. */
static bool stands_for(const struct pp_search *s, const struct pp_mover *mover, const struct pp_plan *plan)
{
    bool several = s->sharers < pp_plan_workers(plan);
    return !(s->gpu && pp_config_machine(s->job->config) && !s->job->config->profile && several &&
             !mover->joins_processes);
}

static bool has_sums(const struct pp_plan *plan)
{
    return plan->replicas * plan->members > 1 || pp_ties_ranks(plan, plan->stage_rank[0]);
}

/* Sets the links of --transport; "auto": the first mover that was measured. */
static pp_status set_links_of(const struct pp_placement *placement, const struct pp_search *s,
                              const struct pp_machine *machine, struct pp_cost *cost, struct pp_cost_origin *origin)
{
    const struct pp_job *job = s->job;
    const char *asked = job->config->transport;
    bool found = false, reduces = false;
    for (int i = 0; i < pp_nmovers && !found; i++) {
        const struct pp_mover *mover = &pp_movers[i];
        if (mover->moves != (s->gpu ? PP_OF_DEVICES : PP_OF_HOSTS) || !stands_for(s, mover, job->train)) continue;
        if (asked && strcmp(asked, "auto") != 0 && strcmp(asked, mover->name) != 0) continue;
        PP_TRY(set_transfers(s, mover, cost, &found));
        if (!found) continue;
        origin->transport = mover->name;
        pp_placement_set_transfers(placement, cost);
        struct pp_sum_link link;
        PP_TRY(find_sums(s, mover, &link, &reduces));
        const struct pp_sum_link *sums = reduces ? &link : NULL;
        set_collectives(placement, s, sums, machine, cost);
        PP_TRY(set_joins(placement, s, mover, sums, machine, cost));
    }
    origin->link_computed =
        (!found && job->train->ranks > 1) || (!reduces && has_sums(job->train)) || pp_placement_several(placement);
    return PP_OK;
}

/* If a machine with several hosts is named, the measured links are those within a host, and its file has the network
 * between hosts. */
static pp_status set_links(const struct pp_search *s, const struct pp_machine *machine, struct pp_cost *cost,
                           struct pp_cost_origin *origin)
{
    struct pp_placement placement = pp_placement_of(s->job, pp_config_machine(s->job->config) ? machine : NULL);
    PP_TRY(pp_placement_remember(&placement));
    const pp_status status = set_links_of(&placement, s, machine, cost, origin);
    pp_placement_forget(&placement);
    return status;
}

/* Sets what a worker spends besides computing (of a GPU: its host), and the part of the time that others took. */
static pp_status set_overheads(struct pp_search *s, struct pp_cost *cost, struct pp_cost_origin *origin)
{
    bool found;
    double task = 0, step = 0;
    PP_TRY(parameter(s, "worker", "task_overhead_ns", &task, &found));
    PP_TRY(parameter(s, "worker", "step_overhead_ns", &step, &found));
    PP_TRY(parameter(s, "worker", PP_WORKER_TAKEN, &origin->taken, &found));
    cost->launch_ns = s->gpu ? 0 : llround(task);
    s->task_host_ns = task;
    cost->step_overhead_ns = llround(step);
    return PP_OK;
}

/* Sets the sharing domain. */
static void set_sharing(const struct pp_job *job, int cores, struct pp_search *s, struct pp_cost *cost)
{
    int sharers = s->gpu ? pp_cost_sharers(job) : 1, workers = cost->workers;
    cores = cores > s->threads ? cores / s->threads : 1;
    cost->sharers = s->sharers = sharers;
    cost->cores = s->gpu ? 0 : cores;
    cost->host_issues = s->gpu;
    s->load = s->gpu ? sharers : workers < cores ? workers : cores;
    pp_job_context(job, sharers, s->context, sizeof s->context);
}

/* Has the profile of a machine any task of a model with these layers? Else nothing of it fits: sizes of layers are in
 * the names of products. So in sweeps what is not there is not looked for task by task. */
static pp_status knows_model(const struct pp_search *s, bool *found)
{
    char words[PP_SIGNATURE_BYTES];
    for (int c = 0; c < s->job->train->nclasses; c++) {
        if (s->job->train->classes[c].kind != PP_F) continue;
        const char *name = s->job->phase[PP_TRAIN].programs[c].signature, *from = strstr(name, " d"),
                   *to = from ? strstr(from, " ff") : NULL;
        if (!to) continue;
        snprintf(words, sizeof words, "%.*s ", (int)(to + 1 + strcspn(to + 1, " ") - from), from);
        return pp_db_knows_words(s->db, s->device, s->threads, words, found);
    }
    return PP_OK;
}

pp_status pp_cost_from_profile(const struct pp_job *job, struct pp_db *db, const struct pp_machine *machine,
                               struct pp_cost **out, struct pp_cost_origin *origin)
{
    struct pp_search s = {.db = db,
                          .job = job,
                          .machine = machine,
                          .device = job->config->device,
                          .gpu = pp_device_kind(job->config->device)->queue,
                          .threads = job->config->threads};
    int cores = 0;
    bool found;
    pp_status status;
    *origin = (struct pp_cost_origin){0};
    *out = NULL;
    if (job->once) return pp_fail(PP_INTERNAL, "a job whose calls stand once is looked up in a profile");
    PP_TRY(pp_db_has_profile(db, s.device, &cores, &found));
    if (found && pp_config_machine(job->config)) PP_TRY(knows_model(&s, &found));
    if (!found || cores <= 0) return PP_OK;
    struct pp_cost *cost;
    PP_TRY(pp_cost_from_machine(job, machine, &cost));
    set_sharing(job, cores, &s, cost);
    if (!pp_config_machine(job->config)) cost->taken = 0; /* what sums take stands in the file of a machine */
    PP_TRY_DONE(set_overheads(&s, cost, origin));
    PP_TRY_DONE(pp_search_computations(&s, cost, origin));
    if (origin->from[PP_COST_MACHINE] == origin->classes) goto done;
    PP_TRY_DONE(set_links(&s, machine, cost, origin));
    cost->source = pp_cost_worst_source(origin);
    *out = cost;
    return PP_OK;
done:
    pp_cost_free(cost);
    return status;
}
