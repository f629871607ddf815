/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/place.h"

#include "core/base/affinity.h"
#include "core/base/cores.h"
#include "exec/signals.h"

void pp_place_process(const struct pp_processes *processes, int64_t threads)
{
    if (processes->launched && threads > pp_affinity_count()) pp_affinity_widen();
}

/* A process that was started on too few may use others now. */
int pp_processes_cores(const struct pp_processes *processes)
{
    const int own = pp_cores_count();
    return own > processes->host_cores ? own : processes->host_cores;
}

/* Which of the usable cores; -1 = the system decides. A lone worker, or one with BLAS threads of its own, gains nothing
 * from being tied. Processes may each be given cores by their launcher; where they share all of them, each takes its
 * part. */
static int choose(const struct pp_world *world, int me, int threads, int cores)
{
    int all = world->count * world->processes.on_host, mine = me - world->first;
    if (threads > 1 || world->crowded || all == 1) return -1;
    if (all <= cores) return world->processes.host_index * world->count + mine;
    return world->count <= cores ? mine : -1;
}

void pp_place_worker(const struct pp_world *world, int me, int threads)
{
    int core = choose(world, me, threads, pp_cores_count());
    if (core >= 0) pp_cores_pin(core);
}

struct pp_device_spec pp_place_device(const struct pp_processes *processes, const struct pp_config *config, int workers,
                                      int worker)
{
    return (struct pp_device_spec){.worker = worker,
                                   .workers = workers,
                                   .host_index = processes->host_index,
                                   .on_host = processes->on_host,
                                   .threads = config->threads,
                                   .gpus = config->gpus,
                                   .precision = config->model.precision,
                                   .interrupted = pp_signals_caught,
                                   .algorithms = config->algorithms};
}

int pp_place_sharers(const struct pp_backend *backend, const struct pp_device_spec *spec)
{
    return backend->sharers ? backend->sharers(spec) : 1;
}
