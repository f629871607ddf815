/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/carrier_choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/options/devices.h"
#include "core/plan/movers.h"
#include "exec/place.h"

enum { NONE = -1 };

/* What a process can do. */
struct vote {
    int queue;   /* its device works through queues */
    int carrier; /* index of the first of pp_carriers that it can use, of those that are asked for; NONE */
    int shared;  /* its GPUs serve other processes too */
};

struct choice {
    const struct pp_config *config;
    const struct pp_backend *backend;
    const struct pp_processes *processes;
    int workers;
    struct vote vote;
    char reason[PP_MESSAGE_BYTES]; /* why not the first carrier */
};

/* Whether this build has it or not. */
static bool is_carrier(const char *name)
{
    const struct pp_mover *mover = pp_mover_find(name, PP_OF_DEVICES);
    return mover && mover->joins_processes;
}

/* How many workers of this host use the same device as the first worker of this process. */
static int sharers_here(const struct choice *c)
{
    const struct pp_device_spec spec = pp_place_device(c->processes, c->config, c->workers, 0);
    return pp_place_sharers(c->backend, &spec);
}

static bool shared_by_processes(const struct choice *c) { return c->workers % sharers_here(c) != 0; }

/* Some of them are threads of one process. */
static bool shared_by_threads(const struct choice *c) { return c->workers > 1 && sharers_here(c) > 1; }

static void keep_reason(struct choice *c, const char *reason)
{
    if (!*c->reason) snprintf(c->reason, sizeof c->reason, "%s", reason);
}

/* One whose receives occupy the device is no good where another process needs it to be able to send; nor where another
 * thread does, whose calls may wait for the device: the proof of the plan's order knows devices of one worker only. */
static bool can_use(struct choice *c, const struct pp_carrier *carrier, bool automatic)
{
    if (automatic && c->vote.shared && carrier->posts_in_order) {
        keep_reason(c, "processes share a GPU, and would wait for each other to leave it");
        return false;
    }
    if (automatic && carrier->posts_in_order && shared_by_threads(c)) {
        keep_reason(c, "threads of a process share a GPU, and could wait for each other's receives");
        return false;
    }
    if (!carrier->available || carrier->available() == PP_OK) return true;
    keep_reason(c, pp_message());
    return false;
}

static void make_vote(struct choice *c)
{
    const char *name = c->config->transport;
    bool automatic = !is_carrier(name);
    c->vote = (struct vote){.queue = c->backend->queue != NULL, .carrier = NONE};
    if (!c->vote.queue) return;
    c->vote.shared = shared_by_processes(c);
    for (int i = 0; pp_carriers[i] && c->vote.carrier == NONE; i++)
        if (automatic || !strcmp(pp_carriers[i]->name, name))
            if (can_use(c, pp_carriers[i], automatic)) c->vote.carrier = i;
}

/* What all can do together. */
static pp_status join_votes(const struct choice *c, const struct vote *all, struct vote *out)
{
    *out = all[0];
    for (int i = 1; i < c->processes->count; i++) {
        if (all[i].queue != out->queue)
            return pp_fail(PP_UNSUPPORTED,
                           "process %d computes on another kind of device than process 0: name one "
                           "with --device",
                           i);
        out->shared = out->shared || all[i].shared;
        if (all[i].carrier == NONE || (out->carrier != NONE && all[i].carrier > out->carrier))
            out->carrier = all[i].carrier;
    }
    return PP_OK;
}

static pp_status vote_together(const struct choice *c, const struct pp_transport *transport, struct vote *out)
{
    struct pp_world *world;
    struct vote *all;
    PP_TRY(pp_world_open(transport, c->processes, c->processes->count, 1, &world));
    pp_status status = PP_NEW(&all, c->processes->count);
    if (status == PP_OK) status = pp_allgather(world, world->first, &c->vote, sizeof c->vote, all);
    pp_world_close(world);
    if (status == PP_OK) status = join_votes(c, all, out);
    free(all);
    return status;
}

