/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/fit.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/job/process.h"
#include "core/plan/workers.h"
#include "exec/place.h"

/* What a worker needs, and where. */
struct need {
    int32_t host, device; /* pp_processes.host; the device among those of the host */
    int64_t bytes, left;  /* of its arena; what its process sees left on the device */
};

/* The processor is one device. */
static int32_t device_of(const struct pp_fit_call *call, const struct pp_device_spec *spec)
{
    if (!call->backend->queue) return 0;
    return (spec->host_index * spec->workers + spec->worker) / pp_place_sharers(call->backend, spec);
}

/* needs[workers]: of this process. */
static void find_needs(const struct pp_fit_call *call, int workers, struct need *needs)
{
    const struct pp_processes *processes = call->processes;
    for (int w = 0; w < workers; w++) {
        const struct pp_device_spec spec = pp_place_device(processes, call->config, workers, w);
        const int rank = pp_worker_rank(call->job->train, processes->index * workers + w);
        const int32_t device = device_of(call, &spec);
        const bool known = w > 0 && device == needs[w - 1].device;
        needs[w] = (struct need){.host = processes->host,
                                 .device = device,
                                 .bytes = pp_arena_whole_bytes(call->job->layout->arena_bytes[rank]),
                                 .left = known ? needs[w - 1].left : call->backend->available_bytes(&spec)};
    }
}

static int by_device(const void *a, const void *b)
{
    const struct need *x = a, *y = b;
    if (x->host != y->host) return x->host < y->host ? -1 : 1;
    return (x->device > y->device) - (x->device < y->device);
}

/* Of n needs of one device. Its processes may have looked at different moments: the most that one has seen counts. */
static pp_status check_device(const struct pp_fit_call *call, const struct need *needs, int n)
{
    const double gib = 1 << 30;
    int64_t bytes = 0, left = -1;
    for (int i = 0; i < n; i++) {
        bytes += needs[i].bytes;
        if (needs[i].left > left) left = needs[i].left;
    }
    if (left < 0 || bytes <= left) return PP_OK;
    return pp_fail(call->refusal,
                   "%d worker%s of one %s need%s %.2f GiB, and it has %.2f GiB left: use more stages, more chunks, "
                   "--checkpoint, fewer rows or a smaller model",
                   n, pp_plural(n), call->backend->queue ? "GPU" : "machine", n == 1 ? "s" : "", (double)bytes / gib,
                   (double)left / gib);
}

/* The needs of all n workers, which it sorts. */
static pp_status check_all(const struct pp_fit_call *call, struct need *needs, int n)
{
    qsort(needs, (size_t)n, sizeof *needs, by_device);
    for (int first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && by_device(&needs[first], &needs[end]) == 0;) end++;
        PP_TRY(check_device(call, &needs[first], end - first));
    }
    return PP_OK;
}

pp_status pp_fit_check(const struct pp_fit_call *call, bool *refused)
{
    const int all = pp_plan_workers(call->job->train), workers = all / call->processes->count;
    struct need *needs;
    *refused = false;
    if (all % call->processes->count) return PP_OK; /* pp_world_open() refuses that */
    if (!call->backend->available_bytes) return PP_OK;
    PP_TRY(PP_NEW(&needs, all + workers));
    find_needs(call, workers, needs + all);
    /* After a failure it may still use the memory. */
    PP_TRY(call->transport->gather(needs + all, workers * (int)sizeof *needs, needs));
    const pp_status status = check_all(call, needs, all);
    *refused = status != PP_OK;
    free(needs);
    return status;
}
