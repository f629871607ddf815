/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cost_waits.h"

#include <stdio.h>

#include "core/base/text.h"
#include "core/options/devices.h"
#include "core/plan/movers.h"
#include "sim/bound.h"

pp_status pp_waits_choose(struct pp_config *config, struct pp_db *db, const char *path, char *device, size_t size)
{
    device[0] = '\0';
    if (db) PP_TRY(pp_db_newest_device(db, device, size));
    if (!device[0])
        return pp_fail(PP_USAGE,
                       "--device delay: how long do tasks take?%s%s%s Give --times F,I,W[,C], or --db with a profile "
                       "of ppprof",
                       path ? " Database " : "", path ? path : "",
                       !path ? ""
                       : db  ? " has no profile."
                             : " is not there.");
    pp_config_found_device(config, device);
    return PP_OK;
}

/* The cost of the job on the device of the profile. */
static pp_status find_cost(const struct pp_job *job, struct pp_db *db, const char *device, struct pp_cost **out,
                           struct pp_cost_origin *origin)
{
    struct pp_config config = *job->config;
    struct pp_job there = *job;
    struct pp_machine machine; /* for times that are missing, of which there may be none here */
    config.device = device;
    config.straggler = NULL; /* measurements, which are found by their workload, have none */
    config.jitter = 0;
    there.config = &config;
    PP_TRY(pp_machine_find(pp_device_kind(device)->machine, &machine));
    return pp_cost_from_profile(&there, db, &machine, out, origin);
}

static pp_status check_complete(const struct pp_cost *cost, const struct pp_cost_origin *found, const char *device)
{
    const int source = found->from[PP_COST_MACHINE] > 0 ? PP_COST_MACHINE : PP_COST_SCALED;
    const int lacks = found->from[PP_COST_MACHINE] + found->from[PP_COST_SCALED];
    if (cost && lacks == 0) return PP_OK;
    return pp_fail(
        PP_INPUT,
        "--device delay: the profile of %s lacks %d of %d task shape%s (the first: \"%s\"); measure them with "
        "ppprof and the same options, or give --times",
        device, lacks, found->classes, pp_plural(found->classes), found->first[source]);
}

static void set_hop(struct pp_job *job, const struct pp_cost *cost)
{
    int64_t hop_ns = 0;
    for (int c = 0; c < cost->nclasses; c++) {
        const int kind = job->train->classes[c].kind;
        const int64_t ns = pp_sim_alone_ns(job->train, cost, c);
        if (pp_is_transfer(kind) && ns > hop_ns) hop_ns = ns;
    }
    job->times.hop_ms = (double)hop_ns / 1e6;
}

static pp_status set_times(struct pp_job *job, const struct pp_cost *cost)
{
    struct pp_measured_times *measured = &job->times.measured;
    const bool alone = cost->workers == 1;
    PP_TRY(PP_NEW(&measured->ns, cost->nclasses));
    measured->plan = job->train;
    for (int c = 0; c < cost->nclasses; c++)
        if (pp_kinds[job->train->classes[c].kind].computes)
            measured->ns[c] = alone ? cost->classes[c].ns : cost->classes[c].loaded_ns;
    return PP_OK;
}

pp_status pp_waits_from_profile(struct pp_job *job, struct pp_db *db, const char *device, struct pp_cost_origin *origin)
{
    struct pp_cost_origin found;
    struct pp_cost *cost = NULL;
    PP_TRY(find_cost(job, db, device, &cost, &found));
    pp_status status = check_complete(cost, &found, device);
    if (status == PP_OK) status = set_times(job, cost);
    if (status == PP_OK && found.transport) set_hop(job, cost);
    pp_cost_free(cost);
    *origin = found;
    origin->hop_missing = job->train->ranks > 1 && !found.transport;
    origin->link_computed = false;
    origin->transport = NULL;
    return status;
}

const char *pp_waits_hop_remark(const struct pp_config *config, const char *device, char *buf, size_t size)
{
    const int moves = pp_device_kind(device)->queue ? PP_OF_DEVICES : PP_OF_HOSTS;
    const struct pp_mover *asked = pp_mover_find(config->transport, moves);
    const bool processes = asked && asked->joins_processes;
    struct pp_text text = pp_text_in(buf, size);
    const char *before = " ";
    pp_text_add(&text, "no profile of %s has a link", device);
    for (int i = 0; i < pp_nmovers; i++) {
        if (pp_movers[i].moves != moves || (asked && asked != &pp_movers[i])) continue;
        pp_text_add(&text, "%s\"%s\"", before, pp_movers[i].p2p);
        before = " or ";
    }
    pp_text_add(&text, ", so hops take no time; measure one with the same options and %sppprof --device %s%s%s",
                processes ? "mpirun -n 2 " : "", device, processes ? " --transport " : ", on two cores or more",
                processes ? asked->name : "");
    return buf;
}
