/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/fit.h"

#include <limits.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/job/process.h"
#include "core/plan/workers.h"

/* Where a process is. */
struct seat {
    int32_t host, host_index; /* pp_processes.host, .host_index */
};

/* What a process tells of its devices. */
struct verdict {
    int32_t refuses;
    char message[256];
};

struct fitting {
    const struct pp_fit_call *call;
    struct seat *seats; /* [processes] */
    int workers;        /* of each process */
    int sharers;        /* workers of a host that share a device; all share the processor */
};

static struct pp_device_spec spec_of(const struct fitting *f, int worker)
{
    const struct pp_config *config = f->call->config;
    return (struct pp_device_spec){.worker = worker,
                                   .workers = f->workers,
                                   .host_index = f->call->processes->host_index,
                                   .on_host = f->call->processes->on_host,
                                   .threads = config->threads,
                                   .gpus = config->gpus,
                                   .precision = config->precision};
}

/* Which of its host's devices a worker has: they are given out in the order of workers. */
static int device_of(const struct fitting *f, const struct seat *seat, int worker)
{
    return (seat->host_index * f->workers + worker) / f->sharers;
}

/* What the workers of all processes take of the device of this process's `worker`, and how many they are. */
static int64_t needed(const struct fitting *f, int worker, int *workers)
{
    const struct pp_job *job = f->call->job;
    const struct seat *here = &f->seats[f->call->processes->index];
    const int device = device_of(f, here, worker);
    int64_t bytes = 0;
    *workers = 0;
    for (int p = 0; p < f->call->processes->count; p++)
        for (int w = 0; w < f->workers && f->seats[p].host == here->host; w++) {
            if (device_of(f, &f->seats[p], w) != device) continue;
            const int rank = pp_worker_rank(job->train, p * f->workers + w);
            bytes += pp_arena_whole_bytes(job->layout->arena_bytes[rank]);
            ++*workers;
        }
    return bytes;
}

static pp_status check_device(const struct fitting *f, int worker)
{
    const struct pp_backend *backend = f->call->backend;
    const struct pp_device_spec spec = spec_of(f, worker);
    const double gib = 1 << 30;
    int workers;
    const int64_t bytes = needed(f, worker, &workers), left = backend->available_bytes(&spec);
    if (left < 0 || bytes <= left) return PP_OK;
    return pp_fail(f->call->refusal,
                   "%d worker%s of one %s need%s %.2f GiB, and it has %.2f GiB left: use more stages, more chunks, "
                   "--checkpoint, fewer rows or a smaller model",
                   workers, pp_plural(workers), backend->queue ? "GPU" : "machine", workers == 1 ? "s" : "",
                   (double)bytes / gib, (double)left / gib);
}

/* The devices of this process, each once. */
static pp_status check_own(const struct fitting *f)
{
    const struct seat *here = &f->seats[f->call->processes->index];
    for (int w = 0; w < f->workers; w++)
        if (w == 0 || device_of(f, here, w) != device_of(f, here, w - 1)) PP_TRY(check_device(f, w));
    return PP_OK;
}

/* One that refuses refuses for all. */
static pp_status tell(const struct pp_fit_call *call, pp_status own, bool *refused)
{
    struct verdict mine = {.refuses = own != PP_OK}, *all;
    if (own != PP_OK) snprintf(mine.message, sizeof mine.message, "%s", pp_message());
    PP_TRY(PP_NEW(&all, call->processes->count));
    PP_TRY(call->transport->gather(&mine, sizeof mine, all)); /* after a failure it may still write into `all` */
    int p = 0;
    while (p < call->processes->count && !all[p].refuses) p++;
    *refused = p < call->processes->count;
    const pp_status status = *refused ? pp_fail(call->refusal, "%s", all[p].message) : PP_OK;
    free(all);
    return status;
}

static int sharers_of(const struct fitting *f)
{
    const struct pp_backend *backend = f->call->backend;
    const struct pp_device_spec spec = spec_of(f, 0);
    if (!backend->queue) return INT_MAX;
    return backend->sharers ? backend->sharers(&spec) : 1;
}

pp_status pp_fit_check(const struct pp_fit_call *call, bool *refused)
{
    const struct pp_processes *processes = call->processes;
    const struct seat seat = {.host = processes->host, .host_index = processes->host_index};
    const int workers = pp_plan_workers(call->job->train);
    struct fitting f = {.call = call, .workers = workers / processes->count};
    *refused = false;
    if (!call->backend->available_bytes || workers % processes->count) return PP_OK; /* pp_world_open() refuses that */
    f.sharers = sharers_of(&f);
    PP_TRY(PP_NEW(&f.seats, processes->count));
    /* Where this has ended, no process has memory of the configuration before. (After a failure: as in tell().) */
    PP_TRY(call->transport->gather(&seat, sizeof seat, f.seats));
    const pp_status status = tell(call, check_own(&f), refused);
    free(f.seats);
    return status;
}
