/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/transport.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cores.h"
#include "core/base/launcher.h"
#include "core/plan/movers.h"

const struct pp_transport *const pp_transports[] = {
#define PP_TRANSPORT(name, joins, needs) PP_WHERE(PP_HAVE_##needs, &pp_transport_##name, )
#define PP_CARRIER(name, joins, needs, host_wait)
#include "core/plan/movers.def"
    NULL,
};

static const struct pp_transport *find(const char *name)
{
    for (int i = 0; pp_transports[i]; i++)
        if (!strcmp(pp_transports[i]->name, name)) return pp_transports[i];
    return NULL;
}

/* The first row that joins processes, or threads: of those that this build has, if there is one. */
static const struct pp_mover *preferred(bool joins_processes)
{
    const struct pp_mover *first = NULL;
    for (int i = 0; i < pp_nmovers; i++) {
        const struct pp_mover *m = &pp_movers[i];
        if (m->moves != PP_OF_HOSTS || m->joins_processes != joins_processes) continue;
        if (find(m->name)) return m;
        if (!first) first = m;
    }
    return first;
}

pp_status pp_transport_start(const char *name, const struct pp_transport **out, struct pp_processes *processes)
{
    int launched = pp_launched_processes();
    /* A carrier's name leaves open what joins the workers. */
    const struct pp_mover *asked = pp_mover_find(name, PP_OF_HOSTS);
    const struct pp_mover *mover = asked ? asked : preferred(pp_was_launched());
    const struct pp_transport *transport = find(mover->name);
    if (!transport && !asked && launched == 1) transport = &pp_transport_inproc;
    if (!transport)
        return pp_fail(PP_UNSUPPORTED,
                       "this build has no transport '%s'; build with -DPP_WITH_%s=ON, or start the program "
                       "without mpirun to run all workers as threads of one process",
                       mover->name, mover->needs);
    if (!mover->joins_processes && launched > 1)
        return pp_fail(PP_USAGE,
                       "--transport %s joins threads of one process, but %d processes were started: leave the option "
                       "out, or start the program without mpirun",
                       mover->name, launched);
    PP_TRY(transport->start(processes));
    *out = transport;
    return PP_OK;
}

static pp_status attach(struct pp_world *world)
{
    PP_TRY(pp_transport_inproc.attach(world, &world->local_state));
    if (world->remote) PP_TRY(world->transport->attach(world, &world->remote_state));
    return PP_OK;
}

static pp_status make_bells(struct pp_world *world)
{
    size_t bytes = sizeof *world->bells * (size_t)world->count;
    world->bells = aligned_alloc(_Alignof(struct pp_bell), bytes);
    if (!world->bells) return pp_fail(PP_NOMEM, "cannot allocate %zu bytes", bytes);
    memset(world->bells, 0, bytes);
    return PP_NEW(&world->scratch, world->count);
}

pp_status pp_world_open(const struct pp_transport *transport, const struct pp_processes *processes, int workers,
                        int threads, struct pp_world **out)
{
    *out = NULL;
    if (workers % processes->count)
        return pp_fail(PP_USAGE,
                       "%d worker%s (stages x tensor x context parallel x replicas) do%s not divide over %d "
                       "processes: start a number of processes that divides %d",
                       workers, pp_plural(workers), workers == 1 ? "es" : "", processes->count, workers);
    struct pp_world *world;
    PP_TRY(PP_NEW(&world, 1));
    world->transport = transport;
    world->processes = *processes;
    world->workers = workers;
    world->count = workers / processes->count;
    world->first = world->count * processes->index;
    world->remote = processes->count > 1;
    world->cores = pp_cores_count();
    const int64_t busy = (int64_t)world->count * threads;
    world->crowded = busy > world->cores || processes->on_host * busy > sysconf(_SC_NPROCESSORS_ONLN);
    pp_status status = make_bells(world);
    if (status == PP_OK) status = attach(world);
    if (status == PP_OK)
        *out = world;
    else
        pp_world_close(world);
    return status;
}

