/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/link_profile.h"

#include <time.h>

/* A process that waits the usual way looks for its message all the time, and would take cycles from what is
 * measured. */
static const struct timespec nap = {.tv_nsec = 20 * 1000 * 1000};

/* Signals are the first process's to answer: it stores what it has, and takes the others along. */
static pp_status sleep_until_told(struct pp_world *world, int me)
{
    char word;
    struct pp_request request;
    PP_TRY(pp_recv(world, 0, me, PP_MESSAGE_CONTROL, &word, sizeof word, &request));
    for (;;) {
        PP_TRY(pp_test(world, &request));
        if (request.done) return PP_OK;
        nanosleep(&nap, NULL);
    }
}

pp_status pp_link_profile_alone(const struct pp_transport *transport, const struct pp_processes *processes,
                                pp_status (*work)(void *arg), void *arg)
{
    struct pp_world *world;
    PP_TRY(pp_world_open(transport, processes, processes->count, 1, &world));
    pp_status status = world->first > 0 ? sleep_until_told(world, world->first) : work(arg);
    for (int i = 1; world->first == 0 && i < world->workers && status == PP_OK; i++)
        status = pp_send_now(world, 0, i, PP_MESSAGE_CONTROL, "", 1);
    pp_world_close(world);
    return status;
}
