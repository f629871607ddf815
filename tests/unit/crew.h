/* SPDX-License-Identifier: Apache-2.0
 *
 * Worlds for tests: run one function as every worker of this process, a thread each.
 */
#ifndef PP_TESTS_CREW_H
#define PP_TESTS_CREW_H

#include <pthread.h>
#include <stdio.h>

#include "exec/transport.h"

enum { CREW_MAX = 16 };

typedef pp_status (*crew_fn)(struct pp_world *world, int me, void *arg);

struct crew_member {
    pthread_t thread;
    struct pp_world *world;
    crew_fn fn;
    void *arg;
    int me;
};

static inline void *crew_work(void *arg)
{
    struct crew_member *m = arg;
    const pp_status status = m->fn(m->world, m->me, m->arg);
    if (status != PP_OK) pp_world_stop(m->world, status);
    return NULL;
}

/* The first failure; its message is this thread's. workers: of the whole world. */
static inline pp_status crew_run_on(const struct pp_transport *transport, const struct pp_processes *processes,
                                    int workers, crew_fn fn, void *arg)
{
    struct crew_member members[CREW_MAX];
    struct pp_world *world;
    PP_TRY(pp_world_open(transport, processes, workers, 1, &world));
    for (int i = 0; i < world->count; i++) {
        members[i] = (struct crew_member){.world = world, .fn = fn, .arg = arg, .me = world->first + i};
        pthread_create(&members[i].thread, NULL, crew_work, &members[i]);
    }
    for (int i = 0; i < world->count; i++) pthread_join(members[i].thread, NULL);
    const pp_status status = pp_world_failure(world);
    pp_world_close(world);
    return status;
}

/* In one process. */
static inline pp_status crew_run(int workers, crew_fn fn, void *arg)
{
    static const struct pp_processes alone = {.count = 1, .on_host = 1, .hosts = 1};
    return crew_run_on(&pp_transport_inproc, &alone, workers, fn, arg);
}

#endif