void pp_world_close(struct pp_world *world)
{
    if (!world) return;
    if (world->remote_state) world->transport->detach(world, world->remote_state);
    if (world->local_state) pp_transport_inproc.detach(world, world->local_state);
    for (int i = 0; world->scratch && i < world->count; i++) free(world->scratch[i].memory);
    free(world->scratch);
    free(world->bells);
    free(world);
}

pp_status pp_world_scratch(struct pp_world *world, int me, int64_t bytes, void *out)
{
    struct pp_scratch *scratch = &world->scratch[me - world->first];
    if (scratch->bytes < bytes) {
        free(scratch->memory);
        scratch->bytes = 0;
        PP_TRY(pp_alloc_bytes(&scratch->memory, 1, (size_t)bytes));
        scratch->bytes = bytes;
    }
    memcpy(out, &scratch->memory, sizeof scratch->memory);
    return PP_OK;
}

static bool is_remote(const struct pp_world *world, int worker)
{
    return worker < world->first || worker >= world->first + world->count;
}

static const struct pp_transport *route(const struct pp_world *world, const struct pp_request *request)
{
    return request->remote ? world->transport : &pp_transport_inproc;
}

pp_status pp_send(struct pp_world *world, int src, int dst, int kind, const void *buffer, int64_t bytes,
                  struct pp_request *request)
{
    *request = (struct pp_request){.remote = is_remote(world, dst),
                                   .src = src,
                                   .dst = dst,
                                   .kind = kind,
                                   .buffer = (void *)(uintptr_t)buffer,
                                   .bytes = bytes};
    return route(world, request)->send(world, request);
}

pp_status pp_recv(struct pp_world *world, int src, int dst, int kind, void *buffer, int64_t bytes,
                  struct pp_request *request)
{
    *request = (struct pp_request){.receive = true,
                                   .remote = is_remote(world, src),
                                   .src = src,
                                   .dst = dst,
                                   .kind = kind,
                                   .buffer = buffer,
                                   .bytes = bytes};
    return route(world, request)->recv(world, request);
}

pp_status pp_test(struct pp_world *world, struct pp_request *request)
{
    if (request->done) return PP_OK;
    return route(world, request)->test(world, request);
}

static pp_status look_at_request(struct pp_world *world, void *at, bool *done)
{
    struct pp_request *request = at;
    PP_TRY(pp_test(world, request));
    *done = request->done;
    return PP_OK;
}

pp_status pp_finish(struct pp_world *world, int me, struct pp_request *request)
{
    return pp_world_await(world, me, look_at_request, request);
}

/* Where the message lies for the transport: a short one often comes from a stack. */
static void *letter_of(struct pp_world *world, int me, void *buffer, int64_t bytes)
{
    return bytes <= PP_LETTER ? world->scratch[me - world->first].letter : buffer;
}

pp_status pp_send_now(struct pp_world *world, int src, int dst, int kind, const void *buffer, int64_t bytes)
{
    struct pp_request request;
    void *letter = letter_of(world, src, (void *)(uintptr_t)buffer, bytes);
    if (letter != buffer && bytes) memcpy(letter, buffer, (size_t)bytes);
    PP_TRY(pp_send(world, src, dst, kind, letter, bytes, &request));
    return pp_finish(world, src, &request);
}

pp_status pp_recv_now(struct pp_world *world, int src, int dst, int kind, void *buffer, int64_t bytes)
{
    struct pp_request request;
    void *letter = letter_of(world, dst, buffer, bytes);
    PP_TRY(pp_recv(world, src, dst, kind, letter, bytes, &request));
    PP_TRY(pp_finish(world, dst, &request));
    if (letter != buffer && bytes) memcpy(buffer, letter, (size_t)bytes);
    return PP_OK;
}