static pp_status prepare(const struct choice *c)
{
    for (int i = 0; pp_carriers[i]; i++)
        if (pp_carriers[i]->prepare) PP_TRY(pp_carriers[i]->prepare(shared_by_processes(c), c->processes->hosts == 1));
    return PP_OK;
}

static pp_status settle(const struct choice *c, const struct vote *vote, const struct pp_carrier **out)
{
    const char *name = c->config->transport;
    if (vote->carrier == NONE && c->vote.carrier != NONE)
        return pp_fail(PP_PEER, "another process cannot use --transport %s", name);
    if (vote->carrier == NONE && !*c->reason)
        return pp_fail(PP_UNSUPPORTED, "--transport %s: not in this build; build with -DPP_WITH_%s=ON, or use auto",
                       name, pp_mover_find(name, PP_OF_DEVICES)->needs);
    if (vote->carrier == NONE) return pp_fail(PP_UNSUPPORTED, "--transport %s: %s", name, c->reason);
    *out = pp_carriers[vote->carrier];
    if (!is_carrier(name) && vote->carrier > 0)
        pp_info("transport %s, not %s: %s", (*out)->name, pp_carriers[0]->name,
                *c->reason ? c->reason : "another process cannot use it");
    if (vote->shared)
        pp_warn("processes share a GPU, which serves one of them at a time: results are right, times mean nothing");
    return PP_OK;
}

static pp_status refuse_without_devices(const char *name, const struct pp_backend *backend)
{
    return pp_fail(PP_USAGE,
                   "--transport %s moves data between GPUs, and --device %s has none: leave the option out, or use "
                   "--device %s",
                   name, backend->name, pp_device_gpu()->name);
}

/* "nccl or staged" */
static const char *carrier_names(char *buf, size_t size)
{
    struct pp_text text = pp_text_in(buf, size);
    for (int i = 0; pp_carriers[i]; i++) pp_text_add(&text, "%s%s", i ? " or " : "", pp_carriers[i]->name);
    return buf;
}

pp_status pp_carrier_check(const struct pp_config *config, const struct pp_backend *backend,
                           const struct pp_processes *processes)
{
    const char *name = config->transport;
    const bool alone = processes->count == 1;
    char others[100];
    if (!backend->queue) return PP_OK;
    if (!alone && pp_mover_find(name, PP_OF_HOSTS) && !is_carrier(name))
        return pp_fail(PP_USAGE, "--transport %s moves memory of hosts: between GPUs of several processes use %s", name,
                       carrier_names(others, sizeof others));
    if (alone && is_carrier(name))
        return pp_fail(PP_USAGE,
                       "--transport %s joins several processes, but all workers are threads of this one, between which "
                       "the GPUs copy: leave the option out, or start the program with mpirun",
                       name);
    return PP_OK;
}

pp_status pp_carrier_choose(const struct pp_config *config, const struct pp_backend *backend,
                            const struct pp_transport *transport, const struct pp_processes *processes, int workers,
                            const struct pp_carrier **out)
{
    struct choice c = {.config = config, .backend = backend, .processes = processes, .workers = workers};
    const bool alone = processes->count == 1;
    *out = NULL;
    if (alone) {
        if (backend->queue) *out = &pp_carrier_inproc;
        return !backend->queue && is_carrier(config->transport) ? refuse_without_devices(config->transport, backend)
                                                                : PP_OK;
    }
    if (backend->queue) PP_TRY(prepare(&c));
    make_vote(&c);
    struct vote vote;
    PP_TRY(vote_together(&c, transport, &vote));
    if (vote.queue) return settle(&c, &vote, out);
    return is_carrier(config->transport) ? refuse_without_devices(config->transport, backend) : PP_OK;
}

void pp_carrier_set(struct pp_world *world, const struct pp_config *config, const struct pp_backend *backend,
                    const struct pp_carrier *carrier)
{
    world->carrier = carrier;
    for (int i = 0; backend->queue && i < world->count; i++) {
        const struct pp_device_spec spec = pp_place_device(&world->processes, config, world->count, i);
        const int n = pp_place_sharers(backend, &spec);
        if (n > world->sharers) world->sharers = n;
    }
}
